// Package local launches workers as child processes of the coordinator, on its own machine.
//
// A worker's end is seen when it happens, and what it started is ended with it. When the coordinator dies, its workers go on, and end by
// themselves when none comes back; the launcher of the next coordinator takes them over (Linux; elsewhere they die with it). GPUs are given
// to workers by number, each to one at a time.
package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/daisy/internal/process"
	"example.org/daisy/launcher"
)

// Config is how the machine is used. The zero value takes the machine as it is.
type Config struct {
	// GPUs are the devices to give out, by the names that CUDA_VISIBLE_DEVICES understands; nil = those of the machine.
	GPUs []string
}

// Launcher implements launcher.Launcher.
type Launcher struct {
	node string
	// id is part of a variable in the environment of every worker, and thereby of all that it starts: whoever carries it
	// after the worker's end is a stray.
	id   string
	gpus *devices

	mu      sync.Mutex
	watch   func(launcher.Status)
	spawner *process.Spawner // made when first needed
	closed  bool
	// released: the workers are another launcher's.
	released bool
	tags     map[string]bool
	workers  map[launcher.Worker]*worker // those that have not ended
	running  sync.WaitGroup              // a goroutine for each of them, and for each kill
}

var (
	_ launcher.Launcher = (*Launcher)(nil)
	_ launcher.Adopter  = (*Launcher)(nil)
)

// New makes a launcher. It starts nothing.
func New(c Config) *Launcher {
	if c.GPUs == nil {
		c.GPUs = process.ThisMachine().GPUs
	}
	node, err := os.Hostname()
	if err != nil {
		node = "localhost"
	}
	return &Launcher{
		node: node, id: rand.Text(), gpus: &devices{all: len(c.GPUs), free: slices.Clone(c.GPUs)},
		tags: map[string]bool{}, workers: map[launcher.Worker]*worker{},
	}
}

// Name is "local".
func (l *Launcher) Name() string { return "local" }

// Properties: one node, certain ends, 5 s of patience with idle workers, 2 min with silent ones.
func (l *Launcher) Properties() launcher.Properties {
	return launcher.Properties{OneNode: true, Local: true, IdleTimeout: 5 * time.Second, AbandonAfter: 2 * time.Minute}
}

// Check needs nothing but that processes can be started at all; the program itself comes with Submit.
func (l *Launcher) Check(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.prepare()
}

// prepare is called with mu held.
func (l *Launcher) prepare() (err error) {
	if l.closed {
		return errors.New("the local launcher is closed")
	}
	if l.spawner == nil {
		l.spawner, err = process.NewSpawner()
	}
	return err
}

// Watch sets who is told of statuses.
func (l *Launcher) Watch(f func(launcher.Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = f
}

func (l *Launcher) tell(s launcher.Status) {
	l.mu.Lock()
	watch := l.watch
	l.mu.Unlock()
	if watch != nil {
		s.Node = l.node
		watch(s)
	}
}

// Submit starts the workers, as soon as there are GPUs for them where they need any. Everything that can be checked before
// is: program, folder, log files, GPUs. All faults are told at once. A worker that cannot be started nevertheless (no more
// processes allowed) ends as launcher.NeverStarted.
func (l *Launcher) Submit(ctx context.Context, r launcher.Request) (array string, err error) {
	return "", l.submit(ctx, r)
}

func (l *Launcher) submit(ctx context.Context, r launcher.Request) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("submission %q: %w", r.Tag, context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.prepare(); err != nil {
		return fmt.Errorf("submission %q: %w", r.Tag, err)
	}
	if err := l.check(r); err != nil {
		return fmt.Errorf("submission %q: %w", r.Tag, err)
	}
	workers := make([]*worker, 0, r.Count)
	for i := range r.Count {
		w, err := l.worker(r, launcher.Worker{Tag: r.Tag, Element: i})
		if err != nil {
			for _, w := range workers {
				w.log.Close()
			}
			return fmt.Errorf("submission %q: %w", r.Tag, err)
		}
		workers = append(workers, w)
	}
	l.tags[r.Tag] = true
	for _, w := range workers {
		w.claim = l.gpus.ask(r.GPUs) // in the order of submission
		l.workers[w.name] = w
		l.running.Go(w.run)
	}
	return nil
}

// check finds all faults of a request.
func (l *Launcher) check(r launcher.Request) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case r.Tag == "":
		fault("it has no tag")
	case l.tags[r.Tag]:
		fault("the tag is taken by an earlier submission")
	}
	if r.Count < 1 {
		fault("it asks for %d workers", r.Count)
	}
	if err := process.CheckCommand(r.Argv, r.Env, r.Dir); err != nil {
		faults = append(faults, err)
	}
	if r.GPUs > l.gpus.all {
		fault("a worker needs %d GPUs and there are %d here: lower requires.gpu or slots, or set CUDA_VISIBLE_DEVICES", r.GPUs, l.gpus.all)
	}
	if r.LogPath == nil {
		fault("it has no log path")
	}
	return errors.Join(faults...)
}

// Cancel makes workers leave: pending ones never start, running ones get SIGTERM.
func (l *Launcher) Cancel(_ context.Context, workers ...launcher.Worker) error {
	var errs []error
	for _, w := range l.find(workers) {
		if p := w.stop(); p != nil {
			errs = append(errs, p.Terminate())
		}
	}
	return errors.Join(errs...)
}

// Kill ends workers with everything that they started. It returns at once.
func (l *Launcher) Kill(ctx context.Context, workers ...launcher.Worker) error {
	for _, w := range l.find(workers) {
		l.kill(ctx, w)
	}
	return nil
}

func (l *Launcher) kill(ctx context.Context, w *worker) {
	p := w.stop()
	if p == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers[w.name] == w { // its own goroutine still runs, so that Close waits for this one too
		// What cannot be killed never ends, or is told of when its worker ends.
		l.running.Go(func() { _ = p.Kill(context.WithoutCancel(ctx)) })
	}
}

func (l *Launcher) find(names []launcher.Worker) []*worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return nil
	}
	var found []*worker
	for _, name := range names {
		if w := l.workers[name]; w != nil {
			found = append(found, w)
		}
	}
	return found
}

// Close kills every worker that is left and waits until all are gone; later submissions are errors. If ctx ends first it says
// which are left.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	spawner, workers, released := l.spawner, slices.Collect(maps.Values(l.workers)), l.released
	l.mu.Unlock()
	if released {
		return nil // the threads of the spawner stay with the workers, as one that ended would have its children reaped by nobody
	}
	for _, w := range workers {
		l.kill(ctx, w)
	}
	if spawner == nil {
		return nil
	}
	gone := make(chan struct{})
	go func() { // ends with the last worker
		l.running.Wait()
		close(gone)
	}()
	var err error
	select {
	case <-gone:
	case <-ctx.Done():
		err = fmt.Errorf("workers %s have not ended: %w", strings.Join(l.left(), ", "), context.Cause(ctx))
	}
	return errors.Join(err, spawner.Close(ctx))
}

// left names the workers that have not ended.
func (l *Launcher) left() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name := range l.workers {
		names = append(names, name.String())
	}
	slices.Sort(names)
	return names
}
