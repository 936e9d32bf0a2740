package daisy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/version"
	"example.org/daisy/internal/worker"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/inprocess"
	"example.org/daisy/scheduler"
)

// Run runs a pipeline (or a single task) to its end, with Go functions as workers in this process. It returns when all of it
// has ended; when ctx is done before, no further block starts and running ones get Grace to return.
//
// The error is nil only if every block succeeded or was skipped. If the run ended and some did not, it wraps ErrIncomplete
// and the result says which; if nothing could be started, the result is nil.
func Run(ctx context.Context, p Part, opts ...Option) (*Result, error) {
	o := options{name: "run", every: time.Second, grace: job.Defaults.Grace}
	for _, set := range opts {
		set(&o)
	}
	r, err := o.prepare(p)
	if err != nil {
		return nil, fmt.Errorf("daisy: %w", err)
	}
	result, err := r.run(ctx)
	if err == nil {
		err = result.err()
	}
	if err != nil {
		err = fmt.Errorf("daisy: %w", err)
	}
	return result, err
}

// libraryRun is one call of Run.
type libraryRun struct {
	o   options
	job *job.Job
	dir *rundir.Dir
	c   *coordinator.Coordinator
}

// prepare checks everything and opens what the run needs. Nothing runs yet.
func (o options) prepare(p Part) (*libraryRun, error) {
	external := o.external != nil
	if external && o.directory == "" {
		return nil, errors.New("WithoutWorkers needs Directory: clients find the run by its directory")
	}
	tasks, funcs, err := checked(p, !external)
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	m := process.ThisMachine()
	machine := job.Machine{Cores: m.Cores, MemoryBytes: m.MemoryBytes, GPUs: len(m.GPUs)}
	d := job.Defaults
	j := &job.Job{
		Name: o.name, Dir: here, Launcher: "local", Tasks: tasks, Listen: d.Listen,
		Grace: o.grace, ReconnectGrace: d.ReconnectGrace, HeartbeatTimeout: d.HeartbeatTimeout, HintAfter: d.HintAfter,
		IdleTimeout: -1, MaxFailures: o.maxFailures,
	}
	if j.Directory, err = absolute(o.directory); err != nil {
		return nil, err
	}
	if j.Tracking, err = absolute(o.tracking); err != nil {
		return nil, err
	}
	if err := o.resources(j, machine); err != nil {
		return nil, err
	}
	if errs := j.Check(machine); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	r := &libraryRun{o: o, job: j}
	cfg := coordinator.Config{Job: j, Budget: j.Budget(machine), Listen: external, Version: version.String(), Notice: o.notice}
	if !external {
		user := make(map[string]worker.Func, len(funcs))
		for id, t := range funcs {
			user[id] = func(ctx context.Context, b *worker.Block) error { return t.Process(ctx, publicBlock(b)) }
		}
		cfg.Launcher = inprocess.New("in-process", func(ctx context.Context, req launcher.Request, w launcher.Worker) error {
			return worker.Run(ctx, worker.Config{
				Dial: r.c.Dial, RunID: r.c.RunID(), Secret: r.c.Secret(), Version: version.String(),
				Identity: worker.Identity{Tag: w.Tag, Element: w.Element}, Slots: 1, Batch: o.batch, Funcs: maps.Clone(user),
			})
		})
	}
	if o.directory != "" {
		if r.dir, err = rundir.Create(j.Directory, j.Name, ""); err != nil {
			return nil, err
		}
		cfg.RunDir = r.dir
	}
	if r.c, err = coordinator.New(cfg); err != nil {
		if r.dir != nil {
			_ = r.dir.Discard() // nothing was started
		}
		return nil, err
	}
	return r, nil
}

// resources sets the budget of the run.
func (o options) resources(j *job.Job, machine job.Machine) error {
	if o.workers < 0 || o.batch < 0 {
		return errors.New("Workers and Batch must not be negative")
	}
	budget, err := resources(o.budget)
	if err != nil {
		return fmt.Errorf("amounts of Resources: %w", err)
	}
	if o.budget == nil {
		budget = j.Budget(machine)
	}
	if o.workers > 0 {
		if o.budget == nil {
			budget = budget.Sub(scheduler.NewResources(map[string]int64{"cpu": budget.Get("cpu")})).
				Add(scheduler.NewResources(map[string]int64{"cpu": 1000 * int64(o.workers)}))
		}
		for i := range j.Tasks {
			if t := &j.Tasks[i]; t.MaxWorkers == 0 || t.MaxWorkers > int64(o.workers) {
				t.MaxWorkers = int64(o.workers)
			}
		}
	}
	j.Resources, j.HasResources = budget, true
	return nil
}

func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// run is the run itself.
func (r *libraryRun) run(ctx context.Context) (*Result, error) {
	var observer sync.WaitGroup
	over := make(chan struct{})
	if r.o.observe != nil {
		observer.Go(func() { r.watch(ctx, over) })
	}
	if r.o.external != nil {
		r.o.external(r.dir.Path())
	}
	ended, err := r.c.Run(ctx)
	close(over)
	observer.Wait()

	result := &Result{State: stateOf(ended.State), Reason: ended.Reason, stats: ended.Stats}
	if r.dir != nil {
		result.Directory = r.dir.Path()
	}
	last := Snapshot{State: result.State}
	for _, t := range ended.Stats.Tasks {
		tr := TaskResult{ID: t.ID, State: State(t.State), Counts: Counts{
			Total: t.Blocks, Waiting: t.Waiting, Ready: t.Ready, Leased: t.Leased,
			Success: t.Success, Skipped: t.Skipped, Failed: t.Failed, Orphaned: t.Orphaned, Abandoned: t.Abandoned,
			Processed: t.Processed, Retries: t.Retries,
			TimedOut: t.TimedOut, Lost: t.Lost, Returned: t.Returned, OutOfMemory: t.OutOfMemory,
		}}
		for _, f := range t.Failures {
			b := BlockFailure{Block: Block{Task: t.ID, Index: Coord(f.Index...), Attempt: int(f.Attempts)}, Attempts: int(f.Attempts), Message: f.Message}
			if f.Block != nil {
				b.Block.ID, b.Block.HasID = *f.Block, true
			}
			if f.Tail != nil {
				b.Tail = *f.Tail
			}
			tr.Failures = append(tr.Failures, b)
		}
		result.Tasks = append(result.Tasks, tr)
		last.Tasks = append(last.Tasks, TaskSnapshot{ID: t.ID, State: tr.State, Counts: tr.Counts})
	}
	if r.o.observe != nil {
		r.o.observe(last)
	}
	return result, err
}

// watch shows the run to the observer until it is over.
func (r *libraryRun) watch(ctx context.Context, over <-chan struct{}) {
	tick := time.NewTicker(max(r.o.every, time.Millisecond))
	defer tick.Stop()
	var snap engine.Snapshot
	for {
		select {
		case <-tick.C:
			if r.c.Snapshot(context.WithoutCancel(ctx), &snap) == nil {
				r.o.observe(publicSnapshot(&snap))
			}
		case <-over:
			return
		}
	}
}

func publicSnapshot(s *engine.Snapshot) Snapshot {
	out := Snapshot{State: stateOf(s.State)}
	for _, t := range s.Tasks {
		y := t.Tally
		out.Tasks = append(out.Tasks, TaskSnapshot{ID: t.ID, State: State(t.State.String()), Waits: t.Waits, Counts: Counts{
			Total: y.Total, Waiting: y.Waiting, Ready: y.Ready, Leased: y.Leased,
			Success: y.Success, Skipped: y.Skipped, Failed: y.Failed, Orphaned: y.Orphaned, Abandoned: y.Abandoned,
			Processed: y.Processed, Retries: y.Retries,
			TimedOut: y.TimedOut, Lost: y.Lost, Returned: y.Returned, OutOfMemory: y.OutOfMemory,
		}})
	}
	return out
}

func publicBlock(b *worker.Block) Block {
	return Block{Task: b.TaskID(), ID: b.ID, HasID: b.IDFits, Index: b.Index, Read: b.Read, Write: b.Write, Attempt: b.Attempt}
}
