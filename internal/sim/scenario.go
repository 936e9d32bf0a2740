package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// Scenario draws a world from a seed: a job, its user code, a launcher, a network, and what goes wrong.
func Scenario(seed uint64) Config {
	c := Config{Seed: seed, Small: true, MaxEvents: 3_000_000}
	r := c.rng(streamScenario)
	c.Job = drawJob(r)
	for i := range c.Job.Tasks {
		c.Code = append(c.Code, drawCode(r))
		t := &c.Job.Tasks[i]
		if c.Code[i].Hangs > 0 {
			t.Timeout = time.Duration(10+r.IntN(100)) * time.Second
		}
	}
	c.Budget = scheduler.NewResources(map[string]int64{"cpu": 1000 * int64(2+r.IntN(7)), "gpu": 2000})
	c.Delay = pick(r, 0, 50*time.Microsecond, time.Millisecond, 30*time.Millisecond)
	c.Jitter = pick(r, 0, 100*time.Microsecond, 5*time.Millisecond, 100*time.Millisecond)
	c.SyncTime = pick(r, 0, 100*time.Microsecond, 5*time.Millisecond, 50*time.Millisecond)
	c.StartTime = pick(r, time.Millisecond, 100*time.Millisecond, 2*time.Second)
	c.SegmentBytes = pick(r, int64(200), 2000, 64<<20)
	c.Tracking = r.IntN(3) > 0
	if r.IntN(40) == 0 {
		drawLong(r, &c)
	}
	c.Nodes = 1
	if r.IntN(2) == 0 {
		drawBatch(r, &c)
	}
	c.Faults = drawFaults(r, &c)
	drawMore(c.rng(streamMore), &c)
	if r := c.rng(streamRetries); r.IntN(4) == 0 {
		c.Retries = 1 + r.IntN(2)
	}
	drawTrouble(c.rng(streamTrouble), &c)
	c.MaxTime = 10 * 24 * time.Hour
	return c
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func drawJob(r *rand.Rand) *job.Job {
	j := &job.Job{Name: "sim", Grace: pick(r, 0, time.Second, 10*time.Second), ReconnectGrace: 5 * time.Second, HeartbeatTimeout: 30 * time.Second,
		HintAfter: 5 * time.Minute, IdleTimeout: pick(r, -1, 0, time.Second, time.Minute)}
	if r.IntN(8) == 0 {
		j.MaxFailures = int64(1 + r.IntN(5))
	}
	dims := 1 + r.IntN(2)
	for i := range 1 + r.IntN(3) {
		t := job.Task{ID: fmt.Sprint("t", i), Slots: 1, MaxRetries: r.IntN(4), MaxLost: pick(r, 5, 5, 1, 1000), MaxWorkerRestarts: pick(r, 10, 10, 1000), Runner: job.Runner{Kind: job.RunnerCommand}}
		t.Grid = drawGrid(r, dims)
		if r.IntN(4) == 0 {
			t.Slots = 2 + r.IntN(2)
		}
		req := map[string]int64{"cpu": pick(r, int64(1000), 1000, 500, 2000)}
		if t.Slots == 1 && r.IntN(6) == 0 {
			req["gpu"] = 1000
		}
		t.Requires = scheduler.NewResources(req)
		if r.IntN(2) == 0 {
			t.MaxWorkers = int64(max(1+r.IntN(6), t.Slots))
		}
		if r.IntN(6) == 0 {
			t.MaxBlocksPerWorker = int64(1 + r.IntN(4))
		}
		if r.IntN(3) == 0 {
			t.RetryBackoff = time.Duration(1+r.IntN(20)) * time.Second / 4
		}
		t.Priority = r.IntN(3)
		for up := range i {
			if r.IntN(2) == 0 {
				t.After = append(t.After, fmt.Sprint("t", up))
			}
		}
		j.Tasks = append(j.Tasks, t)
	}
	return j
}

func drawGrid(r *rand.Rand, dims int) *geom.Grid {
	total, block, context := make([]int64, dims), make([]int64, dims), make([]int64, dims)
	for a := range dims {
		context[a] = int64(r.IntN(3))
		block[a] = int64(1 + r.IntN(4))
		n := int64(1 + r.IntN(20))
		if dims == 2 {
			n = int64(1 + r.IntN(6))
		}
		total[a] = n*block[a] + 2*context[a] + int64(r.IntN(int(block[a])))
	}
	coord := func(list []int64) geom.Coordinate { return geom.Coord(list...) }
	read := make([]int64, dims)
	for a := range dims {
		read[a] = block[a] + 2*context[a]
	}
	g, err := geom.NewGrid(geom.GridSpec{
		TotalRead: geom.Roi{Offset: geom.Fill(dims, 0), Shape: coord(total)},
		Read:      geom.Roi{Offset: geom.Fill(dims, 0), Shape: coord(read)}, Write: geom.Roi{Offset: coord(context), Shape: coord(block)},
		Fit: pick(r, geom.Valid, geom.Shrink, geom.Overhang), ReadWriteConflict: r.IntN(2) == 0,
	})
	if err != nil {
		panic(err) // these numbers are ours
	}
	return g
}

func drawCode(r *rand.Rand) Code {
	unit := pick(r, time.Millisecond, 100*time.Millisecond, time.Second, 30*time.Second)
	c := Code{Times: []TimeCount{{unit, 1}}}
	if r.IntN(2) == 0 {
		c.Times = []TimeCount{{unit / 4, 3}, {unit, 5}, {2 * unit, 2}, {10 * unit, 1}}
	}
	some := func(most int) int {
		if r.IntN(3) > 0 {
			return 0
		}
		return r.IntN(most)
	}
	c.Fails, c.Hangs, c.OutOfMemory, c.Bad, c.Straggle, c.Kills, c.Check = some(300), some(100), some(100), some(500), some(100), some(50), some(300)
	return c
}

// drawLong makes the first task one of thousands of short blocks, so that hand-outs pass marks.
func drawLong(r *rand.Rand, c *Config) {
	n := int64(2000 + r.IntN(3000))
	roi := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(1)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(n)}, Read: roi, Write: roi})
	if err != nil {
		panic(err) // these numbers are ours
	}
	c.Job.Tasks = c.Job.Tasks[:1]
	c.Job.Tasks[0].Grid, c.Job.Tasks[0].MaxBlocksPerWorker = g, 0
	c.Code = c.Code[:1]
	c.Code[0] = Code{Times: []TimeCount{{time.Millisecond, 1}}, Fails: c.Code[0].Fails / 10}
}

// drawBatch puts a batch system in the place of processes.
func drawBatch(r *rand.Rand, c *Config) {
	c.Nodes = 1 + r.IntN(5)
	c.Batch = &BatchConfig{
		Nodes: c.Nodes, CPU: 1000 * int64(6+r.IntN(5)), GPU: 4000, Cycle: pick(r, time.Second, 10*time.Second, 30*time.Second), Load: pick(r, 0, 300, 800),
		Limit: pick(r, 0, 0, 30*time.Minute, 4*time.Hour), KillWait: 30 * time.Second, MaxSubmitted: pick(r, 0, 0, 3), MaxArray: pick(r, 0, 0, 2),
		MinJobAge: pick(r, 2*time.Second, 5*time.Minute), FailSeen: pick(r, time.Second, 5*time.Minute), NoAccounts: r.IntN(3) == 0, FixedNodes: r.IntN(3) == 0,
		Answer: pick(r, 10*time.Millisecond, 300*time.Millisecond, 3*time.Second),
	}
	if c.Batch.Limit == 0 && r.IntN(4) == 0 && c.Job.Tasks[0].Grid.Len() < 1000 {
		for i := range c.Code { // long blocks: longer than a worker may be silent
			c.Code[i].Times = []TimeCount{{10 * time.Minute, 1}, {40 * time.Minute, 1}}
		}
	}
	for i := range c.Job.Tasks {
		if t := &c.Job.Tasks[i]; c.Batch.Limit > 0 && c.Batch.Limit < time.Hour {
			t.Timeout = min(t.Timeout, 5*time.Minute) // so that blocks fit
		}
	}
}

// batchFaults are those of a run on a batch system. A power failure of the login node leaves its workers alone.
var batchFaults = []FaultKind{FaultCrash, FaultCrash, FaultCrashUncommitted, FaultCrashUncommitted, FaultCrashOnDisk, FaultPower, FaultDiskFull, FaultStall, FaultSuspend, FaultTakeOver, FaultWorkerDies,
	FaultWorkerStalls, FaultDisconnect, FaultHalfOpen, FaultCut, FaultCut, FaultCutOut, FaultCutIn, FaultSlowNet, FaultStop,
	FaultNode, FaultNode, FaultPreempt, FaultPreempt, FaultBlackHole, FaultDrain, FaultNetless, FaultNetless, FaultNetless, FaultDeaf, FaultDeaf, FaultEmpty, FaultUnsure, FaultUnsure, FaultLost, FaultLate, FaultLate, FaultTwice,
	FaultForgets, FaultHand}

// expected is about how long a run takes where nothing goes wrong.
func expected(c *Config) time.Duration {
	sum := time.Duration(0)
	for i := range c.Job.Tasks {
		t, code := &c.Job.Tasks[i], &c.Code[i]
		mean, n := time.Duration(0), int64(0)
		for _, x := range code.Times {
			mean += x.Upper * time.Duration(x.Count)
			n += x.Count
		}
		at := max(c.Budget.Get("cpu")/max(t.Requires.Get("cpu"), 1), 1)
		if t.MaxWorkers > 0 {
			at = min(at, t.MaxWorkers)
		}
		sum += mean / time.Duration(n) * time.Duration(t.Grid.Len()/at+1)
	}
	return sum
}

// localFaults are those of a run on one machine, with how often each is drawn.
var localFaults = []FaultKind{FaultCrash, FaultCrash, FaultCrashUncommitted, FaultCrashUncommitted, FaultCrashOnDisk, FaultCrashOnDisk, FaultPower, FaultDiskFull, FaultSync, FaultSlowSync, FaultStall, FaultSuspend,
	FaultTakeOver, FaultWorkerDies, FaultWorkerDies, FaultWorkerStalls, FaultDisconnect, FaultDisconnect, FaultHalfOpen, FaultCut, FaultCutOut, FaultCutIn, FaultSlowNet,
	FaultRefuse, FaultDuds, FaultBroken, FaultStop}

func drawFaults(r *rand.Rand, c *Config) []Fault {
	kinds := localFaults
	if c.Batch != nil {
		kinds = batchFaults
	}
	n := r.IntN(12)
	if r.IntN(8) == 0 {
		n = 0
	}
	span := drawSpan(r, c)
	var list []Fault
	for range n {
		list = append(list, drawFault(r, span, kinds))
	}
	return list
}

// drawSpan is the time in which faults happen.
func drawSpan(r *rand.Rand, c *Config) time.Duration {
	span := expected(c)
	return pick(r, span/8, span, 3*span/2) + time.Second
}

func drawFault(r *rand.Rand, span time.Duration, kinds []FaultKind) Fault {
	f := Fault{At: time.Duration(r.Int64N(int64(span))), Kind: kinds[r.IntN(len(kinds))], For: time.Duration(r.Int64N(int64(pick(r, time.Second, 20*time.Second, 10*time.Minute)))), N: 1 + r.IntN(pick(r, 4, 40, 400))}
	if f.Kind == FaultTakeOver {
		f.For += 30 * time.Second
	}
	if f.Kind == FaultStop {
		f.N = r.IntN(int(engine.StopNow) + 1)
	}
	return f
}
