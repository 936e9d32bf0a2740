package engine

import (
	"slices"
	"testing"
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

func TestAResumeAdoptsWhatIsInTheQueue(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(_ string, i int) time.Duration {
		if i >= 2 {
			return time.Minute
		}
		return 2 * time.Second
	}
	c.run(30 * time.Second)
	held := len(c.submits)
	// The coordinator is killed: what it had in flight is lost, its workers go on.
	n := c.resumed(taskOf(40, "a"))
	for id, a := range c.agents {
		b := &agent{id: id, array: a.array, at: a.at, slots: a.slots, held: a.held, epoch: a.epoch, served: a.served}
		n.agents[id] = b
		n.after(5*time.Second, func() { n.connect(b) })
	}
	for _, s := range c.submits {
		for i := 2; i < s.Count; i++ {
			n.after(30*time.Second, func() { n.start(s.Tag, i, 1) })
		}
	}
	n.run(2 * time.Second)
	if got := n.e.fleet.Slots(0); got != 4 && got != 8 {
		t.Errorf("%d slots are taken", got)
	}
	n.run(40 * time.Second)
	if got := n.e.sched.Tally(0); got.Leased == 0 {
		t.Errorf("all are back, and blocks wait: %+v, %s", got, n.e.waits(0))
	}
	n.ends(time.Hour, RunDone)
	if n.count("bind 1 101") < 2 {
		t.Errorf("the launcher is not told: %q", n.q.Calls())
	}
	if n.count("submit")-held > 2 {
		t.Errorf("what is in the queue is asked for again: %q", n.q.Calls())
	}
	if got := n.e.sched.Tally(0); got.Success != 40 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestASubmissionInFlightAtTheCrashIsLookedFor(t *testing.T) {
	for _, there := range []bool{true, false} {
		c := newCluster(t, nil, taskOf(8, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return launchertest.Outcome{Accepted: there} }
		c.starts = func(string, int) time.Duration { return never }
		c.run(50 * time.Millisecond) // no answer yet
		n := c.resumed(taskOf(8, "a"))
		n.starts = func(string, int) time.Duration { return 2 * time.Second }
		for i := range 4 {
			n.after(20*time.Second, func() { n.start("1", i, 1) })
		}
		n.run(10 * time.Second)
		if got := n.count("submit"); got != 1 {
			t.Errorf("there %v: %d submissions", there, got)
		}
		n.ends(time.Hour, RunDone)
		if there != (n.submits == nil || n.submits[0].Tag != "2" || n.submits[0].Count != 4 || !n.said("submission 1 is not there")) {
			t.Errorf("there %v: %q, %q", there, n.notices, n.q.Calls())
		}
	}
}

// TestAResumeKnowsHowMuchRoomThereIs: what was refused is not tried again.
func TestAResumeKnowsHowMuchRoomThereIs(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
		return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Text: "no"}}
	}
	c.starts = func(string, int) time.Duration { return never }
	c.run(500 * time.Millisecond)
	n := c.resumed(taskOf(40, "a"))
	n.starts = func(string, int) time.Duration { return 2 * time.Second }
	n.run(time.Minute)
	for _, s := range n.submits {
		if s.Count > 2 {
			t.Errorf("after a refusal of 4, %d are asked for", s.Count)
		}
	}
	n.ends(time.Hour, RunDone)
}

// TestWhatASubmissionIsOutlivesTheCoordinator: the array that was seen first, and that there is none.
func TestWhatASubmissionIsOutlivesTheCoordinator(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(10 * time.Second)
	twin := c.q.Twin("1", 4)
	n := c.resumed(taskOf(40, "a"))
	n.apply(Event{Kind: EventTick})
	n.connect(&agent{id: "1.0", array: twin, at: launcher.Worker{Tag: "1"}, slots: 1})
	if !slices.Equal(n.join, []string{"twin"}) {
		t.Errorf("the first worker after a resume, of a twin, is answered %q", n.join)
	}

	c = newCluster(t, nil, taskOf(8, "a"))
	c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return launchertest.Outcome{Err: launcher.ErrUnsure} }
	c.starts = func(string, int) time.Duration { return never }
	c.run(5 * time.Minute)
	c.mustSay("submission 1 is not there")
	late := c.q.Twin("1", 4)
	n = c.resumed(taskOf(8, "a"))
	n.run(5 * time.Second)
	if n.count("cancel array "+late) != 1 {
		t.Errorf("an array that came late after all stays: %q", n.q.Calls())
	}
}
