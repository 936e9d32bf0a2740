package scheduler

import "math/bits"

// Past is what became of the blocks of a task before its scheduler was made: in earlier lives of the same run. It is made by
// telling it the end of each attempt, in their order, and given to New. A block that succeeded counts as success and is not run
// again; one that failed for good has failed; one that was tried is a retry. As with blocks that were done before the run, that
// comes about as what they need has ended well, without a worker.
type Past struct {
	blocks             int64
	succeeded, checked Bitmap
	tried              map[int64]*record // those that came back, and those that failed
	failed             map[int64]bool
	triedAt            Bitmap // those tried when the scheduler was made, in an order that can be gone through in slices; nil if there are none
	tally              Tally  // of attempts
}

// NewPast returns the past of a task of so many blocks of which nothing is known yet.
func NewPast(blocks int64) *Past {
	return &Past{blocks: blocks, succeeded: NewBitmap(blocks), checked: NewBitmap(blocks), tried: make(map[int64]*record), failed: make(map[int64]bool)}
}

// PastEnding is the end of an attempt, as it was counted then.
type PastEnding struct {
	Outcome   Outcome
	Blameless bool
	// Failed: with it the block had failed for good.
	Failed bool
}

// Ended takes in the end of an attempt of a block, which must be one of the task, and says what became of the block. It is Stale,
// and nothing happens, for a block that has ended: it had been handed out again, and only one end counts.
func (p *Past) Ended(block int64, e PastEnding) Verdict {
	if e.Outcome >= Recalled || p.succeeded.Get(block) || p.checked.Get(block) || len(p.failed) > 0 && p.failed[block] {
		return Stale
	}
	var was *record
	if len(p.tried) > 0 {
		was = p.tried[block]
	}
	run := running{tally: p.tally}
	if was != nil && was.failure {
		run.began()
	}
	run.attempt(e.Outcome)
	p.tally = run.tally
	switch e.Outcome {
	case Success:
		p.succeeded.Set(block)
		if was != nil {
			delete(p.tried, block)
		}
		return Succeeded
	case Skipped:
		p.checked.Set(block)
		delete(p.tried, block)
		return WasSkipped
	}
	if was == nil {
		was = &record{block: uint32(block)}
		p.tried[block] = was
	}
	was.count(e.Outcome, e.Blameless)
	if e.Failed {
		p.failed[block] = true
		return FailedForGood
	}
	return Retry
}

// Retry forgives all blocks that have failed for good: they begin anew, and what failed with them is orphaned no more. It returns how many
// there were. Their attempts stay counted.
func (p *Past) Retry() int64 {
	n := int64(len(p.failed))
	for block := range p.failed {
		delete(p.tried, block)
	}
	clear(p.failed)
	return n
}

// Succeeded calls yield with each block that succeeded, or was found done by its check, in ascending order. It is to be called before
// New.
func (p *Past) Succeeded(yield func(block int64)) {
	for w := range p.succeeded {
		eachBit(p.succeeded[w]|p.checked[w], int64(w)*64, func(block int64) int { yield(block); return 0 })
	}
}

// marks are the blocks whose end, or return, comes about without a worker.
func (p *Past) marks() Bitmap {
	b := make(Bitmap, len(p.succeeded))
	for i := range b {
		b[i] = p.succeeded[i] | p.checked[i]
	}
	if len(p.tried) > 0 {
		p.triedAt = NewBitmap(p.blocks)
	}
	for block := range p.tried {
		b.Set(block)
		p.triedAt.Set(block)
	}
	return b
}

// triedIn are the blocks of a word that had been tried.
func (p *Past) triedIn(word int64) uint64 {
	if p == nil || p.triedAt == nil {
		return 0
	}
	return p.triedAt[word]
}

// successes counts, of the bits of a word, those of blocks that had succeeded.
func (p *Past) successes(word int64, of uint64) int64 {
	if p == nil {
		return 0
	}
	return int64(bits.OnesCount64(p.succeeded[word] & of))
}

// of adds the attempts of the past to a tally.
func (p *Past) of(t Tally) Tally {
	if p != nil {
		t.Processed, t.Retries = p.tally.Processed, p.tally.Retries
		t.TimedOut, t.Lost, t.Returned, t.OutOfMemory = p.tally.TimedOut, p.tally.Lost, p.tally.Returned, p.tally.OutOfMemory
	}
	return t
}

// before is the state of a block that had ended well before anything ran.
func (t *task) before(block int64) BlockState {
	if t.past != nil && t.past.succeeded.Get(block) {
		return BlockSuccess
	}
	return BlockSkipped
}

// endBefore ends a waiting block that needs no worker, now that what it needs has ended well, or makes it a retry. It returns how
// many blocks it touched.
func (s *Scheduler) endBefore(t *task, block int64) (touched int) {
	if p := t.past; p != nil {
		if was := p.tried[block]; was != nil {
			delete(p.tried, block)
			record := t.retries.remember(block)
			*t.retries.get(record) = *was
			if p.failed[block] {
				t.state[block] = stFailed
				t.retries.append(&t.retries.failed, record)
				t.run.failBefore()
				return s.spread(t, block, orphaning)
			}
			t.state[block] = stRetry
			t.retries.append(&t.retries.waiting, record)
			t.run.open()
			return 1
		}
		if p.succeeded.Get(block) {
			t.state[block] = stSuccess
			t.run.succeedBefore(1)
			return s.spread(t, block, opening)
		}
	}
	t.state[block] = stSkipped
	t.run.skip(1)
	return s.spread(t, block, opening)
}
