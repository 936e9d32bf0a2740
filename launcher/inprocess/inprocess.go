// Package inprocess is the launcher whose workers are goroutines of the coordinator's own process: Go functions of the
// library, and serial runs, in which one debugs.
//
// Such a worker cannot be killed: a goroutine that ignores its context goes on until it returns. Kill therefore cancels the
// context, as Cancel does, and reports the end at once, so that the run does not wait for it.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"example.org/daisy/launcher"
)

// Start runs one worker until it leaves or ctx is cancelled. A nil error is a worker that left as it should; any other
// is the end of a worker that broke.
type Start func(ctx context.Context, r launcher.Request, w launcher.Worker) error

// Launcher starts workers as goroutines.
type Launcher struct {
	name  string
	start Start

	mu      sync.Mutex
	watch   func(launcher.Status)
	tags    map[string]bool            // of all submissions
	workers map[launcher.Worker]*entry // those that have not returned
	closed  bool
	running sync.WaitGroup
}

type entry struct {
	cancel context.CancelFunc
	ours   bool // guarded by Launcher.mu

	telling sync.Mutex // one status after the other, none after the end
	ended   bool
}

var _ launcher.Launcher = (*Launcher)(nil)

// New returns a launcher called name in reports, whose workers are calls of start.
func New(name string, start Start) *Launcher {
	return &Launcher{name: name, start: start, tags: make(map[string]bool), workers: make(map[launcher.Worker]*entry), watch: func(launcher.Status) {}}
}

// Name is the name given to New.
func (l *Launcher) Name() string { return l.name }

// Properties: one node, ends seen at once.
func (l *Launcher) Properties() launcher.Properties {
	return launcher.Properties{OneNode: true, Local: true, IdleTimeout: 5 * time.Second, AbandonAfter: 2 * time.Minute}
}

// Check finds nothing missing: goroutines need no tool.
func (l *Launcher) Check(context.Context) error { return nil }

// Watch sets who is told of changes.
func (l *Launcher) Watch(f func(launcher.Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = f
}

// Submit starts r.Count workers. After Close it is an error.
func (l *Launcher) Submit(ctx context.Context, r launcher.Request) (array string, err error) {
	return "", l.submit(ctx, r)
}

func (l *Launcher) submit(ctx context.Context, r launcher.Request) error {
	if ctx.Err() != nil {
		return fmt.Errorf("submission %q: %w", r.Tag, context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("submission %q: the launcher is closed: no worker starts any more", r.Tag)
	case l.tags[r.Tag]:
		return fmt.Errorf("submission %q: the tag is taken by an earlier submission", r.Tag)
	case r.Count < 1:
		return fmt.Errorf("submission %q: it asks for %d workers", r.Tag, r.Count)
	}
	l.tags[r.Tag] = true
	node, _ := os.Hostname()
	for i := range r.Count {
		w := launcher.Worker{Tag: r.Tag, Element: i}
		ctx, cancel := context.WithCancel(context.Background())
		e := &entry{cancel: cancel}
		l.workers[w] = e
		l.running.Go(func() {
			l.tell(e, launcher.Status{Worker: w, State: launcher.Running, Node: node, PID: os.Getpid()})
			err := l.start(ctx, r, w)
			cancel()
			l.end(e, w, err)
			l.mu.Lock()
			delete(l.workers, w)
			l.mu.Unlock()
		})
	}
	return nil
}

// end tells of a worker's end.
func (l *Launcher) end(e *entry, w launcher.Worker, err error) {
	l.mu.Lock()
	end := launcher.End{Cause: launcher.Exited, Ours: e.ours}
	l.mu.Unlock()
	if err != nil {
		end.Exit, end.Detail = 1, err.Error()
	}
	l.tell(e, launcher.Status{Worker: w, State: launcher.Ended, End: end})
}

func (l *Launcher) tell(e *entry, s launcher.Status) {
	e.telling.Lock()
	defer e.telling.Unlock()
	if e.ended {
		return
	}
	e.ended = s.State == launcher.Ended
	l.mu.Lock()
	f := l.watch
	l.mu.Unlock()
	f(s)
}

// stop cancels the contexts of those of the workers that have not returned, and gives them.
func (l *Launcher) stop(workers []launcher.Worker) map[launcher.Worker]*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(map[launcher.Worker]*entry)
	for _, w := range workers {
		if e := l.workers[w]; e != nil {
			e.ours = true
			e.cancel()
			found[w] = e
		}
	}
	return found
}

// Cancel cancels the contexts of workers.
func (l *Launcher) Cancel(_ context.Context, workers ...launcher.Worker) error {
	l.stop(workers)
	return nil
}

// Kill cancels the contexts of workers and reports their ends at once, whether they return or not.
func (l *Launcher) Kill(_ context.Context, workers ...launcher.Worker) error {
	for w, e := range l.stop(workers) {
		l.end(e, w, errors.New("killed"))
	}
	return nil
}

// Close cancels every worker and waits for them until ctx ends; those that ignore their context are then left behind, and
// the error counts them.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	left := slices.Collect(maps.Keys(l.workers))
	l.mu.Unlock()
	l.stop(left)
	gone := make(chan struct{})
	go func() {
		l.running.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("%d workers ignore that they were told to end; they stay until this process ends", len(l.workers))
	}
}
