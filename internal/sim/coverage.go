package sim

// A sight is something that went wrong in a world, or is rare: not that it was drawn, but that it met somebody. A simulation in which
// something never happens proves nothing about it.
type sight uint8

const (
	sawKilled            sight = iota // the coordinator died at an effect
	sawKilledOnDisk                   // in an operation on its disk
	sawKilledUncommitted              // after a hand-out and before its next commit
	sawPower                          // with its machine
	sawDiskFull                       // a write found no space
	sawSyncFailed
	sawForgotten     // what a failed sync had lost was not seen any more
	sawRot           // a changed journal was refused
	sawStalled       // an event had to wait for a coordinator that was stopped
	sawAwake         // a coordinator that was taken over did something
	sawFenced        // and could not commit
	sawWorkerDied    // by a signal of its own
	sawWorkerStalled // an event had to wait for a worker that was stopped
	sawClosed        // a connection ended under a worker
	sawHalfOpen      // a packet was lost on a connection that nobody closed
	sawFlaky         // a connection ended before a worker heard that it was welcome
	sawHeldBack      // a packet waited for a network that was cut
	sawUnreachable   // a worker could not connect
	sawRefused       // workers on this machine were refused
	sawDud           // a worker ended as it started
	sawBroken        // user code could not be started
	sawStopped       // a person ended the run
	sawAbandoned     // a silent worker gave up and killed its blocks
	sawOutbox        // a result was left in the outbox
	sawOutboxUsed    // and taken in
	sawRunsTwice     // user code of a block ran twice at once, as it may where nobody can be told
	sawSnapshot      // a snapshot took the place of journal segments
	sawTimeout
	sawOutOfMemory
	sawKillsWorker // user code ended its worker
	sawReassigned
	sawRecalled
	sawTakenOver // a worker of an earlier epoch brought its blocks
	sawRetry     // a person has run again what had failed
	sawGuest     // a worker came by itself
	sawGuestTwin // under a name that was taken
	sawExternal  // of a run without a launcher
	sawSet       // a limit was changed
	sawExcluded  // a node was excluded
	sawIncluded  // and taken back
	sawStopWorker
	// Of a batch system:
	sawPreempted
	sawTimeLimit
	sawWarned // an element was told of its limit
	sawNodeFail
	sawNetless // a node was thought dead, and lived
	sawBlackHole
	sawSuspended
	sawRequeued
	sawRestarted // an element was started again
	sawBeside    // a second process of an element was let in
	sawVanished
	sawIDsAgain
	sawByHand
	sawDeaf
	sawEmpty
	sawPartial
	sawUnsure // an array was made, and its answer was lost
	sawLost   // a submission was lost
	sawLate   // an array appeared after its submission had no answer
	sawTwice  // two arrays were made of one submission
	sawTwin   // a worker of a second array was turned away
	sawLimits // a submission was refused for a limit
	sawSpare  // an array had more elements than its throttle
	sawThrottled
	sawCancelled // elements were cancelled
	sawGone      // the system was asked whether it knows an array
	sights
)

var sightNames = [sights]string{"coordinator killed at an effect", "killed on its disk", "killed before a commit", "power failure", "disk full", "sync failed", "bytes of a failed sync forgotten", "changed journal refused", "coordinator stopped",
	"taken over and awake", "commit refused after a takeover", "worker died", "worker stopped", "connection ended", "half-open connection", "connection ended before a welcome", "packet held back", "coordinator unreachable", "workers refused",
	"worker ended as it started", "user code cannot start", "ended by a person", "silent worker gave up", "result left in the outbox", "result taken from the outbox", "block ran twice at once", "journal snapshot",
	"block timed out", "block out of memory", "block ended its worker", "worker reassigned", "block recalled", "worker taken over with blocks", "failed blocks run again", "worker came by itself", "its name was taken", "run without a launcher",
	"limit changed", "node excluded", "node taken back", "one worker stopped", "element preempted", "element at its time limit", "element warned of its limit", "node failed under an element", "node thought dead that lived",
	"element on a black hole", "element suspended", "element back in the queue", "element started again", "second process of an element", "element vanished", "id given to others", "element cancelled by an administrator",
	"no answer", "empty answer", "incomplete answer", "array made, answer lost", "submission lost", "array appears later", "two arrays of a submission", "worker of a second array", "refused for a limit",
	"array larger than its share", "throttle changed", "elements cancelled", "asked whether an array is known"}

// saw notes that something happened.
func (w *World) saw(s sight) { w.seen[s]++ }
