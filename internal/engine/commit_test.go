package engine

import (
	"strings"
	"testing"

	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// Whether a commit is urgent is what shares one fsync among many results, and what keeps nobody waiting for it.
func TestACommitIsUrgentOnlyIfSomebodyWaitsForIt(t *testing.T) {
	release := func(seq uint64, lease scheduler.Lease) Event {
		return Event{Kind: EventRelease, Session: 1, Seq: seq, Epoch: 1, Lease: lease, Use: Use{WallNanos: 1e6}}
	}
	acquire := Event{Kind: EventAcquire, Session: 1, Request: 9, N: 1}
	for name, c := range map[string]struct {
		blocks int64
		events []Event // the last one wants the commit
		urgent bool
	}{
		"a result, and its worker has more to do":   {9, []Event{release(1, 1)}, false},
		"a result, and its worker waits for blocks": {1, []Event{acquire, release(1, 1)}, true},
		"a result of a worker that leaves":          {9, []Event{{Kind: EventLeaving, Session: 1}, release(1, 1)}, true},
		"a result in a run that is stopped":         {9, []Event{{Kind: EventStop, Stop: StopDrain}, release(1, 1)}, true},
		"a worker to be asked for": {9, []Event{{Kind: EventStatus, Status: &launcher.Status{Worker: launcher.Worker{Tag: "1"}, State: launcher.Ended}},
			{Kind: EventDetach, Session: 1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bool
			m := newMill(t, 1, c.blocks, true, func(m *mill, w launcher.Worker) { m.joins(w) })
			m.served = func(m *mill, _ launcher.Worker, _ SessionID, l scheduler.Lease) {
				for i := range c.events {
					if c.events[i].Lease == 1 {
						c.events[i].Lease = l
					}
				}
			}
			m.until = func() bool { return len(m.todo) == 0 }
			m.run()
			for i := range c.events {
				m.e.Apply(m.now, &c.events[i], &m.fx)
				got = nil
				for _, f := range m.fx.List {
					if f.Kind == EffectCommit {
						got = append(got, f.Urgent)
					}
				}
				m.fx.Reset()
			}
			if len(got) != 1 || got[0] != c.urgent {
				t.Errorf("commits asked for, urgent or not: %v; want one, urgent %v", got, c.urgent)
			}
		})
	}
}

// A commit may cover thousands of results: they are done in portions, so that nobody waits long for the engine.
func TestACommitOfManyResultsIsDoneInPortions(t *testing.T) {
	const results = 3*drainAtOnce + 1
	m := newMill(t, 1, 2*results, true, func(m *mill, w launcher.Worker) { m.joins(w) })
	var leases []scheduler.Lease
	m.served = func(_ *mill, _ launcher.Worker, _ SessionID, l scheduler.Lease) { leases = append(leases, l) }
	m.until = func() bool { return len(m.todo) == 0 }
	m.run()
	apply := func(ev Event) (tracked int) {
		m.fx.Reset()
		m.e.Apply(m.now, &ev, &m.fx)
		for _, f := range m.fx.List {
			switch f.Kind {
			case EffectAppend:
				m.appended++
			case EffectTrack:
				tracked++
			case EffectBlocks:
				leases = append(leases, f.Handouts[0].Lease)
			}
		}
		return tracked
	}
	for n := range results {
		apply(Event{Kind: EventRelease, Session: 1, Seq: uint64(n + 1), Epoch: 1, Lease: leases[n]})
		apply(Event{Kind: EventAcquire, Session: 1, Request: uint64(n + 2), N: 1})
	}
	portion := apply(Event{Kind: EventCommitted, UpTo: m.appended})
	for all := portion; ; all += portion {
		if portion < 1 || portion > drainAtOnce {
			t.Fatalf("a portion of %d results, want at most %d", portion, drainAtOnce)
		}
		if !m.e.More() {
			if all != results {
				t.Errorf("%d results were counted, want %d", all, results)
			}
			return
		}
		portion = apply(Event{Kind: EventTick})
	}
}

func TestAWorkerThatAsksWithoutEndLosesItsConnection(t *testing.T) {
	m := newMill(t, 1, 1, true, func(m *mill, w launcher.Worker) { m.joins(w) })
	m.served = func(*mill, launcher.Worker, SessionID, scheduler.Lease) {}
	m.until = func() bool { return len(m.todo) == 0 }
	m.run()
	for n := range 1000 {
		m.e.Apply(m.now, &Event{Kind: EventAcquire, Session: 1, Request: uint64(n), N: 1}, &m.fx)
		for _, f := range m.fx.List {
			if f.Kind == EffectClose && strings.Contains(f.Text, "too many requests") {
				if n != 1+maxRequests {
					t.Errorf("closed at %d requests without an answer, want %d", n, 1+maxRequests)
				}
				return
			}
		}
		m.fx.Reset()
	}
	t.Error("a thousand requests without an answer are kept")
}
