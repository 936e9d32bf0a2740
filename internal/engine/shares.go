package engine

import (
	"fmt"
	"math"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/internal/units"
)

// An array of a batch system may have more workers than the share of the budget that it has: the rest waits behind its throttle, and grows
// old in the queue. What counts against the budget are its workers that run, and of those that wait as many as the throttle lets
// start; the others are spare. A share grows by a higher throttle, after the budget was taken, and shrinks by a lower one, whose part is
// free only once the batch system shows it.

// begun reports whether a worker was seen to start.
func (w *worker) begun() bool { return w.nonce != 0 || w.hasBegun }

// reshare works out anew which workers of a submission with a throttle count: those that have started, and the first of the others, which
// the system starts first. Those that count only until a lower throttle is in force give way.
func (e *Engine) reshare(s *submission) {
	if s == nil || s.throttle == 0 {
		return
	}
	counted := int64(0)
	for _, w := range s.workers {
		if w != nil && !w.ended && w.begun() {
			e.share(w, false, false)
			counted++
		}
	}
	for _, w := range s.workers {
		if w != nil && !w.ended && !w.begun() {
			e.share(w, counted >= max(s.throttle, s.inForce), counted >= s.throttle)
			counted++
		}
	}
}

func (e *Engine) share(w *worker, spare, yields bool) {
	switch {
	case spare && !w.spare:
		e.fleet.Give(int(w.task), int64(w.slots))
		e.demand.dirty = true
	case !spare && w.spare:
		// Perhaps more than there is, while the end of one whose place it took is not known yet: nobody has to leave for that.
		e.fleet.Inherit(int(w.task), int64(w.slots))
	}
	if spare != w.spare || yields != w.yields {
		w.spare, w.yields = spare, yields
		e.recount(w)
	}
}

// letThrough gives spare workers of a task the share that was taken for new ones, and returns for how many of them.
func (e *Engine) letThrough(task int, slots, count int64) int64 {
	through := int64(0)
	for _, w := range e.live {
		if through == count {
			break
		}
		s := w.sub
		if !w.spare || w.goes() || !s.sent || int(w.task) != task || int64(w.slots) != slots || s.throttle < s.inForce {
			continue
		}
		n := min(s.waiting(), count-through)
		through += n
		s.throttle += n
		e.fleet.Give(task, slots*n)
		e.reshare(s)
		e.append(Record{Kind: RecordShare, ID: s.tag, Count: s.throttle})
		e.wantCommit = true
		e.queue.push(pending{upTo: e.appended, kind: pendingShare, rarely: &rarely{sub: s}})
	}
	return through
}

// waiting is how many workers of a submission are spare.
func (s *submission) waiting() (n int64) {
	for _, w := range s.workers {
		if w != nil && w.spare && !w.goes() {
			n++
		}
	}
	return n
}

// spares is how many workers of a task wait behind a throttle.
func (e *Engine) spares(task int) (n int64) {
	for _, w := range e.live {
		if w.spare && int(w.task) == task && !w.goes() {
			n++
		}
	}
	return n
}

// behind is how many workers more than its share a submission of count asks for.
func (e *Engine) behind(task int, slots, count int64) int64 {
	t := &e.tasks[task]
	c := &e.classes[t.class]
	most := t.spec.ArrayLimit()
	if c.wave > 0 {
		most = min(most, c.wave)
	}
	if most <= count || !e.proven[t.class] || c.yields {
		return 0
	}
	need := t.ready - t.covers - slots*count - slots*e.spares(task)
	return max(min(most-count, (need+slots-1)/slots, e.submittable()-count, e.ceiling()-count), 0)
}

// lower takes one from the share of a submission, and reports whether it could: a throttle of 0 would be none.
func (e *Engine) lower(s *submission) bool {
	if s.throttle <= 1 {
		return false
	}
	s.throttle--
	e.reshare(s)
	if s.sent {
		e.book.Throttle(s.tag, int(s.throttle))
	}
	return true
}

// yield makes room by a worker that is to go, where that is more than its own end: another would take its place. It reports whether
// the worker itself can stay, as one that waits.
func (e *Engine) yield(w *worker, what told, why string) (stays bool) {
	s := w.sub
	if s == nil || s.throttle == 0 {
		return false
	}
	if e.lower(s) {
		return !w.begun()
	}
	for _, other := range s.workers {
		if other != nil && other != w && !other.ended && !other.begun() && !other.goes() {
			e.tell(other, what, why)
			e.cancel(other)
		}
	}
	return false
}

// throttled takes in how many workers of a submission may run at once from now on, as the batch system shows it.
func (e *Engine) throttled(s *submission, n int64) {
	s.inForce = n
	e.append(Record{Kind: RecordShare, ID: s.tag, Count: max(n, s.throttle)})
	e.reshare(s)
	e.demand.dirty = true
}

// notThrottled: the batch system lets nobody change the throttle. What waits is cancelled, but for what would have had a share.
func (e *Engine) notThrottled(s *submission) {
	e.notice("how many workers of submission %s run at once cannot be changed: those that wait behind others are cancelled", s.tag)
	for _, w := range s.workers {
		if w != nil && !w.ended && !w.begun() && !w.goes() && (w.spare || w.yields) {
			e.tell(w, toLeave, "its array cannot be throttled")
			e.cancel(w)
		}
	}
}

// dropSpares cancels workers that wait behind a throttle while there is nothing that they could ever get.
func (e *Engine) dropSpares() {
	left := make([]int64, len(e.classes))
	for i := range e.tasks {
		tally := e.sched.Tally(i)
		left[e.tasks[i].class] += tally.Ready + tally.Waiting
	}
	for _, w := range e.live {
		if w.spare && !w.goes() && w.sub.sent && left[e.tasks[w.task].class] == 0 {
			e.sendAway(w, fleet.Over)
		}
	}
}

// submittable is how many more workers the batch system may have at once.
func (e *Engine) submittable() int64 {
	n := e.cfg.Job.MaxSubmitted
	if n == 0 {
		return math.MaxInt64
	}
	for _, w := range e.live {
		if w.sub != nil {
			n--
		}
	}
	return max(n, 0)
}

// startWorkers asks for the workers of an order of the fleet. Those that wait behind a throttle come first; of new ones only as many as the
// batch system may still have: orders of one decision do not know of each other.
func (e *Engine) startWorkers(o *fleet.Order) {
	if e.book == nil {
		e.submit(o.Task, o.Slots, o.Count, 0)
		return
	}
	rest := o.Count - e.letThrough(o.Task, o.Slots, o.Count)
	count := min(rest, e.submittable())
	e.fleet.Give(o.Task, o.Slots*(rest-count))
	if count > 0 {
		e.submit(o.Task, o.Slots, count, e.behind(o.Task, o.Slots, count))
	}
}

// spareWaits says what waits behind throttles.
func (e *Engine) spareWaits(task int) string {
	n := e.spares(task)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s more queued for when there is room", units.Plural(n, "worker"))
}
