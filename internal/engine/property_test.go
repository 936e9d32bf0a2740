package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
	"pgregory.net/rapid"
)

// TestWhateverWorkersDo drives an engine with a shell that delays, drops and repeats messages, commits late, and has workers that
// die, hang, are stopped, come back and lie; external ones too. After every event the rules of a run are checked; when the
// faults end, the run must end.
func TestWhateverWorkersDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newChaos(t)
		s.apply(Event{Kind: EventTick})
		for range rapid.IntRange(100, 400).Draw(t, "steps") {
			if s.e.Finished() {
				break
			}
			s.step()
		}
		s.calm()
	})
}

type blockKey struct {
	task  int32
	block int64
}

type chaos struct {
	t        *rapid.T
	e        *Engine
	now      time.Duration
	fx       Effects
	workers  []*simWorker
	session  map[SessionID]*simWorker
	last     SessionID
	appended uint64
	asked    uint64 // a commit was asked for up to here
	done     uint64 // committed
	ends     map[blockKey]uint64
	failures map[blockKey][]uint64      // records of the ends that tracking counts as failures, less those that it has
	endOf    map[scheduler.Lease]uint64 // record of the end of each lease
	refused  map[scheduler.Lease]bool   // results that the engine did not want
	handed   []scheduler.Lease          // all that were ever given to somebody
	holder   map[scheduler.Lease]*simWorker
	taskOf   map[scheduler.Lease]int32
	batch    []Event      // on the way to the engine
	hold     bool         // what happens next comes to it together with that
	senders  []*simWorker // whose messages are among it
	order    []int        // tasks by priority
	grants   []grant      // of the event that the engine is at
	stopped  bool
	leased   int64 // blocks, since the run was told to stop
	broken   bool
	brokenAt time.Duration
	silent   bool                  // nothing is committed any more
	marks    map[int32][][2]uint64 // of each task: record, mark
	subs     map[string]uint64     // record of each submission
	tracked  map[blockKey]bool
	finished int
	requires []int64 // cpus of a slot by task
	cpu      int64
	rejoin   int
	calming  bool
	snap     Snapshot
	wall     int64
}

func newChaos(t *rapid.T) *chaos {
	j := testJob()
	j.MaxFailures = rapid.SampledFrom([]int64{0, 0, 0, 2}).Draw(t, "max_failures")
	s := &chaos{t: t, session: map[SessionID]*simWorker{}, ends: map[blockKey]uint64{}, failures: map[blockKey][]uint64{}, endOf: map[scheduler.Lease]uint64{}, refused: map[scheduler.Lease]bool{}, holder: map[scheduler.Lease]*simWorker{}, taskOf: map[scheduler.Lease]int32{}, marks: map[int32][][2]uint64{}, subs: map[string]uint64{}, tracked: map[blockKey]bool{}}
	s.wall = rapid.SampledFrom([]int64{1e6, 1e9}).Draw(t, "block time")
	s.cpu = rapid.Int64Range(2, 6).Draw(t, "cpu")
	n := rapid.IntRange(1, 4).Draw(t, "tasks")
	blocks := rapid.SampledFrom([]int64{1, 3, 12, 40, 40, 200}).Draw(t, "blocks")
	for i := range n {
		slots := rapid.IntRange(1, 2).Draw(t, "slots")
		need := rapid.Int64Range(1, 2).Draw(t, "requires")
		task := job.Task{ID: fmt.Sprint("t", i), Grid: line1D(&testing.T{}, blocks), Slots: slots, Requires: cpus(float64(need)),
			MaxRetries: rapid.IntRange(0, 2).Draw(t, "retries"), MaxLost: 3, MaxWorkerRestarts: rapid.IntRange(2, 10).Draw(t, "restarts"),
			MaxWorkers: rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(t, "max_workers"), Timeout: rapid.SampledFrom([]time.Duration{0, 10 * time.Second, time.Minute}).Draw(t, "timeout"),
			Priority: rapid.SampledFrom([]int{0, 0, 1, -1}).Draw(t, "priority"), MaxBlocksPerWorker: rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(t, "max_blocks_per_worker") * max(blocks/40, 1),
			RetryBackoff: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "backoff"), Runner: job.Runner{Kind: job.RunnerCommand},
			Env: rapid.SampledFrom([][]string{nil, nil, {"A=1"}}).Draw(t, "env")}
		if i > 0 && rapid.Bool().Draw(t, "chained") {
			task.After = []string{fmt.Sprint("t", rapid.IntRange(0, i-1).Draw(t, "after"))}
		}
		j.Tasks = append(j.Tasks, task)
	}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range p.Tasks() {
		s.requires = append(s.requires, j.Task(task.ID).Requires.Get("cpu"))
	}
	has := localProperties()
	if rapid.IntRange(0, 3).Draw(t, "batch") == 3 {
		has = launcher.Properties{IdleTimeout: 2 * time.Minute, AbandonAfter: 15 * time.Minute}
	}
	s.e, err = New(Config{Job: j, Pipeline: p, Launcher: has, Epoch: 1, Budget: cpus(float64(s.cpu)), MaxSlots: rapid.SampledFrom([]int{0, 0, 0, 0, 1, 3}).Draw(t, "max slots"),
		StopAtFirstFailure: rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, "stop at first failure")})
	if err != nil {
		t.Fatal(err)
	}
	s.order = s.byPriority()
	step := rapid.SampledFrom([]int64{0, 2, 8}).Draw(t, "mark step") // else one mark is above all these blocks
	for i := range s.e.tasks {
		if step > 0 {
			s.e.tasks[i].mark.step = step
		}
	}
	return s
}

// apply hands an event over.
func (s *chaos) apply(ev Event) {
	if s.batch = append(s.batch, ev); !s.hold {
		s.handOver()
	}
}

// handOver hands over what is on the way, takes the effects in and checks the rules.
func (s *chaos) handOver() {
	s.hold = false
	s.fold()
	switch len(s.batch) {
	case 0:
		return
	case 1:
		s.e.Apply(s.now, &s.batch[0], &s.fx)
	default:
		s.e.ApplyAll(s.now, s.batch, &s.fx)
	}
	list := append([]Effect(nil), s.fx.List...)
	for i := range list {
		s.effect(&list[i])
	}
	s.fx.Reset()
	s.check()
	s.batch, s.grants, s.senders = s.batch[:0], s.grants[:0], s.senders[:0]
}

// fold has successes that one worker gives back one after another come as one event, at times.
func (s *chaos) fold() {
	var folded []Event
	for _, ev := range s.batch {
		plain := ev.Kind == EventRelease && ev.Outcome == scheduler.Success && ev.Use == Use{WallNanos: ev.Use.WallNanos}
		if plain && len(folded) > 0 {
			last := &folded[len(folded)-1]
			n := uint64(len(last.Successes))
			if last.Kind == EventSuccesses && last.Session == ev.Session && last.Epoch == ev.Epoch && last.Seq+n == ev.Seq {
				last.Successes = append(last.Successes, Success{ev.Lease, ev.Use.WallNanos})
				continue
			}
		}
		if plain && rapid.Bool().Draw(s.t, "together") {
			ev = Event{Kind: EventSuccesses, Session: ev.Session, Seq: ev.Seq, Epoch: ev.Epoch, Successes: []Success{{ev.Lease, ev.Use.WallNanos}}}
		}
		folded = append(folded, ev)
	}
	s.batch = folded
}

func (s *chaos) effect(f *Effect) {
	if s.finished > 0 && f.Kind != EffectCommit {
		s.t.Fatalf("an effect of kind %d after the end", f.Kind)
	}
	w := s.session[f.Session]
	switch f.Kind {
	case EffectWelcome, EffectBlocks, EffectAcknowledge, EffectRecall, EffectReassign, EffectDrain, EffectStop, EffectKillBlock, EffectTimeLeft, EffectClose:
		if f.Session == 0 {
			s.t.Fatalf("an effect of kind %d for nobody", f.Kind)
		}
	}
	switch f.Kind {
	case EffectAppend:
		s.appended++
		r, err := DecodeRecord(f.Record)
		if err != nil {
			s.t.Fatal(err)
		}
		switch r.Kind {
		case RecordEnd:
			k := blockKey{r.Task, r.Block}
			s.endOf[scheduler.Lease(r.Lease)] = s.appended
			switch scheduler.Outcome(r.Outcome) {
			case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory:
				s.failures[k] = append(s.failures[k], s.appended)
			case scheduler.Success, scheduler.Skipped:
				if s.ends[k] != 0 {
					s.t.Fatalf("two good ends of block %d of task %d in the journal", r.Block, r.Task)
				}
				if !slices.Contains(s.senders, s.holder[scheduler.Lease(r.Lease)]) {
					s.t.Fatalf("block %d of task %d was ended by a worker that did not hold it", r.Block, r.Task)
				}
				s.ends[k] = s.appended
			}
		case RecordMark:
			s.marks[r.Task] = append(s.marks[r.Task], [2]uint64{s.appended, uint64(r.Block)})
		case RecordSubmission:
			s.subs[r.ID] = s.appended
			s.grants = append(s.grants, grant{task: r.Task, slots: r.Slots, count: r.Count})
		}
	case EffectCommit:
		s.asked = s.appended
	case EffectTrack:
		if k := (blockKey{f.Task, f.Block}); f.Done {
			if s.tracked[k] {
				s.t.Fatalf("block %v counted twice", k)
			}
			if s.ends[k] == 0 || s.ends[k] > s.done {
				s.t.Fatalf("block %v counted before it was durable", k)
			}
			s.tracked[k] = true
		} else if n := s.failures[k]; len(n) == 0 || n[0] > s.done {
			s.t.Fatalf("a failure of block %v counted before it was durable", k)
		} else {
			s.failures[k] = n[1:]
		}
	case EffectSubmit:
		if s.stopped {
			s.t.Fatal("workers are asked for after the run was told to stop")
		}
		if s.subs[f.Submit.Tag] == 0 || s.subs[f.Submit.Tag] > s.done {
			s.t.Fatalf("submission %s before its record was durable", f.Submit.Tag)
		}
		for i := range f.Submit.Count {
			at := launcher.Worker{Tag: f.Submit.Tag, Element: i}
			s.workers = append(s.workers, &simWorker{id: at.String(), at: at, slots: int32(f.Submit.Slots), task: f.Submit.Task, nonce: 1, slow: rapid.IntRange(0, 3).Draw(s.t, "slow") == 3})
		}
	case EffectRefused:
		if f.Request == 0 {
			s.refused[f.Lease] = true
		}
	case EffectBlocks:
		if s.stopped {
			s.t.Fatal("blocks are handed out after the run was told to stop")
		}
		if w == nil {
			s.t.Fatalf("blocks for the session %d, which has ended", f.Session)
		}
		if s.e.excluded[s.e.workers[w.id].node] != nil {
			s.t.Fatalf("blocks for %s, whose node is excluded", w.id)
		}
		if n := w.open[f.Request]; len(f.Handouts) == 0 || len(f.Handouts) > int(n) || w.going || w.leaves || w.killed {
			s.t.Fatalf("%s asked for %d blocks with request %d and gets %d (told to go %v, goes by itself %v, killed %v)", w.id, n, f.Request, len(f.Handouts), w.going, w.leaves, w.killed)
		}
		delete(w.open, f.Request)
		w.task = f.Task
		for _, h := range f.Handouts {
			s.mayRun(h)
			w.held = append(w.held, h.Lease)
			s.handed = append(s.handed, h.Lease)
			s.holder[h.Lease], s.taskOf[h.Lease] = w, h.Task
		}
	case EffectAcknowledge:
		for w != nil && len(w.unacked) > 0 && w.unacked[0].Seq <= f.Seq {
			// What is acknowledged is forgotten by the worker: whenever the shell crashes, it must be among the durable records.
			u := w.unacked[0]
			end := s.endOf[u.Lease]
			if end > s.done || end == 0 && u.Outcome <= scheduler.Skipped && !s.refused[u.Lease] {
				s.t.Fatalf("%s: release %d acknowledged before it was durable", w.id, u.Seq)
			}
			w.unacked = w.unacked[1:]
		}
	case EffectWelcome, EffectKillBlock:
		// A block that cannot be killed in time ends later, and its result is late.
		if w != nil && (f.Kind == EffectWelcome || rapid.Bool().Draw(s.t, "killed in time")) {
			for _, l := range f.Leases {
				w.drop(l)
			}
			w.drop(f.Lease)
		}
	case EffectRecall:
		for _, l := range f.Leases {
			if w != nil && rapid.Bool().Draw(s.t, "not started") {
				w.later(s, l, scheduler.Recalled)
			}
		}
	case EffectReassign:
		if s.stopped {
			s.t.Fatal("a worker is moved after the run was told to stop")
		}
		if moved := s.e.sessions[f.Session]; moved != nil {
			s.grants = append(s.grants, grant{task: f.Task, worker: moved, slots: int64(moved.slots)})
		}
		if w != nil {
			if w.external && (w.named || len(w.open) == 0) || s.e.workers[w.id].quiet {
				s.t.Fatalf("%s was moved, which asks for nothing or has named its task", w.id)
			}
			w.task = f.Task
		}
	case EffectDrain, EffectStop:
		if w != nil {
			w.going = true
		}
	case EffectClose:
		if w != nil {
			delete(s.session, f.Session)
			if w.session == f.Session {
				w.session, w.open = 0, nil
			}
		}
	case EffectKill:
		for _, at := range f.Workers {
			for _, w := range s.workers {
				if w.at == at && !w.external {
					w.dead, w.killed = true, true
				}
			}
		}
	case EffectCancel:
		for _, at := range f.Workers {
			for _, w := range s.workers {
				if w.at == at && !w.external && !w.joined {
					w.dead, w.cancelled = true, true
				}
			}
		}
	case EffectFinished:
		s.finished++
	}
}

// mayRun checks that what a block needs has succeeded durably, and that the durable mark is above it.
func (s *chaos) mayRun(h scheduler.Handout) {
	for _, u := range s.e.cfg.Pipeline.Upstream(int(h.Task)) {
		if !s.tracked[blockKey{int32(u), h.Block}] {
			s.t.Fatalf("block %d of task %d was handed out before block %d of task %d was durable", h.Block, h.Task, h.Block, u)
		}
	}
	for _, m := range s.marks[h.Task] {
		if m[0] <= s.done && uint64(h.Block) < m[1] {
			return
		}
	}
	s.t.Fatalf("block %d of task %d was handed out above the durable mark", h.Block, h.Task)
}

// check looks at the rules that hold after every event.
func (s *chaos) check() {
	e := s.e
	used := int64(0)
	slots := make([]int64, len(e.tasks))
	for _, w := range e.live {
		n := int64(w.slots)
		if w.sub == nil {
			n = int64(w.started)
		}
		used += n * s.requires[w.task]
		slots[w.task] += n
	}
	if used > s.cpu*1000 {
		s.t.Fatalf("the budget is exceeded: %d of %d", used, s.cpu*1000)
	}
	s.checkShell()
	e.Snapshot(&s.snap)
	processed, failures := make([]int64, len(e.tasks)), make([]int64, len(e.tasks))
	for _, w := range s.snap.Workers {
		processed[w.Task] += w.Processed
		failures[w.Task] += w.Failed
	}
	for i := range e.tasks {
		t := &e.tasks[i]
		c := e.sched.Tally(i)
		if c.Total != c.Waiting+c.Ready+c.Leased+c.Success+c.Skipped+c.Failed+c.Orphaned+c.Abandoned {
			s.t.Fatalf("task %d does not add up: %+v", i, c)
		}
		if processed[i] != c.Processed || c.Processed != c.Success+failures[i] {
			s.t.Fatalf("task %d: its workers processed %d (%d failed), the task %+v", i, processed[i], failures[i], c)
		}
		if m := t.spec.MaxWorkers; m > 0 && slots[i] > m {
			s.t.Fatalf("task %d has %d slots, max_workers is %d", i, slots[i], m)
		}
		if slots[i] != e.fleet.Slots(i) {
			s.t.Fatalf("task %d has %d slots, the fleet counts %d", i, slots[i], e.fleet.Slots(i))
		}
		if c.Success > int64(c.Total) || t.started < 0 || t.covers < 0 || t.ahead < 0 || t.results < 0 {
			s.t.Fatalf("task %d: %+v", i, *t)
		}
	}
	if at, ok := e.Next(); ok && at < s.now && e.phase != finished {
		s.t.Fatalf("the next deadline %v is before %v", at, s.now)
	}
	s.checkSums()
	s.checkLimits()
	s.checkStopped()
	s.checkCancelled()
	s.checkSessions()
	if e.phase == running && !e.more {
		s.checkIdle()
		s.checkPriority()
		s.checkQueues()
	}
}

// checkShell counts what was submitted and has not ended as the shell knows it, which asks the engine nothing.
func (s *chaos) checkShell() {
	used, slots := int64(0), make([]int64, len(s.requires))
	for _, w := range s.workers {
		if !w.external && !w.ended && !w.rejected {
			used += int64(w.slots) * s.requires[w.task]
			slots[w.task] += int64(w.slots)
		}
	}
	if used > s.cpu*1000 {
		s.t.Fatalf("the workers that were submitted and have not ended take %d of the budget %d", used, s.cpu*1000)
	}
	for i, n := range slots {
		if m := s.e.tasks[i].spec.MaxWorkers; m > 0 && n > m {
			s.t.Fatalf("task %d: the workers that were submitted and have not ended have %d slots, max_workers is %d", i, n, m)
		}
	}
}

// checkIdle: never a ready block without a slot, and free budget or an idle worker that could make room.
func (s *chaos) checkIdle() {
	e := s.e
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.ended || t.ready <= t.covers || t.brake.Tripped() || t.pauseTo > e.now || !e.proven[t.class] && e.firstWave(t.class) == 0 {
			continue
		}
		if e.fleet.Room(i) > 0 {
			s.t.Fatalf("task %d has need and room, and no worker was asked for", i)
		}
		if m := t.spec.MaxWorkers; m > 0 && e.fleet.Slots(i) >= m {
			continue
		}
		leaving := int64(0)
		for j := range e.tasks {
			leaving += e.tasks[j].leaving * s.requires[j]
		}
		if leaving > 0 {
			continue // room is being made
		}
		free := e.fleet.Budget().Free().Get("cpu")
		for _, w := range e.live {
			if w.sub != nil && w.share.idle == 1 && e.tasks[w.task].ready == 0 && int(w.task) != i && free+int64(w.slots)*s.requires[w.task] >= s.requires[i] {
				s.t.Fatalf("task %d has need and worker %s is idle", i, w.id)
			}
		}
	}
}

// step is one thing that happens.
func (s *chaos) step() {
	s.hold = len(s.batch) < 8 && rapid.IntRange(0, 2).Draw(s.t, "together") == 2
	switch 11 - rapid.IntRange(0, 11).Draw(s.t, "step") {
	case 0:
		s.commit(rapid.Bool().Draw(s.t, "in part"))
	case 1:
		s.pass(time.Duration(rapid.Int64Range(1, int64(40*time.Second)).Draw(s.t, "time")))
	case 2:
		if s.rarely(40) {
			task := int32(rapid.IntRange(0, len(s.requires)-1).Draw(s.t, "task"))
			s.rejoin++
			s.workers = append(s.workers, &simWorker{id: fmt.Sprint("x", s.rejoin), external: true, slots: 2, task: task, nonce: 5})
		}
	case 3:
		s.e.Snapshot(&s.snap)
		if s.rarely(20) {
			s.exclude()
		}
		if len(s.e.submissions) > 0 && s.rarely(100) {
			s.refuse()
		}
		if s.rarely(400) {
			s.stop(Event{Kind: EventBroken, Text: "the disk is full"})
		}
		if s.rarely(400) {
			s.stop(Event{Kind: EventStop, Stop: StopKind(rapid.IntRange(0, 3).Draw(s.t, "kind")), Text: "told to"})
		}
	case 4:
		s.hear()
	default:
		if len(s.workers) > 0 {
			s.act(s.workers[rapid.IntRange(0, len(s.workers)-1).Draw(s.t, "worker")])
		}
	}
	s.deliver()
	if !s.hold {
		s.handOver()
	}
}

// exclude excludes a node, or takes it back.
func (s *chaos) exclude() {
	s.handOver()
	s.apply(Event{Kind: EventExclude, Exclude: &Exclusion{Node: "there", By: "anna", Include: s.e.excluded["there"] != nil}})
}

// hear has the launcher say something: its answer to a submission, refusals too, or what it saw of a worker, late.
func (s *chaos) hear() {
	if len(s.workers) == 0 {
		return
	}
	w := s.workers[rapid.IntRange(0, len(s.workers)-1).Draw(s.t, "heard of")]
	if w.external || w.ended {
		return
	}
	if !w.answered {
		refusal := ""
		fresh := true
		for _, o := range s.workers {
			if o.at.Tag == w.at.Tag && !o.external {
				fresh = fresh && !o.joined && !o.dead && !o.ended
			}
		}
		if fresh && rapid.IntRange(0, 3).Draw(s.t, "refused") == 0 {
			refusal = "no"
		}
		for _, o := range s.workers {
			if o.at.Tag == w.at.Tag && !o.external {
				o.answered = true
				if refusal != "" {
					o.rejected, o.dead, o.ended = true, true, true
				}
			}
		}
		s.apply(Event{Kind: EventSubmitted, Tag: w.at.Tag, Text: refusal})
		return
	}
	state := rapid.SampledFrom([]launcher.State{launcher.Unknown, launcher.Pending, launcher.Running}).Draw(s.t, "state")
	s.apply(Event{Kind: EventStatus, Status: &launcher.Status{Worker: w.at, State: state}})
}

// refuse has the launcher refuse a submission of which nothing has started.
func (s *chaos) refuse() {
	for _, w := range s.workers {
		if w.external || w.joined || w.dead || w.at.Element != 0 {
			continue
		}
		for _, other := range s.workers {
			if other.at.Tag == w.at.Tag && !other.external && (other.joined || other.dead) {
				return
			}
		}
		for _, other := range s.workers {
			if other.at.Tag == w.at.Tag && !other.external {
				other.dead, other.ended = true, true
			}
		}
		s.apply(Event{Kind: EventSubmitted, Tag: w.at.Tag, Text: "no"})
		return
	}
}

// rarely is true once in n times. Small numbers are drawn more often than others, and are never meant.
func (s *chaos) rarely(n uint64) bool { return rapid.Uint64().Draw(s.t, "rarely")%n == n-1 }

// commit makes records durable, late and perhaps not all.
func (s *chaos) commit(part bool) {
	upTo := s.asked
	if part && upTo > s.done {
		upTo = s.done + 1
	}
	if upTo > s.done && !s.silent {
		s.done = upTo
		s.apply(Event{Kind: EventCommitted, UpTo: upTo})
	}
}

// pass lets time pass, with ticks where they are due, once in a while too late.
func (s *chaos) pass(d time.Duration) {
	s.handOver()
	if rapid.IntRange(0, 9).Draw(s.t, "stall") == 0 && !s.calming { // nobody was there in time
		s.now += d
		s.apply(Event{Kind: EventTick})
		return
	}
	end := s.now + d
	for range 100 {
		at, ok := s.e.Next()
		if !ok || at > end {
			break
		}
		s.now = max(s.now, at)
		s.apply(Event{Kind: EventTick})
	}
	s.now = end
	s.apply(Event{Kind: EventTick})
}

// deliver reports deaths.
func (s *chaos) deliver() {
	for _, w := range s.workers {
		if w.dead && !w.ended && (s.calming || rapid.Bool().Draw(s.t, "reported")) {
			w.ended = true
			if w.external {
				s.lose(w, rapid.Bool().Draw(s.t, "seen to be gone"))
				continue
			}
			end := launcher.End{Cause: launcher.Signalled, Signal: 9, Ours: w.killed}
			if w.leaves || w.going {
				end = launcher.End{Cause: launcher.Exited}
			} else if !s.calming {
				end.Cause = rapid.SampledFrom([]launcher.Cause{launcher.Signalled, launcher.Exited, launcher.Preempted, launcher.NodeFailed, launcher.OutOfMemory}).Draw(s.t, "cause")
			}
			s.apply(Event{Kind: EventStatus, Status: &launcher.Status{Worker: w.at, State: launcher.Ended, End: end}})
			s.drop(w)
		}
	}
}

// drop ends a connection.
func (s *chaos) drop(w *simWorker) { s.lose(w, false) }

// lose ends a connection, and perhaps it is known that the process is gone too.
func (s *chaos) lose(w *simWorker, gone bool) {
	if w.session != 0 {
		id := w.session
		delete(s.session, id)
		w.session, w.open = 0, nil
		s.apply(Event{Kind: EventDetach, Session: id, Gone: gone})
	}
}

// calm ends the faults: from now on everything works, and the run must end.
func (s *chaos) calm() {
	s.calming = true
	s.handOver()
	for round := range 20_000 {
		s.e.Snapshot(&s.snap)
		if s.e.Finished() {
			break
		}
		s.commit(false)
		for _, w := range append([]*simWorker(nil), s.workers...) {
			w.frozen = false
			switch {
			case w.dead:
			case !w.joined:
				s.join(w)
			case w.session == 0:
				s.attach(w)
			case w.slow && round%8 != 0:
				s.send(w, Event{Kind: EventHeartbeat})
			default:
				s.behave(w)
			}
		}
		s.deliver()
		s.pass(500 * time.Millisecond)
	}
	if !s.e.Finished() || s.finished != 1 {
		var snap Snapshot
		s.e.Snapshot(&snap)
		s.t.Fatalf("the run does not end (finished %d): phase %d, %+v", s.finished, s.e.phase, snap.Tasks)
	}
	s.last = 0
	s.e.Snapshot(&s.snap)
	s.checkEnd()
	snap := s.snap
	processed, failed := make([]int64, len(snap.Tasks)), int64(0)
	for _, w := range snap.Workers {
		processed[w.Task] += w.Processed
		failed += w.Failed
		if w.End == "" || w.Busy < 0 || w.Idle < 0 {
			s.t.Fatalf("a worker after the end: %+v", w)
		}
	}
	for i, t := range snap.Tasks {
		c := t.Tally
		if c.Waiting+c.Ready+c.Leased != 0 {
			s.t.Fatalf("task %d after the end: %+v", i, c)
		}
		if processed[i] != c.Processed {
			s.t.Fatalf("task %d: workers processed %d, the task %d", i, processed[i], c.Processed)
		}
		success := int64(0)
		for k := range s.tracked {
			if int(k.task) == i {
				success++
			}
		}
		if success != c.Success+t.SkippedByCheck || c.Skipped != t.SkippedByCheck {
			s.t.Fatalf("task %d: %d blocks were tracked as done: %+v, %d skipped by check", i, success, c, t.SkippedByCheck)
		}
	}
}
