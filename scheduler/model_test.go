package scheduler_test

import (
	"fmt"

	. "example.org/daisy/scheduler"
)

// This file is a second scheduler, as slow and plain as can be, that shares no code with the first, geometry included: blocks are
// listed, dependencies are found by looking at every pair, and what an event brings about happens at once.

// plainTask describes the blocks of one task. Regions are [begin, end) on each axis.
type plainTask struct {
	total, read, write [][2]int64
	fit                string
	conflict           bool
	maxRetries         int
	maxLost            int
	skip               []bool // done or masked, by block; nil = none
}

type plainBlock struct {
	task        int
	k           []int64
	read, write [][2]int64
	level       int
	up, down    []*plainBlock

	state    BlockState
	attempts int
	spent    int
	lost     int
	failure  bool // its last attempt used up a retry
}

// model is the state of a run.
type model struct {
	tasks     []plainTask
	blocks    [][]*plainBlock // by task, in C order
	strides   [][]int64
	abandoned []bool
	counts    []Tally // only the counts of attempts
}

func newModel(tasks []plainTask, edges [][2]int) *model {
	m := &model{tasks: tasks, abandoned: make([]bool, len(tasks)), counts: make([]Tally, len(tasks))}
	for i, t := range tasks {
		blocks, stride := t.blocks(i)
		m.blocks = append(m.blocks, blocks)
		m.strides = append(m.strides, stride)
		for _, a := range blocks {
			for _, b := range blocks {
				if a.level == b.level-1 && near(a.k, b.k, stride) {
					link(a, b)
				}
			}
		}
	}
	for _, e := range edges {
		for _, a := range m.blocks[e[0]] {
			for _, b := range m.blocks[e[1]] {
				if meet(a.write, b.read) {
					link(a, b)
				}
			}
		}
	}
	for _, blocks := range m.blocks {
		for _, b := range blocks {
			m.settle(b)
		}
	}
	return m
}

func link(a, b *plainBlock) {
	a.down = append(a.down, b)
	b.up = append(b.up, a)
}

// near reports whether two positions are less than a stride apart on each axis.
func near(a, b, stride []int64) bool {
	for i := range a {
		if d := a[i] - b[i]; d >= stride[i] || -d >= stride[i] {
			return false
		}
	}
	return true
}

// meet reports whether two regions share a point.
func meet(a, b [][2]int64) bool {
	for i := range a {
		if max(a[i][0], b[i][0]) >= min(a[i][1], b[i][1]) {
			return false
		}
	}
	return true
}

func clip(a, to [][2]int64) [][2]int64 {
	out := make([][2]int64, len(a))
	for i := range a {
		out[i] = [2]int64{max(a[i][0], to[i][0]), min(a[i][1], to[i][1])}
	}
	return out
}

// blocks lists the blocks in C order, and the stride of the levels.
func (t plainTask) blocks(task int) ([]*plainBlock, []int64) {
	d := len(t.total)
	counts, stride := make([]int64, d), make([]int64, d)
	totalWrite := make([][2]int64, d)
	for i := range d {
		low, high := t.write[i][0]-t.read[i][0], t.read[i][1]-t.write[i][1]
		w := t.write[i][1] - t.write[i][0]
		totalWrite[i] = [2]int64{t.total[i][0] + low, t.total[i][1] - high}
		for begin := totalWrite[i][0]; begin < totalWrite[i][1]; begin += w {
			if t.fit != "valid" || begin+w <= totalWrite[i][1] {
				counts[i]++
			}
		}
		stride[i] = 1
		for t.conflict && stride[i] < counts[i] && stride[i]*w < max(low, high)+w {
			stride[i]++
		}
	}
	var blocks []*plainBlock
	k := make([]int64, d)
	for {
		inside := true
		for i := range d {
			inside = inside && k[i] < counts[i]
		}
		if inside {
			b := &plainBlock{task: task, k: append([]int64(nil), k...)}
			for i := range d {
				w := t.write[i][1] - t.write[i][0]
				begin := totalWrite[i][0] + k[i]*w
				b.write = append(b.write, [2]int64{begin, begin + w})
				b.read = append(b.read, [2]int64{begin - (t.write[i][0] - t.read[i][0]), begin + w + t.read[i][1] - t.write[i][1]})
				b.level = b.level*int(stride[i]) + int(stride[i]-1-k[i]%stride[i])
			}
			if t.fit == "shrink" {
				b.write, b.read = clip(b.write, totalWrite), clip(b.read, t.total)
			}
			blocks = append(blocks, b)
		}
		i := d - 1
		for ; i >= 0; i-- {
			if k[i]++; k[i] < counts[i] {
				break
			}
			k[i] = 0
		}
		if i < 0 {
			return blocks, stride
		}
	}
}

func (m *model) index(b *plainBlock) int {
	for i, x := range m.blocks[b.task] {
		if x == b {
			return i
		}
	}
	panic("a block of another model")
}

func good(s BlockState) bool { return s == BlockSuccess || s == BlockSkipped }
func bad(s BlockState) bool {
	return s == BlockFailed || s == BlockOrphaned || s == BlockAbandoned
}

// settle moves a waiting block on, and what follows from that.
func (m *model) settle(b *plainBlock) {
	if b.state != BlockWaiting {
		return
	}
	open := true
	for _, u := range b.up {
		if bad(u.state) {
			m.end(b, BlockOrphaned)
			return
		}
		open = open && good(u.state)
	}
	switch skip := m.tasks[b.task].skip; {
	case !open:
	case skip != nil && skip[m.index(b)]:
		m.end(b, BlockSkipped)
	default:
		b.state = BlockReady
	}
}

func (m *model) end(b *plainBlock, state BlockState) {
	b.state = state
	for _, d := range b.down {
		m.settle(d)
	}
}

// release ends the hand-out of a leased block.
func (m *model) release(b *plainBlock, e Ending) Verdict {
	t, c := m.tasks[b.task], &m.counts[b.task]
	if e.Outcome != Recalled {
		if b.failure {
			c.Retries++
		}
		b.failure = false
		b.attempts++
	}
	final := false
	switch e.Outcome {
	case Success:
		c.Processed++
		m.end(b, BlockSuccess)
		return Succeeded
	case Skipped:
		m.end(b, BlockSkipped)
		return WasSkipped
	case Failed:
		c.Processed++
	case TimedOut:
		c.TimedOut++
	case OutOfMemory:
		c.OutOfMemory++
	case Lost:
		c.Lost++
		if !e.Blameless {
			b.lost++
			final = b.lost == t.maxLost
		}
	case Returned:
		c.Returned++
		final = e.Final
	}
	if e.Outcome == Failed || e.Outcome == TimedOut || e.Outcome == OutOfMemory {
		b.spent++
		b.failure = true
		final = b.spent == t.maxRetries+1
	}
	switch {
	case final:
		m.end(b, BlockFailed)
		return FailedForGood
	case e.Hold:
		b.state = BlockHeld
		return Held
	default:
		b.state = BlockReady
		return Retry
	}
}

// abandon gives a task up, unless it has ended.
func (m *model) abandon(task int) {
	if m.taskState(task) != Running {
		return
	}
	m.abandoned[task] = true
	var left []*plainBlock
	for _, b := range m.blocks[task] {
		if !good(b.state) && !bad(b.state) {
			b.state = BlockAbandoned
			left = append(left, b)
		}
	}
	for _, b := range left {
		m.end(b, BlockAbandoned)
	}
}

// retry lets the failed blocks of a task begin anew.
func (m *model) retry(task int) {
	for _, b := range m.blocks[task] {
		if b.state == BlockFailed {
			b.state, b.attempts, b.spent, b.lost, b.failure = BlockWaiting, 0, 0, 0, false
		}
	}
}

// settleAll looks at all blocks again that wait or were orphaned.
func (m *model) settleAll() {
	for _, blocks := range m.blocks {
		for _, b := range blocks {
			if b.state == BlockOrphaned {
				b.state = BlockWaiting
			}
		}
	}
	for _, blocks := range m.blocks {
		for _, b := range blocks {
			m.settle(b)
		}
	}
}

// above counts the ready blocks that AcquireAbove must find from a number on: roots, what became ready in whole groups of 64, and those to
// be tried again, if they are few.
func (m *model) above(task int, from int64) (n int) {
	tried, all := 0, 0
	for i, b := range m.blocks[task] {
		switch {
		case b.state != BlockReady:
		case b.attempts > 0:
			all++
			if int64(i) >= from {
				tried++
			}
		case int64(i) >= from && (len(b.up) == 0 || int64(i) >= (from+63)/64*64):
			n++
		}
	}
	if all <= 16 {
		n += tried
	}
	return n
}

func (m *model) taskState(task int) TaskState {
	if m.abandoned[task] {
		return Abandoned
	}
	for _, b := range m.blocks[task] {
		if !good(b.state) && !bad(b.state) {
			return Running
		}
	}
	return Done
}

func (m *model) tally(task int) Tally {
	c := m.counts[task]
	for _, b := range m.blocks[task] {
		c.Total++
		switch b.state {
		case BlockWaiting, BlockHeld:
			c.Waiting++
		case BlockReady:
			c.Ready++
		case BlockLeased:
			c.Leased++
		case BlockSuccess:
			c.Success++
		case BlockSkipped:
			c.Skipped++
		case BlockFailed:
			c.Failed++
		case BlockOrphaned:
			c.Orphaned++
		case BlockAbandoned:
			c.Abandoned++
		}
	}
	return c
}

// difference says where a scheduler with no bulk work left stands otherwise than the model; "" if nowhere.
func (m *model) difference(s *Scheduler) string {
	for task, blocks := range m.blocks {
		for i, b := range blocks {
			if got := s.Block(task, int64(i)); got != b.state {
				return fmt.Sprintf("task %d block %d %v: %v, want %v", task, i, b.k, got, b.state)
			}
		}
		if got, want := s.Tally(task), m.tally(task); got != want {
			return fmt.Sprintf("task %d: %+v, want %+v", task, got, want)
		}
		if got, want := s.State(task), m.taskState(task); got != want {
			return fmt.Sprintf("task %d: %v, want %v", task, got, want)
		}
		failed := map[int64]int{}
		s.Failures(task, func(block int64, attempts int) bool { failed[block] = attempts; return true })
		for i, b := range blocks {
			if attempts, ok := failed[int64(i)]; ok != (b.state == BlockFailed) || ok && attempts != b.attempts {
				return fmt.Sprintf("task %d block %d is %v after %d attempts; reported as failed: %v, after %d", task, i, b.state, b.attempts, ok, attempts)
			}
		}
	}
	return ""
}

// breach says which rule a scheduler breaks that holds after every call, bulk work left or not; "" if none.
func (m *model) breach(s *Scheduler) string {
	var leased []*plainBlock
	for task, blocks := range m.blocks {
		c := s.Tally(task)
		if sum := c.Waiting + c.Ready + c.Leased + c.Success + c.Skipped + c.Failed + c.Orphaned + c.Abandoned; sum != c.Total || c.Total != int64(len(blocks)) {
			return fmt.Sprintf("task %d: %d blocks add up to %d: %+v", task, len(blocks), sum, c)
		}
		if unended := c.Waiting + c.Ready + c.Leased; (unended == 0) != (s.State(task) != Running) {
			return fmt.Sprintf("task %d is %v with %+v", task, s.State(task), c)
		}
		n := int64(0)
		for i, b := range blocks {
			if s.Block(task, int64(i)) != BlockLeased {
				continue
			}
			n++
			leased = append(leased, b)
			for _, u := range b.up {
				if st := s.Block(u.task, int64(m.index(u))); !good(st) {
					return fmt.Sprintf("task %d block %d is leased, and waits for task %d block %d, which is %v", task, i, u.task, m.index(u), st)
				}
			}
		}
		if n != c.Leased {
			return fmt.Sprintf("task %d: %d leased blocks, counted %d", task, n, c.Leased)
		}
	}
	for _, a := range leased {
		for _, b := range leased {
			if a != b && a.task == b.task && m.tasks[a.task].conflict && meet(a.read, b.write) {
				return fmt.Sprintf("task %d: blocks %v and %v run together, and one reads what the other writes", a.task, a.k, b.k)
			}
		}
	}
	return ""
}
