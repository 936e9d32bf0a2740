package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
	"github.com/google/go-cmp/cmp"
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

// resumedWith is an engine of a run that goes on, in which one worker that came by itself to node "there" has not come back. apply takes
// events in after so many whole seconds.
func resumedWith(t *testing.T, more ...Record) (e *Engine, apply func(at time.Duration, events ...Event) []Effect) {
	t.Helper()
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 3)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	for _, r := range append([]Record{
		{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0])}},
		{Kind: RecordJoin, Worker: 1, ID: "box", Nonce: 7, Count: 1, Text: "there"},
		{Kind: RecordMark, Block: 3},
	}, more...) {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	if e, err = New(Config{Job: j, Pipeline: p, Epoch: 2, Unlimited: true, External: true, Past: past, Node: "here"}); err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	return e, func(at time.Duration, events ...Event) []Effect {
		var fx Effects
		for ; now < at; now += time.Second { // a longer step would be a stall
			e.Apply(now, &Event{Kind: EventTick}, &fx)
		}
		e.ApplyAll(now, events, &fx)
		return fx.List
	}
}

// What an earlier epoch cannot have handed out, as its mark says, waits for nobody.
func TestBlocksAboveTheMarkGoOutWhileAWorkerIsAway(t *testing.T) {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 200)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	for _, r := range []Record{
		{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0])}},
		{Kind: RecordJoin, Worker: 1, ID: "box", Nonce: 7, Count: 1, Text: "there"},
		{Kind: RecordMark, Block: 196},
	} {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 2, Unlimited: true, External: true, Past: past, Node: "here"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[SessionID][]int64{}
	lease := map[SessionID]scheduler.Lease{}
	apply := func(events ...Event) {
		var fx Effects
		e.ApplyAll(0, events, &fx)
		e.ApplyAll(0, []Event{{Kind: EventCommitted, UpTo: e.appended}}, &fx)
		for _, f := range fx.List {
			for _, h := range f.Handouts {
				got[f.Session] = append(got[f.Session], h.Block)
				lease[f.Session] = h.Lease
			}
		}
	}
	other := func(session SessionID, name string) []Event {
		return []Event{{Kind: EventJoin, Request: 1, Join: &Join{Name: name, Nonce: uint64(session), Slots: 1, Node: "here"}},
			{Kind: EventAttach, Session: session, Worker: name, Nonce: uint64(session)}, {Kind: EventAcquire, Session: session, Request: 1, N: 1}}
	}
	apply(other(1, "one")...)
	for seq := range uint64(4) {
		apply(Event{Kind: EventRelease, Session: 1, Seq: seq + 1, Epoch: 2, Lease: lease[1], Outcome: scheduler.Success},
			Event{Kind: EventAcquire, Session: 1, Request: seq + 2, N: 1})
	}
	apply(other(2, "two")...)
	if want := []int64{196, 197, 198, 199}; !slices.Equal(got[1], want) || len(got[2]) > 0 {
		t.Errorf("while a worker is away, blocks %v and %v are handed out, want %v", got[1], got[2], want)
	}
	if said := e.waits(0); !strings.Contains(said, "worker box on there served the coordinator before") {
		t.Errorf("it says %q", said)
	}
	apply(comesBack(3)...)
	if !slices.Equal(got[1][4:], []int64{1}) || !slices.Equal(got[2], []int64{2}) {
		t.Errorf("when it is back with block 0, blocks %v and %v are handed out", got[1][4:], got[2])
	}
}

// comesBack is what a worker with one block of an earlier epoch says.
func comesBack(session SessionID) []Event {
	return []Event{
		{Kind: EventJoin, Request: 1, Join: &Join{Name: "box", Nonce: 7, Slots: 1, Node: "there"}},
		{Kind: EventAttach, Session: session, Worker: "box", Nonce: 7, Held: []Held{{Epoch: 1, Lease: 5, Block: 0, Attempt: 1}}},
	}
}

func has(list []Effect, kind EffectKind) bool {
	return slices.ContainsFunc(list, func(f Effect) bool { return f.Kind == kind })
}

func TestAWorkerThatIsAwayAndToldToGoIsWaitedForNoLongerThanOthers(t *testing.T) {
	e, apply := resumedWith(t)
	apply(0, Event{Kind: EventTick}, Event{Kind: EventExclude, Exclude: &Exclusion{Node: "there", By: "anna"}})
	apply(time.Second, Event{Kind: EventJoin, Request: 1, Join: &Join{Name: "other", Nonce: 8, Slots: 1, Node: "elsewhere"}},
		Event{Kind: EventAttach, Session: 1, Worker: "other", Nonce: 8}, Event{Kind: EventAcquire, Session: 1, Request: 1, N: 1})
	apply(time.Second, Event{Kind: EventCommitted, UpTo: 1 << 60})
	beat := Event{Kind: EventHeartbeat, Session: 1}
	for at := time.Second; at < e.AbandonAfter(); at += time.Second {
		if fx := apply(at, beat); has(fx, EffectBlocks) {
			t.Fatalf("after %v a block is handed out, which the other worker may run", at)
		}
	}
	if fx := apply(e.AbandonAfter()+time.Second, beat); !has(fx, EffectBlocks) {
		t.Error("the other worker is waited for without end")
	}
}

func TestAWorkerOfAnExcludedNodeThatComesBackIsToldToGo(t *testing.T) {
	for _, when := range []string{"before the resume", "after it"} {
		t.Run(when, func(t *testing.T) {
			var more []Record
			events := []Event{{Kind: EventTick}}
			if when == "before the resume" {
				more = append(more, Record{Kind: RecordExclude, Final: true, ID: "there", Tail: "anna"})
			} else {
				events = append(events, Event{Kind: EventExclude, Exclude: &Exclusion{Node: "there", By: "anna"}})
			}
			e, apply := resumedWith(t, more...)
			apply(0, events...)
			fx := apply(2*e.cfg.Job.Grace, comesBack(1)...)
			if !has(fx, EffectWelcome) || !has(fx, EffectDrain) {
				t.Fatalf("%v", fx)
			}
			if s := e.sched.Block(0, 0); s != scheduler.BlockLeased {
				t.Errorf("its block is %v: it may end it", s)
			}
		})
	}
}

func TestADrainWaitsForWhoIsAway(t *testing.T) {
	e, apply := resumedWith(t)
	fx := apply(0, Event{Kind: EventTick}, Event{Kind: EventStop, Stop: StopDrain, Text: "anna"})
	want := "anna; worker box on there served the coordinator before, and may still run a block; the end waits for it to come back, or 2m00s"
	if got := e.waits(0); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	fx = append(fx, apply(time.Second, comesBack(1)...)...)
	if has(fx, EffectTaskEnded) || !has(fx, EffectDrain) {
		t.Fatalf("%v", fx)
	}
	var lease scheduler.Lease
	for _, f := range fx {
		for _, k := range f.Kept {
			lease = k.Now
		}
	}
	apply(2*time.Second, Event{Kind: EventRelease, Session: 1, Seq: 1, Epoch: 2, Lease: lease, Outcome: scheduler.Success})
	apply(2*time.Second, Event{Kind: EventCommitted, UpTo: 1 << 60})
	if n := e.sched.Tally(0).Success; n != 1 {
		t.Errorf("%d blocks succeeded: the one that ran was to end", n)
	}
}

func TestADrainEndsWithoutWhoDoesNotComeBack(t *testing.T) {
	e, apply := resumedWith(t)
	apply(0, Event{Kind: EventTick}, Event{Kind: EventStop, Stop: StopDrain, Text: "anna"})
	if fx := apply(e.AbandonAfter()+time.Second, Event{Kind: EventTick}); !has(fx, EffectTaskEnded) {
		t.Errorf("%v", fx)
	}
}

// What a worker brings over a resume need not be of the task that it serves as far as the journal knows: how many blocks of a task ran at once
// is written down of that task.
func TestTheMostBlocksAtOnceAreThoseOfTheirTask(t *testing.T) {
	j := testJob()
	for _, id := range []string{"a", "b"} {
		j.Tasks = append(j.Tasks, job.Task{ID: id, Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 9)})
	}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	for _, r := range []Record{
		{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0]), TaskRecordOf(&p.Tasks()[1])}},
		{Kind: RecordJoin, Worker: 1, ID: "1.0", Nonce: 7, Count: 1, Text: "here", Launched: true},
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
		{Kind: EventTick}, {Kind: EventJoin, Request: 1, Join: &Join{Tag: "1", Nonce: 7, Slots: 1, Node: "here"}},
		{Kind: EventAttach, Session: 1, Worker: "1.0", Nonce: 7, Held: []Held{{Epoch: 1, Lease: 5, Task: 1, Block: 3, Attempt: 1}}},
	}, &fx)
	var peaks []Record
	for _, f := range fx.List {
		if f.Kind == EffectAppend {
			if r, err := DecodeRecord(f.Record); err != nil {
				t.Error(err)
			} else if r.Kind == RecordPeak {
				peaks = append(peaks, r)
			}
		}
	}
	if want := []Record{{Kind: RecordPeak, Task: 1, Count: 1}}; !cmp.Equal(peaks, want) {
		t.Errorf("got %+v, want %+v", peaks, want)
	}
}
