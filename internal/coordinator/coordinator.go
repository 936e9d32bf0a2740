// Package coordinator is the shell around internal/engine: sockets, files, timers and child processes become events for
// the engine, and its effects become deeds.
//
// The engine has one owner at a time (loop.go): the loop, or a reader of a connection. A connection has a goroutine that
// reads it (session.go); the journal and tracking have one (flusher.go), calls of the launcher one (errands.go). All of them
// send events to the owner through one inbox and are waited for before Run returns.
package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/stats"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/internal/wire"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// Config says what to run and with what.
type Config struct {
	Job *job.Job
	// Launcher starts the workers; nil if all workers come by themselves.
	Launcher launcher.Launcher
	// Budget is what all workers together may use, unless Unlimited.
	Budget    scheduler.Resources
	Unlimited bool
	// RunDir takes everything of the run; nil if nothing is to be kept on disk. Run closes it.
	RunDir *rundir.Dir
	// Resume goes on with the run that RunDir has the journal of. Lock is the lock of RunDir, if it is taken already.
	Resume bool
	Lock   *rundir.Lock
	// Set names the limits that a resume was given, by their keys: they win over what was set while the run went on.
	Set []string
	// Retry names tasks whose blocks that had failed for good begin anew with a resume.
	Retry []string
	// SegmentBytes is the size of a segment of the journal, which is compacted when some are full; 0 = journal.DefaultSegmentBytes.
	SegmentBytes int64
	// Listen opens the TCP port that the job says; without it only workers of this process have a way in.
	Listen bool
	// WorkerArgv is the program of launched workers with its first arguments.
	WorkerArgv []string
	// Environment is what launched workers inherit; nil = that of this process, without what a batch job has put into it.
	Environment []string
	// Serial: one block at a time, and the first failure ends the run.
	Serial bool
	// Version is told to workers and written to the run directory.
	Version string
	// Notice takes lines for people, from the owner of the engine; it must not block. nil = none.
	Notice func(string)
}

// A Coordinator runs one job.
type Coordinator struct {
	cfg      Config
	began    time.Time
	epoch    uint64
	past     *engine.Past  // what earlier epochs have left, nil if there were none
	before   time.Duration // length of the epochs before
	runID    string
	secret   string
	pipeline *scheduler.Pipeline
	specs    specs
	engine   *engine.Engine
	recorder *stats.Recorder

	inbox    *inbox
	events   *eventLog
	listener *listener
	http     *http.Server
	journal  *journal.Journal
	flusher  *flusher
	errands  errands
	lock     *rundir.Lock

	signal atomic.Int32 // that interrupted the run, 0 if none did
	aside  atomic.Int64 // nanoseconds for which workers are to wait for the next coordinator
	// goesOn: this coordinator ends, and the run does not.
	goesOn atomic.Bool
	// unwritable: the run is drained because its directory is full or read-only.
	unwritable atomic.Bool

	mu       sync.Mutex
	sessions map[engine.SessionID]*session
	lastID   engine.SessionID
	joins    map[uint64]chan<- joinAnswer
	pids     map[string]watchable // by worker, of those that have joined and not opened their stream yet
	lastJoin uint64
	readers  sync.WaitGroup
	// Of clients of daisy: their connections, what they are called, and what was said of them.
	clients     map[*client]struct{}
	clientNames map[string]bool // that clients have now
	refusals    atomic.Int32    // that were dropped
	saidDaisy1  atomic.Bool

	owned owned
	// Of the owner of the engine, too:
	appended  uint64 // records so far
	committed uint64
	waiters   []waiter
	lazy      []*session // with bytes that nobody was woken for
	lazyAt    time.Duration
	grants    []wire.Grant
	mishaps   mishaps
	finished  bool
	broken    bool // the journal, tracking or lock failed: nobody waits for commits any more
	letsGo    bool // the run is another coordinator's: nothing that the engine wants is done any more
	outcome   engine.RunState
	wrong     bool // nothing of the job could ever start, as it asks for it
	why       string
}

// New checks and opens all that the run needs: its tracking, its run directory's lock and journal, the port. Nothing has
// started when it returns an error.
func New(cfg Config) (_ *Coordinator, err error) {
	c := &Coordinator{
		cfg: cfg, began: time.Now(), epoch: 1,
		inbox: newInbox(), events: newEventLog(),
		sessions: make(map[engine.SessionID]*session),
		joins:    make(map[uint64]chan<- joinAnswer),
		pids:     make(map[string]watchable),

		clients:     make(map[*client]struct{}),
		clientNames: make(map[string]bool),
	}
	c.cfg.Notice = func(text string) {
		c.events.notice(text)
		if cfg.Notice != nil {
			cfg.Notice(text)
		}
	}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()

	if c.pipeline, err = cfg.Job.Pipeline(); err != nil {
		return nil, err
	}
	var left []launcher.Worker
	c.recorder = stats.New(taskInfos(cfg.Job, c.pipeline))
	if cfg.RunDir != nil {
		if c.lock = cfg.Lock; c.lock == nil {
			if c.lock, err = cfg.RunDir.TryLock(); err != nil {
				return nil, err
			}
		}
		undo = append(undo, func() { _ = c.lock.Unlock() })
		if c.epoch, err = cfg.RunDir.NextEpoch(); err != nil {
			return nil, err
		}
		// What there is to be read may take a while, and others shall see that somebody is at it.
		defer beside(c.renewLock)()
		c.runID = cfg.RunDir.RunID()
		var last journal.Position
		if cfg.Resume {
			if c.past, last, err = c.readPast(); err != nil {
				return nil, err
			}
			if left, err = c.takeOver(); err != nil {
				return nil, err
			}
		}
		if c.journal, err = journal.Create(cfg.RunDir.JournalDir(), c.epoch, journal.WithCheck(c.mine), journal.After(last),
			journal.WithSegmentBytes(cmp.Or(cfg.SegmentBytes, journal.DefaultSegmentBytes))); err != nil {
			return nil, err
		}
		undo = append(undo, func() { _ = c.journal.Close() })
		if c.secret, err = cfg.RunDir.Secret(); err != nil {
			return nil, err
		}
	} else {
		c.runID, c.secret = rand.Text()[:8], rand.Text()
	}
	stores, err := c.openTracking()
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() {
		for _, s := range stores {
			if s != nil {
				_ = s.Close()
			}
		}
	})
	var recovered []engine.Record
	if c.past != nil { // after tracking, which gets the marks of these once they are in the journal
		if recovered, err = c.readOutbox(c.past); err != nil {
			return nil, err
		}
		recovered = append(recovered, c.overrule(c.past, cfg.Set)...)
		for _, id := range cfg.Retry {
			r := engine.Record{Kind: engine.RecordRetry, Task: int32(c.pipeline.Index(id))}
			if _, _, err = c.past.Add(&r); err != nil {
				return nil, fmt.Errorf("retry task %q: %w", id, err)
			}
			recovered = append(recovered, r)
		}
		if err = c.catchUpUse(stores, recovered); err != nil {
			return nil, err
		}
	}
	c.specs = makeSpecs(cfg.Job, c.pipeline, cfg.RunDir)

	var properties launcher.Properties
	if cfg.Launcher != nil {
		properties = cfg.Launcher.Properties()
	}
	maxSlots := 0
	if cfg.Serial {
		maxSlots = 1
	}
	var logPath func(string) string
	if cfg.RunDir != nil {
		logPath = cfg.RunDir.LogPath
	}
	c.engine, err = engine.New(engine.Config{
		LogPath: logPath, Job: cfg.Job, Pipeline: c.pipeline, Launcher: properties, Node: hostname(), Epoch: c.epoch, Began: c.began.UnixNano(),
		Budget: cfg.Budget, Unlimited: cfg.Unlimited, MaxSlots: maxSlots, StopAtFirstFailure: cfg.Serial,
		External: cfg.Launcher == nil, JournalHandouts: !cfg.Listen, NoJournal: cfg.RunDir == nil, NoTracking: cfg.Job.Tracking == "", Past: c.past, Recovered: recovered, Left: left,
	})
	if err != nil {
		return nil, err
	}

	c.tellLimits()
	if cfg.Listen {
		if err = c.openPort(); err != nil {
			return nil, err
		}
	} else {
		c.listener = listenInside()
	}
	undo = append(undo, func() { _ = c.listener.Close() })
	c.flusher = newFlusher(c.journal, stores, c.inbox)
	c.http = c.newServer()
	if cfg.Resume {
		if err = cfg.RunDir.Reopen(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// openTracking opens the group of each task and puts the done bits into the pipeline.
func (c *Coordinator) openTracking() ([]*tracking.Store, error) {
	tasks := c.pipeline.Tasks()
	stores := make([]*tracking.Store, len(tasks))
	if c.cfg.Job.Tracking == "" {
		return stores, nil
	}
	var errs []error
	for i := range tasks {
		s, err := c.openGroup(filepath.Join(c.cfg.Job.Tracking, tasks[i].ID), tasks[i].Grid, c.cfg.Job.Task(tasks[i].ID).ResourceTracking)
		if err == nil {
			stores[i] = s
			tasks[i].Done, err = s.Done()
			if s.Older() != "" {
				c.cfg.Notice(fmt.Sprintf("the marks of task %s were one array, as daisy wrote before 2.0.0; they are a group now, and the array is in %s", tasks[i].ID, s.Older()))
			}
		}
		if err == nil && c.past != nil {
			if err = c.past.CatchUp(i, s, tasks[i].Done); err == nil {
				err = s.Flush()
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("task %q: %w", tasks[i].ID, err))
		}
	}
	if len(errs) == 0 {
		p, err := scheduler.NewPipeline(tasks, c.pipeline.Edges())
		if err == nil {
			c.pipeline = p
			return stores, nil
		}
		errs = append(errs, err)
	}
	for _, s := range stores {
		if s != nil {
			_ = s.Close()
		}
	}
	return nil, errors.Join(errs...)
}

// mine says whether this coordinator still owns the run; the journal asks before each commit.
func (c *Coordinator) mine() error {
	return insist(context.Background(), func() error { return c.cfg.RunDir.CheckEpoch(c.epoch) })
}

// takenOver says who has taken the run over, nil if nobody has or if that cannot be read.
func (c *Coordinator) takenOver() (taken *rundir.TakenOverError) {
	if c.cfg.RunDir != nil {
		errors.As(c.cfg.RunDir.CheckEpoch(c.epoch), &taken)
	}
	return taken
}

// TakenOver reports whether another coordinator has taken the run over, so that the workers are that one's. It reads the run directory.
func (c *Coordinator) TakenOver() bool { return c.takenOver() != nil }

// letGo ends this coordinator at once, without a word to its workers, if the run was taken over: they go on under the next one.
func (c *Coordinator) letGo() {
	if taken := c.takenOver(); taken != nil && !c.letsGo {
		c.goesOn.Store(true)
		c.letsGo, c.finished, c.outcome, c.why = true, true, engine.RunBroken, taken.Error()
	}
}

// Dial is the way in for workers of this process.
func (c *Coordinator) Dial(ctx context.Context) (net.Conn, error) { return c.listener.dial(ctx) }

// RunID names the run; Secret gives access to it.
func (c *Coordinator) RunID() string { return c.runID }

// Secret gives access to the run.
func (c *Coordinator) Secret() string { return c.secret }

// Addr is where the coordinator listens.
func (c *Coordinator) Addr() net.Addr { return c.listener.Addr() }

// Stop ends the run early. It returns at once.
func (c *Coordinator) Stop(kind engine.StopKind, why string) {
	c.inbox.put(engine.Event{Kind: engine.EventStop, Stop: kind, Text: why})
}

// StepAside ends this coordinator for another to go on with the run, and has its workers keep what they run for so long. Nothing becomes
// of it where the run ends already. It returns at once; Run then returns engine.RunAside.
func (c *Coordinator) StepAside(within time.Duration, why string) {
	c.aside.Store(int64(within))
	c.inbox.put(engine.Event{Kind: engine.EventAside, Left: within, Text: why})
}

// Interrupt ends the run early because a signal said so: in order the first time, when it answers true, and at once when it
// is called again.
func (c *Coordinator) Interrupt(sig syscall.Signal) bool {
	why := interruptedBy(sig)
	if c.signal.CompareAndSwap(0, int32(sig)) {
		c.Stop(engine.StopInterrupt, why)
		return true
	}
	c.Stop(engine.StopNow, why)
	return false
}

// Snapshot fills into with the present state, without workers and failures, read between two events. It is an error when the
// run is over.
func (c *Coordinator) Snapshot(ctx context.Context, into *engine.Snapshot) error {
	done := make(chan struct{})
	c.inbox.call(func() {
		c.engine.Overview(into)
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.listener.ctx.Done():
		return errors.New("the run is over")
	}
}

// now is the time on the engine's clock.
func (c *Coordinator) now() time.Duration { return time.Since(c.began) }

// hostname is the name of this machine, as workers call it; "" if it has none.
func hostname() string {
	name, _ := os.Hostname()
	return name
}
