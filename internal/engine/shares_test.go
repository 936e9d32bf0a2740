package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

// queuedAhead is a task of which arrays may be larger than its share of 8.
func queuedAhead(blocks int64, id string) job.Task {
	task := taskOf(blocks, id)
	task.Options = map[string][]string{"array_limit": {"20"}}
	return task
}

// there counts the elements of a submission in a state.
func (c *cluster) there(tag string, state launcher.State) (n int) {
	for _, e := range c.all() {
		if e.Tag == tag && e.State == state {
			n++
		}
	}
	return n
}

// throttles are the calls that set one, in order.
func (c *cluster) throttles() (list []string) {
	for _, call := range c.q.Calls() {
		if strings.HasPrefix(call, "throttle ") {
			list = append(list, call)
		}
	}
	return list
}

// withBudget makes the run anew, with so many CPUs.
func (c *cluster) withBudget(n float64) {
	cfg := c.e.cfg
	cfg.Unlimited, cfg.Budget = false, cpus(n)
	var err error
	if c.e, err = New(cfg); err != nil {
		c.t.Fatal(err)
	}
}

func TestMoreThanTheShareWaitBehindAThrottle(t *testing.T) {
	c := newCluster(t, nil, queuedAhead(400, "a"))
	c.run(30 * time.Second)
	if len(c.submits) != 2 || c.submits[0].Throttle != 0 || c.submits[1].Count != 20 || c.submits[1].Throttle != 4 {
		t.Fatalf("submissions %+v %+v", c.submits[0], c.submits[len(c.submits)-1])
	}
	if runs, waits := c.there("2", launcher.Running), c.there("2", launcher.Pending); runs != 4 || waits != 16 || c.e.fleet.Slots(0) != 8 {
		t.Errorf("%d run, %d wait, %d count", runs, waits, c.e.fleet.Slots(0))
	}
	c.crash("2.0", launcher.End{Cause: launcher.TimeLimit})
	c.run(c.now + 20*time.Second)
	if runs := c.there("2", launcher.Running); runs != 4 || len(c.submits) != 2 || c.e.fleet.Slots(0) != 8 {
		t.Errorf("after the end of one %d run, of %d submissions, and %d count", runs, len(c.submits), c.e.fleet.Slots(0))
	}
	// One that was not of this array: who waits takes its share, by a higher throttle.
	c.crash("1.0", launcher.End{Cause: launcher.TimeLimit})
	c.run(c.now + 30*time.Second)
	if got := c.throttles(); !slices.Equal(got, []string{"throttle 102 5"}) || len(c.submits) != 2 {
		t.Errorf("throttles %q, %d submissions", got, len(c.submits))
	}
	if runs := c.there("2", launcher.Running); runs != 5 || c.e.fleet.Slots(0) != 8 {
		t.Errorf("then %d run, and %d count", runs, c.e.fleet.Slots(0))
	}
	c.ends(time.Hour, RunDone)
}

func TestWhatWaitsBehindAThrottleIsSaid(t *testing.T) {
	c := newCluster(t, nil, queuedAhead(400, "a"))
	c.starts = func(tag string, _ int) time.Duration {
		if tag == "1" {
			return 2 * time.Second
		}
		return never
	}
	c.run(30 * time.Second)
	for i := range 4 {
		c.crash(fmt.Sprint("1.", i), launcher.End{Cause: launcher.TimeLimit})
	}
	c.run(c.now + time.Minute)
	c.waits("waiting for 8 pending workers: Priority (others are ahead in the queue); 12 workers more queued for when there is room")
}

func TestTheLimitsHoldForWhatWaitsBehindAThrottle(t *testing.T) {
	c := newCluster(t, nil, queuedAhead(400, "a"))
	c.e.cfg.Job.MaxSubmitted = 11
	c.run(30 * time.Second)
	if len(c.submits) != 2 || c.submits[1].Count != 7 || c.submits[1].Throttle != 4 {
		t.Errorf("of 11 there are %+v", c.submits[len(c.submits)-1])
	}
	c = newCluster(t, nil, queuedAhead(15, "a")) // of which 4 are done, and 1 to 4 run
	c.run(14 * time.Second)
	if n := c.submits[len(c.submits)-1].Count; len(c.submits) != 2 || n < 7 || n > 10 {
		t.Errorf("for 7 to 10 blocks there are %+v", c.submits[len(c.submits)-1])
	}
}

// movesItsShare is a run with 9 CPUs in which task a had 8 workers, of which none runs any more, and 12 behind them, in array 103, while b,
// which has 1, could use 3 more.
func movesItsShare(t *testing.T) *cluster {
	a, b := queuedAhead(400, "a"), taskOf(900, "b")
	a.Priority, b.Env, b.MaxWorkers = 1, []string{"B=1"}, 1
	c := newCluster(t, nil, a, b)
	c.withBudget(9)
	c.starts = func(tag string, _ int) time.Duration {
		if tag == "3" {
			return never
		}
		return 2 * time.Second
	}
	c.run(4 * time.Minute)
	for i := range 4 {
		c.crash(fmt.Sprint("1.", i), launcher.End{Cause: launcher.TimeLimit})
	}
	c.run(c.now + time.Minute)
	if got := c.throttles(); got == nil || got[len(got)-1] != "throttle 103 8" {
		t.Fatalf("throttles %q", got)
	}
	c.apply(Event{Kind: EventSet, Set: &Setting{Key: SetMaxWorkers, Task: 1, N: 4, By: "ada"}})
	return c
}

func TestAShareMovesByALowerThrottle(t *testing.T) {
	c := movesItsShare(t)
	before := len(c.throttles())
	c.run(c.now + 9*time.Minute - 30*time.Second) // they ended a minute ago, and have waited for longer
	if len(c.submits) != 3 || len(c.throttles()) != before {
		t.Fatalf("before its patience was over: %+v, %q", c.submits, c.throttles())
	}
	c.run(c.now + 5*time.Minute)
	if got := c.throttles()[before:]; len(got) == 0 || got[len(got)-1] != "throttle 103 5" {
		t.Errorf("throttles %q", got)
	}
	if got := c.there("3", launcher.Pending); got != 20 {
		t.Errorf("%d of 20 keep their place in the queue", got)
	}
	if got := c.e.tasks[1].joined; got != 4 {
		t.Errorf("b has %d workers: %q", got, c.q.Calls())
	}
	// The new throttle was seen before anything was submitted in its place.
	calls := c.q.Calls()
	lowered := slices.Index(calls, "throttle 103 5")
	next := slices.IndexFunc(calls[lowered:], func(s string) bool { return strings.HasPrefix(s, "submit ") })
	if next < 0 || !slices.Contains(calls[lowered:lowered+next], "list") {
		t.Errorf("calls %q", calls[lowered:])
	}
	c.starts = func(string, int) time.Duration { return 2 * time.Second }
	for i := range 20 {
		c.start("3", i, 1)
	}
	c.ends(3*time.Hour, RunDone)
}

// TestAThrottleThatIsNotInForceFreesNothing: it was called for, and the system has the old one still.
func TestAThrottleThatIsNotInForceFreesNothing(t *testing.T) {
	c := movesItsShare(t)
	c.q.CannotThrottle = errors.New("Access/permission denied")
	for range 15 * 60 {
		c.run(c.now + time.Second)
		if c.there("3", launcher.Pending) == 20 && len(c.submits) > 3 {
			t.Fatalf("at %v a share was given away that its array can take: %q", c.now, tail(c.q.Calls(), 10))
		}
	}
	c.mustSay("how many workers of submission 3 run at once cannot be changed")
	if got := c.there("3", launcher.Pending); got != 5 {
		t.Errorf("%d of 20 are left, want those of the share", got)
	}
	if got := c.e.tasks[1].joined; got != 4 {
		t.Errorf("b has %d workers: %q", got, c.q.Calls())
	}
}

func TestAResumeKnowsTheShareOfAnArray(t *testing.T) {
	c := movesItsShare(t)
	c.run(c.now + 15*time.Minute)
	n := c.resumed(c.e.cfg.Job.Tasks...)
	cfg := n.e.cfg
	cfg.Unlimited, cfg.Budget = false, cpus(9)
	past := NewPast(cfg.Pipeline)
	for i := range n.before {
		if _, _, err := past.Add(&n.before[i]); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Past = past
	var err error
	if n.e, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	n.starts = func(string, int) time.Duration { return never }
	n.run(5 * time.Minute)
	if got := n.e.fleet.Slots(0); got != 5 {
		t.Errorf("%d count, want 5", got)
	}
	if got := n.there("3", launcher.Pending); got != 20 {
		t.Errorf("%d of 20 keep their place", got)
	}
}

// TestWhatWaitsBehindAThrottleGoesWhenNothingIsLeft: it holds nothing, and would only start for nothing.
func TestWhatWaitsBehindAThrottleGoesWhenNothingIsLeft(t *testing.T) {
	a, b := queuedAhead(60, "a"), taskOf(200, "b")
	b.Env, b.MaxWorkers = []string{"B=1"}, 1
	c := newCluster(t, nil, a, b)
	c.run(10 * time.Minute)
	if got := c.e.sched.Tally(0); got.Success != 60 {
		t.Fatalf("a: %+v", got)
	}
	started := 0
	for _, a := range c.agents {
		if c.e.launchedAs(a.at).task == 0 {
			started++
		}
	}
	if started != 8 {
		t.Errorf("%d workers of a were started, want 8", started)
	}
	for _, tag := range []string{"1", "2", "3"} {
		for _, e := range c.all() {
			if e.Tag == tag && e.State == launcher.Pending && c.e.launchedAs(launcher.Worker{Tag: tag, Element: e.First}).task == 0 {
				t.Errorf("element %d of %s waits for nothing", e.First, tag)
			}
		}
	}
	c.ends(2*time.Hour, RunDone)
}
