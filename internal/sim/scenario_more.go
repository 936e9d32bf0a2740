package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// drawMore adds to a world what is not of every run: workers that come by themselves, and what people want of a run.
func drawMore(r *rand.Rand, c *Config) {
	if c.Batch == nil && r.IntN(8) == 0 {
		c.External, c.Unlimited, c.Nodes = true, true, 3
	}
	kinds := []FaultKind{FaultSet, FaultExclude, FaultStopWorker, FaultGuest, FaultFlaky, FaultWorkerStalls}
	if c.Batch != nil {
		kinds = append(kinds, FaultPartial, FaultGang, FaultGang, FaultVanish, FaultBeside, FaultNetless, FaultPreempt, FaultNode)
		c.Batch.Requeue = r.IntN(3) == 0
		drawArrays(r, c)
		if r.IntN(8) == 0 && c.Job.Tasks[0].Grid.Len() < 1000 { // workers come to their end
			c.Batch.Limit = time.Duration(5+r.IntN(10)) * time.Minute
			for i := range c.Code {
				c.Code[i].Times = []TimeCount{{20 * time.Second, 1}, {2 * time.Minute, 3}}
			}
		}
	}
	if len(c.Faults) == 0 {
		return
	}
	span := drawSpan(r, c)
	for range r.IntN(4) {
		if r.IntN(2) == 0 {
			f := drawFault(r, span, kinds)
			if f.Kind == FaultWorkerStalls { // for longer than anybody waits
				f.For += 20 * time.Minute
			}
			c.Faults = append(c.Faults, f)
		}
	}
}

// drawArrays lets arrays be larger than their share, and bounds how many elements there may be.
func drawArrays(r *rand.Rand, c *Config) {
	if r.IntN(4) == 0 {
		c.Job.MaxSubmitted = int64(3 + r.IntN(8))
	}
	for i := range c.Job.Tasks {
		if r.IntN(3) == 0 {
			c.Job.Tasks[i].Options = map[string][]string{"array_limit": {fmt.Sprint(2 + r.IntN(10))}}
		}
	}
}

// drawTrouble adds what takes two to go wrong, or happens to the disk of the run.
func drawTrouble(r *rand.Rand, c *Config) {
	if len(c.Faults) == 0 {
		return
	}
	crash := drawFault(r, drawSpan(r, c), []FaultKind{FaultCrash})
	resumed := crash.At + crash.For + time.Second
	switch r.IntN(10) {
	case 0: // the journal changes
		crash.Kind, crash.N = FaultRot, r.IntN(1000)
		c.Faults = append(c.Faults, crash)
	case 1: // a sync fails, and the coordinator dies of it; what the disk has lost goes when another one has resumed
		crash.Kind, crash.N = FaultSync, 1
		power := drawFault(r, time.Minute, []FaultKind{FaultPower})
		power.At += resumed
		c.Faults = append(c.Faults, crash, power)
	case 2: // workers that come back to the next coordinator are not heard to the end
		c.Faults = append(c.Faults, crash, Fault{At: crash.At, Kind: FaultFlaky, For: crash.For + time.Duration(r.Int64N(int64(time.Minute)))})
	}
}
