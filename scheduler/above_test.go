package scheduler_test

import (
	"testing"

	. "example.org/daisy/scheduler"
)

// What became ready lies far apart in a large task, and is found from any number on.
func TestBlocksAboveANumberAreFoundInALargeTask(t *testing.T) {
	const n = 300_000 // three levels of the tree of ready groups
	one := [][2]int64{{0, 1}}
	task := plainTask{total: [][2]int64{{0, n}}, read: one, write: one, fit: "valid"}
	p := plainPipeline{tasks: []plainTask{task, task}, edges: [][2]int{{0, 1}}}
	s := p.scheduler(t)
	ready := map[int64]bool{3: true, 70: true, 9000: true, 270_000: true, n - 1: true}
	for range n {
		h, ok := s.Acquire(0, Holder{Worker: 1})
		if !ok {
			t.Fatal("a root is missing")
		}
		if ready[h.Block] {
			s.Release(h.Lease, Ending{Outcome: Success})
		}
	}
	drain(s, 1000)
	for _, c := range []struct {
		from, want int64
	}{{n, -1}, {270_001, n - 1}, {270_001, -1}, {128, 9000}, {9000, 270_000}, {71, -1}, {1, 70}, {0, 3}, {0, -1}} {
		h, ok := s.AcquireAbove(1, c.from, Holder{Worker: 2})
		if got := map[bool]int64{true: h.Block, false: -1}[ok]; got != c.want {
			t.Errorf("from %d on: %d, want %d", c.from, got, c.want)
		}
	}
	if t.Failed() {
		return
	}
	if _, ok := s.Acquire(1, Holder{Worker: 2}); ok {
		t.Error("all were handed out, and one came once more")
	}
}
