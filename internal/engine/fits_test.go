package engine

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

func TestAWorkerGetsOnlyBlocksThatFit(t *testing.T) {
	task := taskOf(60, "a")
	task.MaxWorkers = 1
	c := newCluster(t, nil, task)
	c.block = time.Minute
	until := map[string]time.Duration{}
	c.starts = func(tag string, i int) time.Duration {
		until[tag] = c.now + 15*time.Minute + 2*time.Second
		return 2 * time.Second
	}
	for range 6000 {
		c.run(c.now + time.Second)
		for tag, at := range until {
			c.q.Set(tag, 0, func(e *launcher.Element) {
				if e.State == launcher.Running {
					e.Left = at - c.now
				}
			})
			if a := c.agents[tag+".0"]; a != nil && !a.dead && c.now >= at {
				t.Fatalf("worker %s runs into its limit", a.id)
			} else if a != nil && !a.dead && a.served > 0 && (a.until > at+15*time.Second || a.until < at-15*time.Second) {
				t.Fatalf("at %v worker %s thinks that its end is at %v, and it is at %v", c.now, a.id, a.until, at)
			}
		}
		if c.final != nil {
			break
		}
	}
	c.ends(2*time.Hour, RunDone)
	if got := c.e.sched.Tally(0); got.Success != 60 || got.Returned != 0 || got.Lost != 0 {
		t.Errorf("the counts are %+v", got)
	}
	if n := len(c.submits); n < 5 || n > 6 {
		t.Errorf("%d workers for an hour of blocks", n)
	}
}

func TestABlockThatNeverFitsFails(t *testing.T) {
	task := taskOf(1, "a")
	c := newCluster(t, nil, task)
	c.block = time.Hour
	for range 2 {
		c.run(c.now + 10*time.Minute)
		tag := strconv.Itoa(len(c.submits))
		c.crash(tag+".0", launcher.End{Cause: launcher.TimeLimit})
	}
	c.ends(time.Hour, RunFailed)
	var s Snapshot
	c.e.Snapshot(&s)
	if len(s.Failures) != 1 || !strings.HasPrefix(s.Failures[0].Message, "does not fit the time limit: it had a worker to itself 2 times, the last time for 9m") {
		t.Errorf("the failures are %+v", s.Failures)
	}
	if got := c.e.sched.Tally(0); got.Failed != 1 {
		t.Errorf("the counts are %+v", got)
	}
}

// TestABlockThatNeverFitsFailsOverTwoLives: the count goes on in the next life.
func TestABlockThatNeverFitsFailsOverTwoLives(t *testing.T) {
	c := newCluster(t, nil, taskOf(1, "a"))
	c.block = time.Hour
	c.run(10 * time.Minute)
	c.starts = func(string, int) time.Duration { return never }
	c.crash("1.0", launcher.End{Cause: launcher.TimeLimit})
	c.run(c.now + time.Minute)
	if !slices.ContainsFunc(c.records[:c.durable], func(r Record) bool { return r.Kind == RecordCut }) {
		t.Fatal("the cut is not written down")
	}
	n := c.resumed(taskOf(1, "a"))
	n.after(time.Second, func() { n.start("2", 0, 1) })
	n.run(10 * time.Minute)
	n.crash("2.0", launcher.End{Cause: launcher.TimeLimit})
	n.ends(time.Hour, RunFailed)
	if got := n.e.sched.Tally(0); got.Failed != 1 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestPercentilesAreKnownToAnEighth(t *testing.T) {
	var ts times
	for i := range 1000 {
		ts.add(time.Duration(i+1) * time.Second)
	}
	if got := ts.p95(); got < 950*time.Second || got > 1000*time.Second {
		t.Errorf("p95 of 1 s to 1000 s is %v", got)
	}
	ts = times{}
	for range 10 {
		ts.add(3)
	}
	if got := ts.p95(); got != 3 {
		t.Errorf("p95 of 3 ns is %v", got)
	}
}

func TestHowLongBlocksTakeIsKnownOfHundredsOfMillions(t *testing.T) {
	blocks := times{total: 300_000_000, longest: time.Hour}
	blocks.counts[part(uint64(time.Second))] = 200_000_000
	blocks.counts[part(uint64(time.Hour))] = 100_000_000
	if got := blocks.p95(); got != time.Hour {
		t.Errorf("95 of 100 took no longer than %v; a third took an hour", got)
	}
}
