package engine

import (
	"slices"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

// runWithClients is an engine of a run with a launcher, whose task "a" is for clients and "b" for workers, with as much room as one worker
// takes. apply takes events in.
func runWithClients(t *testing.T, past func(*job.Job) *Past) (e *Engine, apply func(at time.Duration, events ...Event) []Effect) {
	t.Helper()
	j := testJob()
	task := func(id string, kind job.RunnerKind) job.Task {
		return job.Task{ID: id, Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: kind}, Grid: line1D(t, 3)}
	}
	j.Tasks = []job.Task{task("a", job.RunnerClients), task("b", job.RunnerCommand)}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Job: j, Pipeline: p, Epoch: 1, Budget: cpus(1), Launcher: launcher.Properties{Local: true, OneNode: true}, Node: "here"}
	if past != nil {
		cfg.Epoch, cfg.Past = 2, past(j)
	}
	if e, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return e, func(at time.Duration, events ...Event) []Effect {
		var fx Effects
		e.ApplyAll(at, append([]Event{{Kind: EventTick}}, events...), &fx)
		return fx.List
	}
}

func TestNoWorkerIsAskedForToServeTasksOfClients(t *testing.T) {
	e, apply := runWithClients(t, nil)
	var tasks []int32
	for at := range 10 {
		for _, f := range apply(time.Duration(at)*time.Second, Event{Kind: EventCommitted, UpTo: e.appended}) {
			if f.Kind == EffectSubmit {
				tasks = append(tasks, f.Submit.Task)
			}
		}
	}
	if !slices.Equal(tasks, []int32{1}) {
		t.Errorf("workers were asked for tasks %v", tasks)
	}
}

func TestClientsAndWorkersDoNotServeEachOthersTasks(t *testing.T) {
	e, apply := runWithClients(t, nil)
	list := apply(0,
		Event{Kind: EventJoin, Request: 1, Join: &Join{Name: "w1", Nonce: 1, Slots: 1, Task: "a"}},
		Event{Kind: EventJoin, Request: 2, Join: &Join{Name: "w2", Nonce: 1, Slots: 1, Task: "b", Client: true}},
		Event{Kind: EventJoin, Request: 3, Join: &Join{Name: "w3", Nonce: 1, Slots: 1}},
		Event{Kind: EventJoin, Request: 4, Join: &Join{Name: "w4", Nonce: 1, Slots: 1, Task: "a", Client: true}},
	)
	tasks := map[uint64]int32{}
	for _, f := range list {
		switch f.Kind {
		case EffectJoined:
			tasks[f.Request] = f.Task
		case EffectRefused:
			tasks[f.Request] = -1
		}
	}
	for request, want := range []int32{1: -1, 2: -1, 3: 1, 4: 0} {
		if request > 0 && tasks[uint64(request)] != want {
			t.Errorf("join %d is for task %d, want %d", request, tasks[uint64(request)], want)
		}
	}
	if task, _ := e.externalTask(""); task != 1 {
		t.Errorf("a worker for any task is for task %d", task)
	}
}

// The connection of a client was its life, and that has ended with its coordinator.
func TestNobodyWaitsForClientsOfAnEarlierEpoch(t *testing.T) {
	e, apply := runWithClients(t, func(j *job.Job) *Past {
		p, err := j.Pipeline()
		if err != nil {
			t.Fatal(err)
		}
		past := NewPast(p)
		for _, r := range []Record{
			{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0]), TaskRecordOf(&p.Tasks()[1])}},
			{Kind: RecordJoin, Worker: 1, ID: "client-0", Nonce: 7, Count: 1, Task: 0, Text: "here"},
			{Kind: RecordMark, Task: 0, Block: 3},
		} {
			if _, _, err := past.Add(&r); err != nil {
				t.Fatal(err)
			}
		}
		return past
	})
	apply(0)
	if len(e.away)+len(e.held) > 0 {
		t.Errorf("%d workers are away, %d held", len(e.away), len(e.held))
	}
}
