package engine

import (
	"math"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

const (
	never = time.Duration(math.MaxInt64)
	// answerWithin is how long a worker whose block was taken away by the engine's own timer has to give any sign of life. The
	// worker's own timer should have ended that block long before.
	answerWithin = 3 * time.Second
	// quietAfter is how long a worker may have a free slot without asking for a block before others are started instead.
	quietAfter = 10 * time.Second
	// scanStep is the grain of deadlines of workers, so that many of them make few looks.
	scanStep = 10 * time.Millisecond
)

// hear notes a sign of life. It makes a suspect well.
func (e *Engine) hear(w *worker) {
	w.heard = e.now
	if w.suspect && w.session != 0 {
		e.bookConnection(w, true)
	}
	if w.suspect || w.hinted || w.answer != never {
		w.suspect, w.hinted, w.answer = false, false, never
		e.recount(w)
		e.await(w)
	}
}

// lookAt has the workers looked at no later than at this time.
func (e *Engine) lookAt(at time.Duration) {
	if rest := at % scanStep; rest != 0 {
		at += scanStep - rest
	}
	e.scanAt = min(e.scanAt, at)
}

// scan looks at every worker that has not ended: who is silent, who idles, who does not go. There is no timer for each of them
// because signs of life are many and deadlines few: the time of the next scan is the earliest deadline that is left.
func (e *Engine) scan() {
	e.scanAt = never
	for i := len(e.live) - 1; i >= 0; i-- { // backwards: an end moves the last one into its place
		w := e.live[i]
		if at := e.inspect(w); at != never && !w.ended {
			e.lookAt(max(at, e.now+scanStep))
		}
	}
	e.demand.dirty = true
}

// inspect draws the conclusions about one worker, and returns when to look again.
func (e *Engine) inspect(w *worker) time.Duration {
	j := e.cfg.Job
	next := never
	// due reports whether a time has come, else has the worker looked at then.
	due := func(at time.Duration) bool {
		if e.now >= at {
			return true
		}
		next = min(next, at)
		return false
	}
	switch {
	case w.ending:
		if due(w.endBy) {
			e.endWorker(w, e.endWord(w))
		}
		return next
	case w.killed && w.held == 0 && w.launched(), w.sub != nil && !w.sub.sent: // whoever has killed it waits for its end
		return never
	case w.nonce == 0:
		if w.hintedAt != 0 && due(w.hintedAt+j.HintAfter) {
			e.notice("worker %s has not connected, and nothing is known of it for %s: it is not waited for any more", w.id, units.Duration(j.HintAfter))
			e.kill(w)
			return never
		}
		if w.told == notTold && w.hasBegun && due(w.bornAt+e.connectWithin()) {
			e.notice("worker %s was started and has not connected within %s: it is killed; see its log", w.id, units.Duration(e.connectWithin()))
			w.tardy = true
			e.kill(w)
		}
		return next
	}
	if w.answer != never && due(w.answer) {
		e.notice("worker %s does not answer: it is killed", w.id)
		w.answer = never
		if e.kill(w); w.ended {
			return never
		}
	}
	if w.session == 0 && due(w.detached+j.ReconnectGrace) || w.session != 0 && due(w.heard+j.HeartbeatTimeout) {
		if !w.suspect {
			w.suspect = true
			e.bookConnection(w, false)        // one that nothing comes over says nothing
			e.tasks[w.task].waiting.remove(w) // what it has asked for waits until it is heard again
			e.recount(w)
		}
		told := time.Duration(0)
		if w.away {
			told = e.patient // the coordinator before has told it to wait for this one
		}
		if w.hinted && due(w.heard+told+j.HintAfter) || due(w.heard+told+e.AbandonAfter()) {
			e.giveUp(w)
			return next
		}
	}
	// Who is away may run a block of which it has not told.
	if (w.told != notTold || w.leaving) && w.held == 0 && !w.away && due(w.toldAt+e.goneWithin(w)) {
		e.kill(w)
		return next
	}
	if w.told != notTold || w.leaving || w.suspect || w.killed {
		return next
	}
	if class := e.tasks[w.task].class; !e.proven[class] && due(w.joinedAt+provenAfter) {
		e.proven[class] = true
	}
	if len(w.requests) == 0 && w.started < w.slots {
		if due(w.askedAt+quietAfter) && !w.quiet {
			w.quiet = true
			e.recount(w)
		}
		if w.sub != nil && w.held == 0 && due(w.askedAt+max(e.AbandonAfter(), 2*quietAfter)) {
			w.tardy = !w.returned
			e.notice("worker %s is connected and asks for nothing: it is killed", w.id)
			e.kill(w)
		}
	}
	if w.sub != nil && w.held == 0 && e.tasks[w.task].ready == 0 {
		due(w.since + e.idleTimeout()) // the fleet decides; here only its time
	}
	return next
}

// AbandonAfter is how long a worker may be silent, by the job or else by the launcher. It never changes.
func (e *Engine) AbandonAfter() time.Duration {
	switch {
	case e.cfg.Job.AbandonAfter > 0:
		return e.cfg.Job.AbandonAfter
	case e.cfg.Launcher.AbandonAfter > 0:
		return e.cfg.Launcher.AbandonAfter
	default:
		return defaultAbandonAfter
	}
}

func (e *Engine) idleTimeout() time.Duration {
	if e.cfg.Job.IdleTimeout >= 0 {
		return e.cfg.Job.IdleTimeout
	}
	return e.cfg.Launcher.IdleTimeout
}

// giveUp stops waiting for a silent worker: its blocks go out again. Its silence is no end of a process, so that no block is
// blamed for it. A launched one is killed, and stays in the books until its launcher has seen it end.
func (e *Engine) giveUp(w *worker) {
	e.notice("worker %s on %s has been silent for %s: its blocks go out again", w.id, orUnknown(w.node), units.Duration((e.now - w.heard).Round(time.Second)))
	e.back(w)
	for l := w.first; l != nil && w.launched() && e.cfg.Launcher.Local; l = l.next {
		l.taken = l.state == started // it is about to be killed, and until then what runs may write
	}
	e.reclaim(w, scheduler.Ending{Outcome: scheduler.Lost, Blameless: true})
	if !w.launched() {
		e.endWorker(w, "lost")
		return
	}
	e.kill(w)
}

func orUnknown(node string) string {
	if node == "" {
		return "an unknown node"
	}
	return node
}

// share is what a worker adds to the sums of its task.
type share struct {
	task                              int32
	covers, joined, starting, leaving int64
	idle, starters                    int64
}

// recount brings the sums of a worker's task up to date. It is called whenever the worker has changed.
func (e *Engine) recount(w *worker) {
	var s share
	s.task = w.task
	well := !w.suspect && w.answer == never && !w.killed && !w.ending && !w.leaving && w.told == notTold
	slots := int64(w.slots)
	switch {
	case w.ended, w.spare:
	case w.nonce == 0:
		s.starting = slots
		if well && !w.yields {
			s.covers, s.starters = slots, 1
		}
	default:
		s.joined = slots
		// One that nobody launched needs room before it can be served: it covers nothing.
		if well && !w.quiet && w.sub != nil {
			s.covers = slots - int64(w.started)
		}
		if well && w.held == 0 && w.session != 0 {
			s.idle = 1
		}
	}
	if !w.ended && !w.spare && w.launched() && (w.yields || w.killed || w.ending || w.leaving || w.told != notTold) {
		s.leaving = slots
	}
	if s == w.share {
		return
	}
	// What leases change shows in the need itself.
	if s.leaving != w.share.leaving || s.joined != w.share.joined || s.starting != w.share.starting {
		e.demand.dirty = true
	}
	if s.idle > w.share.idle {
		w.since = e.now
		// Another of its task may have begun at the same moment, so that their number does not show it.
		e.demand.dirty = e.demand.dirty || e.demand.anyStuck && e.tasks[w.task].ready == 0
		if w.sub != nil {
			e.lookAt(e.now + e.idleTimeout())
		}
	}
	e.tasks[w.share.task].add(w.share, -1)
	e.tasks[s.task].add(s, 1)
	w.share = s
}

func (t *task) add(s share, sign int64) {
	t.covers += sign * s.covers
	t.joined += sign * s.joined
	t.starting += sign * s.starting
	t.leaving += sign * s.leaving
	t.idle += sign * s.idle
	t.starters += sign * s.starters
}
