package engine

import (
	"time"

	"example.org/daisy/scheduler"
)

// leaseState is where a lease stands. No message says that a block has started: of what a worker holds, the oldest count as
// started, one for each slot.
type leaseState uint8

const (
	parked  leaseState = iota // its slot is taken, but the worker has not been told yet: it waits for the mark
	ahead                     // in the worker's hands, waiting for a slot
	started                   // it runs
	bound                     // its result is known and waits to be durable: neither time nor the worker's death matter any more
)

// A lease is a block in the hands of a worker.
type lease struct {
	handout  scheduler.Handout
	worker   *worker
	row      *row
	state    leaseState
	told     bool  // its worker has been sent it
	recalled bool  // asked back
	doubtful bool  // its worker came back without naming it
	taken    bool  // taken away from its worker, which may still be at it
	whole    bool  // its worker has had no other before
	claimed  int32 // the attempt that it was in an earlier epoch, from which its worker has it; 0 = it has not
	began    time.Duration

	prev, next     *lease // of its worker, oldest first; next also links unused ones
	earlier, later *lease // of its task's running ones

	// With a result:
	outcome scheduler.Outcome
	seq     uint64
	use     Use
	at      time.Duration // on the clock of Apply's caller
	held    time.Duration
}

// leaseChunk is how many leases are allocated at once.
const leaseChunk = 256

// A leaseTable finds leases by their slot.
type leaseTable []*lease

// get is nil for a lease that is not current.
func (t leaseTable) get(key scheduler.Lease) *lease {
	if i := key.Slot(); i < len(t) && t[i] != nil && t[i].handout.Lease == key {
		return t[i]
	}
	return nil
}

func (t *leaseTable) put(l *lease) {
	i := l.handout.Lease.Slot()
	for i >= len(*t) {
		*t = append(*t, nil)
	}
	(*t)[i] = l
}

// drop forgets a lease; one that the scheduler had made void may have lost its slot to another.
func (t leaseTable) drop(l *lease) {
	if i := l.handout.Lease.Slot(); t[i] == l {
		t[i] = nil
	}
}

func (e *Engine) newLease(h scheduler.Handout, w *worker) *lease {
	if e.spare == nil {
		chunk := make([]lease, leaseChunk)
		for i := range chunk {
			chunk[i].next, e.spare = e.spare, &chunk[i]
		}
	}
	l := e.spare
	e.spare = l.next
	l.handout, l.worker, l.row, l.next = h, w, w.row, nil // all else is zero
	e.leases.put(l)
	return l
}

func (e *Engine) freeLease(l *lease) {
	e.leases.drop(l)
	*l = lease{next: e.spare}
	e.spare = l
}

// hold puts a lease into the hands of its worker. The slot of an external worker must have been taken if it starts.
func (e *Engine) hold(l *lease, told bool) {
	w := l.worker
	l.told, l.prev = told, w.last
	if w.last == nil {
		w.first = l
	} else {
		w.last.next = l
	}
	w.last = l
	w.held++
	e.inHands++
	switch {
	case w.started >= w.slots:
		l.state = ahead
		e.countAhead(l, 1)
		if w.unstarted == nil {
			w.unstarted = l
		}
	case told:
		e.occupy(l)
		e.start(l)
	default:
		e.occupy(l)
		l.state = parked
	}
}

// countAhead counts a block that has not started as one that could be recalled, or was, or no longer. What a worker without a
// connection holds is out of reach: counting it would have every event look for it in vain.
func (e *Engine) countAhead(l *lease, n int64) {
	switch t := &e.tasks[l.handout.Task]; {
	case l.state != ahead || l.worker.session == 0:
	case l.recalled:
		t.recalls += n
	default:
		t.ahead += n
	}
}

// setSession gives a worker its connection, or takes it away with 0.
func (e *Engine) setSession(w *worker, s SessionID) {
	for l := w.unstarted; l != nil; l = l.next {
		e.countAhead(l, -1)
	}
	if w.session != 0 {
		delete(e.sessions, w.session)
	}
	e.bookConnection(w, s != 0)
	if w.session = s; s != 0 {
		e.sessions[s] = w
	}
	for l := w.unstarted; l != nil; l = l.next {
		e.countAhead(l, 1)
	}
}

// occupy takes a slot of a worker for a block, which need not be of the task that it serves.
func (e *Engine) occupy(l *lease) {
	t := &e.tasks[l.handout.Task]
	l.worker.started++
	t.started++
	if t.started > t.most {
		t.most = t.started
		e.append(Record{Kind: RecordPeak, Task: l.handout.Task, Count: t.most})
	}
}

// start begins the time of a block.
func (e *Engine) start(l *lease) {
	l.state, l.began = started, e.now
	e.tasks[l.handout.Task].running.add(l)
	if l.handout.Attempt > 1 {
		e.sched.Began(l.handout.Lease)
	}
}

// drop takes a lease out of its worker's hands and returns how long its slot was taken. The next one of the worker starts.
func (e *Engine) drop(l *lease) (held time.Duration) {
	w, t := l.worker, &e.tasks[l.handout.Task]
	if l.prev == nil {
		w.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		w.last = l.prev
	} else {
		l.next.prev = l.prev
	}
	if w.unstarted == l {
		w.unstarted = l.next
	}
	l.prev, l.next = nil, nil
	if l.claimed != 0 {
		delete(e.claims, blockOf{l.handout.Task, l.handout.Block})
	}
	if l.doubtful {
		l.doubtful = false
		w.doubts--
	}
	w.held--
	e.inHands--
	if l.state == ahead {
		e.countAhead(l, -1)
	} else {
		if l.state == started {
			t.running.remove(l)
			held = e.now - l.began
			l.row.busy += held
		}
		w.started--
		t.started--
		if w.sub == nil {
			e.fleet.Give(int(l.handout.Task), 1)
			e.demand.dirty = e.demand.dirty || e.demand.anyStuck
		}
		e.startNext(w)
	}
	if w.held == 0 {
		e.awaitLeave(w)
	}
	e.recount(w)
	return held
}

// startNext starts the oldest block that waits for a slot of its worker.
func (e *Engine) startNext(w *worker) {
	l := w.unstarted
	if l == nil || w.ended {
		return
	}
	task := int(l.handout.Task)
	switch {
	case w.sub != nil:
	case l.claimed > 0:
		e.fleet.Inherit(task, 1) // it runs already: its slot was a result's that the worker has brought with it
	case !e.fleet.Take(task, 1):
		return // another worker was quicker; the block is recalled if there is an idle one
	}
	w.unstarted = l.next
	e.countAhead(l, -1)
	e.occupy(l)
	if l.told {
		e.start(l)
	} else {
		l.state = parked
	}
}

// reclaim takes away all that a worker holds. Blocks that have not started were no attempts.
func (e *Engine) reclaim(w *worker, end scheduler.Ending) {
	// From the newest, so that none of those that wait starts meanwhile.
	for l := w.last; l != nil; l = w.last {
		if l.state == started {
			e.endLease(l, end, Use{}, nil)
		} else {
			e.endLease(l, scheduler.Ending{Outcome: scheduler.Recalled}, Use{}, nil)
		}
	}
}

// A leaseList holds the running leases of a task, oldest first. As the timeout of a task is one number, the oldest is always
// the next to time out: arming and disarming cost the same whatever the number.
type leaseList struct{ first, last *lease }

func (q *leaseList) add(l *lease) {
	l.earlier, l.later = q.last, nil
	if q.last == nil {
		q.first = l
	} else {
		q.last.later = l
	}
	q.last = l
}

func (q *leaseList) remove(l *lease) {
	if l.earlier == nil {
		q.first = l.later
	} else {
		l.earlier.later = l.later
	}
	if l.later == nil {
		q.last = l.earlier
	} else {
		l.later.earlier = l.earlier
	}
	l.earlier, l.later = nil, nil
}
