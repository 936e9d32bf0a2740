package scheduler

// Reacquire hands out one certain block, to somebody who has had it in hand since an earlier life of the run, as the attempt that it
// is there. It returns false unless the block is ready and this attempt is its next one: somebody else has it, or has had it since, or it
// has ended. What was to be done before (More) must be done: until then the block may seem to wait.
func (s *Scheduler) Reacquire(task int, block int64, attempt int32, h Holder) (Handout, bool) {
	t := s.tasks[task]
	if t.run == nil || s.leases.full() || s.Block(task, block) != BlockReady {
		return Handout{}, false
	}
	record := uint32(0)
	switch t.state[block] {
	case stRetry:
		n, i := t.retries.place(block)
		if t.retries.get(i).nextAttempt() != attempt {
			return Handout{}, false
		}
		record = t.retries.take(n)
	case stReady: // its group leaves t.ready when nothing is found there
		if attempt != 1 {
			return Handout{}, false
		}
	default: // a root that the walk has not come to
		if attempt != 1 {
			return Handout{}, false
		}
		t.fresh--
		t.overtook = true
	}
	t.see(h)
	return s.grant(t, block, record, attempt, h), true
}

// More reports whether Work has something to do.
func (s *Scheduler) More() bool { return s.pending() }
