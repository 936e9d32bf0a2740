package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// Why a block was ended by us.
var (
	errTimedOut = errors.New("its time is over")
	errTaken    = errors.New("it is no longer the worker's own")
	errStopped  = errors.New("the worker stops")
	errStale    = errors.New("the worker was stopped for so long that it may be another's")
)

// longestKillGrace limits what a process gets between SIGTERM and SIGKILL.
const longestKillGrace = 5 * time.Second

// A crew is a whole worker: a client and its slots.
type crew struct {
	cfg     Config
	log     *blockLog
	client  *Client
	spawner *process.Spawner
	memory  *process.MemoryKills

	cgroupsOnce sync.Once
	cgroups     *process.MemoryCgroups // see memoryCgroups

	// stopping is closed when the worker itself is being ended, by a signal or by the coordinator.
	stopping chan struct{}
	stopOnce sync.Once
	// signalled: by a signal, which may be followed by SIGKILL.
	signalled atomic.Bool
	slots     sync.WaitGroup
	stopper   sync.WaitGroup
	over      chan struct{} // closed when all slots have ended

	// urgent: a block that begins has to look into early and halted, one that ends into early. Whoever sets it does so before it looks
	// for what runs, and who begins a block puts it where it is found before it looks at this: one of them sees the other.
	urgent atomic.Bool

	mu      sync.Mutex
	warned  time.Time     // when the batch system last said that the end is near
	warning chan struct{} // closed at the next time
	all     []*slot
	early   map[*heldBlock]bool // taken away, perhaps before they were running here
	halted  bool                // every block is to end
	started map[string]bool     // tasks whose user code has been started at least once
	served  map[string]int64    // blocks by task
	failure error
}

// Run is a worker: it joins, runs blocks in its slots, and returns when it was told to leave (nil), when ctx ended (nil: what
// it held was given back, after grace), or when it cannot go on (an *ExitError).
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	c := &crew{
		cfg: cfg, log: &blockLog{to: cfg.Log, limit: maxLogBytes},
		stopping: make(chan struct{}), over: make(chan struct{}), warning: make(chan struct{}),
		early: map[*heldBlock]bool{}, started: map[string]bool{}, served: map[string]int64{},
	}
	c.cfg.Log = c.log
	c.cfg.OnKill, c.cfg.OnWake = c.taken, func() { c.end(errStale) }
	ready := make(chan struct{}) // closed when c.client is there; the coordinator may say stop right after its welcome
	c.cfg.OnStop = func(string) {
		c.stopper.Go(func() {
			<-ready
			c.stop()
		})
	}
	joining, joined := c.untilAbort(ctx)
	c.client, err = Connect(joining, c.cfg)
	told := joining.Err() != nil
	joined()
	switch {
	case errors.Is(err, ErrNoMore), err != nil && told:
		return nil // the run was over, or we were told to leave, before it began
	case err != nil:
		return err
	}
	close(ready)
	return c.work(ctx)
}

// untilAbort is a context that also ends with Config.Abort.
func (c *crew) untilAbort(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c.cfg.Abort == nil {
		return ctx, cancel
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-c.cfg.Abort:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); watch.Wait() }
}

func (c *crew) work(ctx context.Context) error {
	task := c.client.Task()
	err := c.prepare(task)
	if err != nil {
		c.client.Leave(wire.LeaveBroken, err.Error())
		close(c.over)
	} else {
		c.client.logf("worker %s of run %s serves task %q with %s on %s", c.client.WorkerID(), c.client.RunID(), task.Spec.ID, units.Plural(int64(c.client.Slots()), "slot"), c.cfg.Node)
	}
	if c.spawner != nil {
		var all []*slot
		for i := range c.client.Slots() {
			all = append(all, &slot{crew: c, number: i})
		}
		c.mu.Lock()
		c.all = all
		c.mu.Unlock()
		c.slots.Add(len(all))
		for _, s := range all {
			go s.loop()
		}
		go func() { // ends with the slots, which are waited for below
			c.slots.Wait()
			close(c.over)
		}()
	} else {
		c.fail(err)
	}

	abort := c.cfg.Abort
	aborted := false
	done := ctx.Done()
	for slots := true; slots; {
		select {
		case <-c.over:
			slots = false
		case at := <-c.cfg.Soon:
			c.warn()
			c.client.logf("the batch system says that the end is near: only what fits in %v is begun", max(time.Until(at), 0).Round(time.Second))
			c.client.EndsSoon(at)
		case <-done:
			done = nil
			c.client.Leave(wire.LeaveSignal, "")
			c.signalled.Store(true)
			c.client.logf("told to stop: what runs has %v", c.grace())
			c.stop()
		case <-abort:
			abort, aborted = nil, true
			c.client.Leave(wire.LeaveSignal, "")
			c.stop()
			c.halt()
		}
	}
	c.client.Leave(wire.LeaveDone, "") // every slot has ended by itself
	closing, cancel := c.closing(ctx, aborted)
	err = c.client.Close(closing)
	cancel()
	c.stop()
	c.halt()
	c.stopper.Wait()
	if c.spawner != nil {
		ending, cancel := context.WithTimeout(context.Background(), longestKillGrace)
		err = errors.Join(err, c.spawner.Close(ending))
		c.memory.Close()
		cancel()
	}
	if err != nil {
		c.client.logf("%s", api.OneLine(err.Error()))
	}
	c.mu.Lock()
	failure := c.failure
	c.mu.Unlock()
	if failure == nil {
		failure = c.client.Err()
	}
	return failure
}

// closing bounds the delivery of the last results: none where it must end at once, grace after a signal, else as long as the
// client tries.
func (c *crew) closing(ctx context.Context, aborted bool) (context.Context, context.CancelFunc) {
	if aborted {
		return context.WithTimeout(context.Background(), 100*time.Millisecond)
	}
	both, cancel := context.WithCancel(context.Background())
	c.stopper.Go(func() {
		abort := c.cfg.Abort
		select {
		case <-both.Done():
			return
		case <-abort:
			cancel()
		case <-ctx.Done():
			select { // told to stop while it waits: a little longer
			case <-time.After(longestKillGrace):
			case <-abort:
			case <-both.Done():
			}
			cancel()
		}
	})
	return both, cancel
}

// prepare checks what can be checked before the first block.
func (c *crew) prepare(task *Task) error {
	if need := task.Spec.GPUs * c.client.Slots(); task.Spec.Runner != runnerFunc && need > len(c.cfg.GPUs) {
		return &ExitError{Status: StatusNoGPU, Err: fmt.Errorf("task %q needs %d GPUs for %s, and this worker was given %d (DAISY_GPUS)",
			task.Spec.ID, need, units.Plural(int64(c.client.Slots()), "slot"), len(c.cfg.GPUs))}
	}
	spawner, err := process.NewSpawner()
	if err != nil {
		return &ExitError{Status: StatusCannotStart, Err: err}
	}
	c.spawner, c.memory = spawner, process.OpenMemoryKills("/")
	return nil
}

func (c *crew) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
	}
}

// stop notes that the worker is being ended, and ends what still runs so that all is given back within the grace time.
func (c *crew) stop() {
	c.stopOnce.Do(func() {
		close(c.stopping)
		grace := c.grace()
		c.stopper.Go(func() {
			timer := time.NewTimer(grace - stopMargin(grace))
			defer timer.Stop()
			select {
			case <-timer.C:
				c.halt()
			case <-c.over:
			case <-c.cfg.Abort:
			}
		})
	})
}

// grace is what running blocks get when they are to be stopped.
func (c *crew) grace() time.Duration {
	grace := c.client.Grace()
	if c.cfg.StopWithin > 0 && c.signalled.Load() {
		grace = min(grace, c.cfg.StopWithin)
	}
	return grace
}

// warn notes that the batch system has said that the end is near.
func (c *crew) warn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warned = time.Now()
	close(c.warning)
	c.warning = make(chan struct{})
}

// warnedNow waits until the batch system warns, if it has not done so just now, but no longer than for limit.
func (c *crew) warnedNow(limit time.Duration) bool {
	c.mu.Lock()
	just, next := !c.warned.IsZero() && time.Since(c.warned) < limit, c.warning
	c.mu.Unlock()
	if just {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-next:
		return true
	case <-c.stopping:
	case <-timer.C:
	}
	return false
}

// stopMargin is the part of grace in which blocks are killed and given back.
func stopMargin(grace time.Duration) time.Duration { return min(grace/4, 2*time.Second) }

// killGrace is what a process gets between SIGTERM and SIGKILL.
func (c *crew) killGrace(why error) time.Duration {
	select {
	case <-c.cfg.Abort:
		return 0
	default:
	}
	if errors.Is(why, errStale) {
		return 0
	}
	grace := c.grace()
	if errors.Is(why, errStopped) {
		return stopMargin(grace) / 2
	}
	return min(grace, longestKillGrace)
}

// halt ends every block, now and later.
func (c *crew) halt() {
	c.mu.Lock()
	c.halted = true
	c.urgent.Store(true)
	c.mu.Unlock()
	c.end(errStopped)
}

// end ends every block that runs.
func (c *crew) end(why error) {
	c.mu.Lock()
	var running []*attempt
	for _, s := range c.all {
		if a := s.now.Load(); a != nil {
			running = append(running, a)
		}
	}
	c.mu.Unlock()
	for _, a := range running {
		a.ctx.cancel(why)
	}
}

// taken is Config.OnKill.
func (c *crew) taken(b Block) {
	c.mu.Lock()
	c.early[b.held] = true // if its slot is only about to begin it
	c.urgent.Store(true)
	var running *attempt
	for _, s := range c.all {
		if a := s.now.Load(); a != nil && a.held == b.held {
			running = a
		}
	}
	c.mu.Unlock()
	if running != nil {
		running.ctx.cancel(errTaken)
	}
}

// begin makes a block known, so that it can be ended from outside.
func (c *crew) begin(a *attempt) {
	a.slot.now.Store(a)
	if !c.urgent.Load() {
		return
	}
	c.mu.Lock()
	taken, halted := c.early[a.held], c.halted
	c.mu.Unlock()
	if taken {
		a.ctx.cancel(errTaken)
	}
	if halted {
		a.ctx.cancel(errStopped)
	}
}

// release gives a block back.
func (c *crew) release(a *attempt, r *Result) {
	b := a.block
	err := c.client.giveBack(a.held, r)
	a.slot.now.Store(nil)
	if c.urgent.Load() {
		c.mu.Lock()
		delete(c.early, a.held)
		c.mu.Unlock()
	}
	full := false
	if most := b.Task.Spec.MaxBlocksPerWorker; most > 0 {
		c.mu.Lock()
		c.served[b.TaskID()]++
		full = c.served[b.TaskID()] >= most
		c.mu.Unlock()
	}
	if err != nil {
		c.client.logf("block %s ended (%v), but it had been taken away", b.Label(), r.Outcome)
	}
	if full {
		c.client.Leave(wire.LeaveDone, "")
	}
}

// isStopping: the worker itself is being ended.
func (c *crew) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}
