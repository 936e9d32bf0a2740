package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// Workers outlive their coordinator. The next one takes those over that may still live, as workers that are away: they count with what
// they have taken, and until each has come back, has certainly ended, or has been silent for too long, no block is handed out that may be
// in their hands: those below the mark of the epoch before. Who comes back names what it has, and goes on with it.

// inherit takes a worker of an earlier epoch over, and gives nil if it is none that could come back. One that is replaced, as its batch system has
// started its element again, is only waited for: whatever became of the other one, the share is not its own any more.
func (e *Engine) inherit(w *pastWorker, replaced bool) *worker {
	if w.gone || w.row == nil {
		return nil
	}
	at := launcherName(w.ID)
	switch here := e.cfg.Launcher.Local && w.Node == e.cfg.Node; {
	case e.tasks[w.row.task].clients: // its connection was its life
		e.lost = append(e.lost, w.number)
		return nil
	case !w.Launched:
	case e.book != nil: // which knows of it, or will be told
	case !here:
		// Nobody here can tell whether it lives, nor end it, so that it gets nothing more: it is only waited for.
		e.held = append(e.held, w.PastWorker)
		e.holdTo = max(e.holdTo, e.keeps(w.number)+e.AbandonAfter())
		return nil
	case !slices.Contains(e.cfg.Left, at):
		e.lost = append(e.lost, w.number)
		return nil
	}
	v := &worker{id: w.ID, number: w.number, nonce: w.Nonce, node: w.Node, was: w.Node, nodeNo: e.nodeNumber(w.Node), task: w.row.task, slots: w.slots, grant: w.grant, answer: never, away: true, keeps: e.keeps(w.number)}
	if e.tasks[v.task].spec.Fill {
		e.expect(v.task, int64(v.slots))
	}
	for _, r := range w.rows {
		v.returned = v.returned || r.processed > 0
	}
	switch {
	case w.Launched && replaced:
		v.sub, v.element, v.replaced, v.hinted = e.inheritedSubmission(at), at.Element, true, true
	case w.Launched:
		v.sub, v.element = e.inheritedSubmission(at), at.Element
		v.sub.workers[at.Element] = v
		v.sub.left++
		e.fleet.Inherit(int(v.task), int64(v.slots))
		e.tight = true
	default: // until it says what it has, it may have all that it could
		v.awayTask = v.task
		e.fleet.Inherit(int(v.task), int64(v.slots))
	}
	if !v.replaced {
		e.workers[v.id] = v
	}
	e.enlist(v)
	e.away = append(e.away, v)
	e.lookAt(e.cfg.Job.ReconnectGrace)
	return v
}

// keeps is until when a worker of an earlier epoch keeps what it runs though it hears of no coordinator: before this epoch, if the one before has not
// heard it either, so that the wait for it ends however short each life is.
func (e *Engine) keeps(number uint32) time.Duration {
	if until, is := e.cfg.Past.unheard[number]; is {
		return time.Duration(until - e.cfg.Began)
	}
	return e.patient
}

// supplanted takes in that an element has ended on another node than the worker was on which this coordinator waits for: the batch system has
// started it again since. That says nothing about the worker, wherever it may still run; only its place is not its own any more.
func (e *Engine) supplanted(w *worker) {
	e.fleet.Give(int(w.task), int64(w.slots))
	e.demand.dirty = true
	w.sub.workers[w.element] = nil
	w.sub.left--
	e.reshare(w.sub)
	delete(e.workers, w.id)
	w.replaced, w.hinted = true, true
	e.recount(w)
	e.lookAt(w.heard + w.keeps + e.cfg.Job.HintAfter)
}

// launcherName is how a launcher calls the worker that it has started with this id: the inverse of launcher.Worker.String.
func launcherName(id string) launcher.Worker {
	dot := strings.LastIndexByte(id, '.')
	element, err := strconv.Atoi(id[dot+1:])
	if dot < 0 || err != nil {
		return launcher.Worker{Element: -1}
	}
	return launcher.Worker{Tag: id[:dot], Element: element}
}

// inheritedSubmission is the submission of an earlier epoch that a worker belongs to, of which only those that are left are known.
func (e *Engine) inheritedSubmission(at launcher.Worker) *submission {
	s := e.submissions[at.Tag]
	if s == nil {
		s = &submission{tag: at.Tag, sent: true}
		e.submissions[at.Tag] = s
	}
	if n := at.Element + 1 - len(s.workers); n > 0 {
		s.workers = append(s.workers, make([]*worker, n)...)
	}
	return s
}

// back ends the wait for a worker: it has come, or has ended, or is waited for no longer.
func (e *Engine) back(w *worker) {
	if w.away {
		w.away = false
		if w.sub == nil {
			e.fleet.Give(int(w.awayTask), int64(w.slots))
			e.demand.dirty = true
		}
		e.away = slices.DeleteFunc(e.away, func(a *worker) bool { return a == w })
	}
}

// shed notes whether a worker that is back may still run what it is told to have no longer: until its next word nobody gets a block that may be
// in conflict with that.
func (e *Engine) shed(w *worker, sheds bool) {
	if w.sheds != sheds {
		w.sheds = sheds
		if sheds {
			e.shedding++
		} else {
			e.shedding--
		}
	}
}

// awaitsOthers reports whether blocks that an earlier epoch handed out may be in the hands of workers that are away.
func (e *Engine) awaitsOthers() bool {
	if len(e.held) > 0 && e.now >= e.holdTo {
		for _, w := range e.held {
			e.append(Record{Kind: RecordGone, Worker: w.number, Text: "lost", At: e.last.Microseconds()})
		}
		e.held = nil
	}
	return len(e.away) > 0 || len(e.held) > 0
}

// waitsFor says whom something waits for: "the end waits".
func (e *Engine) waitsFor(what string) string {
	var id, node string
	var until time.Duration
	if len(e.away) > 0 {
		w := e.away[0]
		patience := e.AbandonAfter()
		if w.hinted {
			patience = min(patience, e.cfg.Job.HintAfter)
		}
		id, node, until = w.id, w.node, w.heard+w.keeps+patience
	} else {
		id, node, until = e.held[0].ID, e.held[0].Node, e.holdTo
	}
	others := ""
	if n := len(e.away) + len(e.held) - 1; n > 0 {
		others = fmt.Sprintf(" (and %s)", units.Plural(int64(n), "other"))
	}
	return fmt.Sprintf("worker %s on %s%s served the coordinator before, and may still run a block; %s for it to come back, or %s",
		id, orUnknown(node), others, what, units.Duration(max(until-e.now, 0).Round(time.Second)))
}

// isEarlier reports whether a hand-out is of an earlier epoch.
func (e *Engine) isEarlier(h Held) bool { return h.Epoch != e.cfg.Epoch }

// claim gives a worker the lease of a block that it has had since an earlier epoch; nil if the block has ended, or is or was another's
// since then. had is the lease of the block that it has here, if it has one: if that is not doubtful, it was claimed just now, by another name.
func (e *Engine) claim(w *worker, h *Held, had *lease) *lease {
	if h.Task < 0 || int(h.Task) >= len(e.tasks) {
		return nil
	}
	if had != nil && had.doubtful && had.handout.Attempt <= h.Attempt {
		had.doubtful = false
		w.doubts--
		return had
	}
	holder := scheduler.Holder{Worker: w.number, Node: w.nodeNo}
	got, ok := e.sched.Reacquire(int(h.Task), h.Block, h.Attempt, holder)
	if !ok && e.overtake(h) {
		got, ok = e.sched.Reacquire(int(h.Task), h.Block, h.Attempt, holder)
	}
	if !ok {
		return nil
	}
	e.raiseMark(int(h.Task), h.Block) // it was below the mark, unless the worker tells a tale
	l := e.newLease(got, w)
	l.row, l.claimed = e.rowOf(w, h.Task), h.Attempt
	e.claims[blockOf{h.Task, h.Block}] = l
	if w.sub == nil && w.started < w.slots {
		e.fleet.Inherit(int(h.Task), 1) // it runs already
	}
	e.hold(l, true)
	return l
}

// overtake takes a block back that somebody has claimed as an earlier attempt than this one. That one has ended, or was given up, as there
// was a later one; what became of it was lost with its coordinator.
func (e *Engine) overtake(h *Held) bool {
	l := e.claims[blockOf{h.Task, h.Block}]
	if l == nil || l.claimed >= h.Attempt {
		return false
	}
	if l.worker.session != 0 {
		e.emit(Effect{Kind: EffectKillBlock, Session: l.worker.session, Lease: l.handout.Lease})
	}
	e.endLease(l, scheduler.Ending{Outcome: scheduler.Recalled}, Use{}, nil)
	return true
}

// rowOf is the row of a worker for a task, which it may have served without the journal having kept that.
func (e *Engine) rowOf(w *worker, task int32) *row {
	for _, r := range w.rows {
		if r.task == task {
			return r
		}
	}
	r := &row{worker: w, task: task, slots: w.slots, since: e.now, over: true, end: "left"}
	w.rows, e.rows = append(w.rows, r), append(e.rows, r)
	e.tasks[task].served++
	return r
}

// attachLater keeps a worker that names hand-outs of an earlier epoch waiting while it is not known which blocks are ready, as long as
// the scheduler goes through what was done before.
func (e *Engine) attachLater(ev *Event) bool {
	if !e.sched.More() || !slices.ContainsFunc(ev.Held, e.isEarlier) {
		return false
	}
	e.parked = append(e.parked, *ev)
	return true
}

// attachParked lets in who had to wait.
func (e *Engine) attachParked() {
	list := e.parked
	e.parked = nil
	for i := range list {
		e.attach(&list[i])
	}
}

// detachParked forgets who did not wait to the end.
func (e *Engine) detachParked(s SessionID) {
	e.parked = slices.DeleteFunc(e.parked, func(ev Event) bool { return ev.Session == s })
}
