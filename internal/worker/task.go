package worker

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/api"
)

// A Task is a task's specification with its grid.
type Task struct {
	Spec api.TaskSpec
	Grid *geom.Grid

	limit    limit  // of one block
	quotedID []byte // the id as JSON
}

// NewTask checks a specification that came from a coordinator.
func NewTask(spec api.TaskSpec) (*Task, error) {
	fit, err := geom.ParseFit(spec.Fit)
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", spec.ID, err)
	}
	grid, err := geom.NewGrid(geom.GridSpec{
		TotalRead: spec.TotalRead, Read: spec.Read, Write: spec.Write, Fit: fit, ReadWriteConflict: spec.ReadWriteConflict,
	})
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", spec.ID, err)
	}
	if spec.Index < 0 || !(spec.TimeoutSeconds >= 0 && spec.TimeoutSeconds <= math.MaxInt64/1e9) {
		return nil, fmt.Errorf("task %q: index %d or timeout %v s is out of range", spec.ID, spec.Index, spec.TimeoutSeconds)
	}
	if spec.EnforceMemory && spec.MemoryBytes <= 0 {
		return nil, fmt.Errorf("task %q: memory is to be enforced, and its limit is %d bytes", spec.ID, spec.MemoryBytes)
	}
	quoted, err := json.Marshal(spec.ID)
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", spec.ID, err)
	}
	return &Task{Spec: spec, Grid: grid, limit: newLimit(seconds(spec.TimeoutSeconds)), quotedID: quoted}, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A Block is one leased block.
type Block struct {
	Task *Task
	// Flat is the block's number in the grid, Index its position, both from 0.
	Flat  int64
	Index geom.Coordinate
	// ID is the spatial id that daisy uses; IDFits is false where it does not fit 64 bits.
	ID     uint64
	IDFits bool
	Read   geom.Roi
	Write  geom.Roi
	// Attempt counts from 1.
	Attempt int
	// Epoch and Lease name the hand-out.
	Epoch, Lease uint64

	held *heldBlock
}

// newBlock is a block of the task; false if the grid has no such block.
func newBlock(t *Task, flat, epoch, lease uint64, attempt uint32) (Block, bool) {
	if flat >= uint64(t.Grid.Len()) {
		return Block{}, false
	}
	name := leaseKey{epoch, lease}
	h := heldBlock{task: t, flat: int64(flat), handed: name, first: int32(attempt), now: name, attempt: int32(attempt), at: -1}
	return h.block(), true
}

// TaskID is the id of the block's task.
func (b *Block) TaskID() string { return b.Task.Spec.ID }

// LeaseText is the lease as user code sees it: "3.812" is hand-out 812 of epoch 3.
func (b *Block) LeaseText() string {
	return strconv.FormatUint(b.Epoch, 10) + "." + strconv.FormatUint(b.Lease, 10)
}

// Label names the block in a log: "predict 17 #1" is the first attempt at block 17 of task predict. Where the spatial id
// does not fit 64 bits the position stands in its place.
func (b *Block) Label() string {
	if b.IDFits {
		return fmt.Sprintf("%s %d #%d", b.Task.Spec.ID, b.ID, b.Attempt)
	}
	return fmt.Sprintf("%s %v #%d", b.Task.Spec.ID, b.Index, b.Attempt)
}
