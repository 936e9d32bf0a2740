package scheduler

// task is the run of one task.
type task struct {
	id         int
	lattice    lattice
	state      []byte // a byte per block, padded to whole groups of 64
	up, down   []*edge
	upTasks    []*task // of up
	direct     bool    // a block never has more than directSpread dependents
	maxRetries uint32
	maxLost    uint16

	run *running // nil once the task has ended
	end ended    // then this

	past     *Past  // what became of its blocks in earlier lives of the run; nil = nothing
	skip     Bitmap // done before or masked, or in the past
	skips    int64  // number of bits in skip
	whole    bool   // all blocks are skipped, and all of everything upstream: the task has no state
	surveyed bool   // nearly all of its blocks are skipped; see survey
	recount  bool   // some of what its blocks wait for is stBefore, so that counters begin from states, not from arithmetic

	most      int64    // bound on what a block waits for
	tellUnits int      // units of work that it takes to tell one of its blocks of an end
	tail      int64    // from here on all blocks have ended well, perhaps even from earlier on
	uncounted *tree    // blocks whose counters are to be set, if a block can wait for more than a byte counts
	counting  counting // how far Work is with one of them

	roots    []box
	walk     rootWalk // hands out the roots that are not skipped
	fresh    int64    // of these, how many it has yet to hand out
	overtook bool     // some were handed out before their turn (Reacquire, AcquireAbove), and the walk is to pass them over
	above    *rootsAbove
	skipWalk rootWalk // skips the others
	toSkip   int64    // of these, how many it has yet to skip

	ready   *tree // blocks that became ready
	todo    *tree // blocks to skip and orphaned blocks, whose dependents are to be told
	todos   int64 // how many
	retries retries

	highWater      int64
	lastWorker     uint32
	severalWorkers bool
}

func newTask(id int, spec *Task, past *Past) *task {
	t := &task{id: id, lattice: newLattice(spec.Grid), maxRetries: uint32(spec.MaxRetries), maxLost: uint16(min(spec.MaxLost, maxMaxLost)), past: past}
	if t.maxLost == 0 {
		t.maxLost = DefaultMaxLost
	}
	t.skip = union(spec.Done, spec.Mask)
	if past != nil {
		t.skip = union(t.skip, past.marks())
		past.checked = nil // an eighth of a byte for each block, of which nobody asks any more
	}
	t.skips = t.skip.countRange(0, t.lattice.n)
	t.whole = t.skips == t.lattice.n && (past == nil || len(past.tried) == 0)
	return t
}

// begin sets the task up, when its edges are known.
func (t *task) begin() {
	n := t.lattice.n
	if t.whole {
		t.end = ended{t.past.of(Tally{Total: n, Skipped: n}), Done}
		for w := range t.skip {
			s := t.past.successes(int64(w), ^uint64(0))
			t.end.tally.Skipped -= s
			t.end.tally.Success += s
		}
		return
	}
	t.state = make([]byte, (n+63)/64*64)
	t.ready, t.todo = newTree(n), newTree(n)
	t.tail, t.tellUnits = n, 1
	var taken []box
	t.most = 1 << t.lattice.dims
	for _, e := range t.up {
		taken = append(taken, e.needs)
		t.most += e.maxUp // far below overflow: 2^60 at most, and few edges
	}
	if t.most > stCountMax {
		t.uncounted = newTree(n)
	}
	most := int64(1) << t.lattice.dims
	for _, e := range t.down {
		most = min(most+e.maxDown, directSpread+1)
	}
	t.direct = most <= directSpread
	t.roots = rootBoxes(&t.lattice, taken)
	t.walk.boxes, t.skipWalk.boxes = t.roots, t.roots
	t.fresh = countRoots(&t.lattice, t.roots)
	if t.skips > 0 {
		t.toSkip = t.countSkippedRoots()
		t.fresh -= t.toSkip
	}
	t.run = newRunning(n, t.fresh)
	t.run.tally = t.past.of(t.run.tally)
}

// release frees what an ended task does not need. Its states stay: dependents and reports ask for them.
func (t *task) release() {
	t.ready, t.todo, t.todos, t.toSkip, t.fresh, t.above = nil, nil, 0, 0, 0, nil
	t.uncounted, t.counting = nil, counting{}
	t.retries.waiting, t.retries.held = list{}, nil
}

// countSkippedRoots counts the roots that are skipped.
func (t *task) countSkippedRoots() int64 {
	walk, n := rootWalk{boxes: t.roots}, int64(0)
	step := t.lattice.stride[t.lattice.dims-1]
	for walk.advance(&t.lattice) {
		if step == 1 {
			n += t.skip.countRange(walk.next, walk.rowEnd)
			continue
		}
		for b := walk.next; b < walk.rowEnd; b += step {
			if t.skip.Get(b) {
				n++
			}
		}
	}
	return n
}

// isRoot reports whether a block waits for nothing.
func (t *task) isRoot(block int64) bool {
	var k point
	t.lattice.position(block, &k)
	return t.lattice.first(&k) && !t.touchesUpstream(&k)
}

// levelCount returns the number of levels.
func (t *task) levelCount() int {
	n := 1
	for _, s := range t.lattice.stride[:t.lattice.dims] {
		n *= int(s)
	}
	return n
}

func (t *task) touchesUpstream(k *point) bool {
	for _, e := range t.up {
		inside := true
		for i := range e.dims {
			inside = inside && k[i] >= e.needs.lo[i] && k[i] < e.needs.hi[i]
		}
		if inside {
			return true
		}
	}
	return false
}

// takeFresh takes a block that was never tried: the lowest that became ready, else the next root. -1 if there is none.
func (t *task) takeFresh() int64 {
	if block := t.ready.pop(t.state, stReady); block >= 0 {
		return block
	}
	if t.fresh == 0 {
		return -1
	}
	t.fresh--
	if t.skips == 0 && !t.overtook {
		return t.walk.block(&t.lattice)
	}
	for {
		if t.skips > 0 {
			t.walk.passOver(t.skip, ^uint64(0))
		}
		if block := t.walk.block(&t.lattice); !t.skip.Get(block) && (!t.overtook || t.state[block] == 0) {
			return block
		}
	}
}

// countBegin counts the attempt of a lease as begun, once.
func (t *task) countBegin(slot *leaseSlot) {
	if !slot.began && slot.record != 0 && t.retries.get(slot.record).failure {
		t.run.began()
	}
	slot.began = true
}

// endLater puts a block down for endBefore.
func (t *task) endLater(block int64) {
	t.state[block] = stSkipPending
	t.todo.set(block)
	t.todos++
}

// open makes a block ready that waits for nothing more, or puts it down to be skipped.
func (t *task) open(block int64) {
	if t.skips > 0 && t.skip.Get(block) {
		t.endLater(block)
		return
	}
	t.state[block] = stReady
	t.ready.set(block)
	t.run.open()
}

// orphan marks a waiting block whose dependency failed. If others wait for it they are told by Work.
func (t *task) orphan(block int64) {
	if !waits(t.state[block]) {
		return // orphaned before
	}
	t.run.orphan()
	if len(t.down) == 0 && !t.lattice.levels {
		t.state[block] = stOrphaned
		return
	}
	t.state[block] = stOrphanPending
	t.todo.set(block)
	t.todos++
}
