package engine

import (
	"fmt"
	"testing"

	"example.org/daisy/internal/job"
)

// Whoever came by itself, and has no connection, ends as it is killed: nobody else would say so.
func TestAllWhomNobodyCanEndHaveEndedOnceAllAreKilled(t *testing.T) {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, 3), Slots: 1, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerFunc}}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 1, External: true, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
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
