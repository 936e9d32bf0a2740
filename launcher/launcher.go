// Package launcher says what every launcher of workers promises.
//
// A launcher starts worker processes on request, watches how they end, and ends them when told to. It knows nothing of
// blocks: the coordinator says how many workers it wants and a launcher says what became of each. The launchers are
// launcher/local (child processes of the coordinator) and, in the library and for serial runs, workers that are
// goroutines. All pass the conformance suite of launcher/launchertest.
package launcher

import (
	"context"
	"fmt"
	"time"
)

// A Launcher starts and ends workers. Its methods may be called from several goroutines.
type Launcher interface {
	// Name is how the job file calls it ("local").
	Name() string

	// Properties says what this launcher can promise. It never changes after Check.
	Properties() Properties

	// Check looks for everything that the launcher needs before anything is started, and says what is missing, where it
	// was looked for and how to get it.
	Check(ctx context.Context) error

	// Submit asks for r.Count workers. It returns once the request is accepted or refused; workers may start later.
	// A returned error means that none of the workers will start, but for ErrUnsure. Statuses of the workers go to the function
	// given to Watch, never before Submit was called with their tag. A Queue returns what the system calls the submission.
	Submit(ctx context.Context, r Request) (array string, err error)

	// Cancel tells workers to leave: pending ones never start, running ones get SIGTERM. It does not wait.
	// Unknown and ended workers are ignored. Ends that follow have Ours set.
	Cancel(ctx context.Context, workers ...Worker) error

	// Kill ends workers at once, with everything that they started. It does not wait. Ends that follow have Ours set.
	Kill(ctx context.Context, workers ...Worker) error

	// Watch sets the function that is told of every change of state, from any goroutine, before the first Submit. The last
	// Status of a worker has State Ended, exactly once. The function must not block.
	Watch(func(Status))

	// Close ends every worker that is left, waits until they are gone (bounded by ctx), and frees what the launcher holds.
	Close(ctx context.Context) error
}

// An Adopter is a launcher whose workers go on when the process ends that had started them.
type Adopter interface {
	// Adopt takes over the workers that another launcher of this kind has left on this machine: those that carry mark, an entry ("K=V") of the
	// environment of all requests of their run and of no other, and that known says are to live. From then on they are like workers that
	// were submitted here, but that nobody is told how they end. Every other process that carries mark is ended, and the error says if it
	// could not be; ended are those. Watch is to be called before, Adopt before the first Submit, once.
	Adopt(ctx context.Context, mark string, known func(Worker) bool) (adopted []Worker, ended fmt.Stringer, err error)

	// Release gives the workers up, since another launcher has taken them over: those that have not started never do, and from then on
	// Cancel, Kill and Close touch none, and Close waits for none.
	Release()
}

// Properties are what the coordinator may rely on.
type Properties struct {
	// OneNode: all workers run on one machine, so that no node can be excluded.
	OneNode bool
	// Local: an end is seen at once and for certain, and a worker can be killed with all that it started.
	Local bool
	// Queue: it is a Queue, over a batch system, and has to be asked what becomes of its workers.
	Queue bool
	// IdleTimeout is how long a worker without work stays by default.
	IdleTimeout time.Duration
	// AbandonAfter is how long a worker may be silent before its blocks go out again, by default.
	AbandonAfter time.Duration
	// MessageTimeout is, for a Queue, how long after the end of a call the system may still do what it was asked; 0 = not known.
	MessageTimeout time.Duration
}

// A Worker names one worker of one submission: element Element of the submission with tag Tag.
type Worker struct {
	Tag     string
	Element int
}

// String is how reports name the worker: "3.0" is element 0 of submission 3.
func (w Worker) String() string { return fmt.Sprintf("%s.%d", w.Tag, w.Element) }

// A Request asks for Count workers that are all alike.
type Request struct {
	// Tag names the submission, unique in the run; its workers are (Tag, 0) … (Tag, Count-1).
	Tag   string
	Count int
	// Argv is the program with its arguments; Argv[0] is an absolute path.
	Argv []string
	// Env is the whole environment ("K=V"); the launcher adds DAISY_TAG, DAISY_ELEMENT and DAISY_GPUS (a comma list of
	// the devices of this worker, absent without GPUs), and a variable of its own beginning with DAISY_ by which it finds
	// what a worker left behind: a worker hands its environment on to what it starts.
	Env []string
	// Dir is the working directory, absolute.
	Dir string
	// LogPath gives the file that takes the worker's standard output and error.
	LogPath func(Worker) string
	// CPUMilli (thousandths of a core), MemoryBytes and GPUs are what one worker needs, all its slots together.
	CPUMilli    int64
	MemoryBytes int64
	GPUs        int
	// Fill: a worker can make use of more than that, if it is given more.
	Fill bool
	// Throttle is how many of them may run at once, in a Queue, where the rest waits; 0 = all.
	Throttle int
	// Exclude are nodes on which none is to start; never any where there is one node only.
	Exclude []string
	// Options are those that the job file has for the launcher, by key; a single value is a list of one.
	Options map[string][]string
}

// Cores is what one worker needs, in whole ones, of which batch systems give at least one.
func (r *Request) Cores() int64 { return max((r.CPUMilli+999)/1000, 1) }

// State is where a worker is.
type State uint8

const (
	// Unknown: the launcher cannot tell. It is never the same as gone.
	Unknown State = iota
	// Pending: accepted, not started.
	Pending
	// Running: started.
	Running
	// Ended: gone for certain; Status.End says how.
	Ended
)

// String is the word used in reports.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Running:
		return "running"
	case Ended:
		return "ended"
	default:
		return "unknown"
	}
}

// A Status is a change that a launcher saw.
type Status struct {
	Worker Worker
	State  State
	// Node is where it runs or ran, "" if not known.
	Node string
	// PID is its process on Node, 0 if not known.
	PID int
	// End says how it ended; only with State Ended.
	End End
	// Left is how long the batch system will still let it run, 0 if that is not known.
	Left time.Duration
}

// Cause is why a worker ended, as far as the launcher knows.
type Cause uint8

const (
	// Exited: by itself, with End.Exit.
	Exited Cause = iota
	// Signalled: by End.Signal.
	Signalled
	// NeverStarted: cancelled while pending, or could not be started (End.Detail says why).
	NeverStarted
	// TimeLimit, Preempted, NodeFailed, OutOfMemory are told by batch systems.
	TimeLimit
	Preempted
	NodeFailed
	OutOfMemory
	// Cancelled: ended on the order of somebody, whom the state alone does not tell; also before it started.
	Cancelled
)

// String is the word used in reports.
func (c Cause) String() string {
	switch c {
	case Exited:
		return "exited"
	case Signalled:
		return "signal"
	case NeverStarted:
		return "never started"
	case TimeLimit:
		return "time_limit"
	case Preempted:
		return "preempted"
	case NodeFailed:
		return "node_failed"
	case OutOfMemory:
		return "out_of_memory"
	case Cancelled:
		return "cancelled"
	default:
		return "unknown"
	}
}

// An End is how a worker ended.
type End struct {
	Cause Cause
	// Exit is the exit status where Cause is Exited, -1 where nobody is told.
	Exit int
	// Signal is the signal's number where Cause is Signalled.
	Signal int
	// Ours: we told it to leave or killed it (Cancel, Kill, Close).
	Ours bool
	// Detail adds words for people, "" if there are none.
	Detail string
	// CPU and PeakRSSBytes are of the process itself and what it waited for, 0 if not known.
	CPU          time.Duration
	PeakRSSBytes int64
}
