package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

func TestAWorkerCancelledByHandIsNotReplaced(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(_ string, i int) time.Duration {
		if i == 3 {
			return never
		}
		return 2 * time.Second
	}
	c.run(12 * time.Second)
	c.q.Forget("1", 3) // pending elements that are cancelled leave no trace
	c.ends(time.Hour, RunDone)
	c.mustSay("max_workers is 7 from now on (worker 1.3 was cancelled by hand, and is not replaced)")
	for _, s := range c.submits {
		if s.Tag > "2" {
			t.Errorf("a submission %+v", s)
		}
	}
}

func TestWhoCancelsEverythingEndsTheRun(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.q.Accounting = true
	c.starts = func(string, int) time.Duration { return never }
	c.run(12 * time.Second)
	for i := range 4 {
		c.q.Set("1", i, func(e *launcher.Element) {
			e.State, e.End, e.By = launcher.Ended, launcher.End{Cause: launcher.Cancelled}, launcher.CancelledByOwner
		})
	}
	c.ends(time.Hour, RunFailed)
	if c.count("submit") != 1 || !strings.Contains(c.final.Text, "they were cancelled by hand") {
		t.Errorf("%s: calls %q", c.final.Text, c.q.Calls())
	}
}

func TestAnInterruptEmptiesTheQueue(t *testing.T) {
	c := newCluster(t, nil, taskOf(400, "a"))
	c.starts = func(tag string, i int) time.Duration {
		if tag != "1" {
			return never
		}
		return 2 * time.Second
	}
	c.block = time.Hour
	c.run(2 * time.Minute)
	if c.count("submit") != 2 {
		t.Fatalf("calls %q", c.q.Calls())
	}
	began := c.now
	c.apply(Event{Kind: EventStop, Stop: StopInterrupt, Text: "interrupted"})
	c.run(began + 2*time.Second)
	if c.count("cancel array 102") != 1 {
		t.Errorf("after 2 s: calls %q", c.q.Calls())
	}
	c.ends(2*time.Minute, RunInterrupted)
	if c.now-began > 40*time.Second {
		t.Errorf("it took %v", c.now-began)
	}
	for _, e := range c.all() {
		if e.State != launcher.Ended {
			t.Errorf("left behind: %+v", e)
		}
	}
}

func TestAnInterruptDoesNotWaitForASubmissionThatHangs(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.hangs = true
	c.run(5 * time.Second)
	c.apply(Event{Kind: EventStop, Stop: StopInterrupt, Text: "interrupted"})
	began := c.now
	c.ends(time.Minute, RunInterrupted)
	if took := c.now - began; took > 10*time.Second {
		t.Errorf("it takes %v", took)
	}
}

func TestAClassThatOnlyWaitsGivesUpItsShare(t *testing.T) {
	for needs, cancelled := range map[int64]string{1: "cancel 1.3", 4: "cancel 1.1,1.2,1.3"} {
		givesUpItsShare(t, needs, cancelled)
	}
}

func givesUpItsShare(t *testing.T, needs int64, cancelled string) {
	a, b := taskOf(40, "a"), taskOf(40, "b")
	a.Priority, b.Env = 1, []string{"B=1"}
	a.MaxWorkers, b.MaxWorkers = 4, needs
	c := newCluster(t, nil, a, b)
	cfg := c.e.cfg
	cfg.Unlimited, cfg.Budget = false, cpus(4)
	var err error
	if c.e, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	open := false
	c.starts = func(tag string, i int) time.Duration {
		for _, s := range c.submits {
			if s.Tag == tag && s.Task == 0 && !open {
				return never
			}
		}
		return 2 * time.Second
	}
	c.run(9 * time.Minute)
	if len(c.submits) != 1 || c.submits[0].Task != 0 {
		t.Fatalf("submissions %+v", c.submits)
	}
	c.run(12 * time.Minute)
	if got := c.e.sched.Tally(1); got.Success == 0 {
		t.Errorf("b has had nothing: %q", c.q.Calls())
	}
	pending := 0
	for _, e := range c.all() {
		if e.Tag == "1" && e.State == launcher.Pending {
			pending++
		}
	}
	if want := 4 - int(min(needs, 3)); pending != want {
		t.Errorf("%d of a keep their place, want %d", pending, want)
	}
	if calls := c.q.Calls(); !slices.Contains(calls, cancelled) {
		t.Errorf("the newest do not go first: %q", calls)
	}
	open = true
	for i := range 4 {
		c.start("1", i, 1)
	}
	c.ends(time.Hour, RunDone)
}

func TestAnInterruptCancelsManyArraysAtOnePaceOnly(t *testing.T) {
	var tasks []job.Task
	for i := range 28 {
		task := taskOf(1, fmt.Sprint("t", i))
		task.Env = []string{fmt.Sprint("N=", i)}
		tasks = append(tasks, task)
	}
	c := newCluster(t, nil, tasks...)
	c.starts = func(string, int) time.Duration { return never }
	c.run(20 * time.Minute)
	if got := c.count("submit"); got != 28 {
		t.Fatalf("%d submissions", got)
	}
	began := c.now
	c.apply(Event{Kind: EventStop, Stop: StopInterrupt, Text: "interrupted"})
	c.ends(5*time.Minute, RunInterrupted)
	if got := c.count("cancel array"); got != 28 || c.now-began > time.Minute {
		t.Errorf("%d arrays were cancelled, and it took %v", got, c.now-began)
	}
}
