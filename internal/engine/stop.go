package engine

import (
	"fmt"
	"slices"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// phase is where the run is. It only goes on, never back.
type phase uint8

const (
	running     phase = iota
	stoppingRun       // ended early: no new blocks; those that run may return
	leavingRun        // every block has ended: workers leave
	closing           // they have: the last record is on its way to the disk
	finished
)

const (
	// killedWithin bounds the wait for the end of workers that were killed.
	killedWithin = 5 * time.Second
	// leaveWithin is how long workers have to leave whose blocks had their grace already.
	leaveWithin = 2 * time.Second
)

// stopping is how the run ends.
type stopping struct {
	early  bool
	kind   StopKind
	state  RunState
	at     time.Duration // when patience ends: with the blocks that run, later with the workers; never = it does not
	hard   bool          // no patience at all
	broken bool          // nothing will become durable any more
	killed bool          // the workers were killed
	graced bool          // blocks had their grace
	aside  bool          // the run goes on under another coordinator
}

// stopRun takes in the wish to end early, or more urgently.
func (e *Engine) stopRun(kind StopKind, why string) {
	state := RunStopped
	if kind == StopInterrupt {
		state = RunInterrupted
	}
	switch {
	case e.phase == running:
		e.endEarly(kind, state, why)
	case e.phase == stoppingRun && kind > e.stop.kind:
		e.stop.kind = kind
		if kind == StopInterrupt && !e.stop.broken {
			e.stop.state = state
		}
		e.hurry(kind)
	case e.phase == leavingRun && kind == StopNow:
		e.stop.hard = true
		e.killAll()
	}
}

// endEarly begins to end the run before its blocks have ended.
func (e *Engine) endEarly(kind StopKind, state RunState, why string) {
	if e.phase != running {
		return
	}
	e.phase, e.why = stoppingRun, why
	e.stop = stopping{early: true, kind: kind, state: state, at: never}
	e.closeBook()
	e.hurry(kind)
}

// hurry tells all workers.
func (e *Engine) hurry(kind StopKind) {
	what := toStop
	switch kind {
	case StopDrain:
		what = toDrain
	case StopNow:
		e.stop.hard = true
	default:
		if e.stop.at == never {
			e.stop.at, e.stop.graced = e.now+e.cfg.Job.Grace, true
		}
	}
	for _, w := range e.live {
		e.tell(w, what, e.why)
		if w.session == 0 && w.nonce == 0 {
			e.cancel(w)
		}
	}
}

// breakRun ends a run whose infrastructure has failed: nothing will be durable any more.
func (e *Engine) breakRun(why string) {
	if e.stop.broken {
		return // it ends already
	}
	if e.phase >= closing {
		e.stop.broken = true
		if e.phase == closing {
			e.stop.state, e.why = RunBroken, why
			e.finish()
		}
		return
	}
	if e.phase == running {
		e.endEarly(StopNow, RunBroken, why)
	}
	e.stop.early, e.stop.hard, e.stop.broken, e.stop.state, e.why = true, true, true, RunBroken, why
	if e.phase == leavingRun {
		e.killAll()
	}
}

// stopAtFailure ends a serial run with its first failure.
func (e *Engine) stopAtFailure(l *lease, f *Failure) {
	spec := e.tasks[l.handout.Task].spec
	block := fmt.Sprintf("block at %v", spec.Grid.Index(l.handout.Block))
	if id, fits := spec.Grid.ID(l.handout.Block); fits {
		block = fmt.Sprintf("block %d at %v", id, spec.Grid.Index(l.handout.Block))
	}
	why := fmt.Sprintf("%s of task %q failed", block, spec.ID)
	if f != nil && f.Message != "" {
		why += ": " + f.Message
	}
	e.endEarly(StopCancel, RunFailed, why)
}

// progress takes the run a phase further if it is time, and reports whether it did.
func (e *Engine) progress() bool {
	patience := !e.stop.hard && e.now < e.stop.at
	switch e.phase {
	case running:
		if e.sched.Ended() && e.results == 0 {
			e.why = "every block has ended"
			e.sayLeave()
			return true
		}
	case stoppingRun:
		if (e.inHands > 0 || len(e.away) > 0) && patience || e.results > 0 && !e.stop.broken {
			return false // blocks may return, those of workers that are away too; results become durable in a moment
		}
		e.abandonAll()
		e.sayLeave()
		return true
	case leavingRun:
		switch {
		case len(e.live) == 0:
			e.close()
			return true
		case patience:
		case !e.stop.killed:
			e.killAll()
			return true
		case e.now >= e.stop.at:
			if e.book != nil {
				e.notice("%s may still be in the queue or run: they were cancelled, and their end was not seen", units.Plural(int64(len(e.live)), "worker"))
			}
			for len(e.live) > 0 {
				w := e.live[len(e.live)-1]
				if e.book == nil {
					e.notice("worker %s was killed and its end was not seen", w.id)
				}
				w.unseen = e.book != nil
				e.endWorker(w, "killed_by_us")
			}
			return true
		}
	}
	return false
}

// abandonAll makes everything that has not ended abandoned, in one step.
func (e *Engine) abandonAll() {
	for _, w := range e.live {
		e.void(w)
		if w.away {
			w.isVoid(0) // what it has, if anything, it has had since an earlier epoch
		}
	}
	for i := range e.tasks {
		e.sched.Abandon(i)
	}
	e.retries = nil
	e.look()
}

// void forgets all that a worker holds, because its blocks were abandoned.
func (e *Engine) void(w *worker) {
	for l := w.last; l != nil; l = w.last {
		if l.told {
			w.isVoid(l.handout.Lease)
		}
		e.drop(l)
		e.freeLease(l)
	}
}

// isVoid notes that a worker may run a block that was abandoned; 0 is no lease of this epoch.
func (w *worker) isVoid(l scheduler.Lease) {
	if w.voided == nil {
		w.voided = map[scheduler.Lease]bool{}
	}
	w.voided[l] = true
}

// sayLeave has all workers leave, since there is nothing left to do.
func (e *Engine) sayLeave() {
	e.phase = leavingRun
	e.closeBook()
	e.stop.at = e.now + e.cfg.Job.Grace
	if e.stop.graced {
		e.stop.at = e.now + min(leaveWithin, e.cfg.Job.Grace)
	}
	for i := len(e.live) - 1; i >= 0; i-- {
		w := e.live[i]
		e.tell(w, toLeave, e.why)
		switch {
		case w.session != 0:
		case !w.launched(), e.book != nil && w.nonce != 0 && w.leaving && w.leave != LeaveSignal: // a signal may mean that it is put back into the queue
			e.endWorker(w, e.leaveWord(w))
		default:
			e.cancel(w)
		}
	}
	if e.stop.hard {
		e.killAll()
	}
}

// killAll ends the workers that are left.
func (e *Engine) killAll() {
	within := killedWithin
	if e.book != nil && !e.stop.hard && e.anyBound() {
		within = queueKilledWithin
	}
	e.stop.killed, e.stop.hard = true, false
	e.stop.at = e.now + within
	for _, w := range slices.Clone(e.live) { // whom nobody can end has ended then
		e.kill(w)
	}
}

// anyBound reports whether the batch system holds a worker that is left, for all that is known: whatever comes of a submission that has no
// answer yet is ended when the launcher is closed.
func (e *Engine) anyBound() bool {
	return slices.ContainsFunc(e.live, func(w *worker) bool { return w.sub != nil && e.book.Bound(w.sub.tag) != "" })
}

// close writes the last records. The run is over when they are durable.
func (e *Engine) close() {
	e.phase = closing
	e.stop.state = e.outcome()
	e.append(Record{Kind: RecordRunEnd, State: uint8(e.stop.state), Text: e.reason()})
	e.wantCommit = true
	e.queue.push(pending{upTo: e.appended, kind: pendingEnd})
	if e.stop.broken {
		e.finish()
	}
}

func (e *Engine) finish() {
	if e.phase == finished {
		return
	}
	e.phase, e.state = finished, e.stop.state
	e.emit(Effect{Kind: EffectFinished, State: e.state, Text: e.reason(), Wrong: e.wrong})
}

// outcome is how the run ended, by its counts first.
func (e *Engine) outcome() RunState {
	well, joined := true, e.joins > 0
	braked := false
	for i := range e.tasks {
		tally := e.sched.Tally(i)
		well = well && tally.Success+tally.Skipped == tally.Total
		braked = braked || e.tasks[i].tripped
	}
	switch {
	case e.stop.broken:
		return RunBroken
	case well:
		return RunDone
	case e.stop.early:
		return e.stop.state
	case braked && !joined:
		return RunBroken
	default:
		return RunFailed
	}
}

// reason is why the run ended, where its counts do not say.
func (e *Engine) reason() string {
	if e.stop.early || e.stop.broken {
		return e.why
	}
	for i := range e.tasks {
		if e.tasks[i].tripped {
			return fmt.Sprintf("task %q was abandoned: %s", e.tasks[i].spec.ID, e.tasks[i].brake.Message())
		}
		if why := e.tasks[i].hopeless; why != "" {
			return fmt.Sprintf("task %q got no more workers: %s", e.tasks[i].spec.ID, why)
		}
	}
	return ""
}

// checkBrakes gives up tasks whose workers keep ending, once nobody works on them any more.
func (e *Engine) checkBrakes() {
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.ended || !t.brake.Tripped() {
			t.tripped = t.tripped && t.ended
			continue
		}
		if !t.tripped {
			t.tripped = true
			e.notice("task %q: no more workers are started for it: %s", t.spec.ID, t.brake.Message())
		}
		if t.results == 0 && !e.workedOn(i) {
			e.abandon(i)
		}
	}
}

// workedOn reports whether a worker of a task holds a block, or will ask for the next one. One that has lost its connection may
// be back within reconnect_grace.
func (e *Engine) workedOn(i int) bool {
	for _, w := range e.live {
		if int(w.task) != i || w.nonce == 0 || w.suspect || w.killed || w.ending {
			continue
		}
		if w.held > 0 || !w.quiet && !w.leaving && w.told == notTold {
			return true
		}
	}
	return false
}

// abandon gives a task up. What depends on it is orphaned by the scheduler's bulk work.
func (e *Engine) abandon(i int) {
	for _, w := range e.live {
		if int(w.task) == i {
			e.void(w)
		}
	}
	e.sched.Abandon(i)
	if e.sched.State(i) == scheduler.Abandoned {
		e.notice("task %q is abandoned", e.tasks[i].spec.ID)
	}
	e.more = true
}
