package wire

// Version is the version byte of every frame, and the protocol number of a join request.
const Version = 1

// Kind says which message a frame holds.
type Kind uint8

// Worker to coordinator.
const (
	KindHello Kind = iota + 1
	KindAcquire
	KindRelease
	// KindHeartbeat goes both ways and has no payload.
	KindHeartbeat
	KindLeaving
	KindEnding
	KindSuccesses
)

// Coordinator to worker.
const (
	KindWelcome Kind = iota + 32
	KindBlocks
	KindAcknowledged
	KindRefused
	KindRecall
	KindReassign
	KindDrain
	KindStop
	KindKillBlock
	KindTimeLeft
	KindAway
)

// String names the message for people.
func (k Kind) String() string {
	switch k {
	case KindHello:
		return "Hello"
	case KindAcquire:
		return "Acquire"
	case KindRelease:
		return "Release"
	case KindHeartbeat:
		return "Heartbeat"
	case KindLeaving:
		return "Leaving"
	case KindEnding:
		return "Ending"
	case KindSuccesses:
		return "Successes"
	case KindWelcome:
		return "Welcome"
	case KindBlocks:
		return "Blocks"
	case KindAcknowledged:
		return "Acknowledged"
	case KindRefused:
		return "Refused"
	case KindRecall:
		return "Recall"
	case KindReassign:
		return "Reassign"
	case KindDrain:
		return "Drain"
	case KindStop:
		return "Stop"
	case KindKillBlock:
		return "KillBlock"
	case KindTimeLeft:
		return "TimeLeft"
	case KindAway:
		return "Away"
	default:
		return "unknown message"
	}
}

// Outcome is how an attempt ended, in the numbering of package scheduler.
type Outcome uint8

const (
	Success Outcome = iota
	Skipped
	Failed
	TimedOut
	OutOfMemory
	Lost
	Returned
	// Recalled: the block was given back before it started.
	Recalled
)

// String is the word used in reports.
func (o Outcome) String() string {
	if o > Recalled {
		return "unknown outcome"
	}
	return [...]string{"success", "skipped", "failed", "timed_out", "out_of_memory", "lost", "returned", "recalled"}[o]
}

// LeaveReason is why a worker leaves, in the numbering of package engine.
type LeaveReason uint8

const (
	// LeaveTold: it was drained or stopped by the coordinator.
	LeaveTold LeaveReason = iota
	// LeaveSignal: it was told by a signal.
	LeaveSignal
	// LeaveDone: it has served what it was to serve.
	LeaveDone
	// LeaveBroken: its user code cannot be started at all.
	LeaveBroken
)

// Hello is the first message of a worker on every connection. Held are all leases that it still has: running, waiting in
// its queue, or released without an acknowledgement.
type Hello struct {
	Worker string
	Nonce  uint64
	Epoch  uint64
	Held   []Held
}

// Held is a lease that a worker still has; Epoch is that of the coordinator that gave it. A coordinator of a later epoch knows it by
// what it was for: Block of Task (its number), attempt Attempt.
type Held struct {
	Epoch, Lease uint64
	Task         uint32
	Block        uint64
	Attempt      uint32
}

// Acquire asks for 1 to Max blocks.
type Acquire struct {
	Request uint64
	Max     uint32
}

// Release ends an attempt. Seq counts up from 1 over the worker's life; Message is one line for people and Tail the end of
// the attempt's output, both empty when it went well.
type Release struct {
	Seq          uint64
	Epoch, Lease uint64
	Outcome      Outcome
	WallNanos    int64
	CPUNanos     int64
	PeakRSSBytes int64
	Message      string
	Tail         string
	// ReadBytes and WrittenBytes are sent by workers of a task with resource tracking only, which a coordinator that does not know
	// them never asks for.
	ReadBytes, WrittenBytes int64
	// GPU is sent where somebody has measured it.
	GPU GPU
}

// Successes is a Release for each of Ended, numbered on from Seq: of attempts that succeeded and of which nothing but the time is known.
type Successes struct {
	Seq, Epoch uint64
	Ended      []Ended
}

// Ended is one of them.
type Ended struct {
	Lease     uint64
	WallNanos int64
}

// GPU is what an attempt used of GPUs; all of it is zero where that was not measured. Percent is how busy they were, from 0 on; MemBytes
// the most memory.
type GPU struct {
	Measured bool
	Percent  float32
	MemBytes int64
}

// Leaving says that the worker leaves once it has released all that it holds. It acquires nothing more.
type Leaving struct {
	Reason  LeaveReason
	Message string
}

// Ending says for how long the worker's batch system lets it run, where it was told that its end is near.
type Ending struct {
	LeftNanos int64
}

// Welcome answers Hello. Gone are the leases of Hello.Held that are no longer the worker's own: it kills their blocks. Kept are those
// of an earlier epoch that are; each has another name from now on.
type Welcome struct {
	Epoch uint64
	Gone  []uint64
	Kept  []Kept
}

// Kept: the block of Lease of Epoch goes on, and is released as Now of the coordinator's own epoch. It is attempt Attempt there, which may
// be a lower number than before: the ends of earlier ones may have been forgotten.
type Kept struct {
	Epoch, Lease, Now uint64
	Attempt           uint32
}

// MaxGrants is the most blocks of one Blocks, so that their frame never grows past its limit.
const MaxGrants = 1 << 15

// Blocks answers the Acquire with the same Request: blocks of one task, by its number.
type Blocks struct {
	Request uint64
	Task    uint32
	Grants  []Grant
}

// Grant is one leased block: its flat index in the task's grid, and which attempt this is, from 1.
type Grant struct {
	Lease   uint64
	Block   uint64
	Attempt uint32
}

// Acknowledged says that every Release up to Seq is durable.
type Acknowledged struct{ Seq uint64 }

// Refused says that a result came too late: the lease had been taken back. Nothing was counted.
type Refused struct {
	Lease   uint64
	Message string
}

// Recall asks for leases back, as far as their blocks have not started: each such block is released as Recalled.
type Recall struct{ Leases []uint64 }

// Reassign gives the worker another task: Spec is the JSON of its specification. Open requests stay open.
type Reassign struct{ Spec []byte }

// Drain: finish what runs, give back the rest, leave.
type Drain struct{ Message string }

// Stop: kill what still runs after the grace time, give everything back, leave.
type Stop struct{ Message string }

// KillBlock: the block of Lease is no longer the worker's own; kill it and say nothing.
type KillBlock struct{ Lease uint64 }

// TimeLeft: the batch system lets the worker run for so long from now on; what was said before does not hold any more. Without a message
// there is no end.
type TimeLeft struct{ LeftNanos int64 }

// Away: the coordinator ends, and another will go on with the run within that time. Until it is over a worker keeps the blocks that it
// runs, whether anybody answers or not.
type Away struct{ ForNanos int64 }
