package engine

import (
	"testing"
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// What the simulation (internal/sim) has found; docs/simulation.md has the seeds.

// Workers that start while there is no coordinator look for one, and end when they find none: that says nothing of them, nor of their node.
func TestAnEndWhileNobodyWasThereIsNoBadEnd(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(string, int) time.Duration { return never }
	c.run(10 * time.Second)
	n := c.resumed(taskOf(40, "a"))
	n.starts = func(string, int) time.Duration { return 2 * time.Second }
	for i := range 4 {
		n.q.Start("1", i, "n1")
		n.q.End("1", i, launcher.End{Cause: launcher.Exited, Exit: 3})
	}
	n.ends(time.Hour, RunDone)
	if n.said("not used any more") || n.said("before it returned anything") {
		t.Errorf("a node is blamed: %q", n.notices)
	}
}

// A batch system that has lost its state during a resume knows nothing of the workers that were taken over, and has given the id of their
// array to others. They are waited for, and once that id is free they are gone: what they took is free again.
func TestWorkersThatNobodyKnowsAnyMoreAreGone(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(15 * time.Second)
	n := c.resumed(taskOf(40, "a"))
	for _, s := range c.submits {
		n.q.Set(s.Tag, 0, func(e *launcher.Element) { e.Tag = "of somebody else" })
		for i := 1; i < s.Count; i++ {
			n.q.Forget(s.Tag, i)
		}
		n.after(10*time.Minute, func() { n.q.Forget(s.Tag, 0) })
	}
	n.ends(2*time.Hour, RunDone)
}

// A worker gets no block before it is durable that it has joined: a coordinator that resumes the run would not wait for it, and hand the
// block to another one.
func TestAWorkerOfABatchSystemIsKnownBeforeItGetsABlock(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(string, int) time.Duration { return never }
	c.run(10 * time.Second)
	c.q.Start("1", 0, "n1")
	c.holds = true
	a := &agent{id: "1.0", array: "101", at: launcher.Worker{Tag: "1"}, slots: 1}
	c.agents[a.id] = a
	c.connect(a)
	c.goOn(a)
	if len(a.held) != 0 {
		t.Errorf("it has %v, and nothing durable says that it has joined", a.held)
	}
	c.holds = false
	c.commit()
	if len(a.held) != 1 {
		t.Errorf("then it has %v", a.held)
	}
}

// That a worker had been moved to another task may be lost with its coordinator. What it brings of that task counts there.
func TestABlockOfATaskThatItsWorkerIsNotKnownToServe(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"), taskOf(40, "b"))
	c.run(5 * time.Second)
	n := c.resumed(taskOf(40, "a"), taskOf(40, "b"))
	n.apply(Event{Kind: EventTick})
	was := c.agents["1.0"]
	other := 1 - c.submits[0].Task
	a := &agent{id: was.id, array: was.array, at: was.at, slots: 1, epoch: 1, held: []scheduler.Handout{{Lease: 99, Task: other, Block: 30, Attempt: 1}}}
	n.agents[a.id] = a
	n.connect(a)
	n.goOn(a)
	n.finish(a, scheduler.Success)
	var snap Snapshot
	n.e.Snapshot(&snap)
	left := snap.Tasks[other].Tally.Processed
	if left != 1 {
		t.Fatalf("%d blocks are counted", left)
	}
	for _, r := range snap.Workers {
		if r.Task == other {
			left -= r.Processed
		}
	}
	if left != 0 {
		t.Errorf("the rows of the workers do not add up to the task: %+v", snap.Workers)
	}
}

// A worker whose node is cut off is not listed any more. What it had sent comes late, when it is dead already: from then on it is missing
// anew, and is gone like others.
func TestAWorkerThatIsHeardOnceMoreIsGoneLater(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(15 * time.Second)
	for _, s := range c.submits {
		for i := range s.Count {
			c.q.Forget(s.Tag, i)
		}
	}
	for id := range c.agents {
		a := c.agents[id]
		a.silent = true
		c.after(3*time.Minute, func() {
			c.apply(Event{Kind: EventHeartbeat, Session: a.session})
			c.die(a)
		})
	}
	c.ends(2*time.Hour, RunDone)
	if c.said("their end was not seen") {
		t.Errorf("workers are in the book for ever: %q", c.notices)
	}
}

// A run that has ended before its workers were seen to end is resumed with them: what they take is not free.
func TestWorkersThatWereNotSeenToEndAreTakenOver(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(15 * time.Second)
	for _, a := range c.agents {
		a.silent = true // and the batch system takes its time over them
	}
	c.apply(Event{Kind: EventStop, Stop: StopNow, Text: "enough"})
	c.q.Down = launcher.ErrUnsure
	c.run(time.Hour)
	if !c.said("their end was not seen") {
		t.Fatalf("the run ended in another way: %q", c.notices)
	}
	n := c.resumed(taskOf(40, "a"))
	n.apply(Event{Kind: EventTick})
	if taken, want := n.e.fleet.Slots(0), int64(len(c.agents)); taken < want {
		t.Errorf("%d slots are taken, and %d workers may be there", taken, want)
	}
}
