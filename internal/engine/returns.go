package engine

import (
	"fmt"

	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// release takes in the end of an attempt that a worker reports.
func (e *Engine) release(w *worker, ev *Event) {
	if ev.Seq <= w.seq {
		// A copy: it was taken in before. If it is durable, the acknowledgement was lost on the way.
		if ev.Seq <= w.durable {
			e.due(w)
		}
		return
	}
	w.seq = ev.Seq
	l := e.leases.get(ev.Lease)
	if ev.Epoch != e.cfg.Epoch || l == nil || l.worker != w || l.state == bound || !l.told {
		if ev.Epoch == e.cfg.Epoch {
			delete(w.voided, ev.Lease)
		}
		if ev.Outcome == scheduler.Success || ev.Outcome == scheduler.Skipped {
			e.emit(Effect{Kind: EffectRefused, Session: w.session, Lease: ev.Lease, Text: "already reclaimed"})
		}
		e.acknowledgeAt(w, ev.Seq)
		return
	}
	failure := ev.Failure
	end := scheduler.Ending{Outcome: ev.Outcome}
	switch ev.Outcome {
	case scheduler.Success, scheduler.Skipped:
		e.bind(l, ev)
		return
	case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory, scheduler.Returned, scheduler.Recalled:
	case scheduler.Lost: // a Go function that panicked: the process lives, and what the block would have done to it is known
	default:
		end.Outcome = scheduler.Failed
		failure = &Failure{Message: fmt.Sprintf("its worker reported an unknown outcome %d", ev.Outcome)}
	}
	if end.Outcome == scheduler.Failed {
		e.validReturn(w)
	}
	e.endLease(l, end, ev.Use, failure)
	e.acknowledgeAt(w, ev.Seq)
}

// validReturn notes that a worker works: the brake of its task lets go.
func (e *Engine) validReturn(w *worker) {
	w.returned = true
	e.good++
	t := &e.tasks[w.task]
	if t.brake.Ends() > 0 || !e.proven[t.class] {
		e.proven[t.class], e.demand.dirty = true, true
	}
	t.brake.Good(w.node)
}

// bind ties a lease to its good result. From here on the block is the result's: it counts once the record is durable.
func (e *Engine) bind(l *lease, ev *Event) {
	w, t := l.worker, &e.tasks[l.handout.Task]
	l.held = e.drop(l)
	l.state, l.outcome, l.use, l.seq, l.at = bound, ev.Outcome, ev.Use, ev.Seq, e.last
	e.results++
	t.results++
	if ev.Outcome == scheduler.Success {
		e.validReturn(w)
		nanos := ev.Use.WallNanos
		if nanos <= 0 {
			nanos = int64(l.held)
		}
		t.estimate.add(nanos)
		if e.book != nil {
			t.measure(nanos)
		}
	} else {
		e.good++ // no valid return, but its worker was not started for nothing
	}
	e.appendEnd(l, scheduler.Ending{Outcome: l.outcome}, l.use, false)
	e.queue.push(pending{upTo: e.appended, kind: pendingResult, lease: l})
}

// settleResult counts a good result, now that it is durable.
func (e *Engine) settleResult(l *lease) {
	w, t := l.worker, &e.tasks[l.handout.Task]
	e.results--
	t.results--
	verdict := e.sched.Release(l.handout.Lease, scheduler.Ending{Outcome: l.outcome})
	switch verdict {
	case scheduler.Succeeded:
		l.row.processed++
	case scheduler.WasSkipped:
		t.checked++
	}
	if verdict != scheduler.Stale {
		if !e.cfg.NoTracking {
			f := e.effect(EffectTrack)
			f.Task, f.Block, f.Done = l.handout.Task, l.handout.Block, true
		}
		e.attempt(l, l.outcome, verdict, nil)
	}
	if l.seq > w.durable {
		w.durable = l.seq
		e.due(w)
	}
	e.freeLease(l)
}

// endLease ends a lease in any way but a good result. It counts at once, so that a retry can go out; only what others are told
// of it waits for the disk.
func (e *Engine) endLease(l *lease, end scheduler.Ending, use Use, f *Failure) {
	t := &e.tasks[l.handout.Task]
	if e.book != nil && l.whole {
		end, f = e.cut(l, end, f)
	}
	l.held = e.drop(l)
	l.use, l.at = use, e.last
	blamed := false
	switch end.Outcome {
	case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory:
		blamed = true
	case scheduler.Lost:
		blamed = !end.Blameless
	}
	end.Hold = (blamed && t.spec.RetryBackoff > 0 || l.taken) && e.phase == running
	verdict := e.sched.Release(l.handout.Lease, end)
	if verdict == scheduler.Stale || end.Outcome == scheduler.Recalled {
		e.freeLease(l)
		return
	}
	e.appendEnd(l, end, use, verdict == scheduler.FailedForGood)
	e.wantCommit = true
	switch end.Outcome {
	case scheduler.Failed, scheduler.TimedOut, scheduler.OutOfMemory:
		e.queue.push(pending{upTo: e.appended, kind: pendingFailure, task: l.handout.Task, block: l.handout.Block})
	}
	if end.Outcome == scheduler.Failed {
		l.row.processed++
		l.row.failed++
	}
	if f == nil {
		f = e.explain(l, end)
	}
	e.attempt(l, end.Outcome, verdict, f)
	switch verdict {
	case scheduler.Held:
		e.holdRetry(l, t.spec.RetryBackoff)
	case scheduler.FailedForGood:
		e.failedForGood(l, end.Outcome, f)
	}
	if blamed && e.cfg.StopAtFirstFailure {
		e.stopAtFailure(l, f)
	}
	e.freeLease(l)
}

// explain words an end for which nobody gave a reason.
func (e *Engine) explain(l *lease, end scheduler.Ending) *Failure {
	w := l.worker
	switch end.Outcome {
	case scheduler.TimedOut:
		return &Failure{Message: "timed out after " + units.Duration(e.tasks[l.handout.Task].spec.Timeout)}
	case scheduler.OutOfMemory:
		return &Failure{Message: "out of memory"}
	case scheduler.Lost:
		if end.Blameless {
			return &Failure{Message: fmt.Sprintf("worker %s was lost", w.id)}
		}
		return &Failure{Message: fmt.Sprintf("its worker %s ended: %s", w.id, w.endWords())}
	default:
		return nil
	}
}

// failedForGood notes a block that will not be tried again.
func (e *Engine) failedForGood(l *lease, outcome scheduler.Outcome, f *Failure) {
	t := &e.tasks[l.handout.Task]
	t.failed++
	if len(t.failures) < keptFailures {
		b := FailedBlock{Task: l.handout.Task, Block: l.handout.Block, Attempts: l.handout.Attempt, Outcome: outcome, Worker: l.worker.id, Node: l.worker.node}
		if f != nil {
			b.Message, b.Tail = f.Message, f.Tail
		}
		if outcome == scheduler.Lost {
			b.Message = fmt.Sprintf("killed its worker %s; %s", units.Plural(int64(t.maxLost(e.cfg.StopAtFirstFailure)), "time"), b.Message)
		}
		t.failures = append(t.failures, b)
		e.append(Record{Kind: RecordFailed, Task: b.Task, Block: b.Block, Attempt: b.Attempts, Worker: l.worker.number, Outcome: uint8(outcome), Text: b.Message, Tail: b.Tail})
	}
	failed := int64(0)
	for i := range e.tasks {
		failed += e.tasks[i].failed
	}
	if m := e.cfg.Job.MaxFailures; m > 0 && failed >= m {
		much := "as many as"
		if failed > m { // it was resumed
			much = "more than"
		}
		e.endEarly(StopCancel, RunStopped, fmt.Sprintf("%s failed, %s max_failures allows", units.Plural(failed, "block"), much))
	}
}

// maxLost is how many lost attempts fail a block.
func (t *task) maxLost(once bool) int {
	switch {
	case once:
		return 1
	case t.spec.MaxLost > 0:
		return t.spec.MaxLost
	default:
		return scheduler.DefaultMaxLost
	}
}

// attempt tells the statistics of an end.
func (e *Engine) attempt(l *lease, outcome scheduler.Outcome, verdict scheduler.Verdict, f *Failure) {
	l.row.peak = max(l.row.peak, l.use.PeakRSSBytes)
	a := grow(&e.out.attempts)
	a.Handout, a.Outcome, a.Verdict = l.handout, outcome, verdict
	a.Worker, a.Node, a.At, a.Held, a.Use, a.Failure = l.worker.id, l.worker.node, l.at, l.held, l.use, f
	ended := e.effect(EffectEnded)
	ended.Task, ended.Attempt = l.handout.Task, a
}

// due has a worker told how far its releases are durable, at the end of this Apply.
func (e *Engine) due(w *worker) {
	if !w.ackDue {
		w.ackDue = true
		e.acks = append(e.acks, w)
	}
}

// acknowledgeAt has a release acknowledged once all records so far are durable.
func (e *Engine) acknowledgeAt(w *worker, seq uint64) {
	e.queue.push(pending{upTo: e.appended, kind: pendingAcknowledge, worker: w, seq: seq})
	e.wantCommit = e.wantCommit || e.committed < e.appended
}

// acknowledge tells the workers.
func (e *Engine) acknowledge() {
	for i, w := range e.acks {
		w.ackDue = false
		if w.session != 0 {
			f := e.effect(EffectAcknowledge)
			f.Session, f.Seq = w.session, w.durable
		}
		e.acks[i] = nil
	}
	e.acks = e.acks[:0]
}
