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
	"os"
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
	workers map[launcher.Worker]*entry
	closed  bool
	running sync.WaitGroup
}

type entry struct {
	cancel context.CancelFunc
	ours   bool
	ended  bool
}

var _ launcher.Launcher = (*Launcher)(nil)

// New returns a launcher called name in reports, whose workers are calls of start.
func New(name string, start Start) *Launcher {
	return &Launcher{name: name, start: start, workers: make(map[launcher.Worker]*entry), watch: func(launcher.Status) {}}
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
func (l *Launcher) Submit(_ context.Context, r launcher.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the launcher is closed: no worker starts any more")
	}
	for i := range r.Count {
		w := launcher.Worker{Tag: r.Tag, Element: i}
		if _, twice := l.workers[w]; twice {
			return fmt.Errorf("worker %s was submitted before", w)
		}
	}
	node, _ := os.Hostname()
	for i := range r.Count {
		w := launcher.Worker{Tag: r.Tag, Element: i}
		ctx, cancel := context.WithCancel(context.Background())
		l.workers[w] = &entry{cancel: cancel}
		l.running.Go(func() {
			l.tell(launcher.Status{Worker: w, State: launcher.Running, Node: node, PID: os.Getpid()})
			err := l.start(ctx, r, w)
			cancel()
			l.end(w, err)
		})
	}
	return nil
}

// end tells of a worker's end, once.
func (l *Launcher) end(w launcher.Worker, err error) {
	l.mu.Lock()
	e := l.workers[w]
	if e == nil || e.ended {
		l.mu.Unlock()
		return
	}
	e.ended = true
	end := launcher.End{Cause: launcher.Exited, Ours: e.ours}
	l.mu.Unlock()
	if err != nil {
		end.Exit, end.Detail = 1, err.Error()
	}
	l.tell(launcher.Status{Worker: w, State: launcher.Ended, End: end})
}

func (l *Launcher) tell(s launcher.Status) {
	l.mu.Lock()
	f := l.watch
	l.mu.Unlock()
	f(s)
}

// Cancel cancels the contexts of workers.
func (l *Launcher) Cancel(_ context.Context, workers ...launcher.Worker) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range workers {
		if e := l.workers[w]; e != nil && !e.ended {
			e.ours = true
			e.cancel()
		}
	}
	return nil
}

// Kill cancels the contexts of workers and reports their ends at once, whether they return or not.
func (l *Launcher) Kill(ctx context.Context, workers ...launcher.Worker) error {
	_ = l.Cancel(ctx, workers...)
	for _, w := range workers {
		l.end(w, errors.New("killed"))
	}
	return nil
}

// Close cancels every worker and waits for them until ctx ends; those that ignore their context are then left behind, and
// the error counts them.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	for _, e := range l.workers {
		if !e.ended {
			e.ours = true
			e.cancel()
		}
	}
	l.mu.Unlock()
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
		left := 0
		for _, e := range l.workers {
			if !e.ended {
				left++
			}
		}
		return fmt.Errorf("%d workers ignore that they were told to end; they stay until this process ends", left)
	}
}
