package engine

import (
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

func TestHowManySlotsAreInWhatAWorkerWasGiven(t *testing.T) {
	each := scheduler.NewResources(map[string]int64{"cpu": 2000, "memory": 1 << 30, "gpu": 1000, "licence": 1000})
	half := scheduler.NewResources(map[string]int64{"cpu": 500})
	for _, c := range []struct {
		each  scheduler.Resources
		given Grant
		want  int64
	}{
		{each, Grant{8000, 8 << 30, 4}, 4},
		{each, Grant{9999, 8 << 30, 4}, 4},
		{each, Grant{8000, 3<<30 - 1, 4}, 2},
		{each, Grant{8000, 8 << 30, 1}, 1},
		{each, Grant{8000, 0, 0}, 4}, // the rest is not known
		{each, Grant{}, 1},
		{each, Grant{1000, 8 << 30, 4}, 1}, // less than it asked for
		{half, Grant{CPUMilli: 4000}, 8},
		{half, Grant{MemoryBytes: 1 << 40, GPUs: 8}, 1},
		{half, Grant{CPUMilli: 1 << 62}, 1}, // nothing that there is
	} {
		if got := slotsIn(c.each, c.given); got != c.want {
			t.Errorf("%v in %+v: %d slots, want %d", c.each, c.given, got, c.want)
		}
	}
}

// filling is a cluster whose workers are given so many cores of their node, with a task that fills them.
func filling(t *testing.T, cores int64, blocks, maxWorkers int64) *cluster {
	c := newCluster(t, nil, fillingTask(blocks, maxWorkers))
	c.says = filled(cores)
	return c
}

func fillingTask(blocks, maxWorkers int64) job.Task {
	task := taskOf(blocks, "a")
	task.Fill, task.MaxWorkers = true, maxWorkers
	return task
}

func filled(cores int64) func(*agent, *Join) {
	return func(_ *agent, j *Join) { j.Slots, j.Fill, j.Grant = 1, true, Grant{CPUMilli: cores * 1000} }
}

// takes checks that what is taken is what the workers that live have, or are asked for with.
func (c *cluster) takes() (slots int64) {
	c.t.Helper()
	for _, w := range c.e.live {
		if !w.spare {
			slots += int64(w.slots)
		}
	}
	if got := c.e.fleet.Slots(0); got != slots {
		c.t.Errorf("at %v %d slots are taken, and the workers have %d", c.now, got, slots)
	}
	return slots
}

func TestWorkersThatFillAreCountedWithWhatTheyHave(t *testing.T) {
	c := filling(t, 4, 4000, 32)
	c.run(8 * time.Second)
	if n := len(c.submits); n != 2 || c.submits[0].Count != 1 || c.submits[0].Slots != 1 || c.submits[1].Count != 3 || c.submits[1].Slots != 4 {
		t.Fatalf("at first %d submissions are made, of %+v", n, c.submits[0])
	}
	if got := c.takes(); got != 16 {
		t.Errorf("4 workers of 4 cores have %d slots", got)
	}
	c.run(2 * time.Minute) // they have proved to work
	workers := 0
	for _, s := range c.submits {
		workers += s.Count
	}
	if got := c.takes(); got != 32 || workers != 8 {
		t.Errorf("%d slots of %d workers, want 32 of 8", got, workers)
	}
	var s Snapshot
	c.e.Snapshot(&s)
	if got := s.Tasks[0].MaxConcurrency; got != 32 {
		t.Errorf("%d blocks ran at once, want 32", got)
	}
	// Who resumes knows it.
	n := c.resumed(fillingTask(4000, 32))
	n.says = filled(4)
	if got := n.takes(); got != 32 {
		t.Errorf("after a resume %d slots", got)
	}
	for id, a := range c.agents {
		b := &agent{id: id, array: a.array, at: a.at, slots: a.slots, held: a.held, epoch: a.epoch, served: a.served}
		n.agents[id] = b
		n.after(5*time.Second, func() { n.connect(b) })
	}
	n.run(time.Minute)
	if got := n.takes(); got != 32 || len(n.submits) > 0 {
		t.Errorf("when all are back %d slots, and %d submissions", got, len(n.submits))
	}
	for _, id := range []string{"1.0", "2.0", "2.1", "2.2"} {
		n.crash(id, launcher.End{Cause: launcher.TimeLimit})
	}
	n.run(3 * time.Minute)
	workers = 0
	for _, s := range n.submits {
		workers += s.Count
	}
	if got := n.takes(); got != 32 || workers != 4 {
		t.Errorf("for 4 that ended %d are asked for, and there are %d slots", workers, got)
	}
	n.ends(24*time.Hour, RunDone)
}

func TestWorkersThatFillHaveNoMoreThanThereIsRoomFor(t *testing.T) {
	c := filling(t, 4, 4000, 6)
	c.run(30 * time.Second)
	if got := c.takes(); got != 6 {
		t.Errorf("%d slots, max_workers is 6", got)
	}
	if !c.said("max_workers) would use them") {
		t.Errorf("nobody says that cores are left over: %q", c.notices)
	}
	c.run(10 * time.Minute)
	if got := c.takes(); got > 6 {
		t.Errorf("%d slots, max_workers is 6", got)
	}
	c.ends(24*time.Hour, RunDone)
}

// Four nodes would be taken for what one holds, and the rest of all of them would be idle.
func TestWorkersThatFillAreNoMoreThanItTakes(t *testing.T) {
	for maxWorkers, want := range map[int64]int{3: 1, 4: 1, 6: 2, 12: 3} {
		c := filling(t, 4, 4000, maxWorkers)
		c.run(10 * time.Minute)
		workers := 0
		for _, s := range c.submits {
			workers += s.Count
		}
		if got := c.takes(); got != maxWorkers || workers != want {
			t.Errorf("max_workers %d: %d slots of %d workers, want %d workers", maxWorkers, got, workers, want)
		}
	}
}

func TestWorkersThatFillHaveAllTheirSlotsWhereNothingBoundsThem(t *testing.T) {
	c := filling(t, 4, 400, 0)
	c.run(8 * time.Second)
	if got := c.takes(); got != 16 {
		t.Errorf("4 workers of 4 cores have %d slots", got)
	}
}

func TestAWorkerThatFillsAndThatTheJournalDoesNotKnowKeepsItsSlots(t *testing.T) {
	c := filling(t, 4, 4000, 6)
	c.run(time.Second) // nobody has come
	n := c.resumed(fillingTask(4000, 6))
	n.says = func(_ *agent, j *Join) { j.Slots, j.Fill, j.Grant = 3, true, Grant{CPUMilli: 4000} }
	n.run(10 * time.Second)
	for _, e := range n.all()[:1] {
		n.q.Start(e.Tag, e.First, "n1")
		a := &agent{id: launcher.Worker{Tag: e.Tag, Element: e.First}.String(), array: e.Array, at: launcher.Worker{Tag: e.Tag, Element: e.First}, slots: 3}
		n.agents[a.id] = a
		n.connect(a)
		if w := n.e.workers[a.id]; w.nonce == 0 || w.slots != 3 {
			t.Errorf("worker %s is answered %q and has %d slots", a.id, n.join, w.slots)
		}
	}
	n.takes()
}

func TestAWorkerThatIsGivenLessThanIsExpectedOfItGivesBackTheRest(t *testing.T) {
	c := filling(t, 4, 4000, 20)
	c.run(3 * time.Second)
	c.says = filled(2) // all that come later are on smaller nodes
	c.run(5 * time.Minute)
	if got := c.takes(); got != 20 {
		t.Errorf("%d slots, want 20", got)
	}
	c.ends(24*time.Hour, RunDone)
}
