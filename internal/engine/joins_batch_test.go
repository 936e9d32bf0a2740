package engine

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// another is a second process that was started for the element of worker 1.0.
func (c *cluster) another(id string, nonce uint64) *agent {
	first := c.agents["1.0"]
	a := &agent{id: id, array: first.array, at: first.at, slots: 1, nonce: nonce}
	c.agents[id] = a
	c.connect(a)
	return a
}

// timesSaid counts the notices with this part.
func (c *cluster) timesSaid(part string) (n int) {
	for _, text := range c.notices {
		if strings.Contains(text, part) {
			n++
		}
	}
	return n
}

func TestTwoProcessesOfOneElementAreTwoWorkersAndOneWarning(t *testing.T) {
	const warning = "has started worker 1.0 twice"
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(30 * time.Second)
	c.says = func(a *agent, j *Join) {
		if a.id == "1.0+2" {
			j.Process = 1
		}
	}
	if a := c.another("1.0+2", 8); a.session == 0 || c.said(warning) {
		t.Fatalf("the second of one step is answered %q, notices %q", c.join, c.notices)
	}
	if a := c.another("1.0+3", 9); a.session == 0 {
		t.Fatalf("the same process once more is answered %q, notices %q", c.join, c.notices)
	}
	c.another("1.0+4", 10)
	if n := c.timesSaid(warning); n != 1 {
		t.Errorf("the warning comes %d times: %q", n, c.notices)
	}
	// The second of them comes back as who it was, and the first too.
	second := c.agents["1.0+2"]
	c.apply(Event{Kind: EventDetach, Session: second.session})
	c.connect(second)
	if !slices.Equal(c.join, []string{"joined 1.0+2"}) {
		t.Errorf("it comes back and is answered %q", c.join)
	}
	c.connect(c.agents["1.0"])
	if !slices.Equal(c.join, []string{"joined 1.0"}) {
		t.Errorf("the first comes back and is answered %q", c.join)
	}
	c.ends(time.Hour, RunDone)
	if got := c.e.sched.Tally(0); got.Success != 40 || got.Lost != 0 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestASecondProcessOfAWorkerThatIsToGoGetsNothing(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(30 * time.Second)
	c.apply(Event{Kind: EventStopWorker, Worker: "1.0", Text: "by hand"})
	c.another("1.0+2", 8)
	if !slices.Equal(c.join, []string{"ended"}) {
		t.Errorf("it is answered %q", c.join)
	}
}

// measuredTask is a cluster whose task has blocks of 10 min that were measured, and its worker.
func measuredTask(t *testing.T) (*cluster, *worker) {
	c := newCluster(t, nil, taskOf(400, "a"))
	c.block = 10 * time.Minute
	c.run(2 * time.Hour)
	w := c.e.workers["1.0"]
	if w == nil || w.ended || w.until != 0 || w.told != notTold {
		t.Fatalf("the worker is %+v", w)
	}
	return c, w
}

func TestAWorkerThatIsToldOfItsEndGetsNothingThatDoesNotFit(t *testing.T) {
	c, w := measuredTask(t)
	c.apply(Event{Kind: EventEnding, Session: w.session, Left: 90 * time.Second})
	c.run(c.now + 11*time.Minute)
	if w.told != toLeave && !w.ended {
		t.Errorf("it was given another block: %+v", w)
	}
}

func TestTheEndThatTheQueueShowsIsBetterKnownThanASignalThatComesEarly(t *testing.T) {
	c, w := measuredTask(t)
	w.until = c.now + 150*time.Second
	c.apply(Event{Kind: EventEnding, Session: w.session, Left: 90 * time.Second})
	if got := w.until - c.now; got != 150*time.Second {
		t.Errorf("it has %v left", got)
	}
	w.until = c.now + time.Hour // it is preempted
	c.apply(Event{Kind: EventEnding, Session: w.session, Left: 90 * time.Second})
	if got := w.endOf() - c.now; got != 90*time.Second || w.until != c.now+time.Hour {
		t.Errorf("of an hour it has %v left, of its limit %v", got, w.until-c.now)
	}
}

func TestTheEndThatAWorkerKnowsCountsUntilTheQueueShowsAnother(t *testing.T) {
	c := newCluster(t, nil, taskOf(8, "a"))
	c.starts = func(_ string, element int) time.Duration { return never }
	c.run(10 * time.Second)
	c.q.Start("1", 0, "n1")
	e := c.all()[0]
	a := &agent{id: "1.0", array: e.Array, slots: 1}
	c.says = func(_ *agent, j *Join) { j.Left = time.Hour }
	a.at.Tag = "1"
	c.agents[a.id] = a
	c.connect(a)
	w := c.e.workers["1.0"]
	if w == nil || w.until != c.now+time.Hour {
		t.Fatalf("after its join its end is %v, at %v", w.until, c.now)
	}
	w.until = c.now + 30*time.Minute // by the queue
	c.apply(Event{Kind: EventDetach, Session: a.session})
	c.connect(a)
	if w.until != c.now+30*time.Minute {
		t.Errorf("after it has come back its end is %v", w.until-c.now)
	}
}

func TestWhatAWorkerWasGivenIsShownOverAllLivesOfTheRunAndOnceForAJob(t *testing.T) {
	gave := Grant{CPUMilli: 4000, MemoryBytes: 1 << 30, GPUs: 1}
	c := newCluster(t, nil, taskOf(400, "a"))
	c.says = func(_ *agent, j *Join) { j.Grant = gave }
	c.run(30 * time.Second)
	c.another("1.0+2", 8)
	look := func(when string) {
		t.Helper()
		var s Snapshot
		c.e.Snapshot(&s)
		if len(s.Workers) < 2 {
			t.Fatalf("%s: the workers are %+v", when, s.Workers)
		}
		for _, w := range s.Workers {
			want := gave
			if w.ID == "1.0+2" {
				want = Grant{}
			}
			if w.Grant != want {
				t.Errorf("%s: worker %s was given %+v, want %+v", when, w.ID, w.Grant, want)
			}
		}
	}
	look("in the first life")
	c = c.resumed(taskOf(400, "a"))
	c.run(time.Second)
	look("after a resume, before anybody is back")
}

func TestWhoIsGivenMuchMoreThanItAskedForSaysSoOnce(t *testing.T) {
	for cpus, want := range map[int64]int{1000: 0, 1500: 0, 4000: 1} {
		c := newCluster(t, nil, taskOf(40, "a"))
		c.says = func(_ *agent, j *Join) { j.CPUMilli = cpus }
		c.run(30 * time.Second)
		said := c.timesSaid("was given 4 CPUs of its node and had asked for 1")
		if said != want {
			t.Errorf("%d: said %d times, want %d: %q", cpus, said, want, c.notices)
		}
	}
}
