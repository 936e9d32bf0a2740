package engine

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A life is one epoch of a run with workers that come by themselves, whose blocks end as their task, number and attempt say.
type life struct {
	t         *rapid.T
	e         *Engine
	now       time.Duration
	fx        Effects
	records   [][]byte // appended
	committed int      // of them
	durable   map[[2]int64]bool
	finished  bool
	open      []scheduler.Handout
	session   map[scheduler.Lease]SessionID
	requests  map[SessionID]uint64
	seq       map[SessionID]uint64
	workers   []string
}

// fate is how an attempt ends.
func fate(seed uint64, h scheduler.Handout) scheduler.Outcome {
	f := fnv.New64a()
	fmt.Fprint(f, seed, h.Task, h.Block, h.Attempt)
	switch x := f.Sum64() % 16; {
	case x < 7:
		return scheduler.Success
	case x == 7:
		return scheduler.Skipped
	case x == 8:
		return scheduler.TimedOut
	case x == 9:
		return scheduler.Lost
	case x == 10:
		return scheduler.Returned
	default:
		return scheduler.Failed
	}
}

func newLife(t *rapid.T, j *job.Job, past *Past, epoch uint64) *life {
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, durable: map[[2]int64]bool{}, session: map[scheduler.Lease]SessionID{}, requests: map[SessionID]uint64{}, seq: map[SessionID]uint64{}}
	l.e, err = New(Config{Job: j, Pipeline: p, Epoch: epoch, Unlimited: true, External: true, Past: past, Launcher: launcher.Properties{}})
	if err != nil {
		t.Fatal(err)
	}
	l.apply(Event{Kind: EventTick})
	return l
}

func (l *life) apply(ev Event) {
	l.fx.Reset()
	l.e.Apply(l.now, &ev, &l.fx)
	var commit bool
	for i := range l.fx.List {
		switch f := &l.fx.List[i]; f.Kind {
		case EffectAppend:
			l.records = append(l.records, slices.Clone(f.Record))
		case EffectCommit:
			commit = true
		case EffectBlocks:
			for _, h := range f.Handouts {
				if l.durable[[2]int64{int64(h.Task), h.Block}] {
					l.t.Fatalf("block %d of task %d had succeeded, and is handed out again", h.Block, h.Task)
				}
				l.session[h.Lease] = f.Session
				l.open = append(l.open, h)
			}
		case EffectFinished:
			l.finished = true
		}
	}
	if commit {
		l.committed = len(l.records)
		l.apply(Event{Kind: EventCommitted, UpTo: uint64(l.committed)})
	}
	if l.e.More() {
		l.apply(Event{Kind: EventTick})
	}
}

// join brings a worker that asks for a block.
func (l *life) join(name string, nonce uint64) {
	l.apply(Event{Kind: EventJoin, Request: 1, Join: &Join{Name: name, Nonce: nonce, Slots: 1, Node: "n"}})
	s := SessionID(len(l.workers) + 1)
	l.workers = append(l.workers, name)
	l.apply(Event{Kind: EventAttach, Session: s, Worker: name, Nonce: nonce})
	l.ask(s)
}

func (l *life) ask(s SessionID) {
	l.requests[s]++
	l.apply(Event{Kind: EventAcquire, Session: s, Request: l.requests[s], N: 1})
}

// step ends one of the blocks that run.
func (l *life) step(seed uint64, i int) {
	h := l.open[i]
	l.open = slices.Delete(l.open, i, i+1)
	s := l.session[h.Lease]
	l.seq[s]++
	l.now += 10 * time.Millisecond
	ev := Event{Kind: EventRelease, Session: s, Seq: l.seq[s], Epoch: l.e.cfg.Epoch, Lease: h.Lease, Outcome: fate(seed, h), Use: Use{WallNanos: 1000, PeakRSSBytes: h.Block}}
	if ev.Outcome != scheduler.Success {
		ev.Failure = &Failure{Message: "no", Tail: "out"}
	}
	l.apply(ev)
	l.ask(s)
}

// wait lets some time pass in which every worker is heard from.
func (l *life) wait() {
	at, timed := l.e.Next()
	if !timed {
		l.t.Fatal("nothing runs, nothing is waited for, and the run has not ended")
	}
	l.now = min(max(at, l.now), l.now+10*time.Second) // later than a deadline would be a stall
	for i := range l.workers {
		l.apply(Event{Kind: EventHeartbeat, Session: SessionID(i + 1)})
	}
	l.apply(Event{Kind: EventTick})
}

// TestARunThatIsCutOffAnywhereGoesOnWhereItsJournalEnds: over any number of lives the run ends as if it had had one, no success that was
// durable is run again, and the counts, the rows of the workers and the failures add up.
func TestARunThatIsCutOffAnywhereGoesOnWhereItsJournalEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		j := testJob()
		var ids []string
		for i := range rapid.IntRange(1, 3).Draw(t, "tasks") {
			task := job.Task{ID: fmt.Sprint("t", i), Slots: 1, MaxRetries: 2, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand},
				Grid: line1D(nil, rapid.Int64Range(1, 8).Draw(t, "blocks"))}
			for _, u := range ids {
				if rapid.Bool().Draw(t, "edge") {
					task.After = append(task.After, u)
				}
			}
			ids = append(ids, task.ID)
			j.Tasks = append(j.Tasks, task)
		}
		var journal [][]byte
		succeeded := map[[2]int64]bool{}
		nonce := uint64(1)
		begin := func(epoch uint64) (*life, *Past) {
			p, _ := j.Pipeline()
			past := NewPast(p)
			ends := int64(0)
			for _, raw := range journal {
				r, err := DecodeRecord(raw)
				if err != nil {
					t.Fatal(err)
				}
				_, end, err := past.Add(&r)
				if err != nil {
					t.Fatal(err)
				}
				if end {
					ends++
					if o := scheduler.Outcome(r.Outcome); o == scheduler.Success || o == scheduler.Skipped {
						succeeded[[2]int64{int64(r.Task), r.Block}] = true
					}
				}
			}
			l := newLife(t, j, past, epoch)
			l.durable = succeeded
			for range rapid.IntRange(1, 3).Draw(t, "workers") {
				nonce++
				l.join(fmt.Sprint("w", nonce%4), nonce)
			}
			var snap Snapshot
			l.e.Snapshot(&snap)
			counted := int64(0)
			for _, x := range snap.Tasks {
				c := x.Tally
				counted += c.Processed + c.TimedOut + c.Lost + c.Returned + x.SkippedByCheck
			}
			if counted != ends {
				t.Fatalf("the journal has %d ends, and %d are counted", ends, counted)
			}
			return l, past
		}
		epoch := uint64(1)
		l, _ := begin(epoch)
		for steps := 0; !l.finished; steps++ {
			if steps > 2000 {
				t.Fatal("it does not end")
			}
			if steps < 60 && rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
				// What was appended and not committed may have reached the disk, or not.
				journal = append(journal, l.records[:rapid.IntRange(l.committed, len(l.records)).Draw(t, "kept")]...)
				epoch++
				l, _ = begin(epoch)
				continue
			}
			if len(l.open) > 0 {
				l.step(seed, rapid.IntRange(0, len(l.open)-1).Draw(t, "which"))
				continue
			}
			l.wait()
		}
		var cut Snapshot
		l.e.Snapshot(&cut)
		journal = append(journal, l.records...)
		// The same in one life.
		journal = nil
		clear(succeeded)
		one, _ := begin(1)
		for steps := 0; !one.finished; steps++ {
			if steps > 2000 {
				t.Fatal("it does not end in one life")
			}
			if len(one.open) > 0 {
				one.step(seed, 0)
				continue
			}
			one.wait()
		}
		var whole Snapshot
		one.e.Snapshot(&whole)
		for i, a := range cut.Tasks {
			b := whole.Tasks[i]
			if a.State != b.State || a.Tally != b.Tally || a.SkippedByCheck != b.SkippedByCheck {
				t.Fatalf("task %s: %v %+v, in one life %v %+v", a.ID, a.State, a.Tally, b.State, b.Tally)
			}
		}
		processed, failed := int64(0), int64(0)
		for _, w := range cut.Workers {
			processed, failed = processed+w.Processed, failed+w.Failed
		}
		for _, a := range cut.Tasks {
			processed -= a.Tally.Processed
		}
		if processed != 0 {
			t.Fatalf("the rows of the workers have %d valid returns more than the tasks", processed)
		}
		sort := func(list []FailedBlock) []FailedBlock {
			list = slices.Clone(list)
			for i := range list {
				list[i].Worker = ""
			}
			slices.SortFunc(list, func(a, b FailedBlock) int {
				return int(int64(a.Task)<<32+a.Block) - int(int64(b.Task)<<32+b.Block)
			})
			return list
		}
		if d := gocmp.Diff(sort(whole.Failures), sort(cut.Failures)); d != "" {
			t.Fatalf("failures (-one life +cut): %s", d)
		}
	})
}

func TestAfterAResumeBlocksWaitForWorkersOfWhomNobodyKnows(t *testing.T) {
	j := testJob()
	j.AbandonAfter = time.Minute
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxRetries: 2, MaxLost: 3, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 3)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	add := func(past *Past, r Record) {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		launched, gone bool
		local          bool
		node           string
		left           bool          // the launcher has found it alive
		want           time.Duration // at which the first block is handed out
		returns        bool          // or it comes back
	}{
		"a client":                       {want: time.Minute, returns: true},
		"a client that had left":         {gone: true},
		"one of a local launcher, ended": {launched: true, local: true},
		"one of a local launcher, alive": {launched: true, local: true, left: true, want: time.Minute, returns: true},
		"one of another machine":         {launched: true, local: true, node: "n2", want: time.Minute},
		"one of another launcher":        {launched: true, want: time.Minute},
		"a client beside a local one":    {local: true, want: time.Minute, returns: true},
		"of another, seen to have end":   {launched: true, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			records := []Record{{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{{"a", 3, hashOf(&p.Tasks()[0])}}},
				{Kind: RecordMark, Block: 3},
				{Kind: RecordJoin, Worker: 1, ID: "1.0", Nonce: 5, Count: 1, Text: cmp.Or(c.node, "n1"), Launched: c.launched}}
			if c.gone {
				records = append(records, Record{Kind: RecordGone, Worker: 1, Text: "left"})
			}
			// A coordinator that dies while it waits leaves the next one no wiser, and one that comes back ends the wait.
			for _, returns := range []bool{false, false, true} {
				past := NewPast(p)
				for _, r := range records {
					add(past, r)
				}
				cfg := Config{Job: j, Pipeline: p, Epoch: past.Epochs()[len(past.Epochs())-1].Epoch + 1, Unlimited: true, Past: past, Node: "n1", Launcher: launcher.Properties{Local: c.local}}
				if c.left {
					cfg.Left = []launcher.Worker{{Tag: "1"}}
				}
				if cfg.External = !c.launched || !c.local; cfg.External {
					cfg.Left = nil
				}
				e, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				var first []Record
				handed := func(now time.Duration, events ...Event) (some bool) {
					var fx Effects
					e.ApplyAll(now, events, &fx)
					for e.More() {
						e.Apply(now, &Event{Kind: EventTick}, &fx)
					}
					for _, f := range fx.List {
						some = some || f.Kind == EffectBlocks
						if f.Kind == EffectAppend {
							r, err := DecodeRecord(f.Record)
							if err != nil {
								t.Fatal(err)
							}
							first = append(first, r)
						}
					}
					return some
				}
				handed(0, Event{Kind: EventTick})
				if !returns {
					records = append(records, first...)
				}
				handed(0, Event{Kind: EventCommitted, UpTo: e.appended})
				got := handed(0, Event{Kind: EventJoin, Request: 1, Join: &Join{Name: "other", Nonce: 6, Slots: 1, Node: "n1"}},
					Event{Kind: EventAttach, Session: 1, Worker: "other", Nonce: 6}, Event{Kind: EventAcquire, Session: 1, Request: 1, N: 1})
				got = handed(0, Event{Kind: EventCommitted, UpTo: e.appended}) || got
				if got != (c.want == 0) {
					t.Errorf("a block is handed out at once: %v", got)
				}
				if c.want == 0 {
					continue
				}
				if said := e.waits(0); !strings.Contains(said, "worker 1.0 on "+cmp.Or(c.node, "n1")+" served the coordinator before") {
					t.Errorf("it says %q", said)
				}
				if returns && c.returns {
					join := &Join{Name: "1.0", Nonce: 5, Slots: 1, Node: "n1"}
					if c.launched {
						join.Name, join.Tag = "", "1"
					}
					if !handed(time.Second, Event{Kind: EventJoin, Request: 1, Join: join}, Event{Kind: EventAttach, Session: 2, Worker: "1.0", Nonce: 5}) {
						t.Error("it is back, and no block is handed out")
					}
					continue
				}
				at := time.Duration(0)
				for beat := (Event{Kind: EventHeartbeat, Session: 1}); !handed(at, beat); at += 10 * time.Millisecond {
					if at > 2*c.want {
						t.Fatalf("no block is handed out until %v", at)
					}
				}
				if at < c.want || at > c.want+20*time.Millisecond {
					t.Errorf("the first block is handed out at %v, want %v", at, c.want)
				}
			}
		})
	}
}

func TestARecordThatDoesNotBelongToTheRunIsAnError(t *testing.T) {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, 3), Runner: job.Runner{Kind: job.RunnerCommand}}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	start := Record{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{{"a", 3, hashOf(&p.Tasks()[0])}}}
	for want, records := range map[string][]Record{
		"a record of kind 5 stands before the first start":                                                                                                                   {{Kind: RecordEnd}},
		`task 1 is "a" now, and was "b" when the run began: restore job.toml in the run directory, or start a new run`:                                                       {{Kind: RecordStart, Tasks: []TaskRecord{{"b", 3, 0}}}},
		`task "a" has 3 blocks now, and had 4 when the run began: the shape of its array has changed; undo that, or start a new run`:                                         {{Kind: RecordStart, Tasks: []TaskRecord{{"a", 4, 0}}}},
		`task "a" has as many blocks as when the run began, and others: the shape of its array has changed, or what its skip_mask leaves out; undo that, or start a new run`: {{Kind: RecordStart, Tasks: []TaskRecord{{"a", 3, 7}}}},
		"the job has 1 task now, and had 2 tasks when the run began: restore job.toml in the run directory, or start a new run":                                              {{Kind: RecordStart, Tasks: []TaskRecord{{"a", 3, 0}, {"b", 3, 0}}}},
		"a record of kind 7 is about task 1 of 1":        {start, {Kind: RecordMark, Task: 1}},
		`an attempt of block 3 of task "a", which has 3`: {start, {Kind: RecordEnd, Block: 3}},
		"worker 1 joins a second time":                   {start, {Kind: RecordJoin, Worker: 1}, {Kind: RecordJoin, Worker: 1}},
	} {
		past := NewPast(p)
		var err error
		for i := range records {
			if err == nil {
				_, _, err = past.Add(&records[i])
			}
		}
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWhatFollowsFromThePastIsWorkedOutInSlicesThatCanBeCutShort(t *testing.T) {
	const blocks = 200 * workUnits
	j := &job.Job{Tasks: []job.Task{{ID: "a", Grid: line1D(t, blocks), Requires: scheduler.NewResources(map[string]int64{"cpu": 1000}), Slots: 1, MaxLost: 1}}}
	done := scheduler.NewBitmap(blocks)
	for block := range int64(blocks) - 2 {
		done.Set(block + 2)
	}
	p, err := scheduler.NewPipeline([]scheduler.Task{{ID: "a", Grid: j.Tasks[0].Grid, Done: done, MaxLost: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	past := func() *Past {
		past := NewPast(p)
		tasks := p.Tasks()
		for _, r := range []Record{
			{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&tasks[0])}},
			{Kind: RecordEnd, Block: 0, Outcome: uint8(scheduler.Success), Attempt: 1},
		} {
			if _, _, err := past.Add(&r); err != nil {
				t.Fatal(err)
			}
		}
		return past
	}
	slices := 0
	e, err := past().Standing(j, p, func() bool { slices++; return true })
	if err != nil {
		t.Fatal(err)
	}
	var snap Snapshot
	e.Snapshot(&snap)
	if y := snap.Tasks[0].Tally; y.Success != 1 || y.Skipped != blocks-2 || y.Ready != 1 {
		t.Errorf("%+v", y)
	}
	if slices < 5 {
		t.Errorf("it went in %d slices", slices)
	}
	asked := 0
	if e, err = past().Standing(j, p, func() bool { asked++; return asked < 3 }); e != nil || err != nil || asked != 3 {
		t.Errorf("cut short it gives %v, %v, after having asked %d times", e, err, asked)
	}
}
