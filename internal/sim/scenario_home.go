package sim

import (
	"math/rand/v2"
	"time"
)

// homeFaults are those of a coordinator that is a job.
var homeFaults = []FaultKind{FaultHomePreempted, FaultHomePreempted, FaultHomePreempted, FaultHomeNode, FaultHomeNetless, FaultHomeCancelled, FaultCut, FaultNetless, FaultDeaf}

// drawHome makes the coordinator a job of the batch system in some of the worlds that have one.
func drawHome(r *rand.Rand, c *Config) {
	if c.Batch == nil || r.IntN(4) > 0 {
		return
	}
	c.Nodes = max(c.Nodes, 2)
	c.Batch.Nodes = c.Nodes
	c.Batch.CPU += 1000 // it takes a core, and some workers need what is a whole node elsewhere
	c.Job.AbandonAfter = pick(r, 0, 0, 2*time.Minute, 6*time.Minute)
	if r.IntN(3) > 0 && c.Job.Tasks[0].Grid.Len() < 1000 { // blocks that take longer than it is away
		for i := range c.Code {
			c.Code[i].Times = []TimeCount{{2 * time.Minute, 2}, {10 * time.Minute, 1}, {40 * time.Minute, 1}}
			c.Job.Tasks[i].Timeout = time.Hour
		}
		if c.Batch.Limit > 0 {
			c.Batch.Limit = max(c.Batch.Limit, 4*time.Hour)
		}
	}
	span := expected(c) + time.Minute
	h := &HomeConfig{
		Warn: time.Minute + time.Duration(r.Int64N(int64(time.Minute))), Away: pick(r, 2*time.Minute, 10*time.Minute, time.Hour), Requeue: r.IntN(5) > 0,
		Priority: r.IntN(3) - 1, Waits: pick(r, 0, time.Minute, 20*time.Minute, 90*time.Minute), Late: pick(r, 0, 0, 30*time.Second),
	}
	h.Refuses = r.IntN(3) == 0
	if r.IntN(3) > 0 {
		h.Limit = max(span/time.Duration(1+r.IntN(6)), 30*time.Minute)
		if h.Away < h.Waits+5*time.Minute { // blocks are killed while it is away, and are to fit between
			h.Limit = max(h.Limit, 3*time.Hour)
		}
		for i := range c.Job.Tasks {
			if t := &c.Job.Tasks[i]; t.Timeout == 0 {
				t.Timeout = time.Hour
			}
		}
	}
	if r.IntN(3) == 0 {
		h.Warn = 0
	}
	c.Home = h
	for i := range c.Faults {
		switch f := &c.Faults[i]; f.Kind {
		case FaultPower: // its machine is a node
			f.Kind = FaultHomeNode
		case FaultTakeOver: // a job is taken over only by itself
			f.Kind = FaultHomeNetless
		}
	}
	for range r.IntN(6) {
		f := drawFault(r, span, homeFaults)
		if r.IntN(2) == 0 { // for longer than anybody waits who was not told to
			f.For += time.Duration(r.Int64N(int64(40 * time.Minute)))
		}
		c.Faults = append(c.Faults, f)
	}
}
