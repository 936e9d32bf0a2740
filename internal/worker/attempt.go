package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// An attempt is a block that a slot runs.
type attempt struct {
	slot  *slot
	held  *heldBlock
	block *Block
	ctx   blockContext
	began time.Duration // on the clock of the task's limit
	state atomic.Int32
	late  bool // the limit has told it so; guarded by limit.mu
}

// States of an attempt. Who takes it out of inFunction tells its end.
const (
	outside    = iota // of a function of ours
	inFunction        // on the goroutine of the slot
	returned
	writtenOff // its function is still there, and nobody waits for it any more
)

// attemptsAtOnce is how many are allocated at once. None is used again: user code may keep the context of a block after its end.
const attemptsAtOnce = 16

func newAttempt(s *slot, h *heldBlock, atOnce bool) *attempt {
	if len(s.room) == 0 {
		s.room = make([]attempt, attemptsAtOnce)
	}
	a := &s.room[0]
	s.room = s.room[1:]
	a.slot, a.held, a.block = s, h, s.memory(h.task)
	h.fill(a.block)
	a.ctx.watcher = a
	a.began = s.timeBy(&h.task.limit, atOnce)
	s.crew.begin(a)
	s.limit.started()
	return a
}

// call runs f and tells its ends apart.
func (a *attempt) call(f Func) {
	// What holds if nothing else is said below.
	r := Result{Outcome: wire.Lost, Message: "its function ended its goroutine (runtime.Goexit)"}
	defer func() {
		if v := recover(); v != nil {
			r = Result{Outcome: wire.Lost, Message: "panic: " + api.OneLine(fmt.Sprint(v)), Tail: string(debug.Stack())}
			if len(r.Tail) > maxTail {
				r.Tail = r.Tail[:maxTail]
			}
		}
		if a.state.CompareAndSwap(inFunction, returned) {
			// What it returns after its context has ended comes of that, unless it used its grace to finish.
			if ours, ended := endedByUs(&a.ctx, a.block); ended && (r.Outcome != wire.Success || ours.Outcome != wire.Returned) {
				r = ours
			}
			a.end(r)
		}
	}()
	if err := f(&a.ctx, a.block); err != nil {
		r = Result{Outcome: wire.Failed, Message: err.Error()}
	} else {
		r = Result{Outcome: wire.Success}
	}
}

// contextEnded: a function that still runs gets a while to return.
func (a *attempt) contextEnded(cause error) {
	if a.state.Load() == inFunction {
		grace := a.slot.crew.killGrace(cause)
		time.AfterFunc(grace, func() { a.writeOff(grace) })
	}
}

// writeOff gives up an attempt whose function ignores its context, and so cannot be ended, and with it the slot.
func (a *attempt) writeOff(grace time.Duration) {
	if !a.state.CompareAndSwap(inFunction, writtenOff) {
		return
	}
	s := a.slot
	ours, _ := endedByUs(&a.ctx, a.block)
	ours.Message += fmt.Sprintf("; its function ignores its context and still runs after %s: slot %d of worker %s is written off",
		units.Duration(grace), s.number, s.crew.client.WorkerID())
	s.crew.client.logf("block %s: %s", a.block.Label(), ours.Message)
	a.end(ours)
	s.end()
}

// end gives the block back.
func (a *attempt) end(r Result) {
	b := a.block
	a.ctx.cancel(context.Canceled)
	a.slot.free = b.Task.limit.clock()
	if whole := a.slot.free - a.began; r.Wall <= 0 || r.Wall > whole { // user code may know better, but not everything
		r.Wall = whole
	}
	switch r.Outcome {
	case wire.Failed, wire.TimedOut, wire.OutOfMemory, wire.Lost:
		r.Message, r.Tail = api.Printable(r.Message), api.Printable(r.Tail)
		a.slot.crew.client.logf("block %s: %v: %s", b.Label(), r.Outcome, api.OneLine(r.Message))
	}
	a.slot.crew.release(a, &r)
}
