package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"syscall"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/launcher"
)

// closeTimeout bounds how long the launcher may take to end the last workers.
const closeTimeout = 15 * time.Second

// lastWordWithin is how long those who look on may take to read that the run has ended.
const lastWordWithin = 2 * time.Second

// Result is how a run ended.
type Result struct {
	State engine.RunState
	// Reason is in words why it ended, where counts alone do not say.
	Reason string
	// ExitStatus is that of a program which did nothing but this run.
	ExitStatus int
	Stats      api.Stats
}

// exitStatus: 0 all blocks succeeded or were skipped, 1 some did not, 2 nothing could start as the job asks for it, 3 the infrastructure
// failed, 128 + signal.
func (c *Coordinator) exitStatus() int {
	switch c.outcome {
	case engine.RunDone:
		return 0
	case engine.RunInterrupted:
		if sig := c.signal.Load(); sig != 0 {
			return 128 + int(sig)
		}
		return 130
	case engine.RunBroken:
		if c.wrong {
			return 2
		}
		return 3
	case engine.RunStopped:
		if c.unwritable.Load() {
			return 3
		}
		return 1
	default:
		return 1
	}
}

// Run runs the job to its end and returns once every worker and every goroutine of it is gone. The end of ctx interrupts the
// run, as Stop does. The error says that the end could not be written down; the result is right all the same.
func (c *Coordinator) Run(ctx context.Context) (Result, error) {
	served := make(chan error, 1)
	go func() { served <- c.http.Serve(c.listener) }()
	c.flusher.start()
	errandsCtx, endErrands := context.WithCancel(context.Background())
	defer endErrands()
	c.errands.start(errandsCtx)
	if l := c.cfg.Launcher; l != nil {
		l.Watch(c.status)
	}
	stopWatching := context.AfterFunc(ctx, func() {
		c.Stop(engine.StopInterrupt, fmt.Sprintf("interrupted: %v", context.Cause(ctx)))
	})
	defer stopWatching()
	c.inbox.call(c.tellClients)
	endRenewing := beside(c.renewLock)
	endCompacting := func() {}
	if c.journal != nil {
		endCompacting = beside(c.compactWhenDue)
	}

	c.loop()

	// From here on nothing changes any more: all that is left is to end and to write down.
	var errs []error
	taken, aside := c.takenOver(), c.outcome == engine.RunAside
	if taken != nil || aside {
		c.goesOn.Store(true)
	}
	endErrands() // a call that hangs would hold up the launcher, which ends what is left in any case
	c.errands.wait()
	if err := c.closeLauncher(taken != nil || aside); err != nil {
		errs = append(errs, err)
	}
	endCompacting()
	endRenewing()
	c.closeSessions()
	c.events.end(lastWordWithin)
	if err := c.leaveDiscovery(aside); err != nil {
		errs = append(errs, err)
	}
	_ = c.listener.Close()
	_ = c.http.Close()
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) && c.listener.ctx.Err() == nil {
		errs = append(errs, err)
	}
	if err := c.flusher.close(); err != nil {
		errs = append(errs, err)
	}
	if c.journal != nil {
		if err := c.journal.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	result := Result{State: c.outcome, Reason: c.why, ExitStatus: c.exitStatus(), Stats: c.recorder.Stats(c.statistics(time.Now()))}
	d := c.cfg.RunDir
	if d == nil {
		return result, errors.Join(errs...)
	}
	if taken != nil || errors.As(c.mine(), &taken) { // whatever could not be written is another's business
		_ = c.lock.Unlock()
		return result, fmt.Errorf("%w. The run goes on there, with the workers of this one: \"daisy-submit status %s\"", taken, d.Path())
	}
	if !aside { // the run has not ended
		if err := writeStats(d, result.Stats); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.lock.Unlock(); err != nil {
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
}

// closeLauncher ends the workers that are left, unless they are another coordinator's.
func (c *Coordinator) closeLauncher(others bool) error {
	l := c.cfg.Launcher
	if l == nil {
		return nil
	}
	if others {
		switch l := l.(type) {
		case launcher.Queue:
			return nil // all jobs of the run are the other one's
		case launcher.Adopter:
			l.Release()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return l.Close(ctx)
}

// beside has f run until the function that it returns is called, which waits for it.
func beside(f func(ctx context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func writeStats(d *rundir.Dir, s api.Stats) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return d.WriteStats(append(data, '\n'))
}

// renewLock says every few seconds that this coordinator lives, and ends the run when another has taken over. It drains the
// run when it cannot write any more.
func (c *Coordinator) renewLock(ctx context.Context) {
	if c.lock == nil {
		return
	}
	tick := time.NewTicker(rundir.RenewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.checkWritable()
			err := insist(ctx, func() error { return c.lock.Renew(c.epoch) })
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				c.inbox.put(engine.Event{Kind: engine.EventBroken, Text: err.Error()})
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// checkWritable hands out no more blocks once the run directory is full or read-only. Those that run may end: what they need is
// open, and what there is may do for them.
func (c *Coordinator) checkWritable() {
	err := c.cfg.RunDir.CheckWritable()
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
	if !full || c.unwritable.Swap(true) {
		return
	}
	c.Stop(engine.StopDrain, err.Error())
	c.inbox.call(func() { c.cfg.Notice("no new blocks: " + err.Error()) }) // true by then
}

// insist calls f until it gives no error, says that the run was taken over, or has failed for rundir.StaleAfter: that this
// process has no descriptor left, or that a file server is slow to answer, is not the end of a run. It ends with ctx, too.
func insist(ctx context.Context, f func() error) error {
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f()
		var taken *rundir.TakenOverError
		if err == nil || errors.As(err, &taken) || time.Since(began) >= rundir.StaleAfter {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// leaveDiscovery sees to it that nobody looks for the coordinator where soon another program may listen; if another coordinator is to
// come, the file says so, for workers that start meanwhile. That of a newer epoch is not ours.
func (c *Coordinator) leaveDiscovery(aside bool) error {
	d := c.cfg.RunDir
	if d == nil || !c.cfg.Listen {
		return nil
	}
	switch found, err := rundir.ReadDiscovery(d.Path()); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && found.Epoch != c.epoch:
		return nil
	case err != nil:
		return err
	case aside:
		until := time.Now().Add(time.Duration(c.aside.Load())).UTC().Truncate(time.Second)
		found.AwayUntil = &until
		return d.WriteDiscovery(found)
	}
	if err := os.Remove(d.DiscoveryPath()); err != nil {
		return fmt.Errorf("remove the discovery file at the end of the run (workers no longer need it): %w", err)
	}
	return nil
}
