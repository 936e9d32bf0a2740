package scheduler

import "math/bits"

// AcquireAbove hands out a ready block whose number is from or higher, and returns false if it finds none: for a time in which those
// below may still be in the hands of somebody who got them in an earlier life of the run. It gives the lowest that became ready, else
// the next root; of those to be tried again it sees the first few only, and of the 64 blocks that from is amid none. It never gives what
// Acquire would not give now, and both may be used by turns. The cost is that of Acquire, but for the first call with another from.
func (s *Scheduler) AcquireAbove(task int, from int64, h Holder) (Handout, bool) {
	t := s.tasks[task]
	if t.run == nil || t.run.tally.Ready == 0 || s.leases.full() {
		return Handout{}, false
	}
	t.see(h)
	if place := t.retries.placeAbove(from); place >= 0 {
		record := t.retries.take(place)
		r := t.retries.get(record)
		return s.grant(t, int64(r.block), record, r.nextAttempt(), h), true
	}
	block := t.ready.popAbove((from+63)/64, t.state, stReady)
	if block < 0 {
		block = t.takeRootAbove(from)
	}
	if block < 0 {
		return Handout{}, false
	}
	return s.grant(t, block, 0, 1, h), true
}

// placeAbove returns the place of the first waiting retry of a block from a number on, among the first few; -1 if there is none.
func (r *retries) placeAbove(from int64) int {
	for n, i := 0, r.waiting.first; n < retryWindow && i != 0; n, i = n+1, r.get(i).next {
		if int64(r.get(i).block) >= from {
			return n
		}
	}
	return -1
}

// popAbove is pop for groups from one on.
func (t *tree) popAbove(from int64, state []byte, want byte) int64 {
	for group := t.next(from); group >= 0; group = t.next(from) {
		if block := t.popOf(group, state, want); block >= 0 {
			return block
		}
	}
	return -1
}

// next returns the lowest group of the set from one on, -1 if there is none.
func (t *tree) next(from int64) int64 {
	i := uint64(from)
	for l := 0; l < len(t.levels); l++ {
		if i/64 >= uint64(len(t.levels[l])) {
			return -1
		}
		if rest := t.levels[l][i/64] >> (i % 64); rest != 0 {
			i += uint64(bits.TrailingZeros64(rest))
			for ; l > 0; l-- {
				i = i*64 + uint64(bits.TrailingZeros64(t.levels[l-1][i]))
			}
			return int64(i)
		}
		i = i/64 + 1
	}
	return -1
}

// A rootsAbove walks the roots from a block on, ahead of the walk over all.
type rootsAbove struct {
	from int64
	walk rootWalk
}

// takeRootAbove takes the next root from a block on that was not handed out; -1 if there is none.
func (t *task) takeRootAbove(from int64) int64 {
	if t.fresh == 0 {
		return -1
	}
	if t.above == nil || t.above.from != from {
		t.above = &rootsAbove{from, rootWalk{boxes: boxesAbove(&t.lattice, t.roots, from)}}
	}
	for {
		if t.skips > 0 {
			t.above.walk.passOver(t.skip, ^uint64(0))
		}
		block := t.above.walk.block(&t.lattice)
		if block < 0 || !t.skip.Get(block) && t.state[block] == 0 {
			if block >= 0 {
				t.fresh--
				t.overtook = true
			}
			return block
		}
	}
}

// boxesAbove cuts from boxes what lies before a block in C order. What is left of one is at most a box for each axis.
func boxesAbove(l *lattice, boxes []box, from int64) (out []box) {
	if from >= l.n {
		return nil
	}
	var at point
	l.position(max(from, 0), &at)
	for _, b := range boxes {
		for i := l.dims - 1; i >= 0; i-- { // alike before axis i, beyond it there
			c, beyond := b, at[i]
			if i < l.dims-1 {
				beyond++
			}
			for j := range i {
				c.lo[j], c.hi[j] = max(c.lo[j], at[j]), min(c.hi[j], at[j]+1)
			}
			c.lo[i] = max(c.lo[i], beyond)
			some := true
			for j := range l.dims {
				some = some && c.lo[j] < c.hi[j]
			}
			if some {
				out = append(out, c)
			}
		}
	}
	return out
}
