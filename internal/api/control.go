package api

import "time"

// Paths of the control interface of a coordinator: for commands, beside those that workers use, and signed as they are. Every
// answer that is not an Error has ControlVersion in its field "version". docs/cli.md explains every field.
const (
	// PathState answers with a State (GET).
	PathState = "/v1/state"
	// PathWorkers answers with a WorkerPage (GET). Queries: ended=1 (those that have ended instead of those that live), from (of
	// the page before), limit.
	PathWorkers = "/v1/workers"
	// PathBlocks answers with a BlockPage (GET). Queries: task, state (several by commas), from (of the page before), limit.
	PathBlocks = "/v1/blocks"
	// PathDrain, PathCancel, PathStopWorker, PathExclude and PathInclude take an Order, PathSet a SetOrder (POST), and answer with
	// a Done.
	PathDrain      = "/v1/drain"
	PathCancel     = "/v1/cancel"
	PathStopWorker = "/v1/stop-worker"
	PathExclude    = "/v1/exclude"
	PathInclude    = "/v1/include"
	PathSet        = "/v1/set"
)

// ControlVersion is the version of the answers. Fields may be added within a version; a field that changes its name, unit or
// meaning makes a new one.
const ControlVersion = 1

// MostBlocks is how many blocks or workers a page has at most.
const MostBlocks = 1000

// State is where a run stands. As in Stats, what has no value is null, and lists are never null.
type State struct {
	Version int      `json:"version"`
	Run     LiveRun  `json:"run"`
	Workers LiveSums `json:"workers"`
	// Resources is the budget of the run; empty if there is none.
	Resources []LiveResource `json:"resources"`
	Excluded  []LiveExcluded `json:"excluded"`
	Tasks     []LiveTask     `json:"tasks"`
	// Jobs are those of a batch system that have not ended; empty where workers come from none.
	Jobs []LiveJob `json:"jobs"`
}

// LiveJob is one submission to a batch system: an array of workers. Its workers that have not ended = asked + pending + running.
type LiveJob struct {
	// Job is the system's id of the array, null as long as it is not known. Unsure: it is not known whether the system took it.
	Job        *string `json:"job"`
	Submission string  `json:"submission"`
	Task       string  `json:"task"`
	Unsure     bool    `json:"unsure"`
	// Asked are workers of which the system has said nothing yet; Connected are those of Running that have a connection.
	Asked     int64 `json:"asked"`
	Pending   int64 `json:"pending"`
	Running   int64 `json:"running"`
	Connected int64 `json:"connected"`
	// Waits is why workers are pending, Nodes where they run.
	Waits []LiveWaiting `json:"waits"`
	Nodes []string      `json:"nodes"`
}

// LiveWaiting is a reason for which workers are pending.
type LiveWaiting struct {
	Workers int64 `json:"workers"`
	// Reason is the system's own word, Meaning the same in plain words; null if it gave none.
	Reason  *string `json:"reason"`
	Meaning *string `json:"meaning"`
	// StartsInSeconds is when the system thinks that the first will start, null if it does not say.
	StartsInSeconds *float64 `json:"starts_in_seconds"`
}

// LiveRun is the run as a whole.
type LiveRun struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// State is running | ending.
	State string `json:"state"`
	// Message says why it ends, null while it does not.
	Message *string `json:"message"`
	// Epoch counts the coordinators that the run has had; Started is when this one was, Host and PID are where it runs.
	Epoch     uint64    `json:"epoch"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`
	Host      string    `json:"host"`
	PID       int64     `json:"pid"`
	Program   string    `json:"program"`
	Launcher  *string   `json:"launcher"`
	JobFile   *string   `json:"job_file"`
	Directory *string   `json:"directory"`
}

// LiveSums counts the workers that have not ended.
type LiveSums struct {
	// Starting have been asked for and have not joined; Suspect are silent; Leaving are on their way out.
	Starting int64 `json:"starting"`
	Idle     int64 `json:"idle"`
	Busy     int64 `json:"busy"`
	Suspect  int64 `json:"suspect"`
	Leaving  int64 `json:"leaving"`
}

// LiveResource is one resource of the budget: memory in bytes, all else in its own unit.
type LiveResource struct {
	Name  string  `json:"name"`
	Total float64 `json:"total"`
	// Used is what workers take that are there or have been asked for.
	Used float64 `json:"used"`
}

// LiveExcluded is a node that is not used.
type LiveExcluded struct {
	Node string `json:"node"`
	// By is who has excluded it; null: workers of Task keep failing there, and it is not used for that task.
	By *string `json:"by"`
	// Reason is why, if that was said.
	Reason *string `json:"reason"`
	Task   *string `json:"task"`
}

// LiveTask is one task. Always blocks = waiting + ready + leased + success + skipped + failed + orphaned + abandoned.
type LiveTask struct {
	ID string `json:"id"`
	// State is running | done | abandoned.
	State     string `json:"state"`
	Blocks    int64  `json:"blocks"`
	Waiting   int64  `json:"waiting"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Success   int64  `json:"success"`
	Skipped   int64  `json:"skipped"`
	Failed    int64  `json:"failed"`
	Orphaned  int64  `json:"orphaned"`
	Abandoned int64  `json:"abandoned"`
	// Unselected is how many blocks --only, --roi or --limit leaves out; they are skipped in time.
	Unselected int64 `json:"unselected"`

	Processed   int64 `json:"processed"`
	Retries     int64 `json:"retries"`
	TimedOut    int64 `json:"timed_out"`
	Lost        int64 `json:"lost"`
	Returned    int64 `json:"returned"`
	OutOfMemory int64 `json:"out_of_memory"`
	// Running is how many blocks run, Idle how many slots have none, Starting how many belong to workers that have not joined.
	Running  int64 `json:"running"`
	Idle     int64 `json:"idle"`
	Starting int64 `json:"starting"`
	// MaxWorkers and TimeoutSeconds are the present limits; null = none.
	MaxWorkers     *int64   `json:"max_workers"`
	TimeoutSeconds *float64 `json:"timeout_seconds"`
	// Waits says what the task waits for, null if all that could run runs.
	Waits *string `json:"waits"`
	// DaisyContext is the DAISY_CONTEXT for clients of daisy that come by themselves; null where the task is not for them.
	DaisyContext *string `json:"daisy_context"`
}

// A WorkerPage is some of the workers of a run.
type WorkerPage struct {
	Version int          `json:"version"`
	Workers []LiveWorker `json:"workers"`
	// Excluded are the nodes that are not used, as in State; none in the list of workers that have ended.
	Excluded []LiveExcluded `json:"excluded"`
	// Next is the from of the page behind this one, null at the end.
	Next *string `json:"next"`
}

// LiveWorker is what a worker does and did for one task: of one that lives, the task that it serves now.
type LiveWorker struct {
	ID   string  `json:"id"`
	Task string  `json:"task"`
	Node *string `json:"node"`
	// State is starting | idle | busy | suspect | leaving | ended.
	State string `json:"state"`
	// Why is what it was told when it was told to leave.
	Why *string `json:"why"`
	// End is how it ended, in the words of stats.json; null while it lives.
	End   *string `json:"end"`
	Slots int64   `json:"slots"`
	// Running is how many blocks it runs, Held how many it has, those that run among them.
	Running     int64   `json:"running"`
	Held        int64   `json:"held"`
	Processed   int64   `json:"processed"`
	Failed      int64   `json:"failed"`
	BusySeconds float64 `json:"busy_seconds"`
	IdleSeconds float64 `json:"idle_seconds"`
	// SilentSeconds is for how long nothing has been heard of it; null if it has not joined, or has ended.
	SilentSeconds *float64 `json:"silent_seconds"`
	PeakRSSBytes  *int64   `json:"peak_rss_bytes"`
	// Log is the path of its log.
	Log *string `json:"log"`
	// Job is what a batch system calls it ("4711_3"), LeftSeconds how long it may run there; null without one, or if not known.
	Job         *string  `json:"job"`
	LeftSeconds *float64 `json:"left_seconds"`
	// Asked is what the batch system was asked for, Granted what it gave of the node.
	Asked   Amounts `json:"asked"`
	Granted Amounts `json:"granted"`
}

// A BlockPage is some of the blocks of a run: task by task, and in the order of the grid.
type BlockPage struct {
	Version int         `json:"version"`
	Blocks  []LiveBlock `json:"blocks"`
	// Next is the from of the page behind this one, null at the end. A page may be empty and have a next one.
	Next *string `json:"next"`
}

// LiveBlock is a block as far as the coordinator knows it.
type LiveBlock struct {
	Task string `json:"task"`
	// Block is the spatial id; null where ids do not fit 64 bits. Index is the position in the task's grid, from 0.
	Block *uint64 `json:"block"`
	Index []int64 `json:"index"`
	// State is waiting | ready | held (to be tried again after a pause) | leased | success | skipped | failed | orphaned |
	// abandoned.
	State string `json:"state"`
	// Attempt is the number of the attempt that it is at, or was at last; Worker and Node had it then.
	Attempt *int64  `json:"attempt"`
	Worker  *string `json:"worker"`
	Node    *string `json:"node"`
	// RunningSeconds is for how long it has been running; null if it does not.
	RunningSeconds *float64 `json:"running_seconds"`
	// LastEnd is how its last attempt ended that did not end well, with Message, Tail (the end of the output) and Log (a path).
	// They are kept of the latest blocks only.
	LastEnd *string `json:"last_end"`
	Message *string `json:"message"`
	Tail    *string `json:"tail"`
	Log     *string `json:"log"`
}

// An Order has something done by somebody.
type Order struct {
	// By is who gives it, for people.
	By string `json:"by"`
	// Worker is the id of the one to stop.
	Worker string `json:"worker,omitempty"`
	// Node is the name of the one to exclude or include, Reason why.
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason,omitempty"`
	// How is "now" to cancel without grace.
	How string `json:"how,omitempty"`
}

// A SetOrder changes limits: all of them, or none if one is not possible.
type SetOrder struct {
	By   string   `json:"by"`
	Sets []KeySet `json:"sets"`
}

// A KeySet is a key of --set ("task.predict.max_workers") and its new value, as a job file has it.
type KeySet struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// A Done says what was done.
type Done struct {
	Version int `json:"version"`
	// Message is for people.
	Message string `json:"message"`
	// Changes are those of a SetOrder.
	Changes []Change `json:"changes"`
}

// A Change is a limit that is another now.
type Change struct {
	Key string `json:"key"`
	Was string `json:"was"`
	Now string `json:"now"`
}
