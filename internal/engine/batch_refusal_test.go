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

// TestASlowSiteIsLookedThroughForLonger: what it has accepted late is not asked for twice.
func TestASlowSiteIsLookedThroughForLonger(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: time.Minute, 100 * time.Second: 200 * time.Second} {
		c := newCluster(t, nil, taskOf(8, "a"))
		cfg := c.e.cfg
		cfg.Launcher.MessageTimeout = timeout
		var err error
		if c.e, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return launchertest.Outcome{Err: launcher.ErrUnsure} }
		c.run(want - time.Second)
		if c.said("submission 1 is not there") {
			t.Errorf("where messages take %v, it is given up within %v", timeout, want)
		}
		c.run(want + time.Minute)
		c.mustSay("submission 1 is not there")
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

// TestAWorkerThatIsQuickerThanTheAnswerGetsNoBlockBeforeTheDiskKnowsItsArray: no block goes to an array that the next epoch may not know.
func TestAWorkerThatIsQuickerThanTheAnswerGetsNoBlockBeforeTheDiskKnowsItsArray(t *testing.T) {
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
	c.goOn(a)
	if !slices.Equal(c.join, []string{"joined 1.0"}) || len(a.held) != 0 {
		t.Errorf("it is answered %q, and has %d blocks before its submission is durable", c.join, len(a.held))
	}
	c.holds = false
	c.commit()
	bound := slices.IndexFunc(c.records, func(r Record) bool { return r.Kind == RecordBound && r.ID == "1" && r.Text == "101" })
	if len(a.held) != 1 || bound < 0 || uint64(bound) >= c.durable {
		t.Errorf("then it has %d blocks, and of %d durable records %d binds its submission", len(a.held), c.durable, bound)
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
	t.Run("for more than one worker: soon as many submissions as there is room for, after a resume too", func(t *testing.T) {
		task := taskOf(4000, "a")
		task.MaxWorkers = 100
		for _, killed := range []bool{false, true} {
			c := newCluster(t, nil, task)
			c.block = time.Minute
			c.q.NextSubmit = func(r launcher.Request) launchertest.Outcome {
				if r.Count == 1 {
					return launchertest.Outcome{Accepted: true}
				}
				return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Most: 1, Text: "no"}}
			}
			if killed {
				c.run(500 * time.Millisecond)
				c = c.resumed(task)
			}
			c.run(5 * time.Minute)
			if got := c.e.fleet.Slots(0); got != 100 {
				t.Errorf("killed before: %v; %d workers after minutes, want 100", killed, got)
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

// TestAQueueThatHasRoomAgainIsFilledAgain: a limit that others' jobs had filled for a while does not have workers come one by one for ever.
func TestAQueueThatHasRoomAgainIsFilledAgain(t *testing.T) {
	task := taskOf(10_000, "a")
	task.MaxWorkers = 200
	c := newCluster(t, nil, task)
	c.block = 10 * time.Minute
	full := func(r launcher.Request) launchertest.Outcome {
		if c.now > 30*time.Second && c.now < 5*time.Minute {
			return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Text: "QOSMaxSubmitJobPerUserLimit"}}
		}
		return launchertest.Outcome{Accepted: true}
	}
	var always func(r launcher.Request) launchertest.Outcome
	always = func(r launcher.Request) launchertest.Outcome {
		c.q.NextSubmit = always
		return full(r)
	}
	c.q.NextSubmit = always
	c.starts = func(tag string, element int) time.Duration { return time.Minute + 10*time.Second }
	c.run(40 * time.Minute)
	live := 0
	for _, e := range c.all() {
		if e.State == launcher.Running {
			live++
		}
	}
	if live != 200 {
		t.Errorf("%d of 200 workers run 35 minutes after there was room again; %d submissions", live, len(c.submits))
	}
}

// TestWhatWasRefusedIsNotAStart: a queue that is full over a weekend, or a system that cannot be asked, does not end a run for too many
// starts.
func TestWhatWasRefusedIsNotAStart(t *testing.T) {
	const away = 120 * time.Hour
	for name, err := range map[string]error{
		"for limits": &launcher.Refusal{Kind: launcher.RefusedForLimits, Text: "QOSMaxSubmitJobPerUserLimit"},
		"for now":    &launcher.Refusal{Kind: launcher.RefusedForNow, Text: "no space left on device"},
		"unsure":     launcher.ErrUnsure,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, nil, taskOf(40, "a"))
			asked := 0
			var always func(launcher.Request) launchertest.Outcome
			always = func(r launcher.Request) launchertest.Outcome {
				c.q.NextSubmit = always
				if c.now < away {
					asked += r.Count
					return launchertest.Outcome{Err: err}
				}
				return launchertest.Outcome{Accepted: true}
			}
			c.q.NextSubmit = always
			c.starts = func(string, int) time.Duration {
				if c.now < away {
					return never // they do not exist
				}
				return 2 * time.Second
			}
			c.run(away + time.Hour)
			if c.final == nil || c.final.State != RunDone {
				t.Errorf("the run is %+v after %d submissions", c.final, len(c.submits))
			}
			said := 0
			for _, n := range c.notices {
				if strings.Contains(n, "refused") {
					said++
				}
			}
			if said > 1 {
				t.Errorf("it is said %d times: %q", said, c.notices[:3])
			}
			if asked <= ceilingPerWorker*ceilingAlive {
				t.Errorf("%d workers were refused: too few for the bound of starts", asked)
			}
		})
	}
}
