package sim

import "math/rand/v2"

// drawMore adds to a world what is not of every run: workers that come by themselves, and what people want of a run.
func drawMore(r *rand.Rand, c *Config) {
	if c.Batch == nil && r.IntN(8) == 0 {
		c.External, c.Unlimited, c.Nodes = true, true, 3
	}
	kinds := []FaultKind{FaultSet, FaultExclude, FaultStopWorker, FaultGuest}
	if len(c.Faults) == 0 {
		return
	}
	span := drawSpan(r, c)
	for range r.IntN(4) {
		if r.IntN(2) == 0 {
			c.Faults = append(c.Faults, drawFault(r, span, kinds))
		}
	}
}
