package worker

import (
	"context"
	"sync"
	"time"
)

// A blockContext is the context of one attempt. Most blocks end without anybody asking theirs whether it is done: what that takes is made
// only when somebody does. Then it is as one of package context in every way.
type blockContext struct {
	// watcher is called once, when it has ended.
	watcher interface{ contextEnded(cause error) }

	mu    sync.Mutex
	cause error           // why it has ended
	real  context.Context // nil until somebody asks
	end   context.CancelCauseFunc
}

var _ context.Context = (*blockContext)(nil)

// cancel ends it; the first cause counts, and must not be nil.
func (c *blockContext) cancel(cause error) {
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return
	}
	c.cause = cause
	end := c.end
	c.mu.Unlock()
	if end != nil {
		end(cause)
	}
	c.watcher.contextEnded(cause)
}

// ended is why it has ended, nil before.
func (c *blockContext) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// causeOf is why a context has ended, nil before.
func causeOf(ctx context.Context) error {
	if c, ok := ctx.(*blockContext); ok {
		return c.ended()
	}
	return context.Cause(ctx)
}

// made is the context as package context makes it.
func (c *blockContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.end = context.WithCancelCause(context.Background())
		if c.cause != nil {
			c.end(c.cause)
		}
	}
	return c.real
}

// Deadline: there is none that is known beforehand, since the limit of a task may change.
func (c *blockContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the block is to end, and when it has.
func (c *blockContext) Done() <-chan struct{} { return c.made().Done() }

// Err is nil until then.
func (c *blockContext) Err() error {
	if c.ended() != nil {
		return context.Canceled
	}
	return nil
}

// Value is what package context finds its own by: the cause, and the contexts that are made of this one.
func (c *blockContext) Value(key any) any { return c.made().Value(key) }
