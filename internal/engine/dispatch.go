package engine

import (
	"slices"
	"time"

	"example.org/daisy/scheduler"
)

// A workerList is the workers of a task that wait for blocks, longest first.
type workerList struct{ first, last *worker }

func (q *workerList) add(w *worker) {
	w.queued = true
	w.before, w.behind = q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.behind = w
	}
	q.last = w
}

func (q *workerList) remove(w *worker) {
	if !w.queued {
		return
	}
	if w.before == nil {
		q.first = w.behind
	} else {
		w.before.behind = w.behind
	}
	if w.behind == nil {
		q.last = w.before
	} else {
		w.behind.before = w.before
	}
	w.queued, w.before, w.behind = false, nil, nil
}

// acquire notes that a worker wants blocks. It is answered when there are some.
func (e *Engine) acquire(w *worker, id uint64, n int32) {
	w.askedAt = e.now
	if w.quiet || w.any {
		w.quiet, e.demand.dirty = false, true // it can be moved again
		e.recount(w)
	}
	if w.told != notTold || w.leaving || w.killed || w.ending || e.phase != running {
		return // it has been told that there is nothing more
	}
	if len(w.requests) >= int(w.slots)+maxRequests {
		e.emit(Effect{Kind: EffectClose, Session: w.session, Text: "too many requests without an answer"})
		return
	}
	w.requests = append(w.requests, request{id, max(n, 1)})
	e.await(w)
}

// await queues a worker that has asked for something.
func (e *Engine) await(w *worker) {
	if len(w.requests) > 0 && !w.queued && !w.suspect {
		e.tasks[w.task].waiting.add(w)
	}
}

// dispatch answers those who wait, as far as there are blocks.
func (e *Engine) dispatch() {
	if e.committed < e.salvaged {
		return // blocks may need one whose end is known and not durable
	}
	e.reserves = e.awaitsOthers() || e.shedding > 0
	for i := range e.tasks {
		t := &e.tasks[i]
		t.dry = false
		for w := t.waiting.first; w != nil && t.ready > 0 && !t.dry; {
			next := w.behind
			if e.serve(i, w) && next == nil {
				next = t.waiting.first // it may be the same again, with its next request
			}
			w = next
		}
	}
}

// serve answers the oldest request of a worker, and reports whether it could.
func (e *Engine) serve(i int, w *worker) bool {
	t := &e.tasks[i]
	req := w.requests[0]
	n := fairShare(req.n, t.ready, t.joined+t.starting, w.slots, w.held, t.estimate)
	if w.until != 0 {
		if n = e.fitting(i, w, n); n == 0 {
			return false
		}
	}
	free := w.slots - w.started
	if w.client {
		free = max(free, 1)
	}
	if w.sub == nil && free > 0 {
		// Its slots count only while they run something, and each takes its share of the budget then.
		took := int32(0)
		for took < min(n, free) && e.fleet.Take(i, 1) {
			took++
		}
		if took == 0 {
			return false
		}
		if took < free {
			n = min(n, took)
		}
		free = took
	}
	got := len(e.out.handouts)
	highest := int64(-1)
	for range n {
		h, ok := e.next(i, scheduler.Holder{Worker: w.number, Node: w.nodeNo})
		if !ok {
			break
		}
		highest = max(highest, h.Block)
		e.out.handouts = append(e.out.handouts, h)
	}
	handouts := e.out.handouts[got:len(e.out.handouts):len(e.out.handouts)]
	if w.sub == nil {
		for range max(free-int32(len(handouts)), 0) {
			e.fleet.Give(i, 1)
		}
	}
	if len(handouts) == 0 {
		return false
	}
	t.ready -= int64(len(handouts))
	w.requests = slices.Delete(w.requests, 0, 1)
	t.waiting.remove(w)
	e.await(w)
	if w.client {
		w.widen(w.started+int32(len(handouts)), e.now)
	}

	told := highest < t.mark.durable && e.isKnown(w)
	if !told {
		e.raiseMark(i, highest)
		upTo := t.mark.record
		if !e.isKnown(w) {
			upTo = max(upTo, w.record, w.moved)
		}
		e.queue.push(pending{upTo: upTo, kind: pendingHandout, worker: w, seq: req.id, task: int32(i), rarely: &rarely{session: w.session, handouts: slices.Clone(handouts)}})
	}
	for _, h := range handouts {
		l := e.newLease(h, w)
		l.whole = w.held == 0 && w.seq == 0
		e.hold(l, told)
		if e.cfg.JournalHandouts {
			e.appendHandout(h, w)
		}
	}
	e.recount(w)
	if told {
		f := e.effect(EffectBlocks)
		f.Session, f.Request, f.Task, f.Handouts = w.session, req.id, int32(i), handouts
		if high := e.sched.HighWater(i); high+t.mark.step/2 >= t.mark.written {
			e.raiseMark(i, high) // ahead of time, so that nobody waits for it
		}
	}
	return true
}

// widen gives a worker as many slots as it needs: a client of daisy shows how many blocks it runs at once by asking beside those that it has.
func (w *worker) widen(slots int32, now time.Duration) {
	if slots > w.slots {
		w.row.served += time.Duration(w.row.slots) * (now - w.row.since)
		w.row.since, w.row.slots, w.slots = now, slots, slots
	}
}

// next takes a block from the scheduler: one that nobody can have got in an earlier epoch, while somebody is away who may have it.
func (e *Engine) next(i int, h scheduler.Holder) (scheduler.Handout, bool) {
	if !e.reserves {
		return e.sched.Acquire(i, h)
	}
	t := &e.tasks[i]
	got, ok := e.sched.AcquireAbove(i, t.reserved, h)
	t.dry = !ok
	return got, ok
}

// isKnown reports whether a resume would know that a worker may hold blocks, and wait for it before it hands them to others: before that
// it gets none. Where the launcher ends whoever is not known, as on one machine, or all die with this process, that need not be durable. Which task
// it serves has to be where max_workers counts it: a resume would have room for another one.
func (e *Engine) isKnown(w *worker) bool {
	return w.moved <= e.committed && (e.cfg.JournalHandouts || e.book == nil && w.sub != nil || w.record <= e.committed)
}

// handOver gives the worker the blocks that have waited for the mark, unless it is not there any more: then they go to others.
func (e *Engine) handOver(p *pending) {
	w := p.worker
	there := w.session != 0 && w.session == p.rarely.session && w.told == notTold && !w.leaving && !w.killed && !w.ending && e.phase == running
	kept := p.rarely.handouts[:0]
	for _, h := range p.rarely.handouts {
		l := e.leases.get(h.Lease)
		switch {
		case l == nil || l.worker != w:
			continue // taken away meanwhile
		case !there:
			e.endLease(l, scheduler.Ending{Outcome: scheduler.Recalled}, Use{}, nil)
			continue
		case l.state == parked:
			e.start(l)
		}
		l.told = true
		kept = append(kept, h)
	}
	if len(kept) > 0 {
		start := len(e.out.handouts)
		e.out.handouts = append(e.out.handouts, kept...)
		e.emit(Effect{Kind: EffectBlocks, Session: w.session, Request: p.seq, Task: p.task, Handouts: e.out.handouts[start:len(e.out.handouts):len(e.out.handouts)]})
	} else if there {
		w.requests = append(w.requests, request{p.seq, 1}) // nothing is left of its answer: it waits for another
		e.await(w)
	}
}

// recall asks for blocks that have not started, where others of their task have nothing to do.
func (e *Engine) recall() {
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.ready > 0 || t.ahead == 0 || t.waiting.first == nil {
			continue
		}
		slots := -t.recalls
		for w := t.waiting.first; w != nil; w = w.behind {
			slots += int64(w.slots - w.started)
		}
		for _, w := range e.live {
			if slots <= 0 {
				break
			}
			if int(w.task) == i && w.unstarted != nil && w.session != 0 && !w.queued {
				slots -= e.recallFrom(w, slots)
			}
		}
	}
}

// recallFrom asks a worker for up to n of its blocks, the newest first.
func (e *Engine) recallFrom(w *worker, n int64) (asked int64) {
	start := len(e.out.leases)
	for l := w.last; l != nil && l.state == ahead && asked < n; l = l.prev {
		if !l.recalled && l.told { // who has not got it yet would pass over the question
			e.countAhead(l, -1)
			l.recalled = true
			e.countAhead(l, 1)
			asked++
			e.out.leases = append(e.out.leases, l.handout.Lease)
		}
	}
	if asked > 0 {
		e.emit(Effect{Kind: EffectRecall, Session: w.session, Leases: e.out.leases[start:len(e.out.leases):len(e.out.leases)]})
	}
	return asked
}
