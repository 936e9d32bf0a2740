package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// Runners of a specification.
const (
	runnerCommand = "command"
	runnerStream  = "stream"
	runnerPython  = "python"
	runnerDaisy   = "daisy"
	runnerFunc    = "func"
)

// judgement is how long the end of a child by a signal that is not ours waits to be explained by the end of the worker itself.
const judgement = 2 * time.Second

// A slot runs one block at a time.
type slot struct {
	crew   *crew
	number int
	out    *output // nil until a process is to be started

	task  *Task // that the next three belong to
	at    place
	env   []string
	found map[string]string // programs by name

	resident resident // nil while none runs

	memoryKills int64 // in this worker's cgroup before the block

	now   atomic.Pointer[attempt]
	limit *limit        // that watches now
	free  time.Duration // when the last block ended, on the clock of limit
	room  []attempt     // for the next ones
	block Block         // see memory
	f     Func          // of the task, if it is one of functions
	// begun: hasStarted has been called for the task.
	begun bool
}

// loop runs blocks until there are no more.
func (s *slot) loop() {
	var last *attempt
	ended := false
	defer func() {
		if !ended && last.state.Load() != writtenOff {
			go s.loop() // its function has ended this goroutine (runtime.Goexit)
		}
	}()
	var got []*heldBlock
	for {
		// Leave ends the wait.
		var atOnce bool
		var err error
		if got, atOnce, err = s.crew.client.take(context.Background(), 1, got); err != nil {
			break
		}
		last = newAttempt(s, got[0], atOnce)
		s.run(last)
		if last.state.Load() == writtenOff {
			ended = true
			return
		}
	}
	ended = true
	s.end()
}

// end leaves the slot: nothing runs in it any more that can be waited for.
func (s *slot) end() {
	s.endResident()
	if s.out != nil {
		s.out.close()
	}
	s.crew.slots.Done()
}

// memory is where the next block of a task goes. A block for a function that is all of its runner lasts no longer than the call, and
// shares the memory of the others.
func (s *slot) memory(t *Task) *Block {
	if t.Spec.Runner == runnerFunc && len(t.Spec.Check) == 0 {
		return &s.block
	}
	return new(Block)
}

// timeBy has the next block bounded by a limit, and gives when it begins. What follows at once on the one before begins at its end: to
// read the clock again takes a part of a short block's time that matters.
func (s *slot) timeBy(l *limit, atOnce bool) time.Duration {
	if s.limit == l && atOnce {
		return s.free
	}
	if s.limit != l {
		if s.limit != nil {
			s.limit.unwatch(&s.now)
		}
		s.limit = l
		l.watch(&s.now)
	}
	return l.clock()
}

// run runs one block to its end.
func (s *slot) run(a *attempt) {
	spec := a.block.Task.Spec
	s.serve(a.block.Task)
	if spec.Runner == runnerFunc && len(spec.Check) == 0 {
		s.function(a)
		return
	}
	r, ended := s.measured(&a.ctx, a.block)
	if !ended {
		s.function(a)
		return
	}
	a.end(r)
}

// measured runs processes for the block with their output marked. They have not ended it if a function is to follow.
func (s *slot) measured(ctx context.Context, b *Block) (r Result, ended bool) {
	if s.out == nil {
		var err error
		if s.out, err = newOutput(s.crew.log); err != nil {
			return s.cannotStart(b, err), true
		}
	}
	s.out.begin(b.Label())
	s.memoryKills = s.crew.memory.Count()
	r, ended = s.processes(ctx, b)
	tail := s.out.end()
	if !ended {
		return r, false
	}
	s.hintAtMemory(&r, tail)
	switch r.Outcome {
	case wire.Failed, wire.TimedOut, wire.OutOfMemory, wire.Lost:
		if r.Tail == "" {
			r.Tail = tail
		}
	}
	return r, true
}

// serve prepares the slot for a task.
func (s *slot) serve(t *Task) {
	if s.task == t {
		return
	}
	s.endResident()
	gpus := s.crew.cfg.GPUs
	first := min(s.number*t.Spec.GPUs, len(gpus))
	c := s.crew.client
	s.task, s.found = t, map[string]string{}
	s.f, s.begun = s.crew.cfg.Funcs[t.Spec.ID], false
	s.at = place{
		runID: c.RunID(), runDir: t.Spec.RunDir, workerID: c.WorkerID(),
		slot: s.number, gpus: gpus[first:min(first+t.Spec.GPUs, len(gpus))], gpusBefore: first, workerGPUs: len(gpus),
	}
	s.env = slotEnvironment(inheritedEnvironment(), t, s.at)
}

func (s *slot) processes(ctx context.Context, b *Block) (r Result, ended bool) {
	if len(b.Task.Spec.Check) > 0 {
		if r, ended := s.check(ctx, b); ended {
			return r, true
		}
	}
	if r, ended := endedByUs(ctx, b); ended {
		return r, true
	}
	switch b.Task.Spec.Runner {
	case runnerCommand:
		return s.command(ctx, b), true
	case runnerStream, runnerPython, runnerDaisy:
		return s.residence(ctx, b), true
	case runnerFunc:
		return Result{}, false
	default:
		return s.cannotStart(b, fmt.Errorf("this worker has no runner %q", b.Task.Spec.Runner)), true
	}
}

// endedByUs is the result of a block that was ended from outside.
func endedByUs(ctx context.Context, b *Block) (Result, bool) {
	cause := causeOf(ctx)
	switch {
	case cause == nil:
		return Result{}, false
	case errors.Is(cause, errTimedOut):
		return Result{Outcome: wire.TimedOut, Message: "timed out after " + units.Duration(b.Task.Timeout())}, true
	case errors.Is(cause, errStopped):
		return Result{Outcome: wire.Returned, Message: "the worker was stopped"}, true
	default: // taken away: the client lets nothing of it out
		return Result{Outcome: wire.Returned, Message: cause.Error()}, true
	}
}

// judge says what the end of a child means that we did not end; outOfMemory, if it is not "", that an enforced limit did.
func (s *slot) judge(r process.Result, outOfMemory string) Result {
	if r.Success() {
		return Result{Outcome: wire.Success}
	}
	if outOfMemory != "" {
		return Result{Outcome: wire.OutOfMemory, Message: r.String() + ": " + outOfMemory}
	}
	if r.Signal == syscall.SIGUSR1 || r.Exit == 128+int(syscall.SIGUSR1) {
		// Where it warns all processes of a job, it ends those that do not expect it.
		if s.crew.warnedNow(judgement) {
			return Result{Outcome: wire.Returned, Message: r.String() + ", with which the batch system says that the end is near"}
		}
	}
	if endedFromOutside(r) {
		timer := time.NewTimer(judgement)
		defer timer.Stop()
		select {
		case <-s.crew.stopping:
		case <-timer.C:
		}
	}
	if s.crew.isStopping() {
		return Result{Outcome: wire.Returned, Message: r.String() + ", while the worker was being stopped"}
	}
	if r.Signal == syscall.SIGKILL || r.Exit == 128+int(syscall.SIGKILL) {
		if why := s.outOfMemory(r); why != "" {
			return Result{Outcome: wire.OutOfMemory, Message: r.String() + ": " + why}
		}
	}
	return Result{Outcome: wire.Failed, Message: r.String(), crashed: r.Signal != 0}
}

// outOfMemory says why a process that was killed, and not by us, was killed for lack of memory; "" if nothing speaks for that. The
// system tells nobody whom it killed: where it does not even count, there is only a guess.
func (s *slot) outOfMemory(r process.Result) string {
	if s.crew.memory.Count() > s.memoryKills {
		return "out of memory: meanwhile the system has killed a process in this worker's cgroup for lack of memory"
	}
	limit, name := s.task.Spec.MemoryBytes, "requires.memory is"
	if has := process.ThisMachine().MemoryBytes; has > 0 && (limit == 0 || has < limit) {
		limit, name = has, "the machine has"
	}
	// What this worker has itself counts into what is measured of a child.
	if limit == 0 || r.PeakRSSBytes < limit-limit/10 || r.PeakRSSBytes <= process.Self().PeakRSSBytes {
		return ""
	}
	return fmt.Sprintf("probably out of memory, which is a guess: nobody here killed it, it had %s in memory, and %s %s", units.Size(r.PeakRSSBytes), name, units.Size(limit))
}

// endedFromOutside: by a signal with which batch systems end jobs, which may be on its way to the worker too; or by the exit
// status with which a shell reports that.
func endedFromOutside(r process.Result) bool {
	switch r.Signal {
	case syscall.SIGTERM, syscall.SIGKILL, syscall.SIGXCPU:
		return true
	}
	return r.Exit == 128+int(syscall.SIGTERM) || r.Exit == 128+int(syscall.SIGKILL)
}

// cannotStart: user code could not be started. If it never could, on this worker, the worker is at fault, and leaves.
func (s *slot) cannotStart(b *Block, err error) Result {
	c := s.crew
	c.mu.Lock()
	worked := c.started[b.TaskID()]
	c.mu.Unlock()
	message := api.OneLine(err.Error())
	for _, passing := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.E2BIG} {
		worked = worked || errors.Is(err, passing)
	}
	if worked {
		return Result{Outcome: wire.Failed, Message: message}
	}
	c.fail(&ExitError{Status: StatusCannotStart, Err: fmt.Errorf("the user code of task %q could not be started: %w", b.TaskID(), err)})
	c.client.Leave(wire.LeaveBroken, message)
	return Result{Outcome: wire.Returned, Message: message}
}

// hasStarted notes that user code of the task can be started here.
func (s *slot) hasStarted(b *Block) {
	if s.begun {
		return
	}
	s.begun = true
	s.crew.mu.Lock()
	defer s.crew.mu.Unlock()
	s.crew.started[b.TaskID()] = true
}
