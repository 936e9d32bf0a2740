package sim

import (
	"sort"
	"time"

	"example.org/daisy/scheduler"
)

// Code is the user code of a task: how long its blocks take, and how attempts end. What it does depends on the seed, the block and the
// number of earlier failures only, so that it is the same whatever else happens.
type Code struct {
	// Times is the distribution of block times: upper bounds in ascending order with how many blocks took up to that. One entry is a
	// constant; between two, times are spread evenly.
	Times []TimeCount
	// Check is the share of blocks, in thousandths, of which the check says that they are done.
	Check int
	// Fails are shares of blocks, in thousandths, whose first attempts fail, time out because they hang, or run out of memory; Bad of
	// those that fail do so for ever. Straggle is the share that takes 20 times as long.
	Fails, Hangs, OutOfMemory, Bad, Straggle int
	// Kills is the share of attempts, in thousandths, that end their worker's process.
	Kills int
}

// TimeCount is one step of a distribution.
type TimeCount struct {
	Upper time.Duration
	Count int64
}

// mix is a hash of a few numbers: the finaliser of splitmix64 over each.
func mix(list ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, x := range list {
		h += x + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// time draws from the distribution.
func (c *Code) time(h uint64) time.Duration {
	total := int64(0)
	for _, t := range c.Times {
		total += t.Count
	}
	if total == 0 {
		return 0
	}
	at := int64(h % uint64(total))
	i := sort.Search(len(c.Times), func(i int) bool {
		sum := int64(0)
		for _, t := range c.Times[:i+1] {
			sum += t.Count
		}
		return sum > at
	})
	upper, lower := c.Times[i].Upper, time.Duration(0)
	if i > 0 {
		lower = c.Times[i-1].Upper
	} else if len(c.Times) == 1 {
		return upper
	}
	return lower + time.Duration(mix(h)%uint64(max(upper-lower, 1)))
}

// never is the time of a block that hangs.
const never = time.Duration(1<<63 - 1)

// end is how an attempt ends, and how long it takes by itself.
func (c *Code) end(seed uint64, task int32, block int64, failures, attempt int32) (took time.Duration, outcome scheduler.Outcome, kills bool) {
	h := mix(seed, uint64(task), uint64(block))
	took = c.time(mix(h, uint64(attempt)))
	if c.Straggle > 0 && int(mix(h, 1)%1000) < c.Straggle {
		took *= 20
	}
	if c.Kills > 0 && int(mix(h, 2, uint64(attempt))%1000) < c.Kills {
		return took / 2, scheduler.Lost, true
	}
	fate := int(mix(h, 3) % 1000)
	times := int32(1 + mix(h, 4)%3)
	bad := fate < c.Fails+c.Hangs+c.OutOfMemory && int(mix(h, 5)%1000) < c.Bad
	switch {
	case !bad && failures >= times:
	case fate < c.Fails:
		return took / 2, scheduler.Failed, false
	case fate < c.Fails+c.Hangs:
		return never, scheduler.TimedOut, false
	case fate < c.Fails+c.Hangs+c.OutOfMemory:
		return took, scheduler.OutOfMemory, false
	}
	if c.Check > 0 && int(mix(h, 6)%1000) < c.Check {
		return took / 10, scheduler.Skipped, false
	}
	return took, scheduler.Success, false
}
