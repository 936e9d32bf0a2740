package scheduler_test

import (
	"testing"

	. "example.org/daisy/scheduler"
)

func TestAcquireAndReleaseDoNotAllocate(t *testing.T) {
	s := mustNew(Single(line("a", 1e6)))
	s.Acquire(0, Holder{}) // makes room in the table of leases
	h, _ := s.Acquire(0, Holder{})
	if n := testing.AllocsPerRun(1000, func() {
		s.Release(h.Lease, Ending{Outcome: Success})
		h, _ = s.Acquire(0, Holder{})
	}); n != 0 {
		t.Errorf("%v allocations a block", n)
	}
}

func TestALeaseIsNeverReused(t *testing.T) {
	s := mustNew(Single(line("a", 1000)))
	last := Lease(0)
	for {
		h, ok := s.Acquire(0, Holder{})
		if !ok {
			break
		}
		if h.Lease <= last {
			t.Fatalf("lease %d after %d", h.Lease, last)
		}
		last = h.Lease
		s.Release(h.Lease, Ending{Outcome: Success})
		if v := s.Release(h.Lease, Ending{Outcome: Failed}); v != Stale {
			t.Fatalf("a lease that is over: %v", v)
		}
	}
	for _, l := range []Lease{0, 1, ^Lease(0)} {
		if _, ok := s.Lookup(l); ok || s.Release(l, Ending{}) != Stale {
			t.Errorf("lease %d is current", l)
		}
	}
}

func TestARetryPrefersAnotherNode(t *testing.T) {
	s := mustNew(Single(line("a", 2)))
	a, _ := s.Acquire(0, Holder{Worker: 1, Node: 1})
	b, _ := s.Acquire(0, Holder{Worker: 2, Node: 2})
	s.Release(a.Lease, Ending{Outcome: Lost})
	s.Release(b.Lease, Ending{Outcome: Lost})
	if h, _ := s.Acquire(0, Holder{Worker: 3, Node: 1}); h.Block != b.Block || h.Attempt != 2 {
		t.Errorf("node 1 got %+v back", h)
	}
}

func TestManyRetriesKeepTheirOrder(t *testing.T) {
	s := mustNew(Single(line("a", 1000)))
	var out []Lease
	for range 1000 {
		h, _ := s.Acquire(0, Holder{})
		out = append(out, h.Lease)
	}
	for _, l := range out {
		s.Release(l, Ending{Outcome: Lost})
	}
	for want := range int64(1000) {
		h, ok := s.Acquire(0, Holder{})
		if !ok || h.Block != want {
			t.Fatalf("got block %d %v, want %d", h.Block, ok, want)
		}
		if want%10 == 0 {
			s.Release(h.Lease, Ending{Outcome: Returned}) // to the end of the retries
		}
	}
}

func TestARetryTakenFromTheEndOfTheListComesBackThere(t *testing.T) {
	s := mustNew(Single(line("a", 2)))
	a, _ := s.Acquire(0, Holder{Worker: 1, Node: 1})
	b, _ := s.Acquire(0, Holder{Worker: 2, Node: 2})
	s.Release(a.Lease, Ending{Outcome: Lost})
	s.Release(b.Lease, Ending{Outcome: Lost})
	b2, _ := s.Acquire(0, Holder{Worker: 3, Node: 1})
	s.Release(b2.Lease, Ending{Outcome: Lost})
	for _, want := range []Handout{a, b} {
		if h, ok := s.Acquire(0, Holder{}); !ok || h.Block != want.Block {
			t.Fatalf("got %+v %v, want block %d", h, ok, want.Block)
		}
	}
}

func TestOfHeldBlocksThatIsReadyWhichIsUnheld(t *testing.T) {
	for want := range int64(3) {
		s := mustNew(Single(line("a", 3)))
		for range 3 {
			h, _ := s.Acquire(0, Holder{})
			s.Release(h.Lease, Ending{Outcome: Lost, Hold: true})
		}
		s.Unhold(0, want)
		if h, ok := s.Acquire(0, Holder{}); !ok || h.Block != want || h.Attempt != 2 {
			t.Errorf("unheld block %d, got %+v %v", want, h, ok)
		}
		if h, ok := s.Acquire(0, Holder{}); ok {
			t.Errorf("got %+v, which is held", h)
		}
	}
}

func TestARetryTakenFromTheMiddleLeavesTheOthers(t *testing.T) {
	s := mustNew(Single(line("a", 3)))
	var out []Handout
	for node := range uint32(3) {
		h, _ := s.Acquire(0, Holder{Worker: node + 1, Node: 1 + node%2}) // the second of three on another node
		out = append(out, h)
	}
	for _, h := range out {
		s.Release(h.Lease, Ending{Outcome: Lost})
	}
	s.Acquire(0, Holder{Worker: 4, Node: 1})
	for _, want := range []int64{out[0].Block, out[2].Block} {
		if h, ok := s.Acquire(0, Holder{}); !ok || h.Block != want {
			t.Fatalf("got %+v %v, want block %d", h, ok, want)
		}
	}
	if h, ok := s.Acquire(0, Holder{}); ok {
		t.Errorf("got %+v, which is leased", h)
	}
}
