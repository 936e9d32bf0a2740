package scheduler

// effect is what the end of a block does to those that wait for it.
type effect uint8

const (
	opening   effect = iota // it ended well: each has one less to wait for
	orphaning               // it did not: each is orphaned
)

// directSpread is the number of dependents up to which an end is spread at once.
const directSpread = 1024

// spreading is the end of a block on its way to those that wait for it. Where it is done in part, edge says which edge it is at,
// and after which block of the other task is next.
type spreading struct {
	task   int32
	effect effect
	block  int64
	levels bool // the next level of its own task was told
	edge   int
	next   int64
}

// spread tells those that wait for a block that it ended, now if they are few, else by Work. It returns about how many blocks it
// touched.
func (s *Scheduler) spread(t *task, block int64, how effect) (touched int) {
	if len(t.down) == 0 && !t.lattice.levels {
		return 1
	}
	var k point
	var b box
	t.lattice.position(block, &k)
	if len(s.surveys) > 0 || !t.direct && s.dependents(t, &k) > directSpread {
		s.spreads = append(s.spreads, spreading{task: int32(t.id), effect: how, block: block})
		return 1
	}
	touched = 1
	if t.lattice.levels {
		touched += s.spreadLevel(t, block, &k, how)
	}
	for _, e := range t.down {
		if d := s.tasks[e.down]; d.run != nil {
			if n := e.downstream(&k, &b); n > 0 {
				s.spreadBox(d, &b, how)
				touched += int(n) * d.tellUnits
			}
		}
	}
	return touched
}

// dependents returns how many blocks of other tasks wait for the block at k.
func (s *Scheduler) dependents(t *task, k *point) (n int64) {
	var b box
	for _, e := range t.down {
		if s.tasks[e.down].run != nil {
			n += e.downstream(k, &b)
		}
	}
	return n
}

// spreadLevel tells the blocks of the next level of the same task.
func (s *Scheduler) spreadLevel(t *task, block int64, k *point, how effect) int {
	if t.run == nil {
		return 0
	}
	var next family
	n := t.lattice.leadsTo(block, k, &next)
	for _, b := range next[:n] {
		if how == opening {
			t.satisfy(b)
		} else {
			t.orphan(b)
		}
	}
	if how == orphaning {
		s.endIfOver(t)
	}
	return n
}

// spreadBox tells all blocks of a box of another task.
func (s *Scheduler) spreadBox(t *task, b *box, how effect) {
	l := &t.lattice
	last := l.dims - 1
	k := b.lo
	width := b.hi[last] - b.lo[last]
	for {
		t.tellRow(l.flat(&k), width, how)
		i := last - 1
		for ; i >= 0; i-- {
			if k[i]++; k[i] < b.hi[i] {
				break
			}
			k[i] = b.lo[i]
		}
		if i < 0 {
			break
		}
	}
	if how == orphaning {
		s.endIfOver(t)
	}
}

// tellRow tells blocks that follow each other.
func (t *task) tellRow(first, n int64, how effect) {
	if how == opening {
		for i, st := range t.state[first : first+n] {
			if st > 1 && st <= stCountMax {
				t.state[first+int64(i)] = st - 1
			} else {
				t.satisfy(first + int64(i))
			}
		}
		return
	}
	for b := first; b < first+n; b++ {
		t.orphan(b)
	}
}

// continueSpread does a slice of the first large spreading and takes it off the list when it is done.
func (s *Scheduler) continueSpread(left *int) {
	f := &s.spreads[0]
	t := s.tasks[f.task]
	var k point
	t.lattice.position(f.block, &k)
	if !f.levels {
		f.levels = true
		*left -= s.spreadLevel(t, f.block, &k, f.effect)
	}
	for f.edge < len(t.down) && *left > 0 {
		e := t.down[f.edge]
		d := s.tasks[e.down]
		var b box
		if d.run == nil || e.downstream(&k, &b) == 0 || !s.spreadSlice(d, &b, f, left) {
			f.edge++
			f.next = 0
		}
	}
	*left--
	if f.edge == len(t.down) {
		s.spreads = s.spreads[1:]
		if len(s.spreads) == 0 {
			s.spreads = nil
		}
	}
}

// spreadSlice tells blocks of a box from f.next on, row by row, and reports whether some are left.
func (s *Scheduler) spreadSlice(d *task, b *box, f *spreading, left *int) (more bool) {
	l, last := &d.lattice, d.lattice.dims-1
	k := b.lo
	if f.next > 0 {
		l.position(f.next, &k)
	}
	for *left > 0 {
		if d.run == nil {
			return false
		}
		n := min(b.hi[last]-k[last], int64(max(*left/d.tellUnits, 1)))
		d.tellRow(l.flat(&k), n, f.effect)
		*left -= int(n) * d.tellUnits
		if !l.along(b, &k, n) {
			s.endIfOver(d)
			return false
		}
		if f.effect == orphaning {
			s.endIfOver(d)
		}
	}
	f.next = l.flat(&k)
	return true
}
