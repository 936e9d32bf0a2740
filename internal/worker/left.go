package worker

import (
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// A worker of a batch system has an end. The coordinator hands out what fits before it; what then waits here, behind other blocks, may fit
// no more by the time that its turn comes.

const (
	// fitsFrom is how many blocks have to be measured before any does not fit.
	fitsFrom = 5
	// fitsMargin is kept free at the end, besides a fifth more than the longest block took.
	fitsMargin = 30 * time.Second
)

// timeLeft takes in how long the batch system lets the worker run.
func (c *Client) timeLeft(left time.Duration) {
	c.mu.Lock()
	c.until = c.clock() + left
	c.mu.Unlock()
	c.logf("the batch system lets this worker run for %s more", units.Duration(max(left, 0).Round(time.Second)))
}

// tooLateLocked reports whether a block that has waited here would not end in time any more, and leaves if so. The first block of a worker
// is never too late: no other worker would have more time for it.
func (c *Client) tooLateLocked() bool {
	if c.until == 0 || c.batch.measured < fitsFrom || c.clock()+c.batch.longest*6/5+fitsMargin <= c.until {
		return false
	}
	c.logf("no block fits in the %s that are left: leaving", units.Duration(max(c.until-c.clock(), 0).Round(time.Second)))
	c.leaveLocked(wire.LeaveDone, "")
	return true
}
