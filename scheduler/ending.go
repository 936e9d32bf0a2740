package scheduler

import "fmt"

// Lease names one hand-out of a block. It is unique in the life of a scheduler, never 0, never reused, and later hand-outs have
// greater ones.
type Lease uint64

// Holder is who acquires a block; 0 means unknown. A retry prefers another worker, and among those another node.
type Holder struct{ Worker, Node uint32 }

// Handout is a block in the hands of a worker.
type Handout struct {
	Lease   Lease
	Task    int32
	Block   int64
	Attempt int32 // from 1
}

// Outcome is how a hand-out ended.
type Outcome uint8

const (
	Success     Outcome = iota // done
	Skipped                    // a check found the block done already
	Failed                     // user code said so, or crashed
	TimedOut                   // it took too long
	OutOfMemory                // it used too much memory
	Lost                       // its worker or node is gone
	Returned                   // its worker had to leave and gave it back
	Recalled                   // it never started: no attempt
)

var outcomeNames = [...]string{"success", "skipped", "failed", "timed_out", "out_of_memory", "lost", "returned", "recalled"}

func (o Outcome) String() string { return nameOf(outcomeNames[:], uint8(o), "Outcome") }

// Ending is the release of a lease.
type Ending struct {
	Outcome   Outcome
	Blameless bool // Lost: the node is gone or the end was our doing, so that it does not count towards MaxLost
	Hold      bool // if the block will be tried again: keep it back, counted as waiting, until Unhold
	Final     bool // Returned: it can never fit, so this end fails the block for good
}

// Verdict is what became of a block whose lease was released.
type Verdict uint8

const (
	Stale         Verdict = iota // the lease was not current: nothing happened
	Succeeded                    // done
	WasSkipped                   // skipped by its check
	Retry                        // ready again, ahead of fresh blocks
	Held                         // to be tried again after Unhold
	FailedForGood                // its budget is used up
)

var verdictNames = [...]string{"stale", "success", "skipped", "retry", "held", "failed"}

func (v Verdict) String() string { return nameOf(verdictNames[:], uint8(v), "Verdict") }

// TaskState is the life of a task: it begins running, ends once, and never comes back.
type TaskState uint8

const (
	Running   TaskState = iota
	Done                // nothing of it is waiting, ready or leased
	Abandoned           // given up
)

var taskStateNames = [...]string{"running", "done", "abandoned"}

func (s TaskState) String() string { return nameOf(taskStateNames[:], uint8(s), "TaskState") }

// BlockState is where a block stands.
type BlockState uint8

const (
	BlockWaiting BlockState = iota
	BlockReady
	BlockHeld // waiting for Unhold
	BlockLeased
	BlockSuccess
	BlockSkipped
	BlockFailed
	BlockOrphaned
	BlockAbandoned
)

var blockStateNames = [...]string{"waiting", "ready", "held", "leased", "success", "skipped", "failed", "orphaned", "abandoned"}

func (s BlockState) String() string { return nameOf(blockStateNames[:], uint8(s), "BlockState") }

func nameOf(names []string, v uint8, kind string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}
