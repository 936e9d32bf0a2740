package worker

import (
	"fmt"
)

// function runs the block with a Go function, on the goroutine of the slot: another one for each block would cost more than a short block
// does. Its end by panic is the death of a worker. If it ignores its context it cannot be ended: it keeps its goroutine, and the
// slot is written off by another one.
func (s *slot) function(a *attempt) {
	if s.f == nil {
		a.end(s.cannotStart(a.block, fmt.Errorf("this worker has no function for task %q", a.block.TaskID())))
		return
	}
	s.hasStarted(a.block)
	a.state.Store(inFunction)
	// Whatever ends the context from here on is seen by contextEnded.
	if ours, ended := endedByUs(&a.ctx, a.block); ended {
		if a.state.CompareAndSwap(inFunction, returned) {
			a.end(ours)
		}
		return
	}
	a.call(s.f)
}
