package engine

import (
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSuccessesTogetherCountAsOneByOne(t *testing.T) {
	run := func(together bool) (list []Effect) {
		m := newMill(t, 1, 20, true, func(m *mill, w launcher.Worker) { m.joins(w) })
		var leases []scheduler.Lease
		m.served = func(_ *mill, _ launcher.Worker, _ SessionID, l scheduler.Lease) { leases = append(leases, l) }
		m.until = func() bool { return len(m.todo) == 0 }
		m.run()
		m.todo = []Event{{Kind: EventRelease, Session: 1, Seq: 1, Epoch: 1, Lease: leases[0], Use: Use{WallNanos: 1000}}, {Kind: EventAcquire, Session: 1, Request: 2, N: 4}}
		m.run() // which shows that its blocks are short: it gets several
		if len(leases) < 4 {
			t.Fatalf("got %d blocks at once, want more", len(leases)-1)
		}
		ended := []Success{{leases[1], 10}, {leases[0], 20}, {leases[2], 30}, {leases[3], 40}} // the second is not its own any more
		events := []Event{{Kind: EventSuccesses, Session: 1, Seq: 2, Epoch: 1, Successes: ended}}
		if !together {
			events = nil
			for i, s := range ended {
				events = append(events, Event{Kind: EventRelease, Session: 1, Seq: uint64(2 + i), Epoch: 1, Lease: s.Lease, Use: Use{WallNanos: s.WallNanos}})
			}
		}
		m.e.ApplyAll(time.Second, events, &m.fx)
		for _, f := range m.fx.List {
			if f.Kind == EffectAppend {
				m.appended++
			}
		}
		m.e.Apply(2*time.Second, &Event{Kind: EventCommitted, UpTo: m.appended}, &m.fx)
		return m.fx.List
	}
	got, want := run(true), run(false)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("- one by one, + together:\n%s", diff)
	}
	kinds := map[EffectKind]int{}
	for _, f := range got {
		kinds[f.Kind]++
		if f.Kind == EffectAcknowledge && f.Seq != 5 {
			t.Errorf("acknowledged up to %d, want 5", f.Seq)
		}
	}
	if kinds[EffectEnded] != 3 || kinds[EffectRefused] != 1 || kinds[EffectAcknowledge] != 1 {
		t.Errorf("%d ended, %d refused, %d acknowledgements; want 3, 1, 1", kinds[EffectEnded], kinds[EffectRefused], kinds[EffectAcknowledge])
	}
}

func TestARunWithoutAJournalAsksForNoneAndCountsTheSame(t *testing.T) {
	run := func(journal bool) (appends, commits int, tally scheduler.Tally) {
		j := testJob()
		j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, 20), Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerFunc}}}
		p, err := j.Pipeline()
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(Config{Job: j, Pipeline: p, Launcher: localProperties(), Epoch: 1, Budget: cpus(1), JournalHandouts: true, NoJournal: !journal})
		if err != nil {
			t.Fatal(err)
		}
		m := &mill{t: t, e: e, born: func(m *mill, w launcher.Worker) { m.joins(w) }}
		seq := uint64(0)
		m.served = func(m *mill, _ launcher.Worker, s SessionID, l scheduler.Lease) {
			seq++
			outcome := scheduler.Success
			if seq == 7 {
				outcome = scheduler.Failed // and is tried again
			}
			m.todo = append(m.todo, Event{Kind: EventRelease, Session: s, Seq: seq, Epoch: 1, Lease: l, Outcome: outcome}, Event{Kind: EventAcquire, Session: s, Request: seq + 1, N: 1})
		}
		m.until = func() bool {
			for e.More() && len(m.todo) == 0 {
				m.todo = append(m.todo, Event{Kind: EventTick})
			}
			return false
		}
		m.saw = func(f *Effect) {
			switch f.Kind {
			case EffectAppend:
				appends++
			case EffectCommit:
				commits++
			case EffectDrain, EffectStop:
				m.todo = append(m.todo, Event{Kind: EventLeaving, Session: f.Session}, Event{Kind: EventDetach, Session: f.Session})
				m.ends(m.workers[f.Session-1], "", launcher.End{Cause: launcher.Exited})
			}
		}
		m.run()
		if e.State() != RunDone {
			t.Errorf("journal %v: the run ended %v (%s), want done", journal, e.State(), m.text)
		}
		return appends, commits, e.sched.Tally(0)
	}
	appends, commits, tally := run(false)
	if appends != 0 || commits != 0 {
		t.Errorf("without a journal: %d records and %d commits, want none", appends, commits)
	}
	if _, _, want := run(true); tally != want || tally.Success != 20 || tally.Retries != 1 {
		t.Errorf("without a journal %+v, with one %+v", tally, want)
	}
}
