package engine

import (
	"slices"
	"testing"

	"example.org/daisy/internal/job"
)

// A lease is its worker's only once it has been told of it. One that makes up a release of a block that waits for the mark gets nothing
// counted, and does not confuse what it holds.
func TestALeaseThatItsWorkerHasNotBeenToldCannotBeReleased(t *testing.T) {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 2, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 9)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 1, Unlimited: true, External: true, JournalHandouts: true})
	if err != nil {
		t.Fatal(err)
	}
	e.tasks[0].mark.step = 1
	var fx Effects
	e.ApplyAll(0, []Event{
		{Kind: EventJoin, Request: 1, Join: &Join{Name: "w", Nonce: 7, Slots: 2}}, {Kind: EventAttach, Session: 1, Worker: "w", Nonce: 7},
		{Kind: EventAcquire, Session: 1, Request: 1, N: 1}, {Kind: EventAcquire, Session: 1, Request: 2, N: 1},
	}, &fx)
	w := e.workers["w"]
	if w.held != 2 || w.last.told {
		t.Fatal("nothing waits for the mark, and this test shows nothing")
	}
	made := w.last.handout.Lease
	fx.Reset()
	e.Apply(0, &Event{Kind: EventRelease, Session: 1, Seq: 1, Epoch: 1, Lease: made}, &fx)
	if !slices.ContainsFunc(fx.List, func(f Effect) bool { return f.Kind == EffectRefused && f.Lease == made }) {
		t.Error("it was not refused")
	}
	e.Apply(0, &Event{Kind: EventDetach, Session: 1}, &fx)
	e.Apply(0, &Event{Kind: EventCommitted, UpTo: e.appended}, &fx)
	if got := e.sched.Tally(0); got.Success != 0 || got.Leased != int64(w.held) {
		t.Errorf("%d blocks succeeded, and %d are leased, of which the worker holds %d", got.Success, got.Leased, w.held)
	}
}
