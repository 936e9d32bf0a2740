package engine

import (
	"errors"

	"example.org/daisy/scheduler"
)

// Marks are what tracking holds of the blocks of one task.
type Marks interface {
	MarkDone(block int64)
	FailureCount(block int64) (uint32, error)
	SetFailures(block int64, times uint32)
}

// CatchUp brings the tracking of a task up to the journal, since marks are written a while after the commit that they follow, and takes
// the blocks that succeeded in this run out of done, those that were done before it.
func (p *Past) CatchUp(task int, to Marks, done scheduler.Bitmap) error {
	p.Succeeded(task, func(block int64) {
		if done.Get(block) {
			done.Clear(block)
		} else {
			to.MarkDone(block)
		}
	})
	var errs []error
	p.Failures(task, func(block int64, times uint32) {
		// More may have been counted by other runs; fewer, and the last ones were not written.
		if n, err := to.FailureCount(block); err != nil {
			errs = append(errs, err)
		} else if n < times {
			to.SetFailures(block, times)
		}
	})
	return errors.Join(errs...)
}
