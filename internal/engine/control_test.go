package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// TestControlScenarios reads testdata/control: scenarios as those of TestScenarios, in which people change the run.
func TestControlScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/control", func(t *testing.T, path string) {
		var s *scenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "run":
				s = newScenario(t, d)
				s.apply(Event{Kind: EventTick})
			case "set":
				s.set(t, d)
			case "stop-worker":
				id := d.CmdArgs[0].Key
				if err := s.e.CheckStopWorker(id); err != nil {
					return "refused: " + err.Error() + "\n"
				}
				s.apply(Event{Kind: EventStopWorker, Worker: id, Text: "told by anna"})
			case "exclude", "include":
				x := Exclusion{Node: d.CmdArgs[0].Key, By: "anna", Include: d.Cmd == "include"}
				if d.HasArg("reason") {
					d.ScanArgs(t, "reason", &x.Reason)
				}
				if err := s.e.CheckExclude(&x); err != nil {
					return "refused: " + err.Error() + "\n"
				}
				s.apply(Event{Kind: EventExclude, Exclude: &x})
			case "excluded":
				for _, x := range s.e.Excluded() {
					if x.ByHand {
						fmt.Fprintf(&s.out, "%s by %s: %q\n", x.Node, x.By, x.Reason)
					} else {
						fmt.Fprintf(&s.out, "%s for %s\n", x.Node, s.e.tasks[x.Task].spec.ID)
					}
				}
			case "blocks":
				s.blocks(d)
			case "live":
				for _, w := range s.e.LiveWorkers(s.e.LiveIDs(), nil) {
					fmt.Fprintf(&s.out, "%s: %s, %d held, %d running, silent %v\n", w.ID, w.State, w.Held, w.Running, w.Silent)
				}
			default:
				s.do(t, d)
			}
			return s.output()
		})
	})
}

// set takes "set cpu=2", "set task=a max-workers=3" or "set task=a timeout=20s".
func (s *scenario) set(t *testing.T, d *datadriven.TestData) {
	set := Setting{By: "anna", Task: -1}
	for _, a := range d.CmdArgs {
		switch value := a.Vals[0]; a.Key {
		case "task":
			set.Task = int32(s.e.cfg.Pipeline.Index(value))
		case "max-workers":
			set.Key, set.N = SetMaxWorkers, number(t, value)
		case "timeout":
			set.Key, set.Timeout = SetTimeout, duration(t, value)
		default:
			set.Key = SetResources
			set.Amounts = scheduler.NewResources(map[string]int64{a.Key: number(t, value) * 1000})
		}
	}
	if err := s.e.CheckSetting(&set); err != nil {
		fmt.Fprintf(&s.out, "refused: %v\n", err)
		return
	}
	s.apply(Event{Kind: EventSet, Set: &set})
}

func (s *scenario) blocks(d *datadriven.TestData) {
	var states []scheduler.BlockState
	task, limit, from := 0, 100, int64(0)
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "task":
			task = s.e.cfg.Pipeline.Index(a.Vals[0])
		case "limit":
			fmt.Sscan(a.Vals[0], &limit)
		case "from":
			fmt.Sscan(a.Vals[0], &from)
		default:
			for b := scheduler.BlockWaiting; b <= scheduler.BlockAbandoned; b++ {
				if b.String() == a.Key {
					states = append(states, b)
				}
			}
		}
	}
	views, next := s.e.Blocks(task, from, states, limit, nil)
	for _, v := range views {
		line := fmt.Sprintf("%d %v attempt %d worker %s node %s", v.Block, v.State, v.Attempt, v.Worker, v.Node)
		if v.Running {
			line += fmt.Sprintf(" for %v", v.For)
		}
		if v.Message != "" {
			line += fmt.Sprintf(" %v: %s", v.Outcome, v.Message)
		}
		fmt.Fprintln(&s.out, strings.TrimSpace(line))
	}
	fmt.Fprintf(&s.out, "next %d\n", next)
}

// Of blocks that failed for good the first few are kept with their words; of the others their attempts are known.
func TestTheAttemptsOfEveryFailedBlockAreKnown(t *testing.T) {
	const n = keptFailures + 5
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, n), Slots: 1, MaxRetries: 1, MaxLost: 1, MaxWorkerRestarts: 1, Runner: job.Runner{Kind: job.RunnerCommand}}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 1, External: true, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	appended := uint64(0)
	var apply func(ev Event) (handed []scheduler.Handout)
	apply = func(ev Event) (handed []scheduler.Handout) {
		fx.Reset()
		e.Apply(0, &ev, &fx)
		commit := false
		for _, f := range fx.List {
			handed = append(handed, f.Handouts...)
			commit = commit || f.Kind == EffectCommit
			if f.Kind == EffectAppend {
				appended++
			}
		}
		if commit {
			handed = append(handed, apply(Event{Kind: EventCommitted, UpTo: appended})...)
		}
		return handed
	}
	apply(Event{Kind: EventTick})
	apply(Event{Kind: EventJoin, Join: &Join{Name: "w", Nonce: 1, Slots: 1}})
	apply(Event{Kind: EventAttach, Session: 1, Worker: "w", Nonce: 1})
	for seq := uint64(1); seq <= 2*n; seq++ {
		handed := apply(Event{Kind: EventAcquire, Session: 1, Request: seq, N: 1})
		if len(handed) != 1 {
			t.Fatalf("%d blocks at request %d", len(handed), seq)
		}
		apply(Event{Kind: EventRelease, Session: 1, Seq: seq, Epoch: 1, Lease: handed[0].Lease, Outcome: scheduler.Failed})
	}
	views, _ := e.Blocks(0, 0, []scheduler.BlockState{scheduler.BlockFailed}, 2*n, nil)
	named := 0
	for _, v := range views {
		if v.Attempt != 2 {
			t.Errorf("block %d: attempt %d", v.Block, v.Attempt)
		}
		if v.Worker == "w" {
			named++
		}
	}
	if len(views) != n || named != keptFailures {
		t.Errorf("%d failed blocks, %d with their worker", len(views), named)
	}
}
