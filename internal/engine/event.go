package engine

import (
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// SessionID names one connection of a worker; the shell counts them up from 1 and never uses one twice.
type SessionID uint64

// EventKind says which fields of an Event count.
type EventKind uint8

const (
	// EventTick: only the time has come; also the first event of a run. No fields.
	EventTick EventKind = iota
	// EventJoin: a worker introduces itself: Request, Join. Answered by EffectJoined or EffectRefused with this Request.
	EventJoin
	// EventAttach: a stream was opened: Session, Worker, Nonce, Held. Answered by EffectWelcome or EffectClose.
	EventAttach
	// EventDetach: the stream's connection is gone: Session. Gone: and so is the worker's process, for certain.
	EventDetach
	// EventHeartbeat: Session. (Every event of a session counts as one.)
	EventHeartbeat
	// EventAcquire: Session wants up to N blocks: Request, N. Answered once by EffectBlocks, when there is one to give.
	EventAcquire
	// EventRelease: an attempt ended: Session, Seq, Epoch, Lease, Outcome, Use, Failure.
	EventRelease
	// EventSuccesses: EventRelease for each of Successes, with nothing known but its time: Session, Seq (of the first; they go on from
	// there), Epoch, Successes.
	EventSuccesses
	// EventLeaving: the worker leaves of its own accord once it has released all: Session, Leave.
	EventLeaving
	// EventEnding: the worker was told by its batch system that it ends soon: Session, Left.
	EventEnding
	// EventCommitted: every record up to UpTo is durable.
	EventCommitted
	// EventSubmitted: the launcher accepted (Text empty) or refused (Text says why) the submission Tag.
	EventSubmitted
	// EventStatus: the launcher saw a change: Status.
	EventStatus
	// EventAnswered: what came of the question to the batch system that was asked last: Answer.
	EventAnswered
	// EventStop: the run is to end early: Stop, Text (why, for people). A second one with StopNow ends it at once.
	EventStop
	// EventAside: this coordinator ends, and another is to go on with the run within Left: Left, Text (why, for people). Of a run that ends
	// already nothing becomes of it.
	EventAside
	// EventBroken: the infrastructure failed for good (journal cannot be written, taken over): Text.
	EventBroken
	// EventSet: a limit is another from now on: Set.
	EventSet
	// EventStopWorker: one worker is to leave, as when the run is stopped: Worker, Text (why, for people).
	EventStopWorker
	// EventExclude: a node is not to be used from now on, or may be again: Exclude.
	EventExclude
)

// StopKind is how a run is ended early.
type StopKind uint8

const (
	// StopDrain: no new blocks; those that run may finish. State "stopped".
	StopDrain StopKind = iota
	// StopCancel: no new blocks; running ones get grace. State "stopped".
	StopCancel
	// StopInterrupt: as StopCancel, by a signal. State "interrupted".
	StopInterrupt
	// StopNow: at once; what is leased becomes abandoned.
	StopNow
)

// An Event is something that happened outside. It is one flat struct so that a million a second can pass by value without a
// heap allocation each; Kind says which fields count.
type Event struct {
	Kind    EventKind
	Outcome scheduler.Outcome
	Stop    StopKind
	Leave   LeaveReason
	Gone    bool
	N       int32
	Session SessionID
	Request uint64
	Seq     uint64
	Epoch   uint64
	Lease   scheduler.Lease
	UpTo    uint64
	Nonce   uint64
	Left    time.Duration
	Use     Use
	Failure *Failure
	Join    *Join
	Held    []Held
	// Successes belong to the engine until Apply returns.
	Successes []Success
	Worker    string
	Tag       string
	Text      string
	Status    *launcher.Status
	Answer    *Answer
	Set       *Setting
	Exclude   *Exclusion
}

// LeaveReason is why a worker says that it leaves.
type LeaveReason uint8

const (
	// LeaveTold: it was drained or stopped by us.
	LeaveTold LeaveReason = iota
	// LeaveSignal: it was told by SIGTERM.
	LeaveSignal
	// LeaveDone: it served max_blocks_per_worker, or its library caller closed it.
	LeaveDone
	// LeaveBroken: its user code cannot be started at all (Failure says why).
	LeaveBroken
	// LeaveLost: its connection, which was its life, has ended with blocks in its hands.
	LeaveLost
)

// A Join is a worker's introduction.
type Join struct {
	// Tag and Element name the submission; Tag is empty for a worker that nobody launched, which then has a Name.
	Tag     string
	Element int
	// Array is what the batch system calls its submission, "" if it does not know.
	Array string
	// Restart is how often the batch system has started this element again.
	Restart int
	// Cluster and Process tell processes apart that were started for the same element: where the batch system is, and the number of the
	// process in its step.
	Cluster string
	Process int
	Name    string
	Nonce   uint64
	// Task is what a worker with a Name asks for, "" = any.
	Task  string
	Slots int
	// Fill: a launched worker can have more slots than that, as far as its Grant holds them.
	Fill bool
	// Client: it is a client that the coordinator speaks for; only those serve a task whose runner is job.RunnerClients, and no other.
	Client bool
	Node   string
	PID    int
	// Job is what the batch system calls the worker's own job, and Left for how long it may run; "" and 0 where that is not known.
	Job  string
	Left time.Duration
	// Grant is what that job was given of the node.
	Grant
}

// A Grant is what a batch system has given a worker of its node, all its slots together; 0 is what is not known.
type Grant struct {
	CPUMilli    int64 // thousandths of a core
	MemoryBytes int64
	GPUs        int64
}

// Held is a lease that a worker that comes back still has, and what it is for: one of an earlier epoch is known by that.
type Held struct {
	Epoch   uint64
	Lease   scheduler.Lease
	Task    int32
	Block   int64
	Attempt int32
}

// A Success is an attempt that succeeded; WallNanos as in Use.
type Success struct {
	Lease     scheduler.Lease
	WallNanos int64
}

// Use is what an attempt used, measured by the worker. Zero = not measured.
type Use struct {
	// WallNanos is from the block's start to its end, on the worker's monotonic clock.
	WallNanos int64
	// CPUNanos is user plus system time of the block's processes.
	CPUNanos     int64
	PeakRSSBytes int64
	// ReadBytes and WrittenBytes are what they read and wrote; only of a task with resource tracking.
	ReadBytes, WrittenBytes int64
	GPU                     GPU
}

// GPU is what an attempt used of GPUs, where that was measured; else all of it is zero.
type GPU struct {
	Measured bool
	// Percent is how busy they were: no decision is made by it.
	Percent  float32
	MemBytes int64
}

// A Failure is what is told of an attempt that did not end well.
type Failure struct {
	// Message is one line: "exit status 3", "timed out after 10m".
	Message string
	// Tail is the end of the attempt's output, at most 8 KiB.
	Tail string
}
