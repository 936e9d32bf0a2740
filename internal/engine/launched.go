package engine

import (
	"strconv"
	"time"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

const (
	// lastWords is how long the connection of a worker that has ended may still bring what it sent before.
	lastWords = 20 * time.Millisecond
	// A worker that has not connected so long after it was asked for (locally) or started (elsewhere) is killed.
	connectLocal, connectElsewhere = time.Minute, 10 * time.Minute
	// A launcher that refuses is asked again after a pause that doubles from the first to the second.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
)

// A submission is one request to the launcher.
type submission struct {
	tag     string
	request Submission
	workers []*worker
	left    int // workers that have not ended
	sent    bool
	// throttle is how many of them are to run at once, inForce how many may by what the batch system says; 0 = all. See shares.go.
	throttle, inForce int64
}

// submit asks for workers, once the record of it is durable. What they take has been taken; behind them wait more, which take nothing.
func (e *Engine) submit(task int, slots, share, behind int64) {
	count := share + behind
	e.tags++
	s := &submission{tag: strconv.Itoa(e.tags), left: int(count)}
	s.request = Submission{Tag: s.tag, Count: int(count), Task: int32(task), Slots: int(slots), Requires: e.tasks[task].spec.Requires}
	e.submissions[s.tag] = s
	for i := range count {
		w := &worker{id: launcher.Worker{Tag: s.tag, Element: int(i)}.String(), sub: s, element: int(i), task: int32(task),
			slots: int32(slots), bornAt: e.now, heard: e.now, answer: never, spare: i >= share}
		e.workers[w.id] = w
		s.workers = append(s.workers, w)
		e.enlist(w)
		e.recount(w)
	}
	if behind > 0 {
		s.throttle, s.inForce = share, share
	}
	e.launched += count
	e.append(Record{Kind: RecordSubmission, ID: s.tag, Task: int32(task), Count: count, Slots: slots})
	if s.throttle > 0 {
		e.append(Record{Kind: RecordShare, ID: s.tag, Count: s.throttle})
	}
	e.wantCommit = true
	e.queue.push(pending{upTo: e.appended, kind: pendingSubmission, rarely: &rarely{sub: s}})
}

// sendSubmission hands a submission over, now that it is durable.
func (e *Engine) sendSubmission(s *submission) {
	if e.phase != running {
		for _, w := range s.workers {
			e.endWorker(w, "left") // nobody has heard of it
		}
		return
	}
	s.sent = true
	s.request.Exclude = e.notOn(s.request.Task)
	for _, w := range s.workers {
		w.bornAt, w.hasBegun = e.now, e.cfg.Launcher.Local
	}
	if e.cfg.Launcher.Local {
		e.lookAt(e.now + e.connectWithin())
	}
	if e.book != nil {
		e.book.Submit(e.now, s.tag, len(s.workers), s.request.Exclude)
		e.book.Throttle(s.tag, int(s.throttle))
		e.lookAt(e.now + e.pendingPatience())
		return
	}
	e.emit(Effect{Kind: EffectSubmit, Submit: &s.request, Task: s.request.Task})
}

func (e *Engine) connectWithin() time.Duration {
	if e.cfg.Launcher.Local {
		return connectLocal
	}
	return connectElsewhere
}

// submitted takes in the launcher's answer.
func (e *Engine) submitted(tag, refusal string) {
	s := e.submissions[tag]
	if s == nil || !s.sent {
		return
	}
	t := &e.tasks[s.request.Task]
	e.append(Record{Kind: RecordAccepted, ID: tag, Text: refusal})
	e.wantCommit = true
	if refusal == "" {
		t.refused = 0
		return
	}
	e.notice("task %q: the launcher refused %s: %s", t.spec.ID, units.Plural(int64(len(s.workers)), "worker"), refusal)
	for _, w := range s.workers {
		w.told = toLeave // their end is judged once, here
		e.endWorker(w, "left")
	}
	t.brake.Bad(fleet.BadEnd{Word: "refused by the launcher", Last: refusal})
	t.pauseTo, t.refusal = e.now+min(firstPause<<min(t.refused, 10), longestPause), refusal
	t.refused++
	e.demand.dirty = true
}

// status takes in what the launcher saw.
func (e *Engine) status(st *launcher.Status) {
	if st == nil {
		return
	}
	s := e.submissions[st.Worker.Tag]
	if s == nil || st.Worker.Element < 0 || st.Worker.Element >= len(s.workers) || s.workers[st.Worker.Element] == nil {
		return
	}
	w := s.workers[st.Worker.Element]
	if w.ended || w.ending {
		return
	}
	if w.node == "" && st.Node != "" {
		w.node = st.Node
	}
	switch st.State {
	case launcher.Unknown:
		w.hinted = true
		e.lookAt(w.heard + e.cfg.Job.HintAfter)
	case launcher.Pending:
		w.hinted = false
	case launcher.Running:
		w.hinted = false
		if w.nonce == 0 && !w.hasBegun {
			w.bornAt, w.hasBegun = e.now, true
			e.reshare(s)
			e.lookAt(e.now + e.connectWithin())
		}
	case launcher.Ended:
		w.end, w.endSeen = st.End, true
		if w.row != nil {
			w.row.peak = max(w.row.peak, st.End.PeakRSSBytes)
		}
		if w.session != 0 && w.held > 0 {
			// What it sent before its end is still read, so that no result is lost; the end of its connection follows at once.
			w.ending, w.endBy = true, e.now+lastWords
			e.forgetRequests(w)
			e.recount(w)
			e.lookAt(w.endBy)
			return
		}
		e.endWorker(w, e.endWord(w))
	}
}

// lossOf is what becomes of the blocks that a worker had when it ended.
func lossOf(w *worker) scheduler.Ending {
	if !w.endSeen {
		return scheduler.Ending{Outcome: scheduler.Lost, Blameless: true}
	}
	switch {
	case w.end.Cause == launcher.OutOfMemory:
		return scheduler.Ending{Outcome: scheduler.OutOfMemory}
	case w.killed || !fleet.Counts(w.end):
		return scheduler.Ending{Outcome: scheduler.Lost, Blameless: true}
	default:
		return scheduler.Ending{Outcome: scheduler.Lost}
	}
}

// judge counts a worker that ended by itself before it returned anything.
func (e *Engine) judge(w *worker) {
	if w.returned || !w.sub.sent || w.missed && w.nonce == 0 {
		return
	}
	broken := w.leaving && w.leave == LeaveBroken
	counts := w.tardy || broken || w.told == notTold && !w.leaving && !w.killed && fleet.Counts(w.end)
	if !counts {
		return
	}
	word := fleet.Word(w.end)
	if w.tardy {
		word = "never connected"
		if w.nonce != 0 {
			word = "never asked for a block"
		}
	}
	t := &e.tasks[w.task]
	if t.brake.Bad(fleet.BadEnd{Worker: w.id, Node: w.node, Word: word, Last: w.lastWas}) {
		e.notice("task %q: node %s is not used any more: workers keep failing on it", t.spec.ID, w.node)
		e.keepOff(w.task)
	}
	if t.brake.Ends() == 1 {
		e.notice("task %q: %s", t.spec.ID, t.brake.Message())
	}
}

// kill has a worker ended, with all that it started. One that nobody launched can only be cut off.
func (e *Engine) kill(w *worker) {
	if w.ended || w.ending {
		return
	}
	if e.book != nil && w.launched() && w.held == 0 {
		e.book.GiveUp(w.name())
	}
	if w.killed {
		return
	}
	w.killed = true
	e.forgetRequests(w)
	e.recount(w)
	if !w.launched() {
		if w.session != 0 {
			e.emit(Effect{Kind: EffectClose, Session: w.session, Text: "the worker is no longer waited for"})
		} else if w.held == 0 {
			e.endWorker(w, e.leaveWord(w))
		}
		return
	}
	if e.book != nil {
		e.book.Cancel(e.now, w.name())
		return
	}
	e.emit(Effect{Kind: EffectKill, Workers: []launcher.Worker{w.name()}})
}

// cancel has a worker that has not joined, or is not connected, leave.
func (e *Engine) cancel(w *worker) {
	if w.launched() && w.sub.sent && !w.killed && e.book != nil {
		e.book.Cancel(e.now, w.name())
	} else if w.launched() && w.sub.sent && !w.killed {
		e.emit(Effect{Kind: EffectCancel, Workers: []launcher.Worker{w.name()}})
	}
}

func (w *worker) name() launcher.Worker { return launcher.Worker{Tag: w.sub.tag, Element: w.element} }
