package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

func TestABadNodeIsKeptFromPendingWorkers(t *testing.T) {
	for _, refused := range []bool{false, true} {
		c := newCluster(t, nil, taskOf(40, "a"))
		if refused {
			c.q.CannotExclude = fmt.Errorf("Access denied")
		}
		c.node = func(tag string, i int) string {
			if tag == "1" && i < 2 {
				return "bad"
			}
			return "n1"
		}
		c.starts = func(tag string, i int) time.Duration {
			if tag == "1" && i == 3 {
				return 20 * time.Second
			}
			return 2 * time.Second
		}
		c.run(2500 * time.Millisecond)
		c.crash("1.0", launcher.End{Cause: launcher.Exited, Exit: 127})
		c.crash("1.1", launcher.End{Cause: launcher.Exited, Exit: 127})
		c.ends(time.Hour, RunDone)
		c.mustSay("node bad is not used any more")
		if n := c.count("exclude 101 bad"); refused != (n == 3) || !refused && n != 1 { // what was refused may not have been answered
			t.Errorf("calls %q", c.q.Calls())
		}
		for _, s := range c.submits[1:] {
			if !slices.Equal(s.Exclude, []string{"bad"}) {
				t.Errorf("submission %+v", s)
			}
		}
		if refused != (c.count("cancel 1.3") == 1) {
			t.Errorf("refused %v: calls %q", refused, c.q.Calls())
		}
	}
}

// TestANodeOnWhichWorkersFindNoGPUIsKeptFromOthers: they join, take no block, and leave by themselves with status 6.
func TestANodeOnWhichWorkersFindNoGPUIsKeptFromOthers(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.node = func(tag string, i int) string {
		if tag == "1" && i < 2 {
			return "blind"
		}
		return "n1"
	}
	c.starts = func(tag string, i int) time.Duration {
		if tag == "1" && i == 3 {
			return 20 * time.Second // it is pending meanwhile
		}
		return 2 * time.Second
	}
	c.says = func(_ *agent, j *Join) { j.Slots = 1 }
	c.run(2500 * time.Millisecond)
	for _, id := range []string{"1.0", "1.1"} {
		c.agents[id].slots = 0 // it asks for nothing
	}
	c.run(3500 * time.Millisecond)
	for _, id := range []string{"1.0", "1.1"} {
		a := c.agents[id]
		if a.session == 0 {
			t.Fatalf("worker %s has not joined", id)
		}
		c.q.End(a.at.Tag, a.at.Element, launcher.End{Cause: launcher.Exited, Exit: 6})
		c.leave(a, LeaveBroken)
	}
	c.ends(time.Hour, RunDone)
	c.mustSay("node blind is not used any more")
	if n := c.count("exclude 101 blind"); n != 1 {
		t.Errorf("calls %q", c.q.Calls())
	}
	if got := c.e.sched.Tally(0); got.Success != 40 || got.Retries+got.Lost != 0 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestANodeIsWhatTheBatchSystemCallsIt(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a")).run(20 * time.Second)
	for i := range 4 {
		if got, want := c.e.workers[fmt.Sprint("1.", i)].node, c.node("1", i); got != want {
			t.Errorf("worker 1.%d is on %s, want %s", i, got, want)
		}
	}
}

func TestANodeThatCannotLaunchIsKeptFromPendingWorkers(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.q.Accounting = true
	c.starts = func(tag string, i int) time.Duration {
		if tag == "1" && i < 2 {
			return never
		}
		return 2 * time.Second
	}
	c.run(8 * time.Second)
	for i := range 2 { // a failing prolog looks like this where a job is not to be requeued
		c.q.Set("1", i, func(e *launcher.Element) {
			e.State, e.End, e.By, e.Node = launcher.Ended, launcher.End{Cause: launcher.Cancelled}, launcher.CancelledBySystem, "bad"
		})
	}
	c.ends(time.Hour, RunDone)
	c.mustSay("node bad is not used any more", "never started (cancelled by the batch system: it could not be launched)")
	if last := c.submits[len(c.submits)-1]; !slices.Equal(last.Exclude, []string{"bad"}) {
		t.Errorf("the last submission is %+v", last)
	}
}

// TestAWorkerThatIsStartedAgainTakesTheOldOnesPlace: a site requeues it against orders, or was told to.
func TestAWorkerThatIsStartedAgainTakesTheOldOnesPlace(t *testing.T) {
	for _, lives := range []bool{false, true} {
		c := newCluster(t, nil, taskOf(8, "a"))
		c.block = 3 * time.Minute
		c.run(30 * time.Second)
		old := c.agents["1.0"]
		if !lives {
			c.die(old)
		}
		c.q.Set("1", 0, func(e *launcher.Element) { e.State, e.Word = launcher.Pending, "PENDING" })
		c.run(time.Minute)
		if got := c.e.fleet.Slots(0); got != 8 && got != 4 {
			t.Errorf("%d slots are taken", got)
		}
		taken := c.e.fleet.Slots(0)
		c.q.Start("1", 0, "n9")
		again := &agent{id: "1.0", array: old.array, at: old.at, slots: 1, nonce: 8, restart: 1}
		c.agents["1.0 before"], c.agents["1.0"] = old, again
		c.connect(again)
		if again.session == 0 {
			t.Fatalf("lives %v: it is answered %q", lives, c.join)
		}
		if got := c.e.fleet.Slots(0); got != taken {
			t.Errorf("lives %v: %d slots are taken, then %d", lives, taken, got)
		}
		if lives && !old.told {
			t.Error("the old one is not told to stop")
		}
		c.run(c.now + 6*time.Minute)
		c.ends(time.Hour, RunDone)
		if got := c.e.sched.Tally(0); got.Success != 8 || !lives && got.Lost != 1 {
			t.Errorf("lives %v: the counts are %+v", lives, got)
		}
		if got := c.e.fleet.Slots(0); got != 0 {
			t.Errorf("%d slots are taken after the end", got)
		}
	}
}

func TestALossIsSeenWithinSeconds(t *testing.T) {
	c := newCluster(t, nil, taskOf(8, "a"))
	c.block = 10 * time.Minute
	c.run(5 * time.Minute)
	c.crash("1.0", launcher.End{Cause: launcher.Signalled, Signal: 9})
	at := c.now
	c.run(at + 7*time.Second)
	if w := c.e.workers["1.0"]; !w.ended {
		t.Error("the end has not been seen")
	}
	if c.count("submit") < 2 {
		t.Errorf("calls %q", c.q.Calls())
	}
}

// While a loss is not explained an interval is 5 s, give or take a tenth; the worker that takes the block is asked for within a second more.
func TestABlockRunsAgainWithinAnIntervalOfTheEndThatTheBatchSystemKnows(t *testing.T) {
	for known := range 8 { // so many seconds after the worker has gone
		c := newCluster(t, nil, taskOf(8, "a"))
		c.block = 10 * time.Minute
		c.run(5 * time.Minute) // in which it comes to be asked seldom
		c.starts = func(string, int) time.Duration { return 0 }
		gone := c.agents["1.0"]
		lost := gone.held[0].Block
		c.die(gone)
		c.run(c.now + time.Duration(known)*time.Second)
		c.q.End("1", 0, launcher.End{Cause: launcher.Preempted})
		at, again := c.now, false
		for ; !again && c.now < at+time.Minute; c.run(c.now + 100*time.Millisecond) {
			for _, a := range c.agents {
				again = again || a != gone && len(a.held) > 0 && a.held[0].Block == lost
			}
		}
		if got := c.now - at; got > 6600*time.Millisecond {
			t.Errorf("known after %d s: the block went out again %v later", known, got)
		}
	}
}

func TestASilentWorkerOnAFailedNodeIsGivenUpAfterItsHint(t *testing.T) {
	c := newCluster(t, nil, taskOf(4, "a"))
	c.block = time.Minute
	c.run(30 * time.Second)
	c.agents["1.2"].silent = true
	c.q.Set("1", 2, func(e *launcher.Element) {
		e.State, e.Word, e.End.Cause = launcher.Unknown, "NODE_FAIL", launcher.NodeFailed
	})
	c.run(4 * time.Minute)
	if c.said("has been silent") {
		t.Error("it is given up too early")
	}
	c.ends(10*time.Minute, RunDone)
	c.mustSay("worker 1.2 on n3 has been silent for 5m")
	if got := c.e.sched.Tally(0); got.Success != 4 || got.Lost != 1 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestWhatAFailedNodeTookIsFreeOnceItIsGivenUp(t *testing.T) {
	task := taskOf(8, "a")
	task.MaxWorkers = 2
	c := newCluster(t, nil, task)
	c.block = time.Minute
	c.run(30 * time.Second)
	for i := range 2 {
		c.agents[fmt.Sprint("1.", i)].silent = true
		c.q.Set("1", i, func(e *launcher.Element) {
			e.State, e.Word, e.End.Cause = launcher.Unknown, "NODE_FAIL", launcher.NodeFailed
		})
	}
	c.ends(time.Hour, RunDone)
	if c.now > 15*time.Minute {
		t.Errorf("it took %v", c.now)
	}
}
