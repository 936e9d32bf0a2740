package engine

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// TestLaunchedWorkersOverManyLives cuts a run off again and again that has its workers started by a local launcher. They join, work,
// die and leave; commits come late. Some die with the coordinator, others come back to the next one with what they have. The ends of the
// blocks depend on nothing but how often they have failed, so that it is known how the run must end. What holds after every event
// stands in lives.effect.
func TestLaunchedWorkersOverManyLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newLives(t)
		s.begin(nil, nil)
		for steps := 0; !s.finished; steps++ {
			if steps > 3000 {
				t.Fatal("it does not end")
			}
			s.step(steps < 80)
		}
		s.checkEnd()
	})
}

type lives struct {
	t         *rapid.T
	seed      uint64
	job       *job.Job
	launcher  launcher.Properties
	epoch     uint64
	journal   []Record          // of the lives before
	tags      map[string]uint64 // epoch in which a submission was made
	leases    map[scheduler.Lease]bool
	failures  map[blockKey]int
	slots     int // of a worker, if there is work for so many
	committed int // records of this life

	// Of this life:
	e        *Engine
	now      time.Duration
	fx       Effects
	records  []Record
	asked    bool // a commit is to come
	finished bool
	procs    []*proc
	session  SessionID
}

// A proc is a process of the launcher.
type proc struct {
	at      launcher.Worker
	slots   int
	nonce   uint64
	session SessionID
	number  uint64
	seq     uint64
	open    int // requests without an answer
	going   bool
	away    bool              // it has survived a coordinator and has not come back
	deaf    bool              // the next welcome is lost on its way
	held    []inHand          // oldest first; those beyond its slots have not started
	wanted  []scheduler.Lease // it is asked to give these back, if they have not started
	unacked []result
}

// An inHand is a block that a process has, and the epoch of its lease.
type inHand struct {
	scheduler.Handout
	epoch uint64
}

// A result is an end of which a process does not know whether it is durable.
type result struct {
	inHand
	seq     uint64
	outcome scheduler.Outcome
}

func newLives(t *rapid.T) *lives {
	s := &lives{t: t, seed: rapid.Uint64().Draw(t, "seed"), job: testJob(), tags: map[string]uint64{}, launcher: localProperties(), slots: rapid.IntRange(1, 3).Draw(t, "slots")}
	for i := range rapid.IntRange(1, 3).Draw(t, "tasks") {
		task := job.Task{ID: fmt.Sprint("t", i), Slots: s.slots, MaxRetries: 2, MaxLost: 10_000, MaxWorkerRestarts: 10_000, Requires: cpus(1),
			Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(nil, rapid.Int64Range(1, 8).Draw(t, "blocks"))}
		if i > 0 && rapid.Bool().Draw(t, "edge") {
			task.After = []string{fmt.Sprint("t", i-1)}
		}
		s.job.Tasks = append(s.job.Tasks, task)
	}
	return s
}

// fate says how often a block fails, and how it ends then.
func (s *lives) fate(b blockKey) (fails int, end scheduler.Outcome) {
	f := fnv.New64a()
	fmt.Fprint(f, s.seed, b)
	x := f.Sum64()
	return int(x % 8 / 2), []scheduler.Outcome{scheduler.Success, scheduler.Success, scheduler.Skipped}[x/8%3]
}

// begin begins a life with what the journal says, with results that had not been delivered, and with the processes that have survived.
func (s *lives) begin(undelivered []Record, survivors []*proc) {
	s.epoch++
	*s = lives{t: s.t, seed: s.seed, job: s.job, launcher: s.launcher, slots: s.slots, epoch: s.epoch, journal: s.journal, tags: s.tags, leases: map[scheduler.Lease]bool{}, failures: map[blockKey]int{}}
	p, err := s.job.Pipeline()
	if err != nil {
		s.t.Fatal(err)
	}
	past := NewPast(p)
	ends, joins := int64(0), map[uint32]bool{}
	peaks := make([]int64, len(s.job.Tasks))
	for i := range s.journal {
		r := &s.journal[i]
		_, isEnd, err := past.Add(r)
		if err != nil {
			s.t.Fatal(err)
		}
		switch r.Kind {
		case RecordEnd:
			if !isEnd {
				s.t.Fatalf("the end of block %d of task %d that had ended is in the journal", r.Block, r.Task)
			}
			ends++
			s.fail(r)
		case RecordJoin:
			if joins[r.Worker] {
				s.t.Fatalf("two workers have the number %d", r.Worker)
			}
			joins[r.Worker] = true
		case RecordPeak:
			peaks[r.Task] = max(peaks[r.Task], r.Count)
		}
	}
	past = withSnapshots(s.t, p, s.journal, past)
	var recovered []Record
	for _, r := range undelivered {
		if r.Worker = past.Number(r.ID, r.Nonce); r.Worker == 0 {
			continue
		}
		if _, counts, err := past.Add(&r); err != nil {
			s.t.Fatal(err)
		} else if counts {
			recovered = append(recovered, r)
			ends++
		}
	}
	cfg := Config{Job: s.job, Pipeline: p, Epoch: s.epoch, Budget: cpus(float64(max(3, s.slots+1))), Node: "here", Launcher: s.launcher, Recovered: recovered}
	if s.epoch > 1 {
		cfg.Past = past
		for _, p := range survivors {
			if slices.ContainsFunc(past.Live(), func(w PastWorker) bool { return w.ID == p.at.String() && w.Nonce == p.nonce }) { // others are ended
				p.session, p.number, p.open, p.wanted, p.away, p.going = 0, 0, 0, nil, true, false
				s.procs = append(s.procs, p)
				cfg.Left = append(cfg.Left, p.at)
			}
		}
	}
	if s.e, err = New(cfg); err != nil {
		s.t.Fatal(err)
	}
	for i := range s.e.tasks {
		s.e.tasks[i].mark.step = rapid.SampledFrom([]int64{1, 2, 1024}).Draw(s.t, "mark step")
	}
	s.apply(Event{Kind: EventTick})
	var snap Snapshot
	s.e.Snapshot(&snap)
	counted := int64(0)
	for i, x := range snap.Tasks {
		counted += x.Tally.Processed + x.Tally.TimedOut + x.Tally.Lost + x.Tally.Returned + x.Tally.OutOfMemory + x.SkippedByCheck
		if x.MaxConcurrency != peaks[i] {
			s.t.Fatalf("at most %d blocks of %s ran at once, and %d are known after the resume", peaks[i], x.ID, x.MaxConcurrency)
		}
	}
	if counted != ends {
		s.t.Fatalf("the journal has %d ends, and %d are counted", ends, counted)
	}
	s.checkRows(&snap)
}

// fail counts the failures that the next attempt of a block knows of.
func (s *lives) fail(r *Record) {
	switch scheduler.Outcome(r.Outcome) {
	case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory:
		s.failures[blockKey{r.Task, r.Block}]++
	}
}

// durably reports whether a record is in the journal whatever happens.
func (s *lives) durably(is func(r *Record) bool) bool {
	return slices.ContainsFunc(s.journal, func(r Record) bool { return is(&r) }) ||
		slices.ContainsFunc(s.records[:s.committed], func(r Record) bool { return is(&r) })
}

func endedWell(task int32, block int64) func(*Record) bool {
	return func(r *Record) bool {
		return r.Kind == RecordEnd && r.Task == task && r.Block == block && scheduler.Outcome(r.Outcome) <= scheduler.Skipped
	}
}

func (s *lives) apply(ev Event) {
	s.fx.Reset()
	s.e.Apply(s.now, &ev, &s.fx)
	for i := range s.fx.List {
		s.effect(&s.fx.List[i])
	}
	if s.e.More() {
		s.apply(Event{Kind: EventTick})
	}
}

func (s *lives) effect(f *Effect) {
	switch f.Kind {
	case EffectAppend:
		r, err := DecodeRecord(f.Record)
		if err != nil {
			s.t.Fatal(err)
		}
		s.records = append(s.records, r)
	case EffectCommit:
		s.asked = true
	case EffectTrack:
		if f.Done && !s.durably(endedWell(f.Task, f.Block)) {
			s.t.Fatalf("block %d of task %d goes to tracking before it is durable", f.Block, f.Task)
		}
	case EffectSubmit:
		if was := s.tags[f.Submit.Tag]; was != 0 {
			s.t.Fatalf("the tag %s of epoch %d is used again in epoch %d", f.Submit.Tag, was, s.epoch)
		}
		s.tags[f.Submit.Tag] = s.epoch
		if !s.durably(func(r *Record) bool { return r.Kind == RecordSubmission && r.ID == f.Submit.Tag }) {
			s.t.Fatalf("submission %s is made before it is durable", f.Submit.Tag)
		}
		for i := range f.Submit.Count {
			s.procs = append(s.procs, &proc{at: launcher.Worker{Tag: f.Submit.Tag, Element: i}, slots: f.Submit.Slots, nonce: s.epoch<<32 | uint64(len(s.procs)+1)})
		}
	case EffectWelcome:
		s.welcome(s.of(f.Session), f)
	case EffectAcknowledge:
		p := s.of(f.Session)
		p.unacked = slices.DeleteFunc(p.unacked, func(r result) bool { return r.seq <= f.Seq })
	case EffectRecall:
		p := s.of(f.Session)
		p.wanted = append(p.wanted, f.Leases...)
	case EffectBlocks:
		p := s.of(f.Session)
		p.open--
		for _, h := range f.Handouts {
			for _, q := range s.procs {
				if q.away && slices.ContainsFunc(s.journal, func(r Record) bool { return r.Kind == RecordMark && r.Task == h.Task && r.Block > h.Block }) {
					s.t.Fatalf("block %d of task %d is handed out, and worker %v has not come back", h.Block, h.Task, q.at)
				}
				if q.has(h.Task, h.Block) {
					s.t.Fatalf("block %d of task %d is handed out, and worker %v has it", h.Block, h.Task, q.at)
				}
			}
			if s.durably(endedWell(h.Task, h.Block)) {
				s.t.Fatalf("block %d of task %d had ended well, and is handed out again", h.Block, h.Task)
			}
			if !s.durably(func(r *Record) bool { return r.Kind == RecordMark && r.Task == h.Task && r.Block > h.Block }) {
				s.t.Fatalf("block %d of task %d is handed out above the mark", h.Block, h.Task)
			}
			for _, up := range s.e.cfg.Pipeline.Upstream(int(h.Task)) {
				if b := h.Block; b < s.e.cfg.Pipeline.Tasks()[up].Grid.Len() && !s.durably(endedWell(int32(up), b)) {
					s.t.Fatalf("block %d of task %d is handed out before what it needs is durable", b, h.Task)
				}
			}
			if s.leases[h.Lease] {
				s.t.Fatalf("the lease %d is given twice", h.Lease)
			}
			s.leases[h.Lease] = true
			p.held = append(p.held, inHand{h, s.epoch})
		}
	case EffectDrain, EffectStop:
		s.of(f.Session).going = true
	case EffectKill, EffectCancel:
		for _, at := range f.Workers {
			if i := slices.IndexFunc(s.procs, func(p *proc) bool { return p.at == at }); i >= 0 {
				s.procs[i].going, s.procs[i].held, s.procs[i].away = true, nil, false
			}
		}
	case EffectAway:
		if !s.durably(func(r *Record) bool { return r.Kind == RecordAside }) {
			s.t.Fatalf("worker %v is told to wait before the next coordinator is certain to know", s.of(f.Session).at)
		}
	case EffectFinished:
		s.finished = true
	}
}

func (s *lives) of(session SessionID) *proc {
	for _, p := range s.procs {
		if p.session == session {
			return p
		}
	}
	s.t.Fatalf("something for session %d, which has ended", session)
	return nil
}

// step is one thing that happens; nobody dies any more once calm.
func (s *lives) step(wild bool) {
	s.now += 10 * time.Millisecond
	if wild && rapid.IntRange(0, 9).Draw(s.t, "cut") == 0 {
		if rapid.IntRange(0, 2).Draw(s.t, "aside") == 0 {
			s.stepAside()
		} else {
			s.cut(false)
		}
		return
	}
	if s.asked && rapid.IntRange(0, 2).Draw(s.t, "commit") == 0 || len(s.procs) == 0 && s.asked {
		s.commit()
		return
	}
	if len(s.procs) == 0 {
		if next, ok := s.e.Next(); ok {
			s.now = max(s.now, next)
		}
		s.apply(Event{Kind: EventTick})
		return
	}
	p := s.procs[rapid.IntRange(0, len(s.procs)-1).Draw(s.t, "who")]
	switch {
	case wild && rapid.IntRange(0, 9).Draw(s.t, "dies") == 0:
		s.ends(p, launcher.End{Cause: launcher.Signalled, Signal: 9})
	case p.going && len(p.held) == 0:
		s.ends(p, launcher.End{Ours: true})
	case p.session == 0 && s.tags[p.at.Tag] != s.epoch:
		s.comesBack(p)
	case p.session == 0:
		s.apply(Event{Kind: EventSubmitted, Tag: p.at.Tag})
		s.apply(Event{Kind: EventJoin, Request: 1, Join: &Join{Tag: p.at.Tag, Element: p.at.Element, Nonce: p.nonce, Slots: p.slots, Node: "here"}})
		s.session++
		p.session = s.session
		s.apply(Event{Kind: EventAttach, Session: p.session, Worker: p.at.String(), Nonce: p.nonce})
		s.ask(p)
	case len(p.wanted) > 0:
		s.givesBack(p)
	case len(p.held) > 0:
		s.endsBlock(p)
	default:
		s.apply(Event{Kind: EventHeartbeat, Session: p.session})
		s.commit() // there may be nothing else to come
	}
}

// ask asks for blocks for each slot that has none.
func (s *lives) ask(p *proc) {
	for p.session != 0 && len(p.held)+p.open < p.slots && !p.going && !s.finished {
		p.number++
		p.open++
		s.apply(Event{Kind: EventAcquire, Session: p.session, Request: p.number, N: rapid.Int32Range(1, 3).Draw(s.t, "asks for")})
	}
}

// givesBack returns blocks that have not started.
func (s *lives) givesBack(p *proc) {
	wanted := p.wanted
	p.wanted = nil
	for i := len(p.held) - 1; i >= p.slots; i-- {
		if h := p.held[i]; slices.Contains(wanted, h.Lease) {
			p.held = slices.Delete(p.held, i, i+1)
			p.seq++
			s.apply(Event{Kind: EventRelease, Session: p.session, Seq: p.seq, Epoch: h.epoch, Lease: h.Lease, Outcome: scheduler.Recalled})
		}
	}
}

func (s *lives) commit() {
	if s.asked && !s.finished {
		s.asked, s.committed = false, len(s.records)
		s.apply(Event{Kind: EventCommitted, UpTo: uint64(s.committed)})
	}
}

// outcome is how the block that a worker runs ends.
func (s *lives) outcome(h scheduler.Handout) scheduler.Outcome {
	b := blockKey{h.Task, h.Block}
	fails, end := s.fate(b)
	if s.failures[b] >= fails {
		return end
	}
	return []scheduler.Outcome{scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory}[s.failures[b]]
}

func (s *lives) endsBlock(p *proc) {
	s.finish(p)
	s.deliver(p, p.unacked[len(p.unacked)-1])
	s.ask(p)
}

// finish ends a block that a worker runs.
func (s *lives) finish(p *proc) {
	i := rapid.IntRange(0, min(len(p.held), p.slots)-1).Draw(s.t, "slot")
	h := p.held[i]
	p.held = slices.Delete(p.held, i, i+1)
	p.seq++
	p.unacked = append(p.unacked, result{h, p.seq, s.outcome(h.Handout)})
}

func (s *lives) deliver(p *proc, r result) {
	if r.epoch == s.epoch {
		s.fail(&Record{Task: r.Task, Block: r.Block, Outcome: uint8(r.outcome)})
	}
	s.apply(Event{Kind: EventRelease, Session: p.session, Seq: r.seq, Epoch: r.epoch, Lease: r.Lease, Outcome: r.outcome, Use: Use{WallNanos: 1000}})
}

func (p *proc) has(task int32, block int64) bool {
	return slices.ContainsFunc(p.held, func(h inHand) bool { return h.Task == task && h.Block == block })
}

func (p *proc) hasResult(task int32, block int64) bool {
	return slices.ContainsFunc(p.unacked, func(r result) bool { return r.Task == task && r.Block == block })
}

// comesBack has a process that has survived a coordinator come to the next one: with all that it has, as the worker does it.
func (s *lives) comesBack(p *proc) {
	s.apply(Event{Kind: EventJoin, Request: 1, Join: &Join{Tag: p.at.Tag, Element: p.at.Element, Nonce: p.nonce, Slots: p.slots, Node: "here"}})
	var held []Held
	for i, r := range p.unacked {
		again := p.has(r.Task, r.Block) || slices.ContainsFunc(p.unacked[i+1:], func(o result) bool { return o.Task == r.Task && o.Block == r.Block })
		if !again {
			held = append(held, Held{Epoch: r.epoch, Lease: r.Lease, Task: r.Task, Block: r.Block, Attempt: r.Attempt})
		}
	}
	for _, h := range p.held {
		held = append(held, Held{Epoch: h.epoch, Lease: h.Lease, Task: h.Task, Block: h.Block, Attempt: h.Attempt})
	}
	s.session++
	p.session, p.away = s.session, false
	p.deaf = rapid.IntRange(0, 3).Draw(s.t, "deaf") == 0
	s.apply(Event{Kind: EventAttach, Session: p.session, Worker: p.at.String(), Nonce: p.nonce, Held: held})
	if p.deaf && !s.finished {
		s.apply(Event{Kind: EventDetach, Session: p.session})
		p.session, p.deaf, p.open, p.wanted = 0, false, 0, nil
		return
	}
	for _, r := range slices.Clone(p.unacked) {
		s.deliver(p, r)
	}
	s.ask(p)
}

// welcome has a process take over what the engine says of the blocks that it has. What is refused must have a reason.
func (s *lives) welcome(p *proc, f *Effect) {
	// Who failed at a block before, and has not been heard to the end, may come first.
	another := func(h *inHand) bool {
		return slices.ContainsFunc(s.procs, func(q *proc) bool { return q != p && q.hasResult(h.Task, h.Block) })
	}
	gone := func(h *inHand) bool {
		if h.epoch == s.epoch {
			return false
		}
		for _, k := range f.Kept {
			if k.Epoch == h.epoch && k.Was == h.Lease {
				if !p.deaf {
					h.epoch, h.Lease, h.Attempt = s.epoch, k.Now, k.Attempt
				}
				return false
			}
		}
		return true
	}
	p.held = slices.DeleteFunc(p.held, func(h inHand) bool {
		if !gone(&h) {
			return false
		}
		if !another(&h) {
			s.t.Fatalf("worker %v runs block %d of task %d, and is told to end it", p.at, h.Block, h.Task)
		}
		return true
	})
	for i := range p.held {
		gone(&p.held[i])
	}
	kept := p.unacked[:0]
	for _, r := range p.unacked {
		if gone(&r.inHand) {
			if r.outcome <= scheduler.Skipped && !s.ended(r.Task, r.Block) && !p.has(r.Task, r.Block) && !another(&r.inHand) {
				s.t.Fatalf("worker %v has the good result of block %d of task %d, and is refused", p.at, r.Block, r.Task)
			}
			if !p.deaf {
				continue
			}
		}
		kept = append(kept, r)
	}
	p.unacked = kept
}

// ended reports whether a block has ended well, as far as this life knows.
func (s *lives) ended(task int32, block int64) bool {
	is := endedWell(task, block)
	return slices.ContainsFunc(append(slices.Clone(s.journal), s.records...), func(r Record) bool { return is(&r) })
}

// ends has a process end as the launcher sees it.
func (s *lives) ends(p *proc, how launcher.End) {
	s.procs = slices.DeleteFunc(s.procs, func(q *proc) bool { return q == p })
	if p.session != 0 {
		s.apply(Event{Kind: EventDetach, Session: p.session, Gone: true})
	}
	s.apply(Event{Kind: EventStatus, Status: &launcher.Status{Worker: p.at, State: launcher.Ended, End: how}})
}

// stepAside has the coordinator end in order, for the next one to go on.
func (s *lives) stepAside() {
	s.apply(Event{Kind: EventAside, Left: time.Hour, Text: "its time is over"})
	for s.asked && !s.finished {
		s.commit()
	}
	if s.finished && s.e.state == RunAside {
		s.finished = false
		s.cut(true)
	}
}

// cut kills the coordinator, unless it has stepped aside, and with it some workers. What was appended and not committed may have reached the disk, or not;
// of a worker that is gone, a block that had just ended well may have been left in the outbox. Others go on, and may end their blocks.
func (s *lives) cut(aside bool) {
	var undelivered []Record
	var survivors []*proc
	for _, p := range s.procs {
		if rapid.IntRange(0, 2).Draw(s.t, "survives") > 0 {
			if len(p.held) > 0 && rapid.Bool().Draw(s.t, "ends its block") {
				s.finish(p)
			}
			survivors = append(survivors, p)
			continue
		}
		for _, h := range p.held[:min(len(p.held), p.slots)] {
			if o := s.outcome(h.Handout); o <= scheduler.Skipped && rapid.Bool().Draw(s.t, "outbox") {
				undelivered = append(undelivered, Record{Kind: RecordEnd, ID: p.at.String(), Nonce: p.nonce, Task: h.Task, Block: h.Block, Lease: uint64(h.Lease), Attempt: h.Attempt, Outcome: uint8(o)})
			}
		}
	}
	kept := rapid.IntRange(s.committed, len(s.records)).Draw(s.t, "kept")
	if aside {
		kept = len(s.records)
	}
	s.journal = append(s.journal, s.records[:kept]...)
	s.begin(undelivered, survivors)
}

// checkRows: the rows of the workers add up to the tasks.
func (s *lives) checkRows(snap *Snapshot) {
	left := make([]int64, len(snap.Tasks))
	for i, x := range snap.Tasks {
		left[i] = x.Tally.Processed
	}
	for _, w := range snap.Workers {
		left[w.Task] -= w.Processed
	}
	for i, n := range left {
		if n != 0 {
			s.t.Fatalf("task %d has %d valid returns more than its workers", i, n)
		}
	}
}

// checkEnd compares with what the fates of the blocks say.
func (s *lives) checkEnd() {
	s.committed = len(s.records)
	var snap Snapshot
	s.e.Snapshot(&snap)
	s.checkRows(&snap)
	bad := map[blockKey]bool{} // failed or orphaned
	for i, x := range snap.Tasks {
		var want scheduler.Tally
		want.Total = s.job.Tasks[i].Grid.Len()
		for b := range want.Total {
			k := blockKey{int32(i), b}
			for _, up := range s.e.cfg.Pipeline.Upstream(i) {
				bad[k] = bad[k] || bad[blockKey{int32(up), b}]
			}
			fails, end := s.fate(k)
			switch {
			case bad[k]:
				want.Orphaned++
			case fails > 2:
				want.Failed++
				bad[k] = true
			case end == scheduler.Success:
				want.Success++
			default:
				want.Skipped++
			}
		}
		got := scheduler.Tally{Total: x.Tally.Total, Success: x.Tally.Success, Skipped: x.Tally.Skipped, Failed: x.Tally.Failed, Orphaned: x.Tally.Orphaned}
		if got != want || x.State != scheduler.Done {
			s.t.Fatalf("%s ends %v with %+v, want %+v", x.ID, x.State, x.Tally, want)
		}
	}
	listed := map[blockKey]int{}
	for _, f := range snap.Failures {
		listed[blockKey{f.Task, f.Block}]++
	}
	for i, x := range snap.Tasks {
		for b := range s.job.Tasks[i].Grid.Len() {
			k := blockKey{int32(i), b}
			if n := listed[k]; n > 1 {
				s.t.Fatalf("the failure of block %d of %s is listed %d times", b, x.ID, n)
			}
			x.Tally.Failed -= int64(listed[k])
		}
		if x.Tally.Failed != 0 {
			s.t.Fatalf("%d failed blocks of %s are not listed", x.Tally.Failed, x.ID)
		}
	}
}
