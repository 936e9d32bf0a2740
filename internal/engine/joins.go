package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// maxSlots bounds what one worker may say that it has.
const maxSlots = 1 << 16

// A worker is one process that was asked for or came by itself, from then until it has ended for certain.
type worker struct {
	id string
	// sub is the submission that asked for it, element its number there; nil for a worker that nobody launched.
	sub     *submission
	element int
	live    int // position in Engine.live

	nonce  uint64
	number uint32 // from 1, in the order of joining; 0 = not joined
	record uint64 // of its join
	moved  uint64 // the record of its last move to a task whose max_workers counts it
	node   string
	nodeNo uint32
	task   int32
	any    bool // an external worker that takes blocks of every task
	client bool // of daisy: an external worker that has a slot for each block that it asks for beside others
	slots  int32
	grant  Grant
	row    *row
	rows   []*row // one for each task that it served

	session  SessionID // 0 = no connection
	heard    time.Duration
	detached time.Duration // when the connection ended, while there is none
	suspect  bool
	hinted   bool          // the launcher suspects that it has ended
	away     bool          // it served an earlier epoch, and has not come back
	keeps    time.Duration // until when, at least, it keeps what it runs while it is away; before 0 if no life since has heard it
	awayTask int32         // of one that nobody launched: the task of which it has a share until then

	leaving  bool // it says so itself
	leave    LeaveReason
	lastWas  string // the last thing that it said
	told     told
	toldWhy  string
	toldAt   time.Duration // when it held nothing any more after being told
	killed   bool
	missed   bool // it may have looked for a coordinator while there was none: that it never connected proves nothing
	unseen   bool // nobody has seen it end, and it may take what it has taken still: whoever resumes the run has to wait for it
	tardy    bool // it never connected, or never asked for anything, and is killed for that
	joinedAt time.Duration
	askedAt  time.Duration // when it last asked, or joined
	quiet    bool          // it has free slots and does not ask: they cover nothing
	answer   time.Duration // when it is killed unless it says something before; never = not at all
	since    time.Duration // idle since
	bornAt   time.Duration // asked for (locally) or started (elsewhere)
	hasBegun bool          // bornAt counts: it should connect soon
	ending   bool          // it has ended, but its last words may still be on the way
	endBy    time.Duration // until then
	end      launcher.End  // what the launcher saw, if endSeen
	until    time.Duration // when its batch system ends it; 0 = not known
	early    time.Duration // likewise, if it was told of an end that comes before that one; 0 = it was not
	hintedAt time.Duration // since when its batch system does not know what has become of it, before it has joined; 0 = it does
	process  string        // tells it from others that were started for the same element
	restart  int           // how often its batch system had started its element again
	replaced bool          // and has done so since: its place is another's
	was      string        // the node that it was on as it joined in an earlier epoch
	sheds    bool          // it is told that it has blocks of an earlier epoch no longer, and has said nothing since
	spare    bool          // it waits behind the throttle of its array: it has no share
	yields   bool          // it will, as soon as a lower throttle is in force
	wish     bool          // it was cancelled by hand: it is not to be replaced
	endSeen  bool
	ended    bool

	first, last    *lease // what it holds, oldest first
	unstarted      *lease // the first of it that has not started
	held, started  int32
	doubts         int32                    // leases that it did not name when it came back
	returned       bool                     // it has made a valid return
	voided         map[scheduler.Lease]bool // abandoned in its hands, and not given back since
	seq, durable   uint64
	ackDue         bool
	requests       []request
	queued         bool // in its task's list of waiting workers
	before, behind *worker
	share          share
}

// A request is an acquire without an answer.
type request struct {
	id uint64
	n  int32
}

// told is what a worker was told to do.
type told uint8

const (
	notTold   told = iota
	toLeave        // nothing more for it
	toDrain        // its share is needed elsewhere, or the run is drained
	toStop         // the run is stopped
	byTimeout      // it was idle for too long
)

// maxRequests bounds the open requests of a worker beyond one for each slot.
const maxRequests = 64

// join answers a worker's introduction.
func (e *Engine) join(req uint64, j *Join) {
	refuse := func(code, format string, args ...any) {
		e.emit(Effect{Kind: EffectRefused, Request: req, Code: code, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case e.stop.aside: // which is not the end of the run
		refuse("busy", "another coordinator is to go on with the run: try again")
	case j == nil || j.Nonce == 0 || j.Slots < 1 || j.Slots > maxSlots || j.Tag == "" && j.Name == "":
		refuse("bad_request", "a worker needs a tag or a name, a nonce, and 1 to %d slots", maxSlots)
	case j.Tag != "":
		e.joinLaunched(req, j, refuse)
	default:
		e.joinExternal(req, j, refuse)
	}
}

type refuser func(code, format string, args ...any)

func (e *Engine) joinLaunched(req uint64, j *Join, refuse refuser) {
	s := e.submissions[j.Tag]
	if e.book != nil && !e.admit(j, refuse) {
		return
	}
	if s == nil || j.Element < 0 || j.Element >= len(s.workers) || s.workers[j.Element] == nil {
		refuse("unknown_tag", "no worker %s.%d was asked for in this run", j.Tag, j.Element)
		return
	}
	w := s.workers[j.Element]
	if e.book != nil && w.nonce != 0 && w.nonce != j.Nonce && j.Restart == w.restart {
		e.joinBeside(req, w, j, refuse)
		return
	}
	switch {
	case w.ended || w.ending:
		refuse("ended", "worker %s has ended: its place is not free any more", w.id)
	case e.book != nil && w.nonce != 0 && w.nonce != j.Nonce && j.Restart > w.restart && e.phase == running && !w.killed:
		if why := e.turnedAway(nil, j.Node); why != "" { // its end says what becomes of the place
			refuse("excluded", "%s", why)
			return
		}
		e.accept(req, e.startedAgain(w, j), j)
	case w.nonce != 0 && w.nonce != j.Nonce:
		refuse("twin", "worker %s has joined already, from %s: this one is a twin", w.id, w.node)
	case e.phase != running && w.nonce == 0 || w.killed:
		refuse("ended", "the run is ending: there is nothing to do any more")
	case int64(j.Slots) > int64(w.slots) && w.nonce == 0 && !j.Fill:
		refuse("bad_request", "worker %s was asked for with %d slots, not %d", w.id, w.slots, j.Slots)
	default:
		if why := e.turnedAway(w, j.Node); why != "" {
			refuse("excluded", "%s", why)
			return
		}
		e.accept(req, w, j)
	}
}

// joinBeside lets in a second process that was started for an element of a batch system's: it is a worker of its own, like one that nobody
// asked for, and never shares a lease with the first.
func (e *Engine) joinBeside(req uint64, first *worker, j *Join, refuse refuser) {
	id := ""
	for n := 2; ; n++ {
		id = fmt.Sprintf("%s+%d", first.id, n)
		w := e.workers[id]
		if w == nil {
			break
		}
		if w.nonce == j.Nonce && !w.ended {
			e.accept(req, w, j)
			return
		}
	}
	switch {
	case e.phase != running || first.told != notTold || first.killed:
		refuse("ended", "the run is ending, or worker %s is to go: there is nothing to do any more", first.id)
	case first.ended || first.ending:
		refuse("ended", "worker %s has ended: its place is not free any more", first.id)
	case e.turnedAway(nil, j.Node) != "":
		refuse("excluded", "%s", e.turnedAway(nil, j.Node))
	default:
		if j.process() == first.process && !e.saidTwice {
			e.saidTwice = true
			e.notice("%s has started worker %s twice, on %s and %s: they are two workers, %s and %s, on what one was to have; look for what starts the worker's line a second time (srun without --ntasks=1, a script that runs it twice)",
				strings.TrimSpace("job "+j.Job), first.id, orUnknown(first.node), orUnknown(j.Node), first.id, id)
		}
		w := &worker{id: id, task: first.task, slots: int32(j.Slots), bornAt: e.now, answer: never}
		e.workers[w.id] = w
		e.enlist(w)
		e.accept(req, w, j)
	}
}

// process tells processes apart that were started on purpose for one element.
func (j *Join) process() string { return fmt.Sprintf("%s:%d", j.Cluster, j.Process) }

func (e *Engine) joinExternal(req uint64, j *Join, refuse refuser) {
	w := e.workers[j.Name]
	if w != nil && !w.ended && w.sub == nil && w.nonce == j.Nonce {
		w.any = w.any || w.away && j.Task == ""
		e.accept(req, w, j)
		return
	}
	if w != nil && w.away && w.sub == nil {
		w = nil // nobody has heard of that one in this epoch: it may be this one's predecessor, and is refused if it comes
	}
	task, anyTask := e.externalTask(j.Task)
	switch {
	case w != nil && w.sub != nil, isOfLauncher(j.Name): // perhaps one that is asked for later
		refuse("bad_request", "%q is the name of a worker that is launched: choose another", j.Name)
	case w != nil && !w.ended:
		refuse("twin", "a worker with the name %q has joined already, from %s: this one is a twin", j.Name, w.node)
	case e.phase != running:
		refuse("ended", "the run is ending: there is nothing to do any more")
	case task < 0:
		refuse("bad_request", "there is no task %q in this run", j.Task)
	case e.tasks[task].clients != j.Client:
		refuse("bad_request", "task %q is for %s", e.tasks[task].spec.ID, map[bool]string{true: "clients of daisy that come by themselves", false: "workers, not for clients of daisy"}[e.tasks[task].clients])
	case !anyTask && e.tasks[task].ended:
		refuse("ended", "task %q has ended: there is nothing to do any more", j.Task)
	case e.turnedAway(nil, j.Node) != "":
		refuse("excluded", "%s", e.turnedAway(nil, j.Node))
	default:
		w = &worker{id: j.Name, task: int32(task), any: anyTask, client: j.Client, slots: int32(j.Slots), bornAt: e.now, answer: never}
		e.workers[w.id] = w
		e.enlist(w)
		e.accept(req, w, j)
	}
}

// isOfLauncher reports whether a name is one that a worker of a launcher may have.
func isOfLauncher(name string) bool {
	at := launcherName(name)
	_, err := strconv.ParseUint(at.Tag, 10, 64)
	return err == nil && at.String() == name
}

// externalTask finds the task that an external worker serves, -1 if there is none of that name. One that takes any begins
// with the first task, in the fleet's order, that has something ready, else with the first that has not ended. Those for clients are none
// of its.
func (e *Engine) externalTask(name string) (task int, anyTask bool) {
	if name != "" {
		return e.cfg.Pipeline.Index(name), false
	}
	first := 0
	for i := len(e.tasks) - 1; i >= 0; i-- {
		if !e.tasks[i].ended && !e.tasks[i].clients {
			first = i
		}
	}
	for _, i := range e.fleet.Order() {
		if e.tasks[i].ready > 0 && !e.tasks[i].clients {
			return i, true
		}
	}
	return first, true
}

// accept lets a worker in: for the first time, or again.
func (e *Engine) accept(req uint64, w *worker, j *Join) {
	if w.nonce == 0 {
		e.joins++
		w.nonce, w.number, w.restart, w.process = j.Nonce, e.joins, j.Restart, j.process()
		if w.sub != nil { // a job counts once, whoever else comes out of it
			w.grant = j.Grant
		}
		e.reshare(w.sub)
		if slots := e.slotsFor(w, j); w.sub != nil && slots != w.slots {
			e.fleet.Inherit(int(w.task), int64(slots)-int64(w.slots))
			w.slots = slots
		}
		if e.book == nil || w.node == "" {
			w.node, w.nodeNo = j.Node, e.nodeNumber(j.Node)
		}
		w.joinedAt, w.askedAt, w.detached, w.since = e.now, e.now, e.now, e.now
		e.givenMore(w, j)
		if !e.proven[e.tasks[w.task].class] {
			e.lookAt(e.now + provenAfter)
		}
		e.openRow(w)
		e.append(Record{Kind: RecordJoin, Worker: w.number, ID: w.id, Nonce: w.nonce, Task: w.task, Count: int64(w.slots), Text: w.node, PID: int64(j.PID), Launched: w.sub != nil, At: e.last.Microseconds(), Grant: w.grant})
		w.record = e.appended
		e.wantCommit = true
		e.emit(Effect{Kind: EffectWorker, Worker: &WorkerChange{ID: w.id, Node: w.node, Task: w.task}})
	}
	if w.until == 0 && j.Left > 0 {
		w.until = e.now + j.Left
	}
	w.heard = e.now
	if !w.launched() && e.phase == running {
		w.killed = false // nobody could end it: it has only slept
	}
	e.recount(w)
	e.lookAt(e.now + e.cfg.Job.ReconnectGrace)
	e.emit(Effect{Kind: EffectJoined, Request: req, WorkerID: w.id, Task: w.task, Slots: w.slots})
}

func (e *Engine) nodeNumber(node string) uint32 {
	if node == "" {
		return 0
	}
	n, known := e.nodes[node]
	if !known {
		n = uint32(len(e.nodes) + 1)
		e.nodes[node] = n
	}
	return n
}

// attach gives a worker its connection.
func (e *Engine) attach(ev *Event) {
	w := e.workers[ev.Worker]
	if w == nil || w.nonce == 0 || w.nonce != ev.Nonce || w.ended {
		why := "no such worker has joined"
		if w != nil {
			why = "this worker is not the one that joined, or it has ended"
		}
		e.emit(Effect{Kind: EffectClose, Session: ev.Session, Text: why})
		return
	}
	if w.session != 0 {
		e.emit(Effect{Kind: EffectClose, Session: w.session, Text: "the worker has opened another connection"})
	}
	e.back(w)
	e.setSession(w, ev.Session)
	e.forgetRequests(w)
	w.askedAt = e.now
	e.hear(w)

	gone, kept := e.takeStock(w, ev.Held)
	e.shed(w, len(gone) > 0 && slices.ContainsFunc(ev.Held, e.isEarlier))
	e.emit(Effect{Kind: EffectWelcome, Session: w.session, Leases: gone, Kept: kept})
	e.tellTimeLeft(w)
	switch {
	case w.told == toStop:
		e.emit(Effect{Kind: EffectStop, Session: w.session, Text: w.toldWhy})
	case w.told != notTold:
		e.emit(Effect{Kind: EffectDrain, Session: w.session, Text: w.toldWhy})
	case e.phase != running && !e.stop.aside:
		e.tell(w, toLeave, e.why)
	}
	e.recount(w)
	e.tellTimeout(w)
}

// takeStock compares what a worker that comes back holds with what it should, and returns what it holds no longer, and what it holds
// by another name. Leases that
// it does not name are in doubt until it has had the time to send again what it could not deliver: their results, or their
// hand-out was lost on the way.
func (e *Engine) takeStock(w *worker, held []Held) (gone []scheduler.Lease, kept []Kept) {
	for l := w.first; l != nil; l = l.next {
		l.doubtful = true
	}
	w.doubts = w.held
	start := len(e.out.leases)
	var claimed map[blockOf]*lease // before: the answer may have been lost on its way
	if w.held > 0 && slices.ContainsFunc(held, e.isEarlier) {
		claimed = make(map[blockOf]*lease, w.held)
		for l := w.first; l != nil; l = l.next {
			claimed[blockOf{l.handout.Task, l.handout.Block}] = l
		}
	}
	for _, h := range held {
		if e.isEarlier(h) {
			if l := e.claim(w, &h, claimed[blockOf{h.Task, h.Block}]); l != nil {
				kept = append(kept, Kept{h.Epoch, h.Lease, l.handout.Lease, l.handout.Attempt})
			} else {
				e.out.leases = append(e.out.leases, h.Lease)
			}
			continue
		}
		l := e.leases.get(h.Lease)
		if l == nil || l.worker != w {
			e.out.leases = append(e.out.leases, h.Lease)
			continue
		}
		if l.doubtful {
			l.doubtful = false
			w.doubts--
		}
	}
	return e.out.leases[start:len(e.out.leases):len(e.out.leases)], kept
}

// settleDoubts takes back what a worker that came back has not named.
func (e *Engine) settleDoubts(w *worker) {
	for l := w.first; l != nil && w.doubts > 0; {
		next := l.next
		if l.doubtful {
			w.doubts--
			l.doubtful = false
			e.endLease(l, scheduler.Ending{Outcome: scheduler.Recalled}, Use{}, nil)
		}
		l = next
	}
	w.doubts = 0
}

// detach notes that a worker's connection has ended.
func (e *Engine) detach(w *worker, gone bool) {
	e.setSession(w, 0)
	w.detached = e.now
	e.forgetRequests(w)
	if w.ending {
		e.endWorker(w, e.endWord(w))
		return
	}
	if (!w.launched() || e.leftInOrder(w)) && w.held == 0 && (w.leaving || w.killed || w.told != notTold) {
		e.endWorker(w, e.leaveWord(w))
		return
	}
	if w.sub == nil && gone {
		// What a launcher would say of a worker of its own: the process has ended, and not by our doing.
		e.reclaim(w, scheduler.Ending{Outcome: scheduler.Lost})
		e.endWorker(w, "lost")
		return
	}
	if e.book != nil && w.launched() && w.leaving && w.held == 0 && w.leave != LeaveSignal {
		// One that was told by a signal may be put back into the queue (preempted, drained), where it takes its share: its end has to be seen.
		e.book.Leaves(w.name())
		if e.demand.anyStuck {
			e.book.Hurry(e.now)
		}
	}
	e.lookAt(e.now + e.cfg.Job.ReconnectGrace)
	e.recount(w)
}

// leaving notes that a worker goes away by itself once it has given back all that it holds.
func (e *Engine) leaving(w *worker, why LeaveReason, f *Failure) {
	w.leaving, w.leave = true, why
	if f != nil {
		w.lastWas = f.Message
	}
	e.forgetRequests(w)
	e.recount(w)
	e.awaitLeave(w)
}

// forgetRequests drops what a worker has asked for: it will ask again.
func (e *Engine) forgetRequests(w *worker) {
	w.requests = w.requests[:0]
	e.tasks[w.task].waiting.remove(w)
}

// tell lets a worker know that it is to go. More urgent words replace others.
func (e *Engine) tell(w *worker, what told, why string) {
	if w.told == toStop || w.told != notTold && what != toStop {
		return
	}
	w.told, w.toldWhy = what, why
	e.forgetRequests(w)
	if w.session != 0 {
		kind := EffectDrain
		if what == toStop {
			kind = EffectStop
		}
		e.emit(Effect{Kind: kind, Session: w.session, Text: why})
	}
	e.recount(w)
	e.awaitLeave(w)
}

// awaitLeave bounds how long a worker that is to go, and holds nothing, may still be there.
func (e *Engine) awaitLeave(w *worker) {
	if (w.told != notTold || w.leaving) && w.held == 0 {
		w.toldAt = e.now
		e.lookAt(e.now + e.cfg.Job.Grace)
	}
}

// enlist puts a worker among the living.
func (e *Engine) enlist(w *worker) {
	w.live = len(e.live)
	e.live = append(e.live, w)
	e.peak = max(e.peak, int64(len(e.live)))
}

// endWorker ends a worker for certain. What it held must have been taken care of, but for what it holds still: that is lost.
func (e *Engine) endWorker(w *worker, word string) {
	if w.ended {
		return
	}
	e.back(w)
	e.shed(w, false)
	e.reclaim(w, lossOf(w))
	if w.session != 0 {
		e.emit(Effect{Kind: EffectClose, Session: w.session, Text: "the worker has ended"})
		e.setSession(w, 0)
	}
	e.forgetRequests(w)
	w.ended, w.ending = true, false
	e.recount(w)
	if w.launched() {
		if !w.spare {
			e.fleet.Give(int(w.task), int64(w.slots))
		}
		if e.book != nil && w.begun() {
			e.classes[e.tasks[w.task].class].ranAt = e.now
			e.lookAt(e.now + e.pendingPatience())
		}
		w.spare, w.yields = false, false
		w.sub.left--
		e.reshare(w.sub)
		e.judge(w)
		if w.wish {
			e.notReplaced(w)
		}
	}
	e.closeRow(w, word)
	if w.number != 0 && !w.unseen && !e.mayRun(w) {
		e.append(Record{Kind: RecordGone, Worker: w.number, Text: word, At: e.last.Microseconds()})
	}
	if w.number != 0 || w.sub.sent { // of one that was never asked for nobody has heard
		e.emit(Effect{Kind: EffectWorker, Worker: &WorkerChange{ID: w.id, Node: w.node, Task: w.task, End: word}})
	}
	last := len(e.live) - 1
	e.live[w.live] = e.live[last]
	e.live[w.live].live = w.live
	e.live[last] = nil
	e.live = e.live[:last]
	e.demand.dirty = true
}

// mayRun reports whether a worker that is not waited for any more may run a block still: nobody has seen it end, and the run ended before it had
// given back all that it had. A resume has to wait for it.
func (e *Engine) mayRun(w *worker) bool {
	return len(w.voided) > 0 && !w.endSeen && (e.book != nil || !w.launched())
}

// leaveWord is how a worker ended that went away in good order.
func (e *Engine) leaveWord(w *worker) string {
	switch {
	case w.leaving && w.leave == LeaveLost:
		return "lost"
	case w.told == toStop, w.told == notTold && w.leaving && w.leave == LeaveSignal:
		return "stopped"
	case w.told == toDrain:
		return "drained"
	case w.told == notTold && w.killed:
		return "lost"
	default:
		return "left"
	}
}

// endWord is how a launched worker ended, by what its launcher saw and what it was told.
func (e *Engine) endWord(w *worker) string {
	switch w.end.Cause {
	case launcher.TimeLimit, launcher.Preempted, launcher.NodeFailed, launcher.OutOfMemory:
		return w.end.Cause.String()
	case launcher.Cancelled:
		if w.told == notTold && !w.leaving && !w.killed {
			return w.end.Cause.String()
		}
	}
	switch {
	case w.killed:
		return "killed_by_us"
	case w.leaving && w.leave == LeaveBroken:
		return "exited"
	case w.told != notTold || w.leaving:
		return e.leaveWord(w)
	case w.end.Ours:
		return "killed_by_us"
	case w.end.Cause == launcher.Signalled:
		return "signal"
	default:
		return "exited"
	}
}

// endWords says how a worker ended, for the message of a block that it had.
func (w *worker) endWords() string { return fleet.Word(w.end) }
