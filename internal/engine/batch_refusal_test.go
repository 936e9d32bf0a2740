package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

func TestASubmissionOfUnknownFateCountsUntilItIsFound(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		c := newCluster(t, nil, taskOf(8, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			return launchertest.Outcome{Accepted: accepted, Err: fmt.Errorf("sbatch: %w", launcher.ErrUnsure)}
		}
		c.ends(time.Hour, RunDone)
		c.mustSay("it is not known whether submission 1 was accepted")
		if _, used := c.agents["1.0"]; accepted != used || accepted == c.said("submission 1 is not there") {
			t.Errorf("accepted %v: %q", accepted, c.notices)
		}
		if !accepted && c.now < time.Minute {
			t.Errorf("asked for again after %v", c.now)
		}
		voids := 0
		for _, r := range c.records {
			if r.Kind == RecordVoid && r.ID == "1" {
				voids++
			}
		}
		if accepted != (voids == 0) {
			t.Errorf("accepted %v: %d records say that it is void", accepted, voids)
		}
	}
}

func TestATwinGetsNothingToDo(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(10 * time.Second)
	twin := c.q.Twin("1", 4)
	c.connect(&agent{id: "1.0", array: twin, at: launcher.Worker{Tag: "1"}, slots: 1})
	if !slices.Equal(c.join, []string{"twin"}) {
		t.Errorf("the twin is answered %q", c.join)
	}
	c.ends(time.Hour, RunDone)
	if c.count("cancel array "+twin) != 1 || c.count("cancel") != 1 {
		t.Errorf("calls %q", c.q.Calls())
	}
	c.mustSay("is a second array of submission 1")
}

// TestAWorkerThatIsQuickerThanTheAnswerWaitsForTheDisk: no block goes to an array that the next epoch may not know.
func TestAWorkerThatIsQuickerThanTheAnswerWaitsForTheDisk(t *testing.T) {
	c := newCluster(t, nil, taskOf(4, "a"))
	c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
		return launchertest.Outcome{Accepted: true, Err: launcher.ErrUnsure}
	}
	c.starts = func(string, int) time.Duration { return never }
	c.run(50 * time.Millisecond)
	c.holds = true
	a := &agent{id: "1.0", array: "101", at: launcher.Worker{Tag: "1"}, slots: 1}
	c.agents[a.id] = a
	c.connect(a)
	if len(c.join) != 0 {
		t.Errorf("it is answered %q before its submission is durable", c.join)
	}
	c.holds = false
	c.commit()
	if !slices.Equal(c.join, []string{"joined 1.0"}) {
		t.Errorf("then it is answered %q", c.join)
	}
}

func TestRefusals(t *testing.T) {
	refuse := func(k launcher.RefusalKind) launchertest.Outcome {
		return launchertest.Outcome{Err: &launcher.Refusal{Kind: k, Text: "no"}}
	}
	t.Run("for limits: halved", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(40, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForLimits) }
			return refuse(launcher.RefusedForLimits)
		}
		c.ends(time.Hour, RunDone)
		var counts []int
		for _, s := range c.submits {
			counts = append(counts, s.Count)
		}
		if !slices.Equal(counts[:4], []int{4, 2, 1, 1}) {
			t.Errorf("submissions of %v", counts)
		}
	})
	t.Run("for more than an array may have: as many as it may", func(t *testing.T) {
		for _, most := range []int{1, 3} {
			c := newCluster(t, nil, taskOf(40, "a"))
			c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
				return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Most: most, Text: "no"}}
			}
			c.ends(time.Hour, RunDone)
			workers := 0
			for i, s := range c.submits[1:] {
				if workers += s.Count; s.Count > most || i == 0 && s.Count < most {
					t.Errorf("of at most %d, %d are asked for at once", most, s.Count)
				}
			}
			if workers != 8 || c.said("refused") {
				t.Errorf("%d workers, want 8; nobody was refused: %q", workers, c.notices)
			}
		}
	})
	t.Run("for now: later", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(4, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForNow) }
		c.run(500 * time.Millisecond)
		c.waits("the batch system refused workers (no); next try in 1s")
		c.ends(time.Hour, RunDone)
		if c.e.tasks[0].brake.Ends() != 0 {
			t.Error("it counts as a fault of the workers")
		}
	})
	t.Run("for good: the job is wrong", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(4, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForGood) }
		c.ends(time.Minute, RunBroken)
		if !c.final.Wrong || !strings.Contains(c.final.Text, "the batch system refused its workers: no") {
			t.Errorf("the end is %+v", c.final)
		}
	})
	t.Run("for good, later: what there is goes on", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(40, "a"))
		c.run(3500 * time.Millisecond)
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForGood) }
		c.ends(time.Hour, RunDone)
		c.mustSay("no more workers are asked for")
	})
}

// TestNoMoreAreSubmittedThanMay: several tasks that are no workers of each other may have six together.
func TestNoMoreAreSubmittedThanMay(t *testing.T) {
	a, b := taskOf(40, "a"), taskOf(40, "b")
	b.Env = []string{"B=1"}
	c := newCluster(t, nil, a, b)
	c.e.cfg.Job.MaxSubmitted = 6
	most := 0
	for range 1000 {
		if c.run(c.now + time.Second); c.final != nil {
			break
		}
		there := 0
		for _, e := range c.all() {
			if e.State == launcher.Pending || e.State == launcher.Running {
				there++
			}
		}
		if most = max(most, there); there == 6 && c.e.tasks[1].starters == 0 && c.e.tasks[1].joined == 0 {
			if got := c.e.waits(1); !strings.Contains(got, "no more may be queued: max_submitted 6") {
				t.Errorf("it waits for %q", got)
			}
		}
	}
	if most != 6 {
		t.Errorf("%d workers were there at once, want 6", most)
	}
	c.ends(time.Hour, RunDone)
}

func TestAReasonThatNeverEndsEndsTheRun(t *testing.T) {
	c := newCluster(t, nil, taskOf(4, "a"))
	c.starts = func(string, int) time.Duration { return never }
	c.run(time.Second)
	for i := range 4 {
		c.q.Set("1", i, func(e *launcher.Element) {
			e.Reason = launcher.Reason{Word: "PartitionTimeLimit", Plain: "it asks for more time than the partition allows", Never: true}
		})
	}
	c.ends(2*time.Minute, RunBroken)
	if !c.final.Wrong || !strings.Contains(c.final.Text, "PartitionTimeLimit (it asks for more time than the partition allows)") {
		t.Errorf("the end is %+v", c.final)
	}
	if c.count("cancel array 101") != 1 {
		t.Errorf("calls %q", c.q.Calls())
	}
}
