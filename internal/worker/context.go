package worker

import (
	"context"
	"sync/atomic"
	"time"
)

// A blockContext is the context of one attempt. Most blocks end without anybody asking theirs whether it is done: what that takes is made
// only when somebody does. Then it is as one of package context in every way.
type blockContext struct {
	// watcher is called once, when it has ended.
	watcher interface{ contextEnded(cause error) }

	// Who ends it sets cause before it looks at made, who makes the context sets made before it looks at cause: one of them sees the other.
	cause atomic.Pointer[error]       // why it has ended, nil before
	made  atomic.Pointer[madeContext] // nil until somebody asks
}

// A madeContext is one of package context.
type madeContext struct {
	context.Context
	end context.CancelCauseFunc
}

var _ context.Context = (*blockContext)(nil)

// wellEnded is the cause of nearly all.
var wellEnded = context.Canceled

// cancel ends it; the first cause counts, and must not be nil.
func (c *blockContext) cancel(cause error) {
	kept := &wellEnded
	if cause != wellEnded {
		kept = new(error)
		*kept = cause
	}
	if !c.cause.CompareAndSwap(nil, kept) {
		return
	}
	if made := c.made.Load(); made != nil {
		made.end(cause)
	}
	c.watcher.contextEnded(cause)
}

// ended is why it has ended, nil before.
func (c *blockContext) ended() error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// causeOf is why a context has ended, nil before.
func causeOf(ctx context.Context) error {
	if c, ok := ctx.(*blockContext); ok {
		return c.ended()
	}
	return context.Cause(ctx)
}

// make is the context as package context makes it.
func (c *blockContext) make() context.Context {
	if made := c.made.Load(); made != nil {
		return made.Context
	}
	made := &madeContext{}
	made.Context, made.end = context.WithCancelCause(context.Background())
	if !c.made.CompareAndSwap(nil, made) {
		return c.made.Load().Context // somebody was quicker
	}
	if cause := c.ended(); cause != nil {
		made.end(cause)
	}
	return made.Context
}

// Deadline: there is none that is known beforehand, since the limit of a task may change.
func (c *blockContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the block is to end, and when it has.
func (c *blockContext) Done() <-chan struct{} { return c.make().Done() }

// Err is nil until then.
func (c *blockContext) Err() error {
	if c.ended() != nil {
		return context.Canceled
	}
	return nil
}

// Value is what package context finds its own by: the cause, and the contexts that are made of this one.
func (c *blockContext) Value(key any) any { return c.make().Value(key) }
