package scheduler

// Reacquire hands out one certain block, to somebody who has had it in hand since an earlier life of the run, as the attempt that it
// was then. It returns false unless the block is ready and none of its attempts since that one has ended: the block has ended, or is or
// was somebody else's. Ends of earlier attempts may have been forgotten with that life, so that the attempt has a lower number now.
// What is to be done before (More) must be done: until then the block may seem to wait.
func (s *Scheduler) Reacquire(task int, block int64, attempt int32, h Holder) (Handout, bool) {
	t := s.tasks[task]
	if t.run == nil || s.leases.full() || s.Block(task, block) != BlockReady {
		return Handout{}, false
	}
	place, record, next := 0, uint32(0), int32(1)
	retry := t.state[block] == stRetry
	if retry {
		place, record = t.retries.place(block)
		next = t.retries.get(record).nextAttempt()
	}
	if attempt < next {
		return Handout{}, false
	}
	switch {
	case retry:
		t.retries.take(place)
	case t.state[block] == stReady: // its group leaves t.ready when nothing is found there
	default: // a root that the walk has not come to
		t.fresh--
		t.overtook = true
	}
	t.see(h)
	return s.grant(t, block, record, next, h), true
}

// More reports whether Work has something to do.
func (s *Scheduler) More() bool { return s.pending() }
