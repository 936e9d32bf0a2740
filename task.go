package daisy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// The words of geometry, from package geom.
type (
	// Coordinate is a point or a shape of 1 to 6 dimensions.
	Coordinate = geom.Coordinate
	// Roi is a region: offset and shape, half open.
	Roi = geom.Roi
	// Fit says what happens to blocks at the end of the region.
	Fit = geom.Fit
)

// What happens to a block that sticks out of the total write region.
const (
	// Valid leaves it out.
	Valid = geom.Valid
	// Overhang keeps it whole.
	Overhang = geom.Overhang
	// Shrink clips it.
	Shrink = geom.Shrink
)

// Coord makes a Coordinate.
func Coord(v ...int64) Coordinate { return geom.Coord(v...) }

// Region makes a Roi that begins at offset.
func Region(offset, shape Coordinate) Roi { return Roi{Offset: offset, Shape: shape} }

// A Func does the work of one block. It returns nil if the block is done, and an error if the attempt failed. When ctx is
// done (time is up, or the run ends) it should return soon. It may run more than once for a block (a retry, or after a
// crash), so it should write whole chunks, or to a temporary name and rename. A panic counts as the end of its worker.
type Func func(ctx context.Context, b Block) error

// A Block is one region to read and a smaller one to write.
type Block struct {
	// Task is the id of its task.
	Task string
	// ID is its spatial id, unique in the task: the number that daisy gives it. HasID is false in a grid so large that ids
	// do not fit 64 bits.
	ID    uint64
	HasID bool
	// Index is its position in the task's grid, from 0.
	Index Coordinate
	// Read and Write are its regions, in the units of the task's total region.
	Read, Write Roi
	// Attempt counts from 1.
	Attempt int
}

// A Task covers a region with blocks. TotalRead or TotalWrite, Read and Write, and Process are needed (Process not where
// workers come by themselves: see WithoutWorkers); the rest has defaults.
type Task struct {
	// ID names it: letters, digits, "_", "-", ".".
	ID string
	// TotalRead is the total read region; or TotalWrite is the total write region, and what is read sticks out of it by the
	// context.
	TotalRead, TotalWrite Roi
	// Read and Write are both regions of one block, anywhere: only their shapes and how they lie to each other count.
	Read, Write Roi
	// Fit says what happens at the end of the region; the default is Valid.
	Fit Fit
	// NoReadWriteConflict lets blocks run at once of which one reads what the other writes; for a task that reads another
	// array than it writes. By default such blocks wait for each other.
	NoReadWriteConflict bool

	// Process is called for each block.
	Process Func

	// MaxWorkers bounds how many blocks run at once; 0 = only the run's own bound.
	MaxWorkers int
	// Requires is what one block needs of the run's resources: "cpu" in cores, "memory" in bytes, anything else in pieces.
	// Default: one core.
	Requires map[string]float64
	// Priority: who gets free resources first; higher goes first, and when equal the task further downstream.
	Priority int
	// Timeout of one block; 0 = 10 minutes, negative = none.
	Timeout time.Duration
	// MaxRetries is how often a block that failed or timed out is tried again; 0 = 2, negative = never.
	MaxRetries int
	// MaxLost is how many workers a block may take with it before it has failed; 0 = 5.
	MaxLost int
	// RetryBackoff is the pause before the first retry, doubled with each further one; 0 = none.
	RetryBackoff time.Duration
	// ResourceTracking keeps the time of each block where Tracking keeps the marks. What else a Go function uses is not known: it
	// shares its process.
	ResourceTracking bool
	// Skip has a bit for each block, in C order of the grid: these are skipped in this run.
	Skip scheduler.Bitmap
}

// grid makes the grid of the task.
func (t Task) grid() (*geom.Grid, error) {
	spec := geom.GridSpec{TotalRead: t.TotalRead, Read: t.Read, Write: t.Write, Fit: t.Fit, ReadWriteConflict: !t.NoReadWriteConflict}
	var none Roi
	switch {
	case t.Read.Dims() == t.Write.Dims() && !t.Write.Empty() && !t.Read.Contains(t.Write):
		return nil, fmt.Errorf("a block writes outside what it reads: Read %v does not contain Write %v; "+
			"make Read as large as Write, and larger by the context where it needs one", t.Read, t.Write)
	case t.TotalRead != none && t.TotalWrite != none:
		return nil, errors.New("both TotalRead and TotalWrite are given: one of them says all")
	case t.TotalRead == none && t.TotalWrite == none:
		return nil, errors.New("neither TotalRead nor TotalWrite is given")
	case t.TotalRead == none:
		if n := t.Write.Dims(); t.Read.Dims() != n || t.TotalWrite.Dims() != n {
			return nil, fmt.Errorf("regions have different dimensions: TotalWrite %d, Read %d, Write %d", t.TotalWrite.Dims(), t.Read.Dims(), n)
		}
		spec.TotalRead = t.TotalWrite.Grow(t.Write.Begin().Sub(t.Read.Begin()), t.Read.End().Sub(t.Write.End()))
	}
	return geom.NewGrid(spec)
}

// checked makes the task of the job.
func (t Task) checked(needProcess bool) (job.Task, error) {
	d := job.Defaults
	out := job.Task{
		ID: t.ID, Runner: job.Runner{Kind: job.RunnerFunc, Func: t.Process},
		MaxWorkers: int64(t.MaxWorkers), Slots: d.Slots, Priority: t.Priority,
		Timeout: t.Timeout, MaxRetries: t.MaxRetries, MaxLost: t.MaxLost, MaxWorkerRestarts: d.MaxWorkerRestarts,
		RetryBackoff: t.RetryBackoff, ResourceTracking: t.ResourceTracking, Mask: t.Skip,
	}
	var errs []error
	var err error
	if out.Grid, err = t.grid(); err != nil {
		errs = append(errs, err)
	}
	if needProcess && t.Process == nil {
		errs = append(errs, errors.New("no Process: give it a function, or run with WithoutWorkers and let clients do the work"))
	}
	if t.MaxWorkers < 0 || t.MaxLost < 0 || t.RetryBackoff < 0 {
		errs = append(errs, errors.New("a negative MaxWorkers, MaxLost or RetryBackoff: they start at 0"))
	}
	switch {
	case t.Timeout == 0:
		out.Timeout = d.Timeout
	case t.Timeout < 0:
		out.Timeout = 0
	}
	switch {
	case t.MaxRetries == 0:
		out.MaxRetries = d.MaxRetries
	case t.MaxRetries < 0:
		out.MaxRetries = 0
	}
	if t.MaxLost == 0 {
		out.MaxLost = d.MaxLost
	}
	if out.Requires, err = resources(t.Requires); err != nil {
		errs = append(errs, fmt.Errorf("amounts of Requires: %w", err))
	}
	if !out.Requires.Has("cpu") {
		out.Requires = out.Requires.Add(scheduler.NewResources(map[string]int64{"cpu": d.CPU}))
	}
	for i, e := range errs {
		errs[i] = fmt.Errorf("task %q: %w", t.ID, e)
	}
	return out, errors.Join(errs...)
}

// resources turns amounts into those of the scheduler: memory in bytes, all else in thousandths.
func resources(amounts map[string]float64) (scheduler.Resources, error) {
	out := make(map[string]int64, len(amounts))
	for name, v := range amounts {
		scale := 1000.0
		if name == "memory" {
			scale = 1
		}
		if !(v >= 0 && v*scale < 1<<62) {
			return scheduler.Resources{}, fmt.Errorf("%s = %g is not an amount", name, v)
		}
		out[name] = int64(v*scale + 0.5)
	}
	return scheduler.NewResources(out), nil
}
