package scheduler

import (
	"errors"
	"fmt"
)

// Options are settings of a scheduler.
type Options struct {
	// Past is, by task, what became of its blocks in earlier lives of the run; nil, or nil for a task, if there were none. It
	// belongs to the scheduler from then on.
	Past []*Past
}

// MaxBlocks is the largest number of blocks of one pipeline: a byte each must fit the memory of one machine.
const MaxBlocks = int64(1)<<32 - 1

// Scheduler runs a pipeline: it says which block may run now, and what became of it. It is not safe for concurrent use.
type Scheduler struct {
	pipeline *Pipeline
	tasks    []*task
	leases   leases
	running  int // tasks that have not ended

	spreads  []spreading // large ones, to be done in slices; the first may be done in part
	sweeps   []sweep     // abandoned tasks of which dependents are to be orphaned
	surveys  []*survey   // tasks of which nearly all was done before, to be gone through first
	surveyed []*survey   // all of them, while a taint may be asked for
	scans    []scan      // tasks in which what only waited for such blocks is to be opened
}

// New returns a scheduler in which nothing has happened. It refuses an ill-formed task and more than MaxBlocks blocks. Its cost
// does not depend on the number of blocks, but for reading Done and Mask once.
func New(p *Pipeline, o Options) (*Scheduler, error) {
	var errs []error
	blocks := int64(0)
	for _, t := range p.tasks {
		if err := t.check(); err != nil {
			errs = append(errs, err)
		} else if blocks += min(t.Grid.Len(), MaxBlocks+1); blocks > MaxBlocks {
			return nil, fmt.Errorf("scheduler: more than %d blocks up to task %q (it has %d): make the blocks larger", MaxBlocks, t.ID, t.Grid.Len())
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	s := &Scheduler{pipeline: p, leases: newLeases()}
	for i := range p.tasks {
		var past *Past
		if i < len(o.Past) {
			past = o.Past[i]
		}
		if past != nil && past.blocks != p.tasks[i].Grid.Len() {
			return nil, fmt.Errorf("scheduler: task %q has %d blocks, and its past is one of %d", p.tasks[i].ID, p.tasks[i].Grid.Len(), past.blocks)
		}
		s.tasks = append(s.tasks, newTask(i, &p.tasks[i], past))
	}
	for d, t := range s.tasks {
		for _, u := range p.up[d] {
			t.whole = t.whole && s.tasks[u].whole
			if s.tasks[u].whole {
				continue // nothing of it is ever waited for
			}
			if e, touch := newEdge(u, d, p.tasks[u].Grid, p.tasks[d].Grid); touch {
				t.up = append(t.up, e)
				t.upTasks = append(t.upTasks, s.tasks[u])
				s.tasks[u].down = append(s.tasks[u].down, e)
			}
		}
	}
	for _, t := range s.tasks {
		t.begin()
		if t.run != nil {
			s.running++
			s.endIfOver(t)
		}
	}
	s.planSurveys()
	return s, nil
}

// Pipeline returns what is run.
func (s *Scheduler) Pipeline() *Pipeline { return s.pipeline }

// Ended reports whether every task has ended.
func (s *Scheduler) Ended() bool { return s.running == 0 }

// Tally returns the counts of a task.
func (s *Scheduler) Tally(task int) Tally {
	if t := s.tasks[task]; t.run != nil {
		return t.run.tally
	} else {
		return t.end.tally
	}
}

// State returns the life of a task.
func (s *Scheduler) State(task int) TaskState {
	if t := s.tasks[task]; t.run != nil {
		return Running
	} else {
		return t.end.state
	}
}

// HighWater returns one above the highest block of a task handed out so far, 0 if none was.
func (s *Scheduler) HighWater(task int) int64 { return s.tasks[task].highWater }

// Failures calls yield with each block of a task that failed for good and the number of its attempts, in the order in which they
// failed, until it returns false.
func (s *Scheduler) Failures(task int, yield func(block int64, attempts int) bool) {
	t := s.tasks[task]
	for i := t.retries.failed.first; i != 0; {
		r := t.retries.get(i)
		if !yield(int64(r.block), int(r.attempts)) {
			return
		}
		i = r.next
	}
}

// Block returns where a block of a task stands. A block outside the grid is waiting for ever.
func (s *Scheduler) Block(task int, block int64) BlockState {
	t := s.tasks[task]
	if uint64(block) >= uint64(t.lattice.n) {
		return BlockWaiting
	}
	if t.whole {
		return t.before(block)
	}
	state := BlockWaiting
	switch st := t.state[block]; st {
	case stSuccess:
		return BlockSuccess
	case stSkipped:
		return BlockSkipped
	case stBefore:
		return t.before(block)
	case stFailed:
		return BlockFailed
	case stOrphaned, stOrphanPending:
		return BlockOrphaned
	case stReady, stRetry:
		state = BlockReady
	case stHeld:
		state = BlockHeld
	case stLeased:
		state = BlockLeased
	case 0:
		if t.fresh > 0 && t.isRoot(block) && !t.skip.Get(block) {
			state = BlockReady
		}
	}
	if t.run == nil && t.end.state == Abandoned {
		return BlockAbandoned
	}
	return state
}

// Acquire hands out a ready block of a task: a retry first, else the lowest that became ready, else the lowest of those ready
// from the start. It returns false if none is ready. It does not allocate, but for the growth of the table of leases.
func (s *Scheduler) Acquire(task int, h Holder) (Handout, bool) {
	t := s.tasks[task]
	if t.run == nil || t.run.tally.Ready == 0 || s.leases.full() {
		return Handout{}, false
	}
	t.see(h)
	record, block, attempt := t.takeRetry(h), int64(0), int32(1)
	if record != 0 {
		r := t.retries.get(record)
		block, attempt = int64(r.block), r.nextAttempt()
	} else if block = t.takeFresh(); block < 0 {
		return Handout{}, false
	}
	return s.grant(t, block, record, attempt, h), true
}

// grant makes a lease of a block that has just been taken from those that are ready.
func (s *Scheduler) grant(t *task, block int64, record uint32, attempt int32, h Holder) Handout {
	t.state[block] = stLeased
	t.run.acquire()
	t.highWater = max(t.highWater, block+1)
	slot := s.leases.grant()
	slot.task, slot.block, slot.holder, slot.record = int32(t.id), uint32(block), h, record
	return Handout{Lease: slot.lease, Task: slot.task, Block: block, Attempt: attempt}
}

// see notes whether more than one worker takes blocks of the task.
func (t *task) see(h Holder) {
	if h.Worker != t.lastWorker && h.Worker != 0 {
		t.severalWorkers = t.severalWorkers || t.lastWorker != 0
		t.lastWorker = h.Worker
	}
}

// Lookup returns the hand-out of a current lease.
func (s *Scheduler) Lookup(l Lease) (Handout, bool) {
	slot := s.leases.get(l)
	if slot == nil {
		return Handout{}, false
	}
	h := Handout{Lease: l, Task: slot.task, Block: int64(slot.block), Attempt: 1}
	if slot.record != 0 {
		h.Attempt = s.tasks[slot.task].retries.get(slot.record).nextAttempt()
	}
	return h, true
}

// Began says that the worker has started the block of a lease, so that a retry is counted from now on and not only at its end. Calling
// it is not needed, and harmless for a lease that is not current.
func (s *Scheduler) Began(l Lease) {
	if slot := s.leases.get(l); slot != nil {
		s.tasks[slot.task].countBegin(slot)
	}
}

// Release ends a lease and says what became of its block. Only a current lease counts; for any other, and for an unknown outcome,
// nothing happens. What the end brings about for few other blocks is done at once, what it does to many is left to Work.
func (s *Scheduler) Release(l Lease, e Ending) Verdict {
	slot := s.leases.get(l)
	if slot == nil || e.Outcome > Recalled {
		return Stale
	}
	t, block := s.tasks[slot.task], int64(slot.block)
	if e.Outcome == Success {
		if slot.record != 0 {
			t.countBegin(slot)
			t.retries.forget(slot.record)
		}
		s.leases.drop(slot)
		t.state[block] = stSuccess
		t.run.attempt(Success)
		t.run.succeed()
		s.spread(t, block, opening)
		s.endIfOver(t)
		return Succeeded
	}
	verdict := s.releaseOther(t, slot, e)
	s.endIfOver(t)
	return verdict
}

// releaseOther is Release for all outcomes but success.
func (s *Scheduler) releaseOther(t *task, slot *leaseSlot, e Ending) Verdict {
	block, record, holder := int64(slot.block), slot.record, slot.holder
	if e.Outcome != Recalled {
		t.countBegin(slot)
		t.run.attempt(e.Outcome)
	}
	s.leases.drop(slot)
	if e.Outcome == Skipped {
		if record != 0 {
			t.retries.forget(record)
		}
		t.state[block] = stSkipped
		t.run.checked()
		s.spread(t, block, opening)
		return WasSkipped
	}
	if record == 0 {
		record = t.retries.remember(block)
	}
	failed := false
	if e.Outcome != Recalled {
		r := t.retries.get(record)
		r.count(e.Outcome, e.Blameless)
		r.holder, r.passed = holder, 0
		switch e.Outcome {
		case Failed, TimedOut, OutOfMemory:
			failed = r.spent > t.maxRetries
		case Lost:
			failed = r.lost >= t.maxLost
		case Returned:
			failed = e.Final
		}
	}
	switch {
	case failed:
		t.state[block] = stFailed
		t.retries.append(&t.retries.failed, record)
		t.run.fail()
		s.spread(t, block, orphaning)
		return FailedForGood
	case e.Hold:
		t.state[block] = stHeld
		t.retries.hold(record, t.lattice.n)
		t.run.hold()
		return Held
	default:
		t.state[block] = stRetry
		t.retries.append(&t.retries.waiting, record)
		t.run.retry()
		return Retry
	}
}

// Unhold makes a held block ready again; it goes first. Of any other block, nothing happens.
func (s *Scheduler) Unhold(task int, block int64) {
	t := s.tasks[task]
	if t.run == nil || s.Block(task, block) != BlockHeld {
		return
	}
	t.state[block] = stRetry
	t.retries.append(&t.retries.waiting, t.retries.unhold(block))
	t.run.open()
}

// Abandon gives a task up: everything of it that has not ended is abandoned and its leases are void. Blocks of other tasks that need
// one of these are orphaned, by Work. An ended task stays as it is.
func (s *Scheduler) Abandon(task int) {
	t := s.tasks[task]
	if t.run == nil {
		return
	}
	s.leases.dropTask(int32(task))
	t.end, t.run = t.run.abandon(), nil
	s.running--
	t.release()
	if len(t.down) > 0 {
		s.sweeps = append(s.sweeps, sweep{task: task})
	}
}

// endIfOver ends a running task of which nothing can change any more.
func (s *Scheduler) endIfOver(t *task) {
	if t.run != nil && t.run.over() {
		t.end, t.run = t.run.end(), nil
		s.running--
	}
}
