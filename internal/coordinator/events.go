package coordinator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

const (
	// eventsKept is how many events a reader may lag behind, or find when it comes.
	eventsKept = 1 << 14
	// eventsAtOnce is how many a reader takes at a time.
	eventsAtOnce = 256
	// mostReaders is how many may look on at once.
	mostReaders = 64
	// lingers is for how long ends of blocks that ended well are kept for a reader that may come back.
	lingers = time.Minute
	// longestNotice is how many bytes of a line for people are kept.
	longestNotice = 1000
)

// A happening is an event as it is kept, which costs its maker little. kind is one of the words of api.Event.
type happening struct {
	at      time.Time
	kind    string
	task    int32 // -1 = of none
	attempt int32
	block   int64
	outcome string
	state   string
	worker  string
	node    string
	message string
	// quiet: only for those who want to know of everything.
	quiet bool
}

// eventLog keeps the latest events for those who look on. Whoever makes an event never waits for a reader: each reads at its own pace,
// and who is overtaken is cut off. Ends of blocks that ended well are kept only while somebody wants them: else they cost one look at a
// flag.
type eventLog struct {
	everything atomic.Bool

	mu      sync.Mutex
	ring    []happening
	next    uint64 // the number of the next event; the first is 1
	wake    chan struct{}
	waiting bool // somebody waits for wake
	over    bool // nothing comes any more
	readers int
	eager   int           // of them, those who want everything
	visits  int           // how often one of those has come
	gone    chan struct{} // closed when the last reader has gone, once over
	parted  bool          // it is closed

	// What people do makes the engine say a line: of that kind, and of that node, it is then. Of the owner of the engine.
	kind, node string
}

func newEventLog() *eventLog {
	return &eventLog{next: 1, wake: make(chan struct{}), gone: make(chan struct{}), kind: api.EventNotice}
}

// add keeps an event and wakes those who wait.
func (l *eventLog) add(h happening) {
	h.at = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(h)
}

func (l *eventLog) put(h happening) {
	if l.over {
		return
	}
	if len(l.ring) < eventsKept {
		l.ring = append(l.ring, h)
	} else {
		*l.at(l.next) = h
	}
	l.next++
	if l.waiting {
		l.waiting = false
		close(l.wake)
		l.wake = make(chan struct{})
	}
}

// notice keeps a line for people.
func (l *eventLog) notice(text string) {
	l.add(happening{kind: l.kind, task: -1, node: l.node, message: text[:min(len(text), longestNotice)]})
}

// during has what f makes the engine say be of a kind.
func (l *eventLog) during(kind, node string, f func()) {
	l.kind, l.node = kind, node
	defer func() { l.kind, l.node = api.EventNotice, "" }()
	f()
}

// attempt keeps the end of an attempt, if anybody may want it.
func (l *eventLog) attempt(a *engine.Attempt) {
	well := a.Outcome == scheduler.Success || a.Outcome == scheduler.Skipped
	if well && !l.everything.Load() || a.Outcome == scheduler.Recalled || a.Verdict == scheduler.Stale {
		return
	}
	h := happening{kind: api.EventBlock, task: a.Handout.Task, block: a.Handout.Block, attempt: a.Handout.Attempt, outcome: a.Outcome.String(), state: stateAfter(a.Verdict),
		worker: a.Worker, node: a.Node, quiet: well}
	if a.Failure != nil {
		h.message = a.Failure.Message[:min(len(a.Failure.Message), longestMishap)]
	}
	l.add(h)
}

// stateAfter is what a verdict makes of a block.
func stateAfter(v scheduler.Verdict) string {
	switch v {
	case scheduler.Succeeded:
		return scheduler.BlockSuccess.String()
	case scheduler.WasSkipped:
		return scheduler.BlockSkipped.String()
	case scheduler.Retry:
		return scheduler.BlockReady.String()
	case scheduler.Held:
		return scheduler.BlockHeld.String()
	default:
		return scheduler.BlockFailed.String()
	}
}

// worker keeps that a worker has come or gone.
func (l *eventLog) worker(w *engine.WorkerChange) {
	kind := api.EventWorkerJoined
	if w.End != "" {
		kind = api.EventWorkerEnded
	}
	l.add(happening{kind: kind, task: w.Task, block: -1, worker: w.ID, node: w.Node, outcome: w.End})
}

// at is the place of an event that is kept.
func (l *eventLog) at(n uint64) *happening { return &l.ring[(n-1)%eventsKept] }

// oldest is the number of the earliest event that is kept, or of the next one.
func (l *eventLog) oldest() uint64 { return l.next - uint64(len(l.ring)) }

// A reader is somebody who looks on.
type reader struct {
	l     *eventLog
	eager bool
	next  uint64 // what it has not read
}

// open lets a reader in, unless there are too many: behind the event after, or at the oldest. missed says how many events it cannot
// be told of any more.
func (l *eventLog) open(eager bool, after uint64, resumes bool) (r *reader, missed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers == mostReaders {
		return nil, 0, false
	}
	l.readers++
	if eager {
		l.eager++
		l.visits++
		l.everything.Store(true)
	}
	r = &reader{l, eager, l.oldest()}
	if resumes {
		wants := min(after, l.next-1) + 1
		missed = max(r.next, wants) - wants
		r.next = max(r.next, wants)
	}
	return r, missed, true
}

func (r *reader) close() {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	l.part()
	if !r.eager {
		return
	}
	if l.eager--; l.eager == 0 {
		visit := l.visits
		time.AfterFunc(lingers, func() { l.lapse(visit) })
	}
}

// lapse stops keeping what nobody has wanted since the last visit, and says so to whoever comes back.
func (l *eventLog) lapse(visit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visits != visit {
		return // somebody has come
	}
	l.everything.Store(false)
	l.put(happening{at: time.Now(), kind: api.EventMissed, task: -1, quiet: true,
		message: "nobody looked on: ends of blocks that ended well are not told from here on, until somebody did again"})
}

// read takes the next events, with the number of the first. When there are none, wake is closed as soon as there may be; it is nil at
// the end. lost says how many have been overwritten before they were read.
func (r *reader) read(into []happening) (first uint64, got []happening, wake <-chan struct{}, lost uint64) {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := l.oldest(); r.next < oldest {
		return r.next, nil, nil, oldest - r.next
	}
	first = r.next
	for ; r.next < l.next && len(into) < eventsAtOnce; r.next++ {
		into = append(into, *l.at(r.next))
	}
	if len(into) > 0 || l.over {
		return first, into, nil, 0
	}
	l.waiting = true
	return first, nil, l.wake, 0
}

// end waits until all have read the last event, for so long at most.
func (l *eventLog) end(patience time.Duration) {
	l.mu.Lock()
	l.over = true
	l.part()
	close(l.wake)
	l.wake, l.waiting = make(chan struct{}), false
	l.mu.Unlock()
	select {
	case <-l.gone:
	case <-time.After(patience):
	}
}

// part notes that nobody is left who could read.
func (l *eventLog) part() {
	if l.over && l.readers == 0 && !l.parted {
		l.parted = true
		close(l.gone)
	}
}

// eventID names an event.
func eventID(epoch, n uint64) string { return fmt.Sprintf("%d-%d", epoch, n) }

// event is a happening as readers see it. tasks are those of the pipeline.
func (c *Coordinator) event(tasks []scheduler.Task, n uint64, h *happening) *api.Event {
	e := &api.Event{Version: api.ControlVersion, ID: eventID(c.epoch, n), Time: h.at.UTC(), Event: h.kind, Outcome: value(h.outcome), State: value(h.state),
		Worker: value(h.worker), Node: value(h.node), Message: value(h.message)}
	if h.task < 0 {
		return e
	}
	e.Task = &c.specs[h.task].ID
	if h.kind == api.EventBlock {
		grid := tasks[h.task].Grid
		if id, fits := grid.ID(h.block); fits {
			e.Block = &id
		}
		e.Index, e.Attempt = grid.Index(h.block).Slice(), value(int64(h.attempt))
	}
	return e
}
