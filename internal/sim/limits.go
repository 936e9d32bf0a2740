package sim

import (
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

// limits are those that hold in a run. People change them: what runs then may go on, so that a smaller one is held only to what is
// handed out once as little is in hands.
type limits struct {
	engine.Limits
	known    bool
	lax      []bool // of max_workers, by task
	laxTotal bool
	// least is the shortest timeout that a task ever had, 0 = none.
	least []time.Duration
}

// limited takes in which limits hold now.
func (c *checks) limited(co *coordinator) {
	k := &c.limits
	now := co.engine.Limits()
	if k.lax == nil {
		k.lax, k.least = make([]bool, len(now.Tasks)), make([]time.Duration, len(now.Tasks))
	}
	for i, t := range now.Tasks {
		if t.Timeout > 0 && (k.least[i] == 0 || t.Timeout < k.least[i]) {
			k.least[i] = t.Timeout
		}
		k.lax[i] = k.lax[i] || !k.known || k.Tasks[i].MaxWorkers != t.MaxWorkers || t.MaxWorkers > 0 && c.runs(int32(i)) > t.MaxWorkers
	}
	k.laxTotal = k.laxTotal || !k.known || !now.Total.Fits(k.Total) || !k.Total.Fits(now.Total)
	k.Limits, k.known = now, true
	c.relimit = false
}

// tighten holds to limits again that are kept.
func (c *checks) tighten(co *coordinator) {
	k := &c.limits
	loose := k.laxTotal
	for i := range k.lax {
		if k.lax[i] {
			tally, _ := co.engine.Tally(i)
			most := k.Tasks[i].MaxWorkers
			k.lax[i] = most > 0 && (tally.Leased > most || co.engine.Slots(i) > most || c.runs(int32(i)) > most)
		}
	}
	if loose {
		used := co.engine.Limits().Used
		k.laxTotal = !used.Fits(k.Total) || !c.world.launcher.held().Fits(k.Total)
	}
}

// runs is how many blocks of a task run, but for those that may be another's already, and those on nodes that the batch system thinks dead.
func (c *checks) runs(task int32) (n int64) {
	for _, e := range c.tasks[task].running { // a number: in any order
		if !c.excused(e, task) && !e.x.isGhost() {
			n++
		}
	}
	return n
}

// budget looks at what all that runs takes, but for what has lost its block and could not be told.
func (c *checks) budget() {
	if c.world.cfg.Unlimited || c.limits.laxTotal || !c.limits.known {
		return
	}
	var sum scheduler.Resources
	for i := range c.tasks {
		sum = sum.Add(c.world.cfg.Job.Tasks[i].Requires.Times(c.runs(int32(i))))
	}
	if !sum.Fits(c.limits.Total) {
		c.fail("blocks that run take %v, and the budget is %v", sum, c.limits.Total)
	}
}
