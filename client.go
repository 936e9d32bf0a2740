package daisy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/internal/version"
	"example.org/daisy/internal/wire"
	"example.org/daisy/internal/worker"
)

// ClientOptions say who a client is. The zero value is a client for any task, one block at a time.
type ClientOptions struct {
	// Name names the worker in the reports; the default is made of host and process.
	Name string
	// Task is what it works for; "" = any.
	Task string
	// Slots is how many blocks it works on at once: how many loops over Blocks run at the same time. 0 = 1.
	Slots int
	// Batch is how many blocks a loop takes from the coordinator at once, for blocks that take less than a round trip; the
	// coordinator may give fewer. 0 = 1.
	Batch int
}

// A Client is a worker of one's own: it joins a run that somebody else started (daisy-submit run, or Run), and takes its
// blocks. Its methods may be called from several goroutines.
type Client struct {
	c     *worker.Client
	batch int

	mu      sync.Mutex
	running []*LeasedBlock // in no order
}

// Connect joins the run in a run directory. ctx bounds the joining only.
func Connect(ctx context.Context, runDirectory string, o ClientOptions) (*Client, error) {
	c := &Client{batch: max(o.Batch, 1)}
	var err error
	c.c, err = worker.Connect(ctx, worker.Config{
		RunDir: runDirectory, Identity: worker.Identity{Name: o.Name}, Task: o.Task, Slots: max(o.Slots, 1), Version: version.String(),
		OnKill: c.takenBack, OnStop: c.stopped,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// takenBack ends the context of a block that is no longer ours.
func (c *Client) takenBack(b worker.Block) {
	for _, r := range c.all() {
		if r.lease.Epoch == b.Epoch && r.lease.Lease == b.Lease {
			r.end(ErrReclaimed)
		}
	}
}

// stopped ends the contexts of all blocks: the run is over.
func (c *Client) stopped(message string) {
	for _, b := range c.all() {
		b.end(errors.New("the run ends: " + message))
	}
}

// all are the blocks that have not been released.
func (c *Client) all() []*LeasedBlock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.running)
}

// start begins the time of a block.
func (c *Client) start(ctx context.Context, got *worker.Block) *LeasedBlock {
	b := &LeasedBlock{Block: publicBlock(got), client: c, lease: got, began: time.Now(), loop: ctx}
	c.mu.Lock()
	b.at = len(c.running)
	c.running = append(c.running, b)
	c.mu.Unlock()
	return b
}

// forget notes that a block has been released.
func (c *Client) forget(b *LeasedBlock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.running) - 1
	c.running[b.at] = c.running[last]
	c.running[b.at].at = b.at
	c.running[last] = nil
	c.running = c.running[:last]
}

var errTimeUp = errors.New("the time of the block is up")

// A LeasedBlock is a block that a client has taken and has to give back with Release.
type LeasedBlock struct {
	Block

	client   *Client
	at       int // in client.running
	lease    *worker.Block
	began    time.Time
	loop     context.Context
	released bool

	// The context of the block is made when it is asked for: most blocks end without.
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
	cause  error // why it is to end, if it was said before
}

// Context is done when the block's time is up (Task.Timeout), when the coordinator has taken the block back, and when the
// context of the loop is done. Work on the block should then stop; Release says what happened.
func (b *LeasedBlock) Context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx != nil {
		return b.ctx
	}
	b.ctx, b.cancel = context.WithCancelCause(b.loop)
	if limit := b.lease.Task.Timeout(); limit > 0 {
		timed, stop := context.WithDeadlineCause(b.ctx, b.began.Add(limit), errTimeUp)
		cancel := b.cancel
		b.ctx, b.cancel = timed, func(cause error) { cancel(cause); stop() }
	}
	if b.cause != nil {
		b.cancel(b.cause)
	}
	return b.ctx
}

// end ends the context of the block, and says why it had ended already, nil if it had not. The first cause counts.
func (b *LeasedBlock) end(cause error) (before error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx != nil {
		before = context.Cause(b.ctx)
		b.cancel(cause)
		return before
	}
	if before = b.cause; before == nil {
		b.cause = cause
		if limit := b.lease.Task.Timeout(); limit > 0 && time.Since(b.began) >= limit {
			before = errTimeUp
		}
	}
	return before
}

// Blocks gives one block after the other until there are no more, ctx is done or the coordinator is gone; Err tells these
// apart. A block that was not released when the loop asks for the next one, or ends, is released as failed.
func (c *Client) Blocks(ctx context.Context) iter.Seq[*LeasedBlock] {
	return func(yield func(*LeasedBlock) bool) {
		for {
			got, err := c.c.Acquire(ctx, c.batch)
			if err != nil {
				return
			}
			for i := range got {
				b := c.start(ctx, &got[i])
				more := yield(b)
				if !b.released {
					_ = b.Release(errNotReleased) // the coordinator may have taken it back: then nobody minds
				}
				if !more {
					for _, rest := range got[i+1:] {
						_ = c.c.Release(rest, worker.Result{Outcome: wire.Recalled})
					}
					return
				}
			}
		}
	}
}

var errNotReleased = errors.New("the loop over Blocks went on without Release")

// ErrReclaimed is given by Release when the coordinator has taken the block back, because time was up or because it had not
// heard of the client for too long. What the client did for it does not count.
var ErrReclaimed = worker.ErrReclaimed

// Release gives the block back: done if err is nil, else the attempt has failed for that reason (or timed out, if the
// block's time was up). It returns before the
// coordinator has answered; Close waits for that. A second call does nothing.
func (b *LeasedBlock) Release(err error) error {
	if b.released {
		return nil
	}
	b.released = true
	b.client.forget(b)
	cause := b.end(context.Canceled)
	r := worker.Result{Outcome: wire.Success, Wall: time.Since(b.began)}
	switch {
	case err != nil && errors.Is(cause, errTimeUp):
		r.Outcome, r.Message = wire.TimedOut, fmt.Sprintf("timed out after %s", units.Duration(b.lease.Task.Timeout()))
	case err != nil:
		r.Outcome, r.Message = wire.Failed, err.Error()
	}
	return b.client.c.Release(*b.lease, r)
}

// ID is the client's name in the reports.
func (c *Client) ID() string { return c.c.WorkerID() }

// Err is why there are no more blocks: nil if the run has none, or told the client to leave.
func (c *Client) Err() error { return c.c.Err() }

// Close leaves the run: it waits until the coordinator has made every released result durable, or until ctx is done.
func (c *Client) Close(ctx context.Context) error { return c.c.Close(ctx) }
