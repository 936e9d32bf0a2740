package scheduler

// The counter of a waiting block is exact if the block needs at most stCountMax others: it begins from arithmetic, or from states,
// and goes down by one for each that ends well.
//
// A block that needs more has a byte all the same, which then says for how many it waits at least. When it comes to 0 the block
// is stUncounted, and Work looks at the states of what it needs: if all have ended well the block opens, else the byte begins
// again with as many as were found that have not. Each of those is still to tell the block of its end, so that no end is
// missed; one that had ended when the states were looked at and tells the block later only makes that the sooner.
//
// Work looks from the highest block down, because blocks end more or less in their order: those that have not ended are found soon.

const (
	countWindow = 1024    // states that are counted from the first found that has not ended well
	countStride = 1 << 16 // states that are searched at once for that one
)

// counting is how far Work is with what one block waits for.
type counting struct {
	active bool
	block  int64
	edge   int
	end    int64 // of the upstream blocks of the edge those from here on have ended well
}

// statesUnits is how many units of work it takes to look at the states of so many blocks in short rows.
func statesUnits(n int64) int { return int(n / 32) }

// needs returns the number of blocks that the one at k needs.
func (t *task) needs(k *point) int64 {
	n := t.lattice.countWaitsFor(k)
	var b box
	for _, e := range t.up {
		n += e.upstream(k, &b)
	}
	return n
}

// satisfy says that one block that this one waits for has ended well.
func (t *task) satisfy(block int64) {
	st := t.state[block]
	if st == 0 {
		t.satisfyFirst(block)
		return
	}
	if st > stCountMax {
		return // orphaned meanwhile, or its counter will begin from states
	}
	if st--; st == 0 {
		t.exhausted(block)
		return
	}
	t.state[block] = st
}

// satisfyFirst begins the counter of a block.
func (t *task) satisfyFirst(block int64) {
	var k point
	t.lattice.position(block, &k)
	n := t.needs(&k)
	if t.recount {
		if n > stCountMax {
			t.uncount(block)
			return
		}
		n = t.recounted(block, &k)
	}
	t.setCounter(block, n-1)
}

// setCounter writes how much a block waits for, and opens it at 0.
func (t *task) setCounter(block, n int64) {
	if n <= 0 {
		t.open(block)
		return
	}
	t.state[block] = byte(min(n, stCountMax))
}

// exhausted is called when a counter has come to 0.
func (t *task) exhausted(block int64) {
	if t.uncounted != nil {
		var k point
		t.lattice.position(block, &k)
		if t.needs(&k) > stCountMax {
			t.uncount(block)
			return
		}
	}
	t.open(block)
}

// uncount leaves it to Work to set the counter of a block.
func (t *task) uncount(block int64) {
	t.state[block] = stUncounted
	t.uncounted.set(block)
}

// anyUncounted reports whether there are counters to be set, or were until they were orphaned.
func (t *task) anyUncounted() bool { return t.counting.active || t.uncounted.lowest() >= 0 }

// countOn sets counters of the first task that has any to be set, and reports whether there were some.
func (s *Scheduler) countOn(left *int) bool {
	for _, t := range s.tasks {
		if t.uncounted != nil && t.setCounters(left) {
			return true
		}
	}
	return false
}

func (t *task) setCounters(left *int) (any bool) {
	c := &t.counting
	for *left > 0 {
		if !c.active {
			block := t.uncounted.pop(t.state, stUncounted)
			if block < 0 {
				return any
			}
			*c = counting{active: true, block: block, end: MaxBlocks}
		}
		any = true
		*left -= 2
		if t.state[c.block] != stUncounted {
			c.active = false // orphaned meanwhile
		} else if n, known := t.unendedBelow(c, left); known {
			c.active = false
			t.setCounter(c.block, n)
		}
	}
	return any
}

// unendedBelow returns for how many blocks another one waits at least, and 0 only if it waits for none. If that is not known when
// the work of this slice is done, the next one goes on there.
func (t *task) unendedBelow(c *counting, left *int) (n int64, known bool) {
	var k point
	t.lattice.position(c.block, &k)
	for ; c.edge < len(t.up); c.edge++ {
		var b box
		if t.up[c.edge].upstream(&k, &b) == 0 {
			continue
		}
		n, through := t.upTasks[c.edge].unendedIn(&b, &c.end, left)
		if n > 0 || !through {
			return n, n > 0
		}
		c.end = MaxBlocks
	}
	var near family
	for _, u := range near[:t.lattice.waitsFor(c.block, &k, &near)] {
		if !endedWell(t.state[u]) {
			n++
		}
	}
	return n, true
}

// unendedIn looks at a box of blocks, from the last below end on downwards, and returns how many it found that have not ended well:
// of many, some. If it found none, it says whether it came to the begin of the box, and else in end from where to go on.
func (t *task) unendedIn(b *box, end *int64, left *int) (n int64, through bool) {
	if !t.lowerTail(left) {
		return 0, false
	}
	var k point
	l, last := &t.lattice, t.lattice.dims-1
	if !l.lastBefore(b, min(*end, t.tail), &k) {
		return 0, true
	}
	for look := countWindow; ; {
		from := max(b.lo[last], k[last]+1-countStride)
		block := l.flat(&k)
		states := t.state[block-(k[last]-from) : block+1]
		if n == 0 {
			at := lastUnended(states)
			*left -= 1 + (len(states)-at)/256
			states = states[:at+1]
		}
		for i := len(states) - 1; i >= 0; i-- {
			if !endedWell(states[i]) {
				n++
			}
			if look--; look == 0 || n == stCountMax {
				return n, false
			}
		}
		k[last] = from
		if !l.back(b, &k) {
			return n, true
		}
		if n == 0 && *left <= 0 {
			*end = l.flat(&k) + 1
			return 0, false
		}
	}
}

// lowerTail moves tail down to behind the last block that has not ended well, and reports whether it came there.
func (t *task) lowerTail(left *int) bool {
	for t.tail > 0 {
		from := max(0, t.tail-countStride)
		at := int64(lastUnended(t.state[from:t.tail]))
		*left -= int((t.tail - from - at) / 256)
		t.tail = from + at + 1
		if at >= 0 {
			return true
		}
		if *left <= 0 {
			return false
		}
	}
	return true
}

// recounted returns how much a block waits for that was not done before.
func (t *task) recounted(block int64, k *point) int64 {
	n := int64(0)
	var near family
	for _, u := range near[:t.lattice.waitsFor(block, k, &near)] {
		if t.state[u] != stBefore {
			n++
		}
	}
	for i, e := range t.up {
		var b box
		size := e.upstream(k, &b)
		if u := t.upTasks[i]; size > 0 && u.surveyed {
			size -= u.countBefore(&b)
		}
		n += size
	}
	return n
}

// countBefore counts the blocks of a box that were done before.
func (t *task) countBefore(b *box) (n int64) {
	l, last := &t.lattice, t.lattice.dims-1
	width := b.hi[last] - b.lo[last]
	for k, inside := b.lo, true; inside; inside = l.along(b, &k, width) {
		first := l.flat(&k)
		for _, st := range t.state[first : first+width] {
			if st == stBefore {
				n++
			}
		}
	}
	return n
}
