package engine

import (
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// EffectKind says which fields of an Effect count.
type EffectKind uint8

const (
	// EffectAppend: append Record to the journal. Records are numbered from 1 in this order.
	EffectAppend EffectKind = iota
	// EffectCommit: make everything appended so far durable and say so with EventCommitted: at once if Urgent, because
	// somebody waits for it, else within some milliseconds, together with what comes meanwhile.
	EffectCommit
	// EffectTrack: note in the tracking of Task: Block is done (Done), or failed once more. Comes after the commit.
	EffectTrack

	// EffectJoined: answer Request: the worker WorkerID is accepted for Task, with Slots.
	EffectJoined
	// EffectRefused: answer Request: refused with Code and Text. With Request 0: tell Session that Lease is stale (Text).
	EffectRefused
	// EffectWelcome: Session is attached; Leases are those that it holds no longer and must kill, Kept those of earlier epochs that
	// it holds under another number.
	EffectWelcome
	// EffectBlocks: answer Request of Session with Handouts of Task.
	EffectBlocks
	// EffectAcknowledge: tell Session that its releases up to Seq are durable.
	EffectAcknowledge
	// EffectRecall: ask Session to give back Leases as far as they have not started.
	EffectRecall
	// EffectReassign: Session works for Task from now on. Its waiting requests stay.
	EffectReassign
	// EffectDrain: tell Session to finish what runs, give back the rest and leave. Text says why.
	EffectDrain
	// EffectStop: tell Session to kill its blocks, after grace, and leave.
	EffectStop
	// EffectKillBlock: tell Session to kill the block of Lease; it is no longer its own.
	EffectKillBlock
	// EffectTimeLeft: tell Session that its batch system lets it run for Left from now on.
	EffectTimeLeft
	// EffectAway: tell Session that this coordinator ends, and that another will go on with the run within Left.
	EffectAway
	// EffectClose: close Session's connection; Text says why.
	EffectClose

	// EffectSubmit: ask the launcher for Submit. Answered by EventSubmitted; where it is a Queue, by EventAnswered.
	EffectSubmit
	// EffectCancel: ask the launcher to make Workers leave (pending ones never start). Where it is a Queue, answered by EventAnswered.
	EffectCancel
	// EffectKill: ask the launcher to kill Workers with all that they started.
	EffectKill

	// These ask a launcher that is a Queue what Ask says. One question is asked at a time, EffectSubmit and EffectCancel included, and
	// answered by EventAnswered, but for EffectBind.
	//
	// EffectBind: Ask.Tag is Ask.Array from now on.
	EffectBind
	// EffectList: what there is of this run.
	EffectList
	// EffectKnown: whether Ask.Array is known.
	EffectKnown
	// EffectAccount: how elements of Ask.Arrays ended, of all arrays if there are none.
	EffectAccount
	// EffectThrottle: at most Ask.Count elements of Ask.Array are to run at once.
	EffectThrottle
	// EffectExclude: pending elements of Ask.Array are to keep off Ask.Nodes.
	EffectExclude
	// EffectCancelArray: end all of Ask.Array, if it carries Ask.Tag.
	EffectCancelArray

	// EffectEnded: for the statistics: an attempt ended: Attempt.
	EffectEnded
	// EffectWorker: for those who look on: a worker has joined, or has ended: Worker.
	EffectWorker
	// EffectTaskEnded: for those who look on: Task has ended, in the state that Text says.
	EffectTaskEnded
	// EffectNotice: a line for people: Text.
	EffectNotice
	// EffectFinished: the run is over: State, Text. Nothing comes after it but commits.
	EffectFinished
)

// An Effect is something that the shell is to do. Effects of one call are done in their order; "append" before "commit"
// before what depends on it, which the engine emits only after EventCommitted. Slices are valid until the next call of
// Effects.Reset.
type Effect struct {
	Kind   EffectKind
	Done   bool
	Urgent bool
	// Wrong: with EffectFinished, nothing of the run could ever start, as it was asked for.
	Wrong    bool
	State    RunState
	Task     int32
	Session  SessionID
	Request  uint64
	Seq      uint64
	Block    int64
	Lease    scheduler.Lease
	Left     time.Duration
	Record   []byte
	Handouts []scheduler.Handout
	Leases   []scheduler.Lease
	Kept     []Kept
	Workers  []launcher.Worker
	Submit   *Submission
	Ask      *Ask
	Attempt  *Attempt
	Worker   *WorkerChange
	WorkerID string
	Slots    int32
	Code     string
	Text     string
}

// Kept is a hand-out of an earlier epoch that is a lease of this one.
type Kept struct {
	Epoch    uint64
	Was, Now scheduler.Lease
	Attempt  int32
}

// A Submission is what to ask the launcher for; the shell adds program, environment and paths.
type Submission struct {
	Tag   string
	Count int
	// Throttle is how many of them are to run at once, 0 = all.
	Throttle int
	// Task is the task that the workers serve first; they may be reassigned to others of its class.
	Task int32
	// Slots is the slots of each worker, Requires what one slot needs.
	Slots    int
	Requires scheduler.Resources
	// Exclude are nodes on which workers keep failing, and those that are excluded by hand, sorted.
	Exclude []string
}

// A WorkerChange is that a worker has joined, or has ended.
type WorkerChange struct {
	ID, Node string
	Task     int32
	// End is how it ended, as in a WorkerSnapshot; "" if it has joined.
	End string
}

// An Attempt is the end of an attempt, as it was counted.
type Attempt struct {
	Handout scheduler.Handout
	Outcome scheduler.Outcome
	Verdict scheduler.Verdict
	// Worker is its id in the reports, "" where nobody knows. Node likewise.
	Worker, Node string
	At           time.Duration
	// Slot time: from hand-out (or the end of the block before it on that slot) to the end.
	Held    time.Duration
	Use     Use
	Failure *Failure
}

// RunState is how a run ended.
type RunState uint8

const (
	// RunRunning: not over.
	RunRunning RunState = iota
	// RunDone: every block succeeded or was skipped.
	RunDone
	// RunFailed: some did not.
	RunFailed
	// RunStopped: ended early by drain, cancel or max_failures.
	RunStopped
	// RunInterrupted: ended early by a signal.
	RunInterrupted
	// RunBroken: the infrastructure failed.
	RunBroken
	// RunAside: it has not ended; another coordinator is to go on with it.
	RunAside
)

// String is the word used in reports.
func (s RunState) String() string {
	return [...]string{"running", "done", "failed", "stopped", "interrupted", "broken", "aside"}[s]
}

// Effects collects what one or several calls want done, with the memory that it needs; Reset keeps the memory.
type Effects struct {
	List []Effect

	records  []byte
	handouts []scheduler.Handout
	leases   []scheduler.Lease
	attempts []Attempt
}

// Reset empties the list and frees its memory for reuse.
func (f *Effects) Reset() {
	clear(f.List)
	clear(f.attempts)
	f.List, f.records, f.handouts, f.leases, f.attempts = f.List[:0], f.records[:0], f.handouts[:0], f.leases[:0], f.attempts[:0]
}

// grow adds an element, which is zero as Reset leaves none behind, and returns its place.
func grow[T any](list *[]T) *T {
	n := len(*list)
	if n < cap(*list) {
		*list = (*list)[:n+1]
	} else {
		var zero T
		*list = append(*list, zero)
	}
	return &(*list)[n]
}
