package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// function runs the block with a Go function. Its end by panic is the death of a worker. If it ignores its context it cannot be
// ended: it keeps its goroutine, and the slot is written off.
func (s *slot) function(ctx context.Context, b *Block) Result {
	f := s.crew.cfg.Funcs[b.TaskID()]
	if f == nil {
		return s.cannotStart(b, fmt.Errorf("this worker has no function for task %q", b.TaskID()))
	}
	s.hasStarted(b)
	returned := make(chan Result, 1) // has room, so that a late function can end
	go call(ctx, f, *b, returned)
	select {
	case r := <-returned:
		// An error that its context made is not the function's own.
		if ours, ended := endedByUs(ctx, b); ended && r.Outcome != wire.Success && r.Outcome != wire.Lost {
			return ours
		}
		return r
	case <-ctx.Done():
	}
	timer := time.NewTimer(s.crew.killGrace(context.Cause(ctx)))
	defer timer.Stop()
	ours, _ := endedByUs(ctx, b)
	select {
	case r := <-returned:
		if r.Outcome == wire.Success && ours.Outcome == wire.Returned {
			return r // it used its grace
		}
		return ours
	case <-timer.C:
	}
	s.writtenOff = true
	ours.Message += fmt.Sprintf("; its function ignores its context and still runs after %s: slot %d of worker %s is written off",
		units.Duration(s.crew.killGrace(context.Cause(ctx))), s.number, s.crew.client.WorkerID())
	s.crew.client.logf("block %s: %s", b.Label(), ours.Message)
	return ours
}

// call calls f and tells its ends apart.
func call(ctx context.Context, f Func, b Block, returned chan<- Result) {
	// What holds if nothing else is said below.
	r := Result{Outcome: wire.Lost, Message: "its function ended its goroutine (runtime.Goexit)"}
	defer func() {
		if v := recover(); v != nil {
			r = Result{Outcome: wire.Lost, Message: "panic: " + api.OneLine(fmt.Sprint(v)), Tail: string(debug.Stack())}
			if len(r.Tail) > maxTail {
				r.Tail = r.Tail[:maxTail]
			}
		}
		returned <- r
	}()
	if err := f(ctx, b); err != nil {
		r = Result{Outcome: wire.Failed, Message: err.Error()}
	} else {
		r = Result{Outcome: wire.Success}
	}
}
