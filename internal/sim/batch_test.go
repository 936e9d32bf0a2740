package sim

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A site is a batch system whose elements are programs that do nothing until they are told.
type site struct {
	t *testing.T
	w *World
	b *batch
}

func newSite(t *testing.T, cfg BatchConfig) *site {
	t.Helper()
	w := &World{cfg: Config{Job: &job.Job{}}}
	w.checks.world = w
	s := &site{t: t, w: w}
	s.b = newBatch(w, cfg, rand.New(rand.NewPCG(1, 1)))
	s.b.start = func(a *array, i int) {
		a.elements[i].x = &worker{world: w, at: launcher.Worker{Tag: a.tag, Element: i}, element: a, node: a.elements[i].node}
	}
	s.b.term = func(*worker) {}
	s.b.kill = func(x *worker, how launcher.Cause) {
		s.b.ended(x.element, x.at.Element, x, launcher.End{Cause: how, Signal: 9})
	}
	return s
}

// until lets time pass.
func (s *site) until(at time.Duration) {
	for len(s.w.queue.list) > 0 && s.w.queue.list[0].at <= at {
		ev := s.w.queue.pop()
		s.w.now = ev.at
		ev.to.act(&ev)
	}
	s.w.now = at
}

func (s *site) submit(tag string, count int, cpu int64) *array {
	s.t.Helper()
	a, err := s.b.submit(tag, count, 1, scheduler.NewResources(map[string]int64{"cpu": cpu}), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// counts is how many elements the listing has in each state.
func (s *site) counts() (pending, running, ended, unknown int) {
	for _, e := range s.b.list().Elements {
		n := e.Last - e.First + 1
		switch e.State {
		case launcher.Pending:
			pending += n
		case launcher.Running:
			running += n
		case launcher.Ended:
			ended += n
		default:
			unknown += n
		}
	}
	return
}

func (s *site) expect(pending, running, ended, unknown int) {
	s.t.Helper()
	p, r, e, u := s.counts()
	if p != pending || r != running || e != ended || u != unknown {
		s.t.Errorf("at %v: %d pending, %d running, %d ended, %d unknown; want %d, %d, %d, %d", s.w.now, p, r, e, u, pending, running, ended, unknown)
	}
}

func plain() BatchConfig {
	return BatchConfig{Nodes: 2, CPU: 4000, Cycle: time.Second, KillWait: 30 * time.Second, MinJobAge: 5 * time.Minute, FailSeen: time.Minute}
}

func TestElementsStartWhereThereIsRoom(t *testing.T) {
	s := newSite(t, plain())
	a := s.submit("1", 3, 3000) // one on each node
	s.expect(3, 0, 0, 0)
	s.until(10 * time.Second)
	s.expect(1, 2, 0, 0)
	s.b.ended(a, 0, a.elements[0].x, launcher.End{})
	s.until(20 * time.Second)
	s.expect(0, 2, 1, 0)
	s.until(10 * time.Minute)
	s.expect(0, 2, 0, 0) // what has ended is listed for a while only
}

func TestAThrottleBoundsWhatRuns(t *testing.T) {
	s := newSite(t, plain())
	a := s.submit("1", 8, 1000)
	a.throttle = 2
	s.until(10 * time.Second)
	s.expect(6, 2, 0, 0)
}

func TestHigherPriorityGoesFirst(t *testing.T) {
	s := newSite(t, plain())
	s.submit("low", 2, 4000)
	s.submit("high", 2, 4000).priority = 5
	s.until(10 * time.Second)
	for _, e := range s.b.list().Elements {
		if (e.State == launcher.Running) != (e.Tag == "high") {
			t.Errorf("%s is %v", e.Tag, e.State)
		}
	}
}

func TestATimeLimitEndsAnElement(t *testing.T) {
	cfg := plain()
	cfg.Limit = time.Minute
	s := newSite(t, cfg)
	s.submit("1", 1, 1000)
	s.until(30 * time.Second)
	if left := s.b.list().Elements[0].Left; left <= 20*time.Second || left > 35*time.Second {
		t.Errorf("%v are left", left)
	}
	s.until(65 * time.Second)
	s.expect(0, 0, 0, 1) // it is being ended
	s.until(2 * time.Minute)
	if e := s.b.list().Elements[0]; e.End.Cause != launcher.TimeLimit {
		t.Errorf("it ended by %v", e.End.Cause)
	}
}

func TestANodeFailureIsSeenLate(t *testing.T) {
	s := newSite(t, plain())
	s.submit("1", 1, 1000)
	s.until(10 * time.Second)
	s.b.fail(1)
	s.until(30 * time.Second)
	s.expect(0, 1, 0, 0)
	s.until(2 * time.Minute)
	s.expect(0, 0, 0, 1)
	s.submit("2", 1, 4000)
	s.submit("3", 1, 4000)
	s.until(3 * time.Minute)
	s.expect(1, 1, 0, 1) // nothing starts there
	s.b.repair(1)
	s.until(4 * time.Minute)
	s.expect(0, 2, 0, 1)
}

func TestWhatIsCancelledWhilePendingLeavesNoTrace(t *testing.T) {
	s := newSite(t, plain())
	a := s.submit("1", 4, 4000)
	s.until(10 * time.Second)
	s.b.cancel(a, []int{0, 3}, launcher.CancelledByOwner)
	s.expect(1, 1, 0, 1)
	s.until(time.Minute)
	s.expect(0, 2, 1, 0)
	if l := s.b.account([]string{a.id}); len(l.Elements) != 3 {
		t.Errorf("the accounts have %d rows", len(l.Elements))
	}
}

func TestPreemption(t *testing.T) {
	s := newSite(t, plain())
	s.submit("1", 1, 1000)
	s.until(10 * time.Second)
	s.b.preempt(1)
	s.until(time.Minute)
	if e := s.b.list().Elements[0]; e.End.Cause != launcher.Preempted {
		t.Errorf("it ended by %v (%v)", e.End.Cause, e.State)
	}
}

func TestLimitsAndRequestsThatNeverFitAreRefused(t *testing.T) {
	cfg := plain()
	cfg.MaxSubmitted, cfg.MaxArray = 5, 4
	s := newSite(t, cfg)
	s.submit("1", 3, 1000)
	for _, c := range []struct {
		count   int
		cpu     int64
		exclude []int
		want    launcher.RefusalKind
	}{{3, 1000, nil, launcher.RefusedForLimits}, {5, 1000, nil, launcher.RefusedForLimits}, {1, 5000, nil, launcher.RefusedForGood}, {1, 1000, []int{1, 2}, launcher.RefusedForGood}} {
		_, err := s.b.submit("2", c.count, 1, scheduler.NewResources(map[string]int64{"cpu": c.cpu}), c.exclude)
		var r *launcher.Refusal
		if !errors.As(err, &r) || r.Kind != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAControllerThatLostItsStateGivesIdsToOthers(t *testing.T) {
	s := newSite(t, plain())
	a := s.submit("1", 2, 1000)
	s.until(10 * time.Second)
	s.b.forgetAll()
	s.expect(0, 0, 0, 0)
	if b := s.b.find(a.id); b == nil || !b.foreign {
		t.Errorf("%s is %+v", a.id, b)
	}
	s.until(3 * time.Hour)
	if s.b.find(a.id) != nil {
		t.Errorf("%s is known for ever", a.id)
	}
}
