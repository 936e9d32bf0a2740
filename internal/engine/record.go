package engine

import (
	"errors"
	"fmt"
	"math"

	"example.org/daisy/scheduler"
)

// RecordVersion is the version of the format of records.
const RecordVersion = 1

// RecordKind says which fields of a Record count. The numbers are part of the format.
type RecordKind uint8

const (
	// RecordStart begins an epoch: Epoch, Began, Tasks.
	RecordStart RecordKind = 1
	// RecordSubmission is written before the launcher is asked: ID (its tag), Task, Count, Slots.
	RecordSubmission RecordKind = 2
	// RecordAccepted is the launcher's answer: ID, Text ("" = accepted, else why not).
	RecordAccepted RecordKind = 3
	// RecordJoin: a worker has joined: Worker (its number), ID, Nonce, Task, Count (its slots), Text (its node), PID,
	// Launched (it did not come by itself), At; and, at the end, Grant, unless nothing of it is known.
	RecordJoin RecordKind = 4
	// RecordEnd is the end of an attempt: Task, Block, Lease, Attempt, Worker, Outcome, Blameless, Final (the block has
	// failed for good), Use, At, Held; and, of Use, ReadBytes and WrittenBytes at the end, unless
	// both are 0, and GPU behind them, if it was measured: the bits of Percent, and MemBytes.
	RecordEnd RecordKind = 5
	// RecordTaskEnd: a task has ended: Task, State, Tally.
	RecordTaskEnd RecordKind = 6
	// RecordMark: no block of Task from Block on has been handed out.
	RecordMark RecordKind = 7
	// RecordHandout: a block was given to a worker of this process: Task, Block, Lease, Attempt, Worker.
	RecordHandout RecordKind = 8
	// RecordCheckpoint: where a task stood: Task, State, Tally. Nobody writes it any more; a snapshot of the journal says all.
	RecordCheckpoint RecordKind = 9
	// RecordRunEnd: the run has ended: State, Text.
	RecordRunEnd RecordKind = 10
	// RecordServes: a worker serves another task from now on: Worker, Task, At.
	RecordServes RecordKind = 11
	// RecordGone: a worker has ended for certain: Worker, Text (the word of the reports), At.
	RecordGone RecordKind = 12
	// RecordFailed: a block has failed for good, and the reports will show it: Task, Block, Attempt, Worker, Outcome, Text (its
	// message), Tail.
	RecordFailed RecordKind = 13
	// RecordPeak: so many blocks of a task ran at once, more than ever before: Task, Count. Nobody waits for it.
	RecordPeak RecordKind = 14
	// RecordRetry: the blocks of Task that had failed for good begin anew.
	RecordRetry RecordKind = 15
	// RecordSet: a limit is another from now on: State (a SettingKey), Task, ID (the name of the resource), Count (slots, nanoseconds, or the
	// amount), Text (who wanted it).
	RecordSet RecordKind = 16
	// RecordBound: a batch system has a submission: ID (its tag), Text (what the system calls it). No other array of that tag counts.
	RecordBound RecordKind = 20
	// RecordVoid: a batch system does not have a submission, and what may appear under its tag does not count: ID.
	RecordVoid RecordKind = 21
	// RecordWave: a batch system had no room: of the class of Task no more than Count workers are asked for at once.
	RecordWave RecordKind = 22
	// RecordCut: an attempt had the whole life of its worker, and was cut by its end: Task, Block.
	RecordCut RecordKind = 23
	// RecordShare: of a submission to a batch system at most so many workers run at once: ID (its tag), Count.
	RecordShare RecordKind = 24
	// RecordAside: the coordinator has ended for another to go on, and workers keep what they run for so long: Count (nanoseconds), At.
	RecordAside RecordKind = 25
)

// A Record is one entry of the journal. Its bytes are RecordVersion, Kind, and the fields of the kind in the order in which
// the kind's comment names them: integers as unsigned varints (Nonce and Hash as 8 bytes, big-endian; Outcome, State, Blameless, Final and Launched as one
// byte), strings and lists with their length before them.
type Record struct {
	Kind      RecordKind
	Outcome   uint8 // a scheduler.Outcome
	State     uint8 // a scheduler.TaskState or a RunState
	Blameless bool
	Final     bool
	Launched  bool
	Task      int32
	Attempt   int32
	Worker    uint32
	Epoch     uint64
	Block     int64
	Lease     uint64
	Count     int64
	Slots     int64
	Nonce     uint64
	PID       int64
	Began     int64 // Unix time in nanoseconds; nothing is decided by it
	At        int64 // microseconds since the epoch's start
	Held      int64 // microseconds of slot time
	Use       Use
	Grant     Grant
	ID        string
	Text      string
	Tail      string
	Tasks     []TaskRecord
	Tally     scheduler.Tally
}

// A TaskRecord names a task and says how many blocks it has. Hash tells them, and those that are masked, from any others.
type TaskRecord struct {
	ID     string
	Blocks int64
	Hash   uint64
}

// fields visits the fields of a record's kind in their order. Appending and decoding are the same walk, so that they cannot
// disagree. It is false for an unknown kind.
func (r *Record) fields(c *coder) bool {
	switch r.Kind {
	case RecordStart:
		c.uint64(&r.Epoch)
		c.int64(&r.Began)
		n := uint64(len(r.Tasks))
		for c.uint64(&n); uint64(len(r.Tasks)) < n && c.reading && c.err == nil; {
			r.Tasks = append(r.Tasks, TaskRecord{}) // one at a time: a false length ends with the bytes
			c.taskRecord(&r.Tasks[len(r.Tasks)-1])
		}
		for i := 0; i < len(r.Tasks) && !c.reading; i++ {
			c.taskRecord(&r.Tasks[i])
		}
	case RecordSubmission:
		c.string(&r.ID)
		c.int32(&r.Task)
		c.int64(&r.Count)
		c.int64(&r.Slots)
	case RecordAccepted:
		c.string(&r.ID)
		c.string(&r.Text)
	case RecordJoin:
		c.uint32(&r.Worker)
		c.string(&r.ID)
		c.fixed(&r.Nonce)
		c.int32(&r.Task)
		c.int64(&r.Count)
		c.string(&r.Text)
		c.int64(&r.PID)
		c.bool(&r.Launched)
		c.int64(&r.At)
		if c.reading && len(c.buf) > 0 || r.Grant != (Grant{}) {
			r.Grant.fields(c)
		}
	case RecordEnd:
		r.handout(c)
		c.byte(&r.Outcome)
		c.bool(&r.Blameless)
		c.bool(&r.Final)
		c.int64(&r.Use.WallNanos)
		c.int64(&r.Use.CPUNanos)
		c.int64(&r.Use.PeakRSSBytes)
		c.int64(&r.At)
		c.int64(&r.Held)
		// Left out where neither is known, so that resource tracking costs nothing where it is off.
		if c.reading && len(c.buf) > 0 || r.Use.ReadBytes != 0 || r.Use.WrittenBytes != 0 || r.Use.GPU.Measured {
			c.int64(&r.Use.ReadBytes)
			c.int64(&r.Use.WrittenBytes)
		}
		if c.reading && len(c.buf) > 0 || r.Use.GPU.Measured {
			r.Use.GPU.fields(c)
		}
	case RecordTaskEnd, RecordCheckpoint:
		c.int32(&r.Task)
		c.byte(&r.State)
		for _, n := range tallyFields(&r.Tally) {
			c.int64(n)
		}
	case RecordMark:
		c.int32(&r.Task)
		c.int64(&r.Block)
	case RecordHandout:
		r.handout(c)
	case RecordRunEnd:
		c.byte(&r.State)
		c.string(&r.Text)
	case RecordServes:
		c.uint32(&r.Worker)
		c.int32(&r.Task)
		c.int64(&r.At)
	case RecordGone:
		c.uint32(&r.Worker)
		c.string(&r.Text)
		c.int64(&r.At)
	case RecordFailed:
		c.int32(&r.Task)
		c.int64(&r.Block)
		c.int32(&r.Attempt)
		c.uint32(&r.Worker)
		c.byte(&r.Outcome)
		c.string(&r.Text)
		c.string(&r.Tail)
	case RecordBound:
		c.string(&r.ID)
		c.string(&r.Text)
	case RecordVoid:
		c.string(&r.ID)
	case RecordWave:
		c.int32(&r.Task)
		c.int64(&r.Count)
	case RecordShare:
		c.string(&r.ID)
		c.int64(&r.Count)
	case RecordAside:
		c.int64(&r.Count)
		c.int64(&r.At)
	case RecordCut:
		c.int32(&r.Task)
		c.int64(&r.Block)
	case RecordExclude:
		c.bool(&r.Final)
		c.string(&r.ID)
		c.string(&r.Text)
		c.string(&r.Tail)
	case RecordPeak:
		c.int32(&r.Task)
		c.int64(&r.Count)
	case RecordRetry:
		c.int32(&r.Task)
	case RecordSet:
		c.byte(&r.State)
		c.int32(&r.Task)
		c.string(&r.ID)
		c.int64(&r.Count)
		c.string(&r.Text)
	default:
		return false
	}
	return true
}

func (g *GPU) fields(c *coder) {
	bits := math.Float32bits(g.Percent)
	c.uint32(&bits)
	c.int64(&g.MemBytes)
	g.Measured, g.Percent = true, math.Float32frombits(bits)
	if !(g.Percent >= 0 && g.Percent <= math.MaxFloat32) {
		c.fail(errors.New("a share of a GPU that is none"))
	}
}

func (c *coder) taskRecord(t *TaskRecord) {
	c.string(&t.ID)
	c.int64(&t.Blocks)
	c.fixed(&t.Hash)
}

func (g *Grant) fields(c *coder) {
	c.int64(&g.CPUMilli)
	c.int64(&g.MemoryBytes)
	c.int64(&g.GPUs)
}

func (r *Record) handout(c *coder) {
	c.int32(&r.Task)
	c.int64(&r.Block)
	c.uint64(&r.Lease)
	c.int32(&r.Attempt)
	c.uint32(&r.Worker)
}

func tallyFields(t *scheduler.Tally) [15]*int64 {
	return [...]*int64{&t.Total, &t.Waiting, &t.Ready, &t.Leased, &t.Success, &t.Skipped, &t.Failed, &t.Orphaned, &t.Abandoned,
		&t.Processed, &t.Retries, &t.TimedOut, &t.Lost, &t.Returned, &t.OutOfMemory}
}

// Append appends the bytes of a record.
func (r *Record) Append(dst []byte) []byte {
	c := coder{buf: append(dst, RecordVersion, byte(r.Kind))}
	r.fields(&c)
	return c.buf
}

// DecodeRecord reads a record. It is an error if the bytes are of another version, of an unknown kind, too few or too many.
func DecodeRecord(b []byte) (Record, error) {
	var r Record
	if err := r.Decode(b); err != nil {
		return Record{}, err
	}
	return r, nil
}

// Decode is DecodeRecord into memory that is there already: a journal has many millions. Of a record that is an error nothing is to be used.
func (r *Record) Decode(b []byte) error {
	*r = Record{}
	if len(b) < 2 {
		return fmt.Errorf("a record of %d bytes: it needs at least 2", len(b))
	}
	if b[0] != RecordVersion {
		return fmt.Errorf("a record of version %d: this program reads version %d", b[0], RecordVersion)
	}
	r.Kind = RecordKind(b[1])
	c := coder{buf: b[2:], reading: true}
	if !r.fields(&c) {
		return fmt.Errorf("a record of the unknown kind %d", b[1])
	}
	if c.err == nil && len(c.buf) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.buf))
	}
	if c.err != nil {
		return fmt.Errorf("a record of kind %d: %w", b[1], c.err)
	}
	return nil
}
