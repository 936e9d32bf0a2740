package engine

import (
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

// asideRun is a run with one worker, which holds a block, and whose coordinator then steps aside. The worker comes by itself, as w, or was
// launched, as 1.0.
func asideRun(t *testing.T, worker string, began int64, before ...Event) (records []Record, fx Effects, e *Engine, j *job.Job) {
	t.Helper()
	j = testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 3)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	if e, err = New(Config{Job: j, Pipeline: p, Epoch: 1, Began: began, Unlimited: true, Node: "here", External: worker == "w", Launcher: launcher.Properties{AbandonAfter: 10 * time.Minute}}); err != nil {
		t.Fatal(err)
	}
	appended := uint64(0)
	apply := func(at time.Duration, ev Event) {
		from := len(fx.List)
		e.Apply(at, &ev, &fx)
		for _, f := range fx.List[from:] {
			if f.Kind == EffectAppend {
				r, err := DecodeRecord(f.Record)
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, r)
				appended++
			}
		}
	}
	durable := func() { apply(time.Second, Event{Kind: EventCommitted, UpTo: appended}) }
	apply(0, Event{Kind: EventTick})
	durable()
	join := Join{Nonce: 7, Slots: 1, Node: "there", Tag: "1"}
	if worker == "w" {
		join.Tag, join.Name = "", "w"
	}
	for _, ev := range append([]Event{
		{Kind: EventJoin, Request: 1, Join: &join},
		{Kind: EventAttach, Session: 1, Worker: worker, Nonce: 7},
		{Kind: EventAcquire, Session: 1, Request: 1, N: 1},
	}, before...) {
		apply(time.Second, ev)
		durable()
	}
	apply(time.Second, Event{Kind: EventAside, Left: time.Hour, Text: "its time is over"})
	durable()
	return records, fx, e, j
}

func TestACoordinatorThatStepsAsideTellsItsWorkersToWait(t *testing.T) {
	_, fx, e, _ := asideRun(t, "1.0", 0)
	if !e.Finished() || e.state != RunAside {
		t.Fatalf("finished: %v, %v", e.Finished(), e.state)
	}
	told := 0
	for _, f := range fx.List {
		switch f.Kind {
		case EffectAway:
			told++
			if f.Session != 1 || f.Left != time.Hour {
				t.Errorf("session %d is told to wait for %v", f.Session, f.Left)
			}
		case EffectStop, EffectDrain, EffectCancel, EffectKill, EffectKillBlock:
			t.Errorf("effect %d", f.Kind)
		}
	}
	if told != 1 {
		t.Errorf("%d workers are told", told)
	}
}

func TestAWorkerThatComesWhileTheCoordinatorStepsAsideIsToComeAgain(t *testing.T) {
	e := forGuests(t, 3)
	var fx Effects
	e.ApplyAll(0, []Event{{Kind: EventTick}, {Kind: EventAside, Left: time.Hour}, {Kind: EventJoin, Request: 1, Join: &Join{Name: "w", Nonce: 7, Slots: 1}}}, &fx)
	code := ""
	for _, f := range fx.List {
		if f.Kind == EffectRefused {
			code = f.Code
		}
	}
	if code != "busy" {
		t.Errorf("it is refused with %q", code)
	}
}

func TestARunThatEndsIsNotLeftToAnother(t *testing.T) {
	_, fx, e, _ := asideRun(t, "1.0", 0, Event{Kind: EventStop, Stop: StopDrain, Text: "told to"})
	if e.Finished() {
		t.Errorf("it has ended: %v", e.state)
	}
	for _, f := range fx.List {
		if f.Kind == EffectAway {
			t.Error("workers are told to wait for another coordinator")
		}
	}
}

// The worker may run its block until the hour is over, so nobody else may have it before that, and abandon_after.
func TestTheNextCoordinatorIsAsPatientAsWorkersWereTold(t *testing.T) {
	for _, worker := range []string{"w", "1.0"} {
		t.Run(worker, func(t *testing.T) { asPatient(t, worker) })
	}
}

func asPatient(t *testing.T, worker string) {
	const began = int64(1e18)
	records, _, _, j := asideRun(t, worker, began)
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	for _, r := range records {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	if past, err = ReadPast(p, past.AppendBytes(nil)); err != nil {
		t.Fatal(err)
	}
	const later = 20 * time.Minute
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 2, Began: began + int64(later), Unlimited: true, Past: past, Node: "elsewhere", External: worker == "w", Launcher: launcher.Properties{AbandonAfter: 10 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	given := false
	for now := time.Duration(0); !given && now < 2*time.Hour; now += time.Second {
		e.Apply(now, &Event{Kind: EventTick}, &fx)
		for _, f := range fx.List {
			if f.Kind == EffectAppend {
				e.Apply(now, &Event{Kind: EventCommitted, UpTo: e.appended}, &fx)
				break
			}
		}
		fx.Reset()
		if given = !e.awaitsOthers(); given {
			if want := time.Hour - later + 10*time.Minute; now < want || now > want+10*time.Second {
				t.Errorf("blocks are handed out after %v, want %v", now, want)
			}
		}
	}
	if !given {
		t.Error("blocks are never handed out")
	}
}

// Nothing more is asked of the batch system, so that nothing of it is due before the commit.
func TestACoordinatorThatStepsAsideWaitsForTheDiskOnly(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.apply(Event{Kind: EventTick})
	c.run(30 * time.Second)
	c.holds = true
	c.apply(Event{Kind: EventAside, Left: time.Hour})
	for range 10 {
		at, timed := c.e.Next()
		if !timed {
			return
		}
		if at <= c.now {
			t.Fatalf("at %v it is to look again at %v", c.now, at)
		}
		c.now = at
		c.apply(Event{Kind: EventTick})
	}
}
