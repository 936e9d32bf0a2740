package worker

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"example.org/daisy/internal/api"
)

// A limit bounds the time of each block of a task. When it becomes another, it is so for the blocks that run, too, from their
// start.
type limit struct {
	mu      sync.Mutex
	d       time.Duration // 0 = none
	running []*blockClock // as they began, more or less
	// One timer serves all blocks: it is not moved when a block ends, so that a short block never touches it, and looks for itself whose time
	// is up.
	timer *time.Timer
	armed bool
}

// A blockClock is that of a block that runs.
type blockClock struct {
	began time.Time
	of    interface{ timeIsUp() }
	up    bool
}

func (l *limit) get() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d
}

func (l *limit) set(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.d, l.armed = d, false
	if l.timer != nil {
		l.timer.Stop()
	}
	l.armLocked()
}

// start has the block told once when the limit has passed, unless stop is called before.
func (l *limit) start(c *blockClock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = append(l.running, c)
	if !l.armed {
		l.armLocked()
	}
}

func (l *limit) stop(c *blockClock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.running, c); i >= 0 {
		l.running = slices.Delete(l.running, i, i+1)
	}
}

// armLocked sets the timer to when the time of the first block is up.
func (l *limit) armLocked() {
	var first *blockClock
	for _, c := range l.running {
		if !c.up && (first == nil || c.began.Before(first.began)) {
			first = c
		}
	}
	if l.d == 0 || first == nil {
		return
	}
	l.armed = true
	if left := l.d - time.Since(first.began); l.timer == nil {
		l.timer = time.AfterFunc(left, l.look)
	} else {
		l.timer.Reset(left)
	}
}

// look tells the blocks whose time is up.
func (l *limit) look() {
	l.mu.Lock()
	l.armed = false
	var late []*blockClock
	for _, c := range l.running {
		if l.d > 0 && !c.up && time.Since(c.began) >= l.d {
			c.up = true
			late = append(late, c)
		}
	}
	l.armLocked()
	l.mu.Unlock()
	for _, c := range late {
		c.of.timeIsUp()
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
