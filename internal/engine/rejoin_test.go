package engine

import (
	"testing"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A worker may come back while the scheduler still goes through the blocks that were done before: whether its block waits or is ready
// shows when it has.
func TestAWorkerThatComesBackEarlyKeepsItsBlock(t *testing.T) {
	const n = 3 * workUnits
	j := testJob()
	j.Tasks = []job.Task{
		{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, n)},
		{ID: "b", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, n), After: []string{"a"}},
	}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	add := func(r Record) {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	add(Record{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0]), TaskRecordOf(&p.Tasks()[1])}})
	add(Record{Kind: RecordSubmission, ID: "1", Task: 1, Count: 1, Slots: 1})
	add(Record{Kind: RecordJoin, Worker: 1, ID: "1.0", Nonce: 7, Count: 1, Task: 1, Text: "here", Launched: true})
	for b := range int64(n) {
		if b%2 == 1 { // half of them, so that they are gone through one by one
			add(Record{Kind: RecordEnd, Worker: 1, Block: b})
		}
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 2, Unlimited: true, Past: past, Node: "here", Launcher: localProperties(), Left: []launcher.Worker{{Tag: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	held := []Held{{Epoch: 1, Lease: 5, Task: 1, Block: n - 1, Attempt: 1}}
	join := Event{Kind: EventJoin, Request: 1, Join: &Join{Tag: "1", Nonce: 7, Slots: 1, Node: "here"}}
	var fx Effects
	e.ApplyAll(0, []Event{
		{Kind: EventTick}, join, {Kind: EventAttach, Session: 1, Worker: "1.0", Nonce: 7, Held: held}, {Kind: EventDetach, Session: 1},
		join, {Kind: EventAttach, Session: 2, Worker: "1.0", Nonce: 7, Held: held},
	}, &fx)
	if !e.More() {
		t.Fatal("there is nothing to wait for, and this test shows nothing")
	}
	for e.More() {
		e.Apply(0, &Event{Kind: EventTick}, &fx)
	}
	welcomes := 0
	for _, f := range fx.List {
		if f.Kind != EffectWelcome {
			continue
		}
		welcomes++
		if f.Session != 2 {
			t.Errorf("session %d is welcome, which has ended", f.Session)
		}
		if len(f.Leases) != 0 || len(f.Kept) != 1 || f.Kept[0].Was != 5 || f.Kept[0].Epoch != 1 || f.Kept[0].Attempt != 1 {
			t.Errorf("gone are %v, kept %v", f.Leases, f.Kept)
		}
	}
	if welcomes != 1 {
		t.Errorf("%d welcomes", welcomes)
	}
	if s := e.sched.Block(1, n-1); s != scheduler.BlockLeased {
		t.Errorf("its block is %v", s)
	}
}

// Who is away keeps its place only against those that cannot be its successor: one that came by itself may have been started anew.
func TestTheNameOfAWorkerThatIsAway(t *testing.T) {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 3)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	for _, r := range []Record{
		{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0])}},
		{Kind: RecordSubmission, ID: "1", Count: 1, Slots: 1},
		{Kind: RecordJoin, Worker: 1, ID: "1.0", Nonce: 7, Count: 1, Text: "here", Launched: true},
		{Kind: RecordJoin, Worker: 2, ID: "box", Nonce: 7, Count: 1, Text: "there"},
	} {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 2, Unlimited: true, Past: past, Node: "here", Launcher: localProperties(), Left: []launcher.Worker{{Tag: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	e.ApplyAll(0, []Event{
		{Kind: EventTick},
		{Kind: EventJoin, Request: 1, Join: &Join{Name: "1.0", Nonce: 8, Slots: 1}},
		{Kind: EventJoin, Request: 2, Join: &Join{Name: "box", Nonce: 8, Slots: 1}},
		{Kind: EventJoin, Request: 3, Join: &Join{Name: "box", Nonce: 7, Slots: 1}},
		{Kind: EventJoin, Request: 4, Join: &Join{Tag: "1", Nonce: 8, Slots: 1}},
		{Kind: EventJoin, Request: 5, Join: &Join{Tag: "1", Nonce: 7, Slots: 1}},
	}, &fx)
	got := map[uint64]string{}
	for _, f := range fx.List {
		switch f.Kind {
		case EffectJoined:
			got[f.Request] = "joined"
		case EffectRefused:
			got[f.Request] = f.Code
		}
	}
	for request, want := range []string{1: "bad_request", 2: "joined", 3: "twin", 4: "twin", 5: "joined"} {
		if got[uint64(request)] != want {
			t.Errorf("join %d: %s, want %s", request, got[uint64(request)], want)
		}
	}
}
