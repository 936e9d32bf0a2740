package engine

import (
	"time"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/internal/units"
)

const (
	// firstWave bounds the workers of a class that has not shown that it works, where starting one is not cheap; a class has
	// shown it when a worker has lived provenAfter or returned a block.
	firstWave   = 4
	provenAfter = time.Minute
	// Never more workers are asked for in a run than ceilingPerWorker × the most that were alive at once (at least ceilingAlive),
	// and ceilingPerReturn × the blocks that they returned: a bound that no other rule can get around.
	ceilingPerWorker, ceilingAlive, ceilingPerReturn = 10, 100, 2
)

// demand is what is remembered between two decisions of the fleet.
type demand struct {
	dirty      bool // something has changed that need does not show
	anyStuck   bool
	stuck      []bool  // tasks whose need could not be met the last time
	candidates []int64 // workers of each task that had nothing to do then
	loads      []fleet.Load
	idle       []fleet.Idle
	refs       []*worker
	orders     []fleet.Order
}

func (d *demand) init(tasks int) {
	d.stuck, d.candidates, d.loads = make([]bool, tasks), make([]int64, tasks), make([]fleet.Load, tasks)
	d.dirty = true
}

// orderWorkers lets the fleet decide if anything has changed that could change its mind, and does what it says. It reports
// whether workers have moved to other tasks.
func (e *Engine) orderWorkers() (moved bool) {
	d := &e.demand
	decide, candidates := d.dirty, int64(0)
	for i := range e.tasks {
		t := &e.tasks[i]
		switch {
		case t.ended || t.clients || t.ready <= t.covers:
			d.stuck[i] = false
		case !d.stuck[i]:
			decide = true
		}
		n := int64(0)
		if t.ready == 0 {
			n = t.idle + t.starters
		}
		decide = decide || n > d.candidates[i]
		d.candidates[i] = n
		candidates += n
	}
	if !decide {
		return false
	}
	d.dirty = false
	starts := e.startsLeft()
	for i := range e.tasks {
		t := &e.tasks[i]
		tally := e.sched.Tally(i)
		d.loads[i] = fleet.Load{Ready: t.ready, Covered: t.covers, Left: tally.Ready + tally.Waiting, Leaving: t.leaving, Ended: t.ended, Starts: starts}
		switch {
		case t.clients:
			d.loads[i].Ready, d.loads[i].Starts = 0, 0
		case t.brake.Tripped() || t.pauseTo > e.now:
			d.loads[i].Starts = 0
		case !e.proven[t.class]:
			d.loads[i].Starts = min(starts, e.firstWave(t.class))
		}
		if e.book != nil {
			d.loads[i].Starts = e.startsOfClass(i, d.loads[i].Starts)
		}
	}
	d.idle, d.refs, d.orders = d.idle[:0], d.refs[:0], d.orders[:0]
	if candidates > 0 {
		e.listIdle()
	}
	if e.book != nil && d.anyStuck {
		e.listImpatient()
	}
	d.orders = e.fleet.Decide(e.now, e.idleTimeout(), d.loads, d.idle, d.orders)
	for _, o := range d.orders {
		switch o.Kind {
		case fleet.Reassign:
			e.reassign(d.refs[o.Ref], int32(o.Task))
			moved, d.dirty = true, true // who moved is served first; then need is looked at again
		case fleet.Release:
			e.sendAway(d.refs[o.Ref], o.Why)
			if w := d.refs[o.Ref]; e.book != nil && w.nonce == 0 && e.tasks[w.task].ready > 0 {
				e.classes[e.tasks[w.task].class].yields = true
			}
		case fleet.Start:
			e.startWorkers(&o)
		}
	}
	d.anyStuck = false
	for i := range e.tasks {
		t := &e.tasks[i]
		d.stuck[i] = !t.ended && !t.clients && t.ready > t.covers
		d.anyStuck = d.anyStuck || d.stuck[i]
		if t.ready == 0 {
			d.candidates[i] = t.idle + t.starters
		}
	}
	clear(d.refs)
	if e.book != nil {
		e.dropSpares()
	}
	return moved
}

// startsLeft is how many workers may be asked for, whatever the need.
func (e *Engine) startsLeft() int64 {
	if e.cfg.External {
		return 0
	}
	left := e.ceiling()
	if left <= 0 && e.phase == running {
		e.endEarly(StopCancel, RunBroken, "too many workers were started for what they returned: something is wrong with how they end; see their logs")
	}
	return max(left, 0)
}

// ceiling is how many more workers may ever be asked for, as of now.
func (e *Engine) ceiling() int64 {
	return ceilingPerWorker*max(e.peak, ceilingAlive) + ceilingPerReturn*e.good - e.launched
}

// firstWave is how many more workers of a class may be asked for before one has shown that it works.
func (e *Engine) firstWave(class int) int64 {
	n := int64(firstWave)
	if e.fillsUnknown(class) {
		n = 1
	}
	for _, w := range e.live {
		if e.tasks[w.task].class == class {
			n--
		}
	}
	return max(n, 0)
}

// listIdle lists the workers that have no block and for which their task has none.
func (e *Engine) listIdle() {
	d := &e.demand
	for _, w := range e.live {
		t := &e.tasks[w.task]
		if t.ready > 0 || w.held > 0 || w.share.idle+w.share.starters == 0 || w.sub != nil && !w.sub.sent {
			continue
		}
		d.idle = append(d.idle, fleet.Idle{Ref: len(d.refs), Task: int(w.task), Slots: int64(w.slots), Since: w.since,
			Starting: w.nonce == 0, External: w.sub == nil, Any: w.any, Pinned: w.quiet || w.sub == nil && (!w.any || len(w.requests) == 0)})
		d.refs = append(d.refs, w)
	}
}

// reassign has a worker serve another task from now on.
func (e *Engine) reassign(w *worker, task int32) {
	e.tasks[w.task].waiting.remove(w)
	e.closeRow(w, "left")
	w.task = task
	e.openRow(w)
	e.append(Record{Kind: RecordServes, Worker: w.number, Task: task, At: e.last.Microseconds()})
	if e.fleet.MaxWorkers(int(task)) > 0 {
		w.moved = e.appended
	}
	e.recount(w)
	e.emit(Effect{Kind: EffectReassign, Session: w.session, Task: task})
	e.await(w)
}

// sendAway lets an idle worker go.
func (e *Engine) sendAway(w *worker, why fleet.Why) {
	if why != fleet.Over && e.yield(w, toLeave, "there is no room for it") {
		return
	}
	switch why {
	case fleet.Needed:
		e.tell(w, toDrain, "another task needs its share of the budget")
	case fleet.TimedOut:
		e.tell(w, byTimeout, "it has had nothing to do for "+units.Duration(e.idleTimeout()))
	default:
		e.tell(w, toLeave, "there is nothing more for it to do")
	}
	if w.session == 0 {
		e.cancel(w)
	}
}
