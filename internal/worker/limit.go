package worker

import (
	"reflect"
	"sync"
	"time"

	"example.org/daisy/internal/api"
)

// A limit bounds the time of each block of a task. When it becomes another, it is so for the blocks that run, too, from their
// start.
type limit struct {
	mu    sync.Mutex
	d     time.Duration // 0 = none
	clock map[*blockClock]struct{}
}

// A blockClock is that of a block that runs.
type blockClock struct {
	began time.Time
	end   func()
	timer *time.Timer
}

func (l *limit) get() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d
}

func (l *limit) set(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.d = d
	for c := range l.clock {
		c.arm(d)
	}
}

// start calls end when the limit has passed, unless stop is called before.
func (l *limit) start(end func()) (stop func()) {
	c := &blockClock{began: time.Now(), end: end}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clock == nil {
		l.clock = map[*blockClock]struct{}{}
	}
	l.clock[c] = struct{}{}
	c.arm(l.d)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.clock, c)
		c.arm(0)
	}
}

func (c *blockClock) arm(d time.Duration) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if d > 0 {
		c.timer = time.AfterFunc(d-time.Since(c.began), c.end)
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
