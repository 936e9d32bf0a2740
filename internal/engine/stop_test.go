package engine

import (
	"fmt"
	"testing"

	"example.org/daisy/internal/job"
)

// forGuests is a run of n blocks in a row that is served by workers who come by themselves.
func forGuests(t *testing.T, n int64) *Engine {
	t.Helper()
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, n)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 1, External: true, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Whoever came by itself, and has no connection, ends as it is killed: nobody else would say so.
func TestAllWhomNobodyCanEndHaveEndedOnceAllAreKilled(t *testing.T) {
	e := forGuests(t, 3)
	var fx Effects
	for n := range uint64(3) {
		e.Apply(0, &Event{Kind: EventJoin, Request: n + 1, Join: &Join{Name: fmt.Sprint("guest-", n), Nonce: n + 1, Slots: 1}}, &fx)
	}
	if len(e.live) != 3 {
		t.Fatalf("%d have joined, want 3", len(e.live))
	}
	e.out = &fx
	e.killAll()
	if len(e.live) != 0 {
		t.Errorf("%d of them are waited for still", len(e.live))
	}
}
