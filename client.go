package daisy

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	running map[lease]*LeasedBlock
}

// lease names a hand-out over all lives of a coordinator.
type lease struct{ epoch, counter uint64 }

// Connect joins the run in a run directory. ctx bounds the joining only.
func Connect(ctx context.Context, runDirectory string, o ClientOptions) (*Client, error) {
	c := &Client{batch: max(o.Batch, 1), running: make(map[lease]*LeasedBlock)}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.running[lease{b.Epoch, b.Lease}]; r != nil {
		r.cancel(ErrReclaimed)
	}
}

// stopped ends the contexts of all blocks: the run is over.
func (c *Client) stopped(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.running {
		b.cancel(errors.New("the run ends: " + message))
	}
}

// start begins the time of a block.
func (c *Client) start(ctx context.Context, got worker.Block) *LeasedBlock {
	b := &LeasedBlock{Block: publicBlock(&got), client: c, lease: got, began: time.Now()}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	if limit := got.Task.Timeout(); limit > 0 {
		timed, stop := context.WithTimeoutCause(b.ctx, limit, errTimeUp)
		cancel := b.cancel
		b.ctx, b.cancel = timed, func(cause error) { cancel(cause); stop() }
	}
	c.mu.Lock()
	c.running[lease{got.Epoch, got.Lease}] = b
	c.mu.Unlock()
	return b
}

var errTimeUp = errors.New("the time of the block is up")

// A LeasedBlock is a block that a client has taken and has to give back with Release.
type LeasedBlock struct {
	Block

	client   *Client
	lease    worker.Block
	began    time.Time
	ctx      context.Context
	cancel   context.CancelCauseFunc
	released bool
}

// Context is done when the block's time is up (Task.Timeout), when the coordinator has taken the block back, and when the
// context of the loop is done. Work on the block should then stop; Release says what happened.
func (b *LeasedBlock) Context() context.Context { return b.ctx }

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
				b := c.start(ctx, got[i])
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
	key := lease{b.lease.Epoch, b.lease.Lease}
	b.client.mu.Lock()
	delete(b.client.running, key)
	b.client.mu.Unlock()
	cause := context.Cause(b.ctx)
	b.cancel(nil)
	r := worker.Result{Outcome: wire.Success, Wall: time.Since(b.began)}
	switch {
	case err != nil && errors.Is(cause, errTimeUp):
		r.Outcome, r.Message = wire.TimedOut, fmt.Sprintf("timed out after %s", units.Duration(b.lease.Task.Timeout()))
	case err != nil:
		r.Outcome, r.Message = wire.Failed, err.Error()
	}
	return b.client.c.Release(b.lease, r)
}

// ID is the client's name in the reports.
func (c *Client) ID() string { return c.c.WorkerID() }

// Err is why there are no more blocks: nil if the run has none, or told the client to leave.
func (c *Client) Err() error { return c.c.Err() }

// Close leaves the run: it waits until the coordinator has made every released result durable, or until ctx is done.
func (c *Client) Close(ctx context.Context) error { return c.c.Close(ctx) }
