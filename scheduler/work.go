package scheduler

// sweep goes through the blocks of an abandoned task and orphans what needs one that did not end well.
type sweep struct {
	task int
	next int64
}

// Work does pending bulk work: skipping blocks that were done before, telling the many blocks that wait for one, orphaning, and
// what follows from abandonment. It touches about the given number of blocks, at least one, and reports whether more is
// pending; 2^15 of them stay well below 20 ms. Counts are exact after each call. Blocks may become ready, and tasks may end.
func (s *Scheduler) Work(units int) (more bool) {
	left := max(units, 1)
	for left > 0 {
		switch {
		case s.running == 0:
			s.spreads, s.sweeps, s.surveys, s.scans, s.surveyed = nil, nil, nil, nil, nil
			return false
		case len(s.surveys) > 0:
			s.continueSurvey(&left)
		case len(s.spreads) > 0:
			s.continueSpread(&left)
		case len(s.scans) > 0:
			s.continueScan(&left)
		case s.countOn(&left):
		case s.workOnTasks(&left):
		case len(s.sweeps) > 0:
			s.continueSweep(&left)
		default:
			return false
		}
	}
	return s.pending()
}

// pending reports whether there is bulk work.
func (s *Scheduler) pending() bool {
	if s.running == 0 {
		return false
	}
	if len(s.surveys) > 0 || len(s.spreads) > 0 || len(s.scans) > 0 || len(s.sweeps) > 0 {
		return true
	}
	for _, t := range s.tasks {
		if t.todos > 0 || t.toSkip > 0 || t.uncounted != nil && t.anyUncounted() {
			return true
		}
	}
	return false
}

// workOnTasks does the work that lies with the first task that has any, upstream first, and reports whether there was some.
func (s *Scheduler) workOnTasks(left *int) bool {
	for _, t := range s.tasks {
		if t.todos > 0 || t.toSkip > 0 {
			for *left > 0 && t.todos > 0 && len(s.spreads) == 0 {
				*left -= s.workOnTodo(t)
			}
			for *left > 0 && t.todos == 0 && t.toSkip > 0 && len(s.spreads) == 0 {
				*left -= s.skipRoot(t)
			}
			s.endIfOver(t)
			return true
		}
	}
	return false
}

// workOnTodo takes a block that is to be skipped, or an orphan whose dependents are to be orphaned.
func (s *Scheduler) workOnTodo(t *task) (touched int) {
	group := t.todo.lowest()
	bytes := t.state[group*64 : group*64+64]
	at, more := findByte(bytes, stSkipPending)
	orphan, moreOrphans := -1, false
	if at < 0 || !more {
		orphan, moreOrphans = findByte(bytes, stOrphanPending)
	}
	t.todos--
	if at >= 0 {
		if !more && orphan < 0 {
			t.todo.clear(group)
		}
		block := group*64 + int64(at)
		return s.endBefore(t, block)
	}
	if !moreOrphans {
		t.todo.clear(group)
	}
	block := group*64 + int64(orphan)
	t.state[block] = stOrphaned
	return s.spread(t, block, orphaning)
}

// skipRoot skips the next root that is done or masked.
func (s *Scheduler) skipRoot(t *task) (touched int) {
	for {
		t.skipWalk.passOver(t.skip, 0)
		block := t.skipWalk.block(&t.lattice)
		touched++
		if t.skip.Get(block) {
			t.toSkip--
			return touched + s.endBefore(t, block)
		}
		if touched > 64 {
			return touched
		}
	}
}

// continueSweep does a slice of the first sweep.
func (s *Scheduler) continueSweep(left *int) {
	w := &s.sweeps[0]
	t := s.tasks[w.task]
	for ; w.next < t.lattice.n && *left > 0 && len(s.spreads) == 0; w.next++ {
		if w.next%4096 == 0 && !s.anyRunning(t.down) {
			w.next = t.lattice.n
			break
		}
		switch st := t.state[w.next]; {
		case endedWell(st), st == stFailed, st == stOrphaned:
			*left--
		default:
			*left -= s.spread(t, w.next, orphaning)
		}
	}
	if w.next >= t.lattice.n {
		s.sweeps = s.sweeps[1:]
		if len(s.sweeps) == 0 {
			s.sweeps = nil
		}
	}
}

func (s *Scheduler) anyRunning(edges []*edge) bool {
	for _, e := range edges {
		if s.tasks[e.down].run != nil {
			return true
		}
	}
	return false
}
