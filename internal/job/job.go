// Package job holds the checked job: what is to be run, with every number in its final form, and the checks that need no
// file. A job comes from a job file (internal/jobfile) or from a Go program (the root package).
package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// A Job is a pipeline of tasks with everything that a run needs to know.
type Job struct {
	// Name names the run: letters, digits, "_", "-" and ".".
	Name string
	// File is the job file as the user named it, "" if there is none.
	File string
	// Dir is the folder of the job file, absolute: relative paths start there, and user code runs there.
	Dir string
	// Launcher is one of Launchers.
	Launcher string
	// Directory is where run directories are made, absolute.
	Directory string
	// Tracking is where done marks are kept, one group a task; absolute, or "" for none.
	Tracking string
	// Resources is the budget of the run as given; HasResources is false where the launcher's default holds. See Budget.
	Resources    scheduler.Resources
	HasResources bool
	// Grace is what leased blocks get to return when their task is abandoned or the run is stopped.
	Grace time.Duration
	// ReconnectGrace and HeartbeatTimeout make a silent worker suspect.
	ReconnectGrace   time.Duration
	HeartbeatTimeout time.Duration
	// HintAfter and AbandonAfter are the silences after which the blocks of a suspect go out again: with and without a hint of
	// its end from the launcher. AbandonAfter 0 is the launcher's default.
	HintAfter    time.Duration
	AbandonAfter time.Duration
	// PendingPatience is for how long workers of which none runs may wait in the queue of a batch system for what other tasks need;
	// 0 is the default, 10 minutes.
	PendingPatience time.Duration
	// MaxSubmitted is how many workers a batch system may have at once, those included that wait for their turn; 0 = no limit.
	MaxSubmitted int64
	// IdleTimeout is how long a worker without work stays; negative is the launcher's default, as "0s" is a value.
	IdleTimeout time.Duration
	// MaxFailures stops the run once this many blocks have failed for good; 0 = no limit.
	MaxFailures int64
	// OnEnd is the command that is run when the run has ended, nil if there is none.
	OnEnd []string
	// Listen is the address that the coordinator listens on, without a port.
	Listen string
	// Addresses are tried by workers first, in this order: "host" or "host:port".
	Addresses []string
	// PortLow to PortHigh are the ports that are tried; both 0 = any free one.
	PortLow, PortHigh int

	// Coordinator are the options of the job that is the coordinator, by key, as Task.Options; nil if there are none.
	Coordinator map[string][]string

	// Selection is the part of the blocks that the command line names, Selected how many those are; the others are in the masks.
	Selection Selection
	Selected  int64

	// Tasks are in the order of the job file.
	Tasks []Task
	// Frozen is the job file's text with the additions of the command line, for the run directory; nil if there is no file.
	Frozen []byte
	// Warnings are for people: what is allowed but perhaps not meant.
	Warnings []string
	// Caps are what the site allows at most.
	Caps Caps
	// Defaults are the values that come neither from the job nor from the command line nor from this program.
	Defaults []Default
}

// Caps are limits of limits, of those that can be changed while a run goes on, too.
type Caps struct {
	// MaxWorkers and Timeout are those of each task; 0 = no cap.
	MaxWorkers int64
	Timeout    time.Duration
	// Resources are amounts of the run; what it does not have has no cap.
	Resources scheduler.Resources
	// File is where the site says so.
	File string
}

// A Default is a value that comes from a file of defaults of the user or the site.
type Default struct {
	// Task is "" for a value of the run.
	Task, Key string
	// Value is as the file could have it.
	Value string
	File  string
	Line  int
	// Cap: the value was lowered, as the site allows no more.
	Cap bool
}

// A Task covers its volume with blocks and says how one is run.
type Task struct {
	ID string
	// After names the upstream tasks.
	After []string
	Grid  *geom.Grid

	// ArrayPath and OutputPath are absolute, or "". Input and Output are what is known of those arrays, nil if there are none;
	// they have the axes that the blocks cover, in the order of the blocks.
	ArrayPath, OutputPath string
	Input, Output         *Volume

	Runner Runner
	// Check is the command that finds out whether a block is done already, nil if there is none.
	Check []string

	// Requires is what one slot needs.
	Requires scheduler.Resources
	// MaxWorkers bounds the slots of this task, so the blocks at once; 0 = no limit.
	MaxWorkers int64
	// Slots is how many blocks one worker runs at once, from 1.
	Slots int
	// Fill: a worker is asked for with one slot, and gets as many as what a batch system gave it holds. Elsewhere it has one.
	Fill bool
	// MaxBlocksPerWorker sends a worker away after so many blocks, and those that its other slots run then; 0 = no limit.
	MaxBlocksPerWorker int64
	// Priority decides who gets a free budget first; higher goes first.
	Priority int

	// Timeout is that of one block; 0 = none.
	Timeout time.Duration
	// MaxRetries from 0; MaxLost and MaxWorkerRestarts from 1.
	MaxRetries, MaxLost, MaxWorkerRestarts int
	// RetryBackoff is the first pause before a retry, doubled with each further one; 0 = none.
	RetryBackoff time.Duration

	// Env is added to the environment of user code: "K=V", sorted.
	Env []string
	// SkipMask is the absolute path of the mask, "" if there is none; Mask has its bits by flat block index.
	SkipMask string
	Mask     scheduler.Bitmap

	// Options are those of the launcher, by key; a single value is a list of one. Only with launcher "slurm".
	Options map[string][]string
	// Wrap is what Runner.Argv and Check begin with, so that they run inside of something else.
	Wrap []string

	// Unselected has the blocks that a selection leaves out, which are in Mask too; nil without one.
	Unselected scheduler.Bitmap

	// ResourceTracking keeps what each block used in the tracking group of the task.
	ResourceTracking bool
	// EnforceMemory keeps the processes of a block from having more memory than Requires says.
	EnforceMemory bool

	// ChunkRace: chunks of Output may be written by two blocks at once.
	ChunkRace bool

	// Line is that of the [[task]] in the job file, 0 if it does not come from one.
	Line int
}

// A Volume is what is known of an array on disk, from its metadata. All lists have one entry for each axis that the blocks
// cover.
type Volume struct {
	Path   string
	Format string
	DType  string
	Shape  geom.Coordinate
	// Chunks is the shape of what is written at once: the shard where the array is sharded, else the chunk.
	Chunks  geom.Coordinate
	Sharded bool
	// Axes, VoxelSize, Translation and Units are nil where the metadata does not say.
	Axes        []string
	VoxelSize   []float64
	Translation []float64
	Units       []string
}

// RunnerKind says how user code is run.
type RunnerKind uint8

const (
	// RunnerCommand starts a process for each block.
	RunnerCommand RunnerKind = iota + 1
	// RunnerStream keeps a process for each slot and writes blocks to it.
	RunnerStream
	// RunnerFunc calls a Go function; only in a library run.
	RunnerFunc
	// RunnerPython calls a Python function, in a process for each slot that imports it once.
	RunnerPython
	// RunnerDaisy keeps a worker script of daisy 2 for each slot, which asks for blocks by daisy's own client.
	RunnerDaisy
	// RunnerClients starts nothing: clients of daisy 2 that come by themselves, on this machine, get the blocks.
	RunnerClients
)

// String is the word used in job files and reports.
func (k RunnerKind) String() string {
	switch k {
	case RunnerCommand:
		return "command"
	case RunnerStream:
		return "stream"
	case RunnerFunc:
		return "func"
	case RunnerPython:
		return "python"
	case RunnerDaisy:
		return "daisy"
	case RunnerClients:
		return "clients"
	default:
		return "none"
	}
}

// A Runner is the user's code.
type Runner struct {
	Kind RunnerKind
	// Argv is the program with its arguments (RunnerCommand, RunnerStream, RunnerDaisy), or the interpreter (RunnerPython).
	Argv []string
	// Python names the function: "module:function" or "/path/file.py:function" (RunnerPython).
	Python string
	// Block is the package whose Block the function gets; "" = our own (RunnerPython).
	Block string
	// Func is the Go function (RunnerFunc); the root package knows its type.
	Func any
}

// A Machine is what a local run has by default. Zero = not known.
type Machine struct {
	Cores       int
	MemoryBytes int64
	GPUs        int
}

// Pipeline builds the tasks and their edges for the scheduler, with masks and without done bits.
func (j *Job) Pipeline() (*scheduler.Pipeline, error) {
	tasks := make([]scheduler.Task, len(j.Tasks))
	var edges []scheduler.Edge
	for i, t := range j.Tasks {
		tasks[i] = scheduler.Task{ID: t.ID, Grid: t.Grid, MaxRetries: t.MaxRetries, MaxLost: t.MaxLost, Mask: t.Mask}
		for _, up := range t.After {
			edges = append(edges, scheduler.Edge{Upstream: up, Downstream: t.ID})
		}
	}
	return scheduler.NewPipeline(tasks, edges)
}

// Unlimited reports whether the run has no budget: then max_workers of each task bounds what it takes.
func (j *Job) Unlimited() bool { return j.Launcher == "slurm" && !j.HasResources }

// ArrayLimit is how many workers one array of a batch system may have, where that may be more than its share of the budget; 0 = it may not.
func (t *Task) ArrayLimit() int64 {
	if of := t.Options["array_limit"]; len(of) == 1 {
		n, _ := strconv.ParseInt(of[0], 10, 32) // the launcher has checked it
		return n
	}
	return 0
}

// LauncherClass is the options of the launcher, and whether slots are filled, as one text. Workers of tasks that differ in it are not alike.
func (t *Task) LauncherClass() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(t.Options)) {
		fmt.Fprintf(&b, "%s=%q\n", key, t.Options[key])
	}
	if t.Fill {
		b.WriteString("fill\n")
	}
	return b.String()
}

// Task returns the task with this id, nil if there is none.
func (j *Job) Task(id string) *Task {
	for i := range j.Tasks {
		if j.Tasks[i].ID == id {
			return &j.Tasks[i]
		}
	}
	return nil
}
