package worker

import (
	"time"

	"example.org/daisy/internal/units"
)

// isAway notes that the coordinator ends, and for how much longer than otherwise blocks that run are to be kept for the next one.
func (c *Client) isAway(within time.Duration) {
	within = max(within, 0)
	c.mu.Lock()
	c.away = within
	c.mu.Unlock()
	c.logf("the coordinator ends, and another is to go on with the run within %s: what runs is kept until then", units.Duration(within.Round(time.Second)))
}
