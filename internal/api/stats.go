package api

import "time"

// StatsVersion is the version of the format of stats.json that this program writes. Fields may be added within a version;
// a field that changes its name, unit or meaning makes a new one.
const StatsVersion = 1

// Stats is stats.json: what happened in a run, for people and programs. docs/stats.md explains every field.
//
// Times are RFC 3339 in UTC. What has no value (nothing was measured, it is not over, there is none) is null, never 0:
// those fields are pointers. Lists are never null.
type Stats struct {
	// Version is StatsVersion.
	Version     int              `json:"version"`
	Run         RunStats         `json:"run"`
	Tasks       []TaskStats      `json:"tasks"`
	Workers     []WorkerStats    `json:"workers"`
	Nodes       []NodeStats      `json:"nodes"`
	Coordinator CoordinatorStats `json:"coordinator"`
}

// RunStats is the run as a whole.
type RunStats struct {
	// ID is the random id of the run, Name what the job file calls it.
	ID   string `json:"id"`
	Name string `json:"name"`
	// State is running | done (all blocks succeeded or were skipped) | failed (some did not) | stopped (cancel, drain,
	// max_failures) | interrupted (by a signal).
	State string `json:"state"`
	// Message says why the run ended as it did, where the counts alone do not.
	Message *string `json:"message"`
	// ExitStatus is that of "daisy-submit run": 0, 1, 3, 130 or 143; null while the run goes on.
	ExitStatus *int       `json:"exit_status"`
	Started    time.Time  `json:"started"`
	Ended      *time.Time `json:"ended"`
	// WallSeconds is how long the run went on, without the time between its segments.
	WallSeconds float64 `json:"wall_seconds"`
	// Launcher is how workers were started: "local", "serial".
	Launcher *string `json:"launcher"`
	// JobFile, Directory (the run directory) and Logs (the directory with one log a worker; null without a log) are paths.
	JobFile   *string `json:"job_file"`
	Directory *string `json:"directory"`
	Logs      *string `json:"logs"`
	// Segments are the coordinators that this run has had, one for each epoch.
	Segments []Segment `json:"segments"`
	// Changes are the limits that were changed while the run went on, in the order in which they became what they are.
	Changes     []LimitChange `json:"changes"`
	WorkerHours WorkerHours   `json:"worker_hours"`
	// CoreHours are those of all workers of which a batch system has said what it gave them.
	CoreHours CoreHours    `json:"core_hours"`
	Resources []AskedUsage `json:"resources"`
}

// A Segment is the life of one coordinator.
type Segment struct {
	Epoch       uint64     `json:"epoch"`
	Started     time.Time  `json:"started"`
	Ended       *time.Time `json:"ended"`
	WallSeconds float64    `json:"wall_seconds"`
}

// A LimitChange is a limit that is not the one of the job any more.
type LimitChange struct {
	// Key is as for --set. Was is the value of the job, Now the one in force at the end, both in words.
	Key string `json:"key"`
	Was string `json:"was"`
	Now string `json:"now"`
	// By is who set it.
	By string `json:"by"`
}

// WorkerHours is the time of all slots of all workers, in hours; the three add up to it.
type WorkerHours struct {
	// Used went into attempts that succeeded or were skipped by a check.
	Used float64 `json:"used"`
	// Idle is the time of slots that had no block.
	Idle float64 `json:"idle"`
	// Wasted went into attempts that did not count: failed, timed out, out of memory, lost, returned, refused as stale.
	Wasted float64 `json:"wasted"`
}

// CoreHours is what a batch system has given to workers, from their joining to their end: cores × hours. Null where it has not said what
// it gave.
type CoreHours struct {
	// Granted = Used + Idle. Used is what blocks had: requires.cpu × the time of slots with a block.
	Granted *float64 `json:"granted"`
	Used    *float64 `json:"used"`
	Idle    *float64 `json:"idle"`
}

// Amounts are resources of one worker, all its slots together. Null is what is not known, or was not asked for.
type Amounts struct {
	Cores       *float64 `json:"cores"`
	MemoryBytes *int64   `json:"memory_bytes"`
	GPUs        *int64   `json:"gpus"`
}

// AskedUsage compares what a task asked for with what it used.
type AskedUsage struct {
	Task string `json:"task"`
	// Resource is "cpu" (cores of one slot), "memory" (bytes of one slot), "timeout" (seconds of one block) or "max_workers" (slots).
	Resource string `json:"resource"`
	// Asked is what the job asked for, as it was in force last; null = nothing, or no limit.
	Asked *float64 `json:"asked"`
	// AskedAtStart is what it asked for when this coordinator began, where that was another; 0 = no limit.
	AskedAtStart *float64 `json:"asked_at_start"`
	// Used is in the unit of Asked: mean busy cores, highest memory, longest block, most slots at once.
	Used *float64 `json:"used"`
	// Suggested is what to ask for instead, in the unit of Asked.
	Suggested *float64 `json:"suggested"`
	// Suggestion says the same in words and as a --set option.
	Suggestion *string `json:"suggestion"`
}

// TaskStats is one task. Always blocks = waiting + ready + leased + success + skipped + failed + orphaned + abandoned.
type TaskStats struct {
	ID string `json:"id"`
	// State is running | done | abandoned.
	State  string `json:"state"`
	Blocks int64  `json:"blocks"`
	// UnwrittenAtEnd is, for each axis, how many voxels at the end of the total write region no block writes, as fit "valid" leaves
	// them.
	UnwrittenAtEnd []int64 `json:"unwritten_at_end"`
	// Waiting, Ready and Leased are blocks that have not ended; all 0 once the run has.
	Waiting   int64 `json:"waiting"`
	Ready     int64 `json:"ready"`
	Leased    int64 `json:"leased"`
	Success   int64 `json:"success"`
	Skipped   int64 `json:"skipped"`
	Failed    int64 `json:"failed"`
	Orphaned  int64 `json:"orphaned"`
	Abandoned int64 `json:"abandoned"`
	// Unselected is how many blocks --only, --roi or --limit leaves out. They are skipped, unless a block that they need does not end well.
	Unselected int64 `json:"unselected"`
	// SkippedWhy divides Skipped.
	SkippedWhy SkippedWhy `json:"skipped_why"`
	// Processed counts valid returns: attempts that a worker ended as success or failed.
	Processed int64 `json:"processed"`
	// Retries counts attempts whose block's previous end was failed, timed out or out of memory.
	Retries int64 `json:"retries"`
	// Reclaimed = TimedOut + Lost.
	Reclaimed   int64 `json:"reclaimed"`
	TimedOut    int64 `json:"timed_out"`
	Lost        int64 `json:"lost"`
	Returned    int64 `json:"returned"`
	OutOfMemory int64 `json:"out_of_memory"`
	// TimedOutWorkers is on how many different workers attempts timed out.
	TimedOutWorkers int64 `json:"timed_out_workers"`
	// Workers is how many workers have served the task, MaxConcurrency how many of its blocks ran at once at most.
	Workers        int64 `json:"workers"`
	MaxConcurrency int64 `json:"max_concurrency"`
	// TimeoutSeconds is the limit of one block that was in force last; null = none.
	TimeoutSeconds *float64     `json:"timeout_seconds"`
	BlockSeconds   BlockSeconds `json:"block_seconds"`
	// CPUBusy is CPU seconds / (block seconds × requires.cpu) over all successful attempts, where CPU time is measured.
	// 1 = all cores that were asked for were busy; more is possible.
	CPUBusy *float64 `json:"cpu_busy"`
	// PeakRSSBytes is the highest memory of any process of any attempt; with resource tracking, of all processes of one together.
	PeakRSSBytes *int64 `json:"peak_rss_bytes"`
	// IOReadBytes and IOWriteBytes are what all attempts read and wrote by system calls; null without resource tracking.
	IOReadBytes  *int64 `json:"io_read_bytes"`
	IOWriteBytes *int64 `json:"io_write_bytes"`
	// WallSeconds is from the first hand-out to the last end of an attempt.
	WallSeconds *float64 `json:"wall_seconds"`
	// WastedSeconds is slot time of attempts that did not count.
	WastedSeconds float64 `json:"wasted_seconds"`
	// Suggested are lines for the task's table in the job file, with all suggestions of RunStats.Resources.
	Suggested *string `json:"suggested"`
	// Failures are the first blocks that failed for good, in the order in which they did.
	Failures []BlockFailure `json:"failures"`
}

// SkippedWhy says why blocks were skipped. NotSelected, DoneBefore and Mask are null where a run that did not end well leaves open
// which of them it was.
type SkippedWhy struct {
	// NotSelected: left out by --only, --roi or --limit, whatever else speaks for it.
	NotSelected *int64 `json:"not_selected"`
	// DoneBefore: marked as done by an earlier run. Mask: only by skip_mask. Check: the task's check said so.
	DoneBefore *int64 `json:"done_before"`
	Mask       *int64 `json:"mask"`
	Check      int64  `json:"check"`
}

// BlockSeconds is about the times of successful attempts, in seconds on the worker's clock.
type BlockSeconds struct {
	Mean *float64 `json:"mean"`
	// P50 and P95 are the least times that 50 % and 95 % of the blocks do not exceed, to about 1 %.
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	Max *float64 `json:"max"`
	// Slope is the trend over the run in seconds per block: the least-squares line through the times over their order of
	// completion. Null with fewer than two blocks.
	Slope *float64 `json:"slope"`
	// Histogram has [upper_seconds, count] pairs with upper limits 1, 2, 5 × 10^k; a pair counts the blocks above the
	// limit below it up to and including its own. No gaps between the first and the last pair; empty without blocks.
	Histogram [][2]float64 `json:"histogram"`
}

// A BlockFailure is a block that failed for good.
type BlockFailure struct {
	// Block is the spatial id; null where ids do not fit 64 bits. Index is the position in the task's grid, from 0.
	Block *uint64 `json:"block"`
	Index []int64 `json:"index"`
	// Attempts is how many attempts the block had.
	Attempts int64 `json:"attempts"`
	// Worker, Node, Message, Tail (the end of the output) and Log (a path) are those of the last attempt.
	Worker  *string `json:"worker"`
	Node    *string `json:"node"`
	Message string  `json:"message"`
	Tail    *string `json:"tail"`
	Log     *string `json:"log"`
}

// WorkerStats is what one worker did for one task. A worker that served several tasks has one row for each, so that
// the rows of a task add up to it.
type WorkerStats struct {
	Task  string  `json:"task"`
	ID    string  `json:"id"`
	Node  *string `json:"node"`
	Slots int64   `json:"slots"`
	// Asked is what a batch system was asked for, and Granted what it gave of the node.
	Asked   Amounts `json:"asked"`
	Granted Amounts `json:"granted"`
	// Processed counts valid returns, Failed those that said failed.
	Processed int64 `json:"processed"`
	Failed    int64 `json:"failed"`
	// BusySeconds and IdleSeconds add up over the slots.
	BusySeconds float64 `json:"busy_seconds"`
	IdleSeconds float64 `json:"idle_seconds"`
	// PeakRSSBytes is the highest memory of any process of its attempts for the task; in its last row also of the worker itself.
	PeakRSSBytes *int64 `json:"peak_rss_bytes"`
	// End is left | drained | stopped | exited | signal | lost | time_limit | preempted | node_failed | out_of_memory |
	// cancelled | killed_by_us; null while the worker lives.
	End *string `json:"end"`
	Log *string `json:"log"`
}

// NodeStats adds up the workers of one node. Workers whose node is not known are in none.
type NodeStats struct {
	Node string `json:"node"`
	// Workers is how many different workers ran there.
	Workers       int64   `json:"workers"`
	Processed     int64   `json:"processed"`
	Failed        int64   `json:"failed"`
	BusySeconds   float64 `json:"busy_seconds"`
	IdleSeconds   float64 `json:"idle_seconds"`
	WastedSeconds float64 `json:"wasted_seconds"`
	// CoreHours are those of its workers.
	CoreHours    CoreHours `json:"core_hours"`
	PeakRSSBytes *int64    `json:"peak_rss_bytes"`
	// Ends counts the workers by how they ended.
	Ends map[string]int64 `json:"ends"`
}

// CoordinatorStats is what the coordinator itself used.
type CoordinatorStats struct {
	CPUSeconds   float64 `json:"cpu_seconds"`
	PeakRSSBytes *int64  `json:"peak_rss_bytes"`
	// BytesIn and BytesOut went over the network, from and to workers.
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
}
