package sim

import (
	"fmt"
	"slices"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/scheduler"
)

// checks watch a run from outside: they see what the coordinator does and what the workers do, know what is durable, and stop the run at
// the first thing that should never happen.
type checks struct {
	world *World
	tasks []taskChecks

	// Of the life of the latest coordinator that has begun, of. One that takes over and cannot begin changes nothing of it: what was on
	// the disk before counts when the one before it hears of that.
	of       *coordinator
	record   uint64 // appended
	durable  uint64
	waiting  []pendingEnd // appended, not durable yet
	refused  map[scheduler.Lease]bool
	leases   map[scheduler.Lease]bool
	applies  int64
	snapshot engine.Snapshot

	// wrote has the records of each epoch, in their order; archive what snapshots of the journal say, by the place up to which they do.
	wrote   map[uint64][][]byte
	archive map[journal.Position]archived

	tags map[string]uint64 // submissions by the epoch that made them
	made map[string]bool   // those that a launcher was asked for, by whichever coordinator

	// ran is which block a worker has given back under a lease of this epoch.
	ran map[scheduler.Lease]need

	limits  limits
	relimit bool // one has changed
}

// taskChecks is what is known of one task.
type taskChecks struct {
	blocks  int64
	done    scheduler.Bitmap // ended well, durably
	counted scheduler.Bitmap // a success of it was counted
	// failures are ends that used up a retry.
	failures map[int64]int32
	mark     int64 // blocks below may be handed out, durably
	running  map[int64]execution
	needs    [][]need // by block; nil in a large run
	tally    scheduler.Tally
	ended    bool
}

// need is a block that another waits for.
type need struct {
	task  int32
	block int64
}

// An execution is user code that runs.
type execution struct {
	x     *worker
	began time.Duration
}

// A pendingEnd is a record that waits to be durable.
type pendingEnd struct {
	record uint64
	kind   engine.RecordKind
	task   int32
	block  int64
	id     string
}

// fail notes what should never happen. The first one counts.
func (c *checks) fail(format string, args ...any) {
	if c.world.failure == nil {
		c.world.failure = fmt.Errorf("at %v in epoch %d: %s", c.world.now, c.world.epoch, fmt.Sprintf(format, args...))
		c.world.logf("VIOLATION: %v", c.world.failure)
	}
}

// begins: a coordinator has read what there was, and has not said anything yet.
func (c *checks) begins(co *coordinator, p *scheduler.Pipeline) {
	c.of, c.record, c.durable, c.waiting = co, 0, 0, c.waiting[:0]
	c.refused, c.leases, c.ran = make(map[scheduler.Lease]bool), make(map[scheduler.Lease]bool), make(map[scheduler.Lease]need)
	if c.tasks == nil {
		c.tags, c.made, c.archive = make(map[string]uint64), make(map[string]bool), make(map[journal.Position]archived)
		c.wrote = make(map[uint64][][]byte)
		for i, t := range p.Tasks() {
			n := t.Grid.Len()
			k := taskChecks{blocks: n, done: scheduler.NewBitmap(n), counted: scheduler.NewBitmap(n), failures: make(map[int64]int32), running: make(map[int64]execution)}
			if c.world.cfg.Small {
				k.needs = needs(p, i)
			}
			c.tasks = append(c.tasks, k)
		}
	}
	for i := range c.tasks {
		c.tasks[i].ended, c.tasks[i].tally = false, scheduler.Tally{}
	}
	if co.journal != nil {
		c.recall(co)
	}
	c.limited(co)
}

// needs lists what each block of a task waits for in the tasks before it.
func needs(p *scheduler.Pipeline, task int) [][]need {
	tasks := p.Tasks()
	g := tasks[task].Grid
	list := make([][]need, g.Len())
	for _, up := range p.Upstream(task) {
		u := tasks[up].Grid
		for b := range g.Len() {
			read := g.ReadRoi(b)
			for k := range u.Len() {
				if u.WriteRoi(k).Intersects(read) {
					list[b] = append(list[b], need{int32(up), k})
				}
			}
		}
	}
	return list
}

// effect looks at what the coordinator is about to do.
func (c *checks) effect(co *coordinator, f *engine.Effect) {
	if f.Kind == engine.EffectSubmit {
		if c.made[f.Submit.Tag] {
			c.fail("epoch %d makes submission %s, which was made before", co.epoch, f.Submit.Tag)
		}
		c.made[f.Submit.Tag] = true
	}
	if co != c.world.co {
		return // it was taken over: what else it does has no effect any more
	}
	switch f.Kind {
	case engine.EffectAppend:
		c.appended(f.Record)
	case engine.EffectBlocks:
		for _, h := range f.Handouts {
			c.handedOut(h)
		}
	case engine.EffectTrack:
		if f.Done && !c.tasks[f.Task].done.Get(f.Block) {
			c.fail("block %d of task %d goes to tracking before it is durable", f.Block, f.Task)
		}
	case engine.EffectRefused:
		if f.Request == 0 {
			c.refused[f.Lease] = true
		}
	case engine.EffectSubmit:
		if co.journal != nil && c.tags[f.Submit.Tag] != co.epoch<<1 {
			c.fail("submission %s is made before it is durable, or a second time", f.Submit.Tag)
		}
		c.tags[f.Submit.Tag] = co.epoch<<1 | 1
	case engine.EffectEnded:
		c.attempt(f.Attempt)
	}
}

// appended notes a record. Only what the checks need is looked at: the kind is the second byte.
func (c *checks) appended(raw []byte) {
	c.record++
	c.wrote[c.world.epoch] = append(c.wrote[c.world.epoch], slices.Clone(raw))
	switch kind := engine.RecordKind(raw[1]); kind {
	case engine.RecordSet:
		c.relimit = true
	case engine.RecordEnd, engine.RecordMark, engine.RecordSubmission:
		r, err := engine.DecodeRecord(raw)
		if err != nil {
			c.fail("a record that nobody can read: %v", err)
			return
		}
		if kind == engine.RecordEnd && scheduler.Outcome(r.Outcome) > scheduler.Skipped {
			return
		}
		c.waiting = append(c.waiting, pendingEnd{c.record, kind, r.Task, r.Block, r.ID})
	}
}

// committed: records are durable, and the coordinator is about to hear of it.
func (c *checks) committed(co *coordinator, upTo uint64) {
	if co != c.of {
		return
	}
	if upTo > c.record {
		c.fail("%d records are durable, and %d were appended", upTo, c.record)
	}
	c.durable = max(c.durable, upTo)
	n := 0
	for ; n < len(c.waiting) && c.waiting[n].record <= upTo; n++ {
		c.isDurable(co, &c.waiting[n])
	}
	c.waiting = append(c.waiting[:0], c.waiting[n:]...)
}

func (c *checks) isDurable(co *coordinator, e *pendingEnd) {
	t := &c.tasks[e.task]
	switch e.kind {
	case engine.RecordEnd:
		if t.done.Get(e.block) {
			c.fail("block %d of task %d ends well twice", e.block, e.task)
		}
		t.done.Set(e.block)
	case engine.RecordMark:
		t.mark = max(t.mark, e.block)
	case engine.RecordSubmission:
		if c.tags[e.id] != 0 {
			c.fail("the tag %s is used again", e.id)
		}
		c.tags[e.id] = co.epoch << 1
	}
}

// handedOut: a block goes to a worker.
func (c *checks) handedOut(h scheduler.Handout) {
	t := &c.tasks[h.Task]
	switch {
	case t.done.Get(h.Block):
		c.fail("block %d of task %d has ended well, and is handed out again", h.Block, h.Task)
	case h.Block >= t.mark && !c.world.cfg.NoJournal:
		c.fail("block %d of task %d is handed out above the mark %d", h.Block, h.Task, t.mark)
	}
	if t.needs == nil {
		return
	}
	for _, n := range t.needs[h.Block] {
		if !c.tasks[n.task].done.Get(n.block) {
			c.fail("block %d of task %d is handed out before block %d of task %d, which it needs, is durable", h.Block, h.Task, n.block, n.task)
		}
	}
	if c.leases[h.Lease] {
		c.fail("the lease %x is given twice", uint64(h.Lease))
	}
	c.leases[h.Lease] = true
}

// attempt: an end was counted.
func (c *checks) attempt(a *engine.Attempt) {
	t := &c.tasks[a.Handout.Task]
	if is, given := c.ran[a.Handout.Lease]; given && is != (need{a.Handout.Task, a.Handout.Block}) {
		c.fail("block %d of task %d was given back, and counts as block %d of task %d", is.block, is.task, a.Handout.Block, a.Handout.Task)
	}
	switch a.Verdict {
	case scheduler.Succeeded, scheduler.WasSkipped:
		if t.counted.Get(a.Handout.Block) {
			c.fail("block %d of task %d is counted twice", a.Handout.Block, a.Handout.Task)
		}
		if !t.done.Get(a.Handout.Block) {
			c.fail("block %d of task %d is counted before it is durable", a.Handout.Block, a.Handout.Task)
		}
		t.counted.Set(a.Handout.Block)
	default:
		switch a.Outcome {
		case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory:
			t.failures[a.Handout.Block]++
		}
	}
}

// doneBlocks is how many blocks have ended.
func (c *checks) doneBlocks() (n int64) {
	for i := range c.tasks {
		n += c.tasks[i].done.Count()
	}
	return n
}

// failures is how often a block has failed.
func (c *checks) failures(h scheduler.Handout) int32 { return c.tasks[h.Task].failures[h.Block] }

// began: user code starts.
func (c *checks) began(x *worker, b *heldBlock) {
	t := &c.tasks[b.h.Task]
	if other, runs := t.running[b.h.Block]; runs && !c.excused(other, b.h.Task) {
		c.fail("block %d of task %d is started on %s while it runs on %s since %v", b.h.Block, b.h.Task, x.id, other.x.id, other.began)
	} else if runs {
		c.world.saw(sawRunsTwice)
	}
	if c.world.cfg.Small {
		c.conflicts(x, b)
	}
	t.running[b.h.Block] = execution{x, c.world.now}
	most := c.limits.Tasks[b.h.Task].MaxWorkers
	if n := int64(len(t.running)); most > 0 && n > most && c.runs(b.h.Task) > most && !c.limits.lax[b.h.Task] {
		c.fail("%d blocks of task %d run at once, and %d may", n, b.h.Task, most)
	}
	c.budget()
}

// excused: the block may run a second time, as its worker could not be told, nor end it by itself.
func (c *checks) excused(e execution, task int32) bool {
	limit := c.limits.least[task]
	return e.x.stalledTo > e.began || limit > 0 && c.world.now >= e.began+limit+5*time.Second
}

// conflicts: no other block that runs reads what this one writes, or the other way round.
func (c *checks) conflicts(x *worker, b *heldBlock) {
	g := c.world.cfg.Job.Tasks[b.h.Task].Grid
	if !g.Spec().ReadWriteConflict {
		return
	}
	t := &c.tasks[b.h.Task]
	read, write := g.ReadRoi(b.h.Block), g.WriteRoi(b.h.Block)
	for other, e := range t.running { // any of them is wrong, whichever comes first
		if other == b.h.Block || c.excused(e, b.h.Task) {
			continue
		}
		if g.ReadRoi(other).Intersects(write) || g.WriteRoi(other).Intersects(read) {
			c.fail("block %d of task %d runs on %s beside block %d, and one reads what the other writes", b.h.Block, b.h.Task, x.id, other)
		}
	}
}

// gives: a worker has told how a block ended.
func (c *checks) gives(u *undelivered) {
	if u.ev.Epoch == c.world.epoch && c.world.cfg.Small {
		c.ran[u.ev.Lease] = need{u.h.Task, u.h.Block}
	}
}

// ended: user code has ended, or was ended.
func (c *checks) ended(x *worker, b *heldBlock, outcome scheduler.Outcome) {
	t := &c.tasks[b.h.Task]
	if t.running[b.h.Block].x == x {
		delete(t.running, b.h.Block)
	}
	if c.world.cfg.Ran != nil {
		c.world.cfg.Ran(Ran{Worker: x.id, Number: x.number, Task: b.h.Task, Block: b.h.Block, Began: b.began, End: c.world.now, Outcome: outcome})
	}
}

// acknowledged: a worker hears that its result is durable, and forgets it.
func (c *checks) acknowledged(x *worker, u *undelivered) {
	if o := u.ev.Outcome; o != scheduler.Success && o != scheduler.Skipped || c.world.cfg.NoJournal {
		return
	}
	if !c.tasks[u.h.Task].done.Get(u.h.Block) && !c.refused[u.h.Lease] {
		c.fail("the success of block %d of task %d is acknowledged to %s, and is not durable", u.h.Block, u.h.Task, x.id)
	}
}

// submitted: workers are asked for.
func (c *checks) submitted(co *coordinator, each scheduler.Resources, count int64) {
	w := c.world
	if w.cfg.Unlimited || co != w.co || c.limits.laxTotal {
		return
	}
	if sum := w.launcher.held().Add(each.Times(count)); !sum.Fits(c.limits.Total) {
		c.fail("workers take %v, and the budget is %v", sum, c.limits.Total)
	}
}

// snapshotEvery is after how many events the recounts are made.
const snapshotEvery = 64

// applied looks at the counts after an event.
func (c *checks) applied(co *coordinator) {
	if co != c.world.co {
		return
	}
	c.applies++
	if c.relimit {
		c.limited(co)
	}
	c.tighten(co)
	for i := range c.tasks {
		t := &c.tasks[i]
		tally, state := co.engine.Tally(i)
		n := &tally
		if n.Total != n.Waiting+n.Ready+n.Leased+n.Success+n.Skipped+n.Failed+n.Orphaned+n.Abandoned || n.Total != t.blocks || least(n) < 0 {
			c.fail("the counts of task %d do not add up: %+v", i, tally)
		}
		if t.ended && tally != t.tally {
			c.fail("task %d had ended, and its counts change from %+v to %+v", i, t.tally, tally)
		}
		if n.Success < t.tally.Success || n.Failed < t.tally.Failed || n.Skipped < t.tally.Skipped || n.Orphaned < t.tally.Orphaned || n.Processed < t.tally.Processed {
			c.fail("counts of task %d go back from %+v to %+v", i, t.tally, tally)
		}
		t.tally, t.ended = tally, state != scheduler.Running
	}
	if c.world.cfg.Small && c.applies%snapshotEvery == 0 {
		c.recount(co)
	}
}

func least(t *scheduler.Tally) int64 {
	return min(t.Waiting, t.Ready, t.Leased, t.Success, t.Skipped, t.Failed, t.Orphaned, t.Abandoned, t.Processed, t.Retries, t.TimedOut, t.Lost, t.Returned, t.OutOfMemory)
}
