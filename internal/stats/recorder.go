// Package stats folds the ends of attempts into numbers about a run: block times, their trend, CPU, memory, wasted time.
//
// It never counts blocks: counts have one source, the tallies of the scheduler, which the caller hands in at the end.
package stats

import (
	"time"

	"example.org/daisy/scheduler"
)

// A TaskInfo is what the statistics need to know of a task beforehand.
type TaskInfo struct {
	ID string
	// Blocks is how many the task has.
	Blocks int64
	// UnwrittenAtEnd is what no block writes at the end of each axis.
	UnwrittenAtEnd []int64
	// Requires is what one slot requires.
	Requires scheduler.Resources
	// MemoryEnforced: no block gets more memory than that.
	MemoryEnforced bool
	// MaxWorkers limited the slots of the task when the run began, and Timeout one block; 0 = no limit.
	MaxWorkers int64
	Timeout    time.Duration
}

// An Attempt is the end of an attempt, as the engine counted it.
type Attempt struct {
	// Task is its position in the list given to New.
	Task    int
	Outcome scheduler.Outcome
	Verdict scheduler.Verdict
	// Worker is its id in the reports, "" where nobody knows. Node likewise.
	Worker, Node string
	// At is when it ended, since the coordinator's start. Held is the slot time that it took, from the hand-out (or the end
	// of the block before it on that slot) to its end.
	At, Held time.Duration
	// WallNanos is from the block's start to its end on the worker's monotonic clock, CPUNanos the user and system time of
	// its processes. All three are 0 where nothing was measured.
	WallNanos, CPUNanos, PeakRSSBytes int64
	// ReadBytes and WrittenBytes are what they read and wrote, both 0 where that was not measured.
	ReadBytes, WrittenBytes int64
	GPU                     GPU
}

// GPU is what an attempt used of GPUs, where that was measured; else all of it is zero. Percent is how busy they were, MemBytes the most
// memory.
type GPU struct {
	Measured bool
	Percent  float32
	MemBytes int64
}

// A Recorder takes the ends of attempts. It belongs to one goroutine.
type Recorder struct {
	tasks  []taskRecord
	wasted map[string]time.Duration // by node, of attempts that did not count
}

// taskRecord is what is known of one task's attempts. A value must not be copied once it holds times.
type taskRecord struct {
	info  TaskInfo
	times *blockTimes // nil until the first success

	// CPU time and the block time of the same attempts, in seconds.
	cpuSeconds, cpuWall float64
	peakRSS             int64
	read, written       int64
	gpu                 gpuUse
	skippedByCheck      int64
	used, wasted        time.Duration
	timedOutOn          map[string]struct{} // workers

	began, ended time.Duration
	seen         bool // began and ended count
}

// New makes a Recorder for tasks, whose positions are the Task of attempts.
func New(tasks []TaskInfo) *Recorder {
	r := &Recorder{tasks: make([]taskRecord, len(tasks)), wasted: map[string]time.Duration{}}
	for i, info := range tasks {
		r.tasks[i].info = info
	}
	return r
}

// Ended takes in the end of one attempt. An attempt of no known task, and a lease that was recalled before it started, are
// none.
func (r *Recorder) Ended(a Attempt) {
	if a.Task < 0 || a.Task >= len(r.tasks) || a.Outcome == scheduler.Recalled {
		return
	}
	t := &r.tasks[a.Task]
	began := max(a.At-a.Held, 0)
	if !t.seen {
		t.seen, t.began = true, began
	}
	t.began, t.ended = min(t.began, began), max(t.ended, a.At)
	t.peakRSS = max(t.peakRSS, a.PeakRSSBytes)
	t.read += max(a.ReadBytes, 0)
	t.written += max(a.WrittenBytes, 0)
	t.gpu.add(&a)

	counted := a.Verdict != scheduler.Stale
	switch {
	case counted && a.Outcome == scheduler.Success:
		t.used += a.Held
		if t.times == nil {
			t.times = newBlockTimes()
		}
		t.times.add(a.WallNanos)
		// Short blocks often read 0 and others a whole tick: only all of them together are right.
		if a.WallNanos > 0 {
			t.cpuSeconds += time.Duration(a.CPUNanos).Seconds()
			t.cpuWall += time.Duration(a.WallNanos).Seconds()
		}
		return
	case counted && a.Outcome == scheduler.Skipped:
		t.used += a.Held
		t.skippedByCheck++
		return
	case a.Outcome == scheduler.TimedOut && a.Worker != "":
		if t.timedOutOn == nil {
			t.timedOutOn = map[string]struct{}{}
		}
		t.timedOutOn[a.Worker] = struct{}{}
	}
	t.wasted += a.Held
	if a.Node != "" {
		r.wasted[a.Node] += a.Held
	}
}
