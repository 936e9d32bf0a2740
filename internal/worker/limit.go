package worker

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/daisy/internal/api"
)

// A limit bounds the time of each block of a task. When it becomes another, it is so for the blocks that run, too, from their
// start.
type limit struct {
	birth time.Time // of its clock
	// armed: a block that starts need not see to it that somebody looks whose time is up.
	armed atomic.Bool

	mu    sync.Mutex
	d     time.Duration              // 0 = none
	slots []*atomic.Pointer[attempt] // what runs in the slots that serve the task
	// One timer serves all blocks: it is not moved when a block ends, so that a short block never touches it, and looks for itself whose time
	// is up.
	timer *time.Timer
}

func newLimit(d time.Duration) limit { return limit{birth: time.Now(), d: d} }

// clock is what the time of blocks is measured by.
func (l *limit) clock() time.Duration { return time.Since(l.birth) }

func (l *limit) get() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d
}

func (l *limit) set(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.d = d
	if l.timer != nil {
		l.timer.Stop()
	}
	l.armLocked()
}

// watch has each block of a slot cancelled once when the limit has passed, as long as it is in now.
func (l *limit) watch(now *atomic.Pointer[attempt]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = append(l.slots, now)
}

func (l *limit) unwatch(now *atomic.Pointer[attempt]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = slices.DeleteFunc(l.slots, func(p *atomic.Pointer[attempt]) bool { return p == now })
}

// started is called when a block has begun in a slot that is watched.
func (l *limit) started() {
	if l.armed.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armLocked()
}

// armLocked sets the timer to when the time of the first block is up.
func (l *limit) armLocked() {
	if l.d == 0 {
		l.armed.Store(true)
		return
	}
	l.armed.Store(false) // before it looks: a block that it does not find will see it
	var first *attempt
	for _, now := range l.slots {
		if a := now.Load(); a != nil && !a.late && (first == nil || a.began < first.began) {
			first = a
		}
	}
	if first == nil {
		return
	}
	l.armed.Store(true)
	if left := l.d - (l.clock() - first.began); l.timer == nil {
		l.timer = time.AfterFunc(left, l.look)
	} else {
		l.timer.Reset(left)
	}
}

// look tells the blocks whose time is up.
func (l *limit) look() {
	l.mu.Lock()
	var late []*attempt
	for _, now := range l.slots {
		if a := now.Load(); a != nil && !a.late && l.d > 0 && l.clock()-a.began >= l.d {
			a.late = true
			late = append(late, a)
		}
	}
	l.armLocked()
	l.mu.Unlock()
	for _, a := range late {
		a.ctx.cancel(errTimedOut) // nothing, if it has ended meanwhile
	}
}

// Timeout limits one block, 0 = no limit. It may change.
func (t *Task) Timeout() time.Duration { return t.limit.get() }

// same reports whether a specification is that of the task, but perhaps for its limit.
func (t *Task) same(spec api.TaskSpec) bool {
	spec.TimeoutSeconds = t.Spec.TimeoutSeconds
	return reflect.DeepEqual(spec, t.Spec)
}

// serveLocked takes a task for the one to serve from now on. One that is known already stays what it is, so that processes that
// serve it go on, and only its limit becomes that of the new specification, for blocks that run too. It is false if nothing but
// that has changed.
func (c *Client) serveLocked(task *Task) (other bool) {
	if known := c.tasks[uint32(task.Spec.Index)]; known != nil && known.same(task.Spec) {
		known.limit.set(task.Timeout())
		task = known
	}
	other = c.task != task
	c.tasks[uint32(task.Spec.Index)], c.task = task, task
	return other
}
