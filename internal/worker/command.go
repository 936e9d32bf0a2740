package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// strayGrace is what processes that a block left behind get between SIGTERM and SIGKILL.
const strayGrace = time.Second

// command runs the block as one process.
func (s *slot) command(ctx context.Context, b *Block) Result {
	ended, err := s.runProcess(ctx, b, b.Task.Spec.Argv)
	if err != nil {
		return s.cannotStart(b, err)
	}
	s.hasStarted(b)
	r, ours := endedByUs(ctx, b)
	if !ours || !ended.killed {
		r = s.judge(ended.Result, ended.outOfMemory)
	}
	r.CPU, r.PeakRSSBytes, r.IO = ended.CPU, ended.PeakRSSBytes, ended.IO
	return r
}

// ended is the end of a process; killed if we made it, outOfMemory why an enforced limit did.
type ended struct {
	process.Result
	killed      bool
	outOfMemory string
}

// runProcess starts a process for the block and waits until it and all that it left behind have ended; when ctx ends it ends
// them. The error says that it could not be started.
func (s *slot) runProcess(ctx context.Context, b *Block, argv []string) (ended, error) {
	values := blockValues(b)
	argv = placeholders(argv, &values, &s.at, b.TaskID())
	if err := s.find(argv); err != nil {
		return ended{}, err
	}
	held, err := s.hold(&b.Task.Spec)
	if err != nil {
		return ended{}, err
	}
	defer s.endHold(held)
	p, err := s.crew.spawner.Start(process.Config{
		Argv: argv, Env: blockEnvironment(s.env, &values), Dir: b.Task.Spec.Dir,
		Input: append(b.appendJSON(nil), '\n'), Stdout: s.out.file, Stderr: s.out.file,
		Markers: []string{"DAISY_RUN_ID=" + s.at.runID, "DAISY_LEASE=" + b.LeaseText()},
		CountIO: b.Task.Spec.ResourceTracking, Memory: held.limit(),
	})
	if err != nil {
		return ended{}, err
	}
	var meter *process.Meter
	if b.Task.Spec.ResourceTracking {
		meter = p.Meter()
	}
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		s.crew.kill(p, context.Cause(ctx))
	})
	result := p.Wait()
	if meter != nil {
		result.PeakRSSBytes = max(result.PeakRSSBytes, meter.Stop())
	}
	e := ended{Result: result, killed: !stop(), outOfMemory: held.outOfMemory()}
	if e.killed {
		<-finished
	}
	s.endStrays(p)
	return e, nil
}

// kill ends a process: SIGTERM to its group, and after a while SIGKILL to all that belongs to it.
func (c *crew) kill(p *process.Process, why error) {
	_ = p.Terminate() // whoever is gone needs none
	timer := time.NewTimer(c.killGrace(why))
	defer timer.Stop()
	select {
	case <-p.Done():
		return
	case <-c.cfg.Abort:
	case <-timer.C:
	}
	// Its own bound ends the wait for what the kernel cannot end.
	if err := p.Kill(context.Background()); err != nil {
		c.client.logf("%s", api.OneLine(err.Error()))
	}
}

// endStrays ends what a process left behind.
func (s *slot) endStrays(p *process.Process) {
	pids, err := p.EndStrays(context.Background(), min(strayGrace, s.crew.client.Grace()))
	if len(pids) > 0 {
		s.crew.client.logf("slot %d: ended %d processes that were left behind: %v", s.number, len(pids), pids)
	}
	if err != nil {
		s.crew.client.logf("%s", api.OneLine(err.Error()))
	}
}

// find replaces the program's name by its path.
func (s *slot) find(argv []string) error {
	if len(argv) == 0 {
		return errors.New("the command is empty")
	}
	path, known := s.found[argv[0]]
	if !known {
		var err error
		if path, err = process.LookPath(argv[0], s.task.Spec.Dir, variable(s.env, "PATH")); err != nil {
			return err
		}
		s.found[argv[0]] = path
	}
	argv[0] = path
	return nil
}

func variable(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// checkTimeout limits a check.
const checkTimeout = 60 * time.Second

var errCheckTime = errors.New("the check takes too long")

// check asks whether the block is done already. ended is false if the block is to run.
func (s *slot) check(ctx context.Context, b *Block) (r Result, isEnded bool) {
	limited, cancel := context.WithTimeoutCause(ctx, checkTimeout, errCheckTime)
	defer cancel()
	e, err := s.runProcess(limited, b, b.Task.Spec.Check)
	if err != nil {
		return s.cannotStart(b, fmt.Errorf("check: %w", err)), true
	}
	r, ours := endedByUs(ctx, b)
	switch {
	case ours && e.killed:
	case e.killed:
		r = Result{Outcome: wire.Failed, Message: "check: did not end within " + units.Duration(checkTimeout)}
	case e.Success():
		r = Result{Outcome: wire.Skipped}
	case e.Err == nil && e.Signal == 0 && e.Exit == 1:
		return Result{}, false
	default:
		r = s.judge(e.Result, e.outOfMemory)
		r.Message = fmt.Sprintf("check: %s (0 means that the block is done, 1 that it is to run)", r.Message)
	}
	r.CPU, r.PeakRSSBytes, r.IO = e.CPU, e.PeakRSSBytes, e.IO
	return r, true
}
