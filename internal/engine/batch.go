package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
)

// Where the launcher is a Queue, a Book (internal/fleet) keeps what the batch system holds of the run. What it wants asked goes out as
// effects, every one of which but EffectBind is answered by EventAnswered; what it finds out comes in as if the launcher had seen it.

// An Ask is a request to the batch system; its Kind is that of the effect.
type Ask = fleet.Call

// An Answer is what came of it.
type Answer = fleet.Answer

const (
	// A system that cannot be asked for now is asked again after a pause that doubles from the first to the second; one that has no room
	// for a single worker after the third.
	firstAway, longestAway, noRoomPause = time.Second, 5 * time.Minute, time.Minute
	// defaultPatience is for how long a class of which nothing runs may wait in the queue for what others need, unless the job says.
	defaultPatience = 10 * time.Minute
	// leftWithin is how long a worker that has gone away in good order may be in the answers before it is cancelled.
	leftWithin = 2 * time.Minute
	// fullFor is for how long a system that had no room is not asked for more at once than it had room for.
	fullFor = 10 * time.Minute
	// queueKilledWithin bounds the wait for the end of workers that a batch system was told to kill.
	queueKilledWithin = time.Minute
)

// batch is what an engine knows of the batch system that its workers come from. Without one book is nil.
type batch struct {
	book      *fleet.Book
	classes   []class
	binds     []fleet.Call    // of earlier epochs, of which the launcher has not been told
	cuts      map[blockOf]int // how often a block was cut by the end of a worker that it had to itself
	maySubmit bool            // as of the last look
	wrong     bool            // nothing of the run could ever start
	saidTwice bool            // that a second process was started for an element
}

// A class is workers that are alike, where they come from a batch system.
type class struct {
	wave   int64         // no more are asked for at once: the system had no room for twice as many, or no larger arrays; 0 = no bound
	size   int64         // of the largest array that the system has said it takes; 0 = it has not
	fullAt time.Duration // when it last had no room
	ranAt  time.Duration // when the last one of it ended that had started
	more   bool          // it was said that its workers were given more than they asked for
	yields bool          // its share went to others: nothing more is asked for until one of it runs, or none is left
	holds  bool          // it is known how many slots a worker of it has that fills what it is given
}

// openBook begins to keep the book.
func (e *Engine) openBook() {
	e.classes = make([]class, len(e.proven))
	e.book = fleet.NewBook(fleet.BookConfig{MessageTimeout: e.cfg.Launcher.MessageTimeout, Seed: uint64(e.cfg.Began), HintAfter: e.cfg.Job.HintAfter, Heard: func(at launcher.Worker) time.Duration {
		if w := e.launchedAs(at); w != nil {
			return w.heard
		}
		return 0
	}, Keeps: func(at launcher.Worker) time.Duration {
		if w := e.launchedAs(at); w != nil && w.away {
			return w.keeps
		}
		return 0
	}})
}

// launchedAs finds a worker by what its launcher calls it.
func (e *Engine) launchedAs(at launcher.Worker) *worker {
	s := e.submissions[at.Tag]
	if s == nil || at.Element < 0 || at.Element >= len(s.workers) {
		return nil
	}
	return s.workers[at.Element]
}

// turnBook asks what is due, and takes in what was found out. It reports whether that was something.
func (e *Engine) turnBook() (news bool) {
	if e.book == nil || !e.book.Due(e.now) {
		return false // nearly always
	}
	news = e.readBook()
	for {
		call, ok := e.book.Next(e.now)
		news = e.readBook() || news
		if !ok {
			break
		}
		e.ask(&call)
	}
	if may := e.book.MaySubmit(e.now); may != e.maySubmit {
		e.maySubmit = may
		e.demand.dirty = e.demand.dirty || may
	}
	return news
}

// ask makes an effect of a call.
func (e *Engine) ask(call *fleet.Call) {
	f := Effect{Ask: call}
	switch call.Kind {
	case fleet.CallSubmit:
		s := e.submissions[call.Tag]
		s.request.Exclude, s.request.Throttle = call.Nodes, call.Count
		f.Kind, f.Submit, f.Task = EffectSubmit, &s.request, s.request.Task
	case fleet.CallBind:
		f.Kind = EffectBind
	case fleet.CallList:
		f.Kind = EffectList
	case fleet.CallKnown:
		f.Kind = EffectKnown
	case fleet.CallAccount:
		f.Kind = EffectAccount
	case fleet.CallExclude:
		f.Kind = EffectExclude
	case fleet.CallThrottle:
		f.Kind = EffectThrottle
	case fleet.CallCancelArray:
		f.Kind = EffectCancelArray
	case fleet.CallCancel:
		f.Kind = EffectCancel
		for _, i := range call.Elements {
			f.Workers = append(f.Workers, launcher.Worker{Tag: call.Tag, Element: i})
		}
	case fleet.CallCancelArrays:
		f.Kind, f.Workers = EffectCancel, call.Workers
	}
	e.emit(f)
}

// readBook takes in what the book has found out.
func (e *Engine) readBook() bool {
	news := e.book.News()
	for i := range news {
		e.learn(&news[i])
	}
	return len(news) > 0
}

func (e *Engine) learn(n *fleet.News) {
	s := e.submissions[n.Tag]
	switch n.Kind {
	case fleet.NewsStatus:
		if w := e.launchedAs(n.Status.Worker); w != nil {
			e.learnOf(w, n)
		}
	case fleet.NewsBound:
		e.append(Record{Kind: RecordBound, ID: n.Tag, Text: n.Array})
		e.wantCommit = true
		e.ask(&fleet.Call{Kind: fleet.CallBind, Tag: n.Tag, Array: n.Array})
		if s != nil {
			t := &e.tasks[s.request.Task]
			t.refused, t.refusal = 0, ""
			e.hasRoom(s)
		}
	case fleet.NewsVoid:
		if s != nil {
			e.launched -= int64(len(s.workers)) // none has been started
		}
		e.append(Record{Kind: RecordVoid, ID: n.Tag})
		e.wantCommit = true
		e.notice("submission %s is not there: its workers are asked for again", n.Tag)
	case fleet.NewsRefused:
		e.refusedBy(s, n.Err)
	case fleet.NewsUnsure:
		e.notice("it is not known whether submission %s was accepted: %v; its workers count until that is clear", n.Tag, n.Err)
	case fleet.NewsTwin:
		e.notice("%s is a second array of submission %s: it is cancelled, and its workers get nothing to do", n.Array, n.Tag)
	case fleet.NewsNever:
		e.neverStarts(s.request.Task, fmt.Sprintf("its workers would never start: %s", reasonWords(n.Reason)))
	case fleet.NewsNotExcluded:
		e.notice("pending workers of submission %s cannot be kept off nodes (%v): they are cancelled and asked for again", n.Tag, n.Err)
	case fleet.NewsThrottled:
		if s != nil {
			e.throttled(s, int64(n.Count))
		}
	case fleet.NewsNotThrottled:
		if s != nil {
			e.notThrottled(s)
		}
	case fleet.NewsStays:
		e.notice("array %s, or a part of it, was cancelled several times and is still there: it takes its share until it ends; cancel it by hand", n.Array)
	case fleet.NewsDeaf:
		e.notice("the batch system does not answer: %v; what runs goes on, and it is asked again", n.Err)
	case fleet.NewsAnswers:
		e.notice("the batch system answers again")
	case fleet.NewsNoAccounts:
		e.notice("how jobs ended cannot be looked up (%v): where the queue does not say, it stays unknown", n.Err)
	}
}

// learnOf takes in what was found out about one worker.
func (e *Engine) learnOf(w *worker, n *fleet.News) {
	st := &n.Status
	if st.Left > 0 {
		w.until = e.now + st.Left
		e.tellTimeLeft(w)
	}
	w.wish = n.Wish
	if st.State == launcher.Ended && w.away && w.was != "" && st.Node != "" && st.Node != w.was {
		e.supplanted(w)
		return
	}
	if st.Node != "" && w.node != st.Node {
		w.node, w.nodeNo = st.Node, e.nodeNumber(st.Node) // a node may call itself anything: what counts is what can be excluded
	}
	if st.State == launcher.Running {
		e.classes[e.tasks[w.task].class].yields = false
	}
	if st.State == launcher.Unknown && w.nonce == 0 && w.hintedAt == 0 {
		w.hintedAt = max(e.now, 1)
		e.lookAt(e.now + e.cfg.Job.HintAfter)
	} else if st.State != launcher.Unknown {
		w.hintedAt = 0
	}
	e.status(st)
}

// refusedBy takes in that the system has refused a submission, and draws the conclusions for the next.
func (e *Engine) refusedBy(s *submission, err error) {
	var r *launcher.Refusal
	if !errors.As(err, &r) {
		e.submitted(s.tag, err.Error())
		return
	}
	e.append(Record{Kind: RecordAccepted, ID: s.tag, Text: r.Text})
	e.wantCommit = true
	t := &e.tasks[s.request.Task]
	c := &e.classes[t.class]
	count := int64(len(s.workers))
	e.launched -= count // none has been started
	for _, w := range s.workers {
		w.told = toLeave
		e.endWorker(w, "left")
	}
	switch r.Kind {
	case launcher.RefusedForGood:
		e.neverStarts(s.request.Task, "the batch system refused its workers: "+r.Text)
		return
	case launcher.RefusedForLimits:
		c.wave = max(count/2, 1)
		if r.Most > 0 {
			c.wave, c.size = int64(r.Most), int64(r.Most)
		} else {
			c.fullAt = e.now
		}
		if r.Most == 1 {
			e.book.OneByOne()
		}
		e.append(Record{Kind: RecordWave, Task: s.request.Task, Count: c.wave})
		if r.Most > 0 && r.Most < int(count) { // nobody was refused: it takes several submissions
			e.demand.dirty = true
			return
		}
		if count == 1 {
			t.pauseTo = e.now + noRoomPause
		}
	default:
		t.pauseTo = e.now + min(firstAway<<min(t.refused, 20), longestAway)
		t.refused++
	}
	if t.refusal != r.Text { // once, and not every minute for as long as it is so
		e.notice("task %q: the batch system refused %s: %s", t.spec.ID, units.Plural(count, "worker"), r.Text)
	}
	t.refusal = r.Text
	e.demand.dirty = true
}

// hasRoom takes in that as many were accepted as are asked for at once. What had filled the queue may be gone: the next time it is twice
// as many.
func (e *Engine) hasRoom(s *submission) {
	c := &e.classes[e.tasks[s.request.Task].class]
	if c.wave == 0 || int64(s.request.Count) < c.wave || c.wave == c.size || e.now < c.fullAt+fullFor {
		return
	}
	if c.wave *= 2; c.size > 0 {
		c.wave = min(c.wave, c.size)
	}
	e.append(Record{Kind: RecordWave, Task: s.request.Task, Count: c.wave})
}

// neverStarts ends the hope for more workers of a task's class. If none of the run has ever come, the job is wrong. As long as nodes are excluded by
// hand it may be for them, and they may come back: it is tried again after a pause.
func (e *Engine) neverStarts(task int32, why string) {
	if nodes := e.excludedByHand(); len(nodes) > 0 && e.phase == running {
		t := &e.tasks[task]
		t.pauseTo = e.now + noRoomPause
		e.demand.dirty = true
		e.notice("task %q: %s; that may be for %s, excluded by hand: it is tried again", t.spec.ID, why, strings.Join(nodes, ", "))
		return
	}
	if e.phase == running && e.joins == 0 {
		e.wrong = true
		e.endEarly(StopCancel, RunBroken, fmt.Sprintf("task %q: %s", e.tasks[task].spec.ID, why))
		return
	}
	for i := range e.tasks {
		if t := &e.tasks[i]; t.class == e.tasks[task].class {
			e.hopeless(t, why)
		}
	}
}

// hopeless: no more workers are asked for.
func (e *Engine) hopeless(t *task, why string) {
	if t.hopeless != "" || t.ended {
		return
	}
	t.hopeless = why
	e.notice("task %q: no more workers are asked for: %s", t.spec.ID, why)
	e.demand.dirty = true
}

// checkHopeless gives tasks up that get no more workers, once nobody is left who could work on them.
func (e *Engine) checkHopeless() {
	if e.phase != running {
		return
	}
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.ended || t.hopeless == "" || t.results > 0 {
			continue
		}
		alone := true
		for _, w := range e.live {
			alone = alone && (!e.couldServe(w, i) || w.nonce == 0 && w.goes())
		}
		if alone {
			e.abandon(i)
		}
	}
}

// couldServe reports whether a worker may get blocks of a task: one that was asked for those of its class, one that came by itself those of the task
// that it has named, or any.
func (e *Engine) couldServe(w *worker, i int) bool {
	if w.sub == nil {
		return w.any || int(w.task) == i
	}
	return e.tasks[w.task].class == e.tasks[i].class
}

// notReplaced bounds a task by what it has left, after the person whose run it is has cancelled a worker by hand.
func (e *Engine) notReplaced(w *worker) {
	t := &e.tasks[w.task]
	if e.phase != running || t.ended {
		return
	}
	if w.sub.throttle > 0 && e.lower(w.sub) {
		return // what waits behind it does not take its place
	}
	left := e.fleet.Slots(int(w.task))
	if left == 0 {
		e.hopeless(t, "they were cancelled by hand")
		return
	}
	if most := e.fleet.MaxWorkers(int(w.task)); most > 0 && left >= most {
		return // they are as many as there may be without it: the limit does not rise
	}
	e.set(&Setting{Key: SetMaxWorkers, Task: w.task, N: left, By: fmt.Sprintf("worker %s was cancelled by hand, and is not replaced", w.id)})
}

// startsOfClass bounds how many workers of a task may be asked for, where they come from a batch system.
func (e *Engine) startsOfClass(i int, starts int64) int64 {
	t := &e.tasks[i]
	c := &e.classes[t.class]
	if !e.book.MaySubmit(e.now) || t.hopeless != "" || c.yields && e.waitsInQueue(t.class) {
		return 0
	}
	if c.wave > 0 {
		starts = min(starts, c.wave)
	}
	return min(starts, e.submittable()) + e.spares(i)
}

// waitsInQueue reports whether a class has workers in the queue. One that has none, or one that runs, asks for more again.
func (e *Engine) waitsInQueue(class int) bool {
	for _, w := range e.live {
		if w.sub != nil && e.tasks[w.task].class == class {
			return true
		}
	}
	e.classes[class].yields = false
	return false
}

// newestFirst orders workers that wait in the queue by how long they do.
func newestFirst(list []fleet.Idle) {
	slices.SortStableFunc(list, func(a, b fleet.Idle) int { return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(b.Ref, a.Ref)) })
}

// listImpatient adds to the idle workers those that have been in the queue for long while nothing of their class runs: what they have
// taken may go to others, the newest first, but the oldest keeps its place.
func (e *Engine) listImpatient() {
	d := &e.demand
	oldest := make([]*worker, len(e.classes))
	runs := make([]bool, len(e.classes))
	var list []*worker
	for _, w := range e.live {
		c := e.tasks[w.task].class
		switch {
		case w.sub == nil:
		case w.nonce != 0 || w.hasBegun:
			runs[c] = true
		case w.goes() || !w.sub.sent || w.spare || w.yields:
		default:
			if o := oldest[c]; o == nil || w.bornAt < o.bornAt || w.bornAt == o.bornAt && w.element < o.element {
				oldest[c] = w
			}
			list = append(list, w)
		}
	}
	first := len(d.idle)
	for _, w := range list {
		t := &e.tasks[w.task]
		if runs[t.class] || oldest[t.class] == w || t.ready == 0 || e.now < max(w.bornAt, e.classes[t.class].ranAt)+e.pendingPatience() {
			continue
		}
		d.idle = append(d.idle, fleet.Idle{Ref: len(d.refs), Task: int(w.task), Slots: int64(w.slots), Since: w.bornAt, Starting: true, Pinned: true})
		d.refs = append(d.refs, w)
	}
	newestFirst(d.idle[first:])
}

func (e *Engine) pendingPatience() time.Duration {
	if p := e.cfg.Job.PendingPatience; p > 0 {
		return p
	}
	return defaultPatience
}

// keepOff keeps the pending workers of a task off the nodes that are not used for it.
func (e *Engine) keepOff(task int32) {
	if e.book == nil {
		return
	}
	nodes := e.notOn(task)
	for _, w := range e.live {
		if w.sub != nil && w.task == task && w.nonce == 0 {
			e.book.Exclude(w.sub.tag, nodes)
		}
	}
}

// keepAllOff does it for all tasks.
func (e *Engine) keepAllOff() {
	for i := range e.tasks {
		e.keepOff(int32(i))
	}
}

// admit has the book judge a worker that introduces itself, and reports whether it may go on. What binds its submission to its array stands in
// the journal before its join, without which it gets no block (isKnown): at most one array of a submission is ever given blocks, over any crash.
func (e *Engine) admit(j *Join, refuse refuser) bool {
	ok := e.book.Admit(e.now, j.Tag, j.Array)
	e.readBook()
	if !ok && e.book.Knows(j.Tag) {
		refuse("twin", "array %s is not the one that submission %s stands for: this worker is one of a twin", j.Array, j.Tag)
		return false
	}
	return true
}

// launched reports whether a launcher started it, and still stands for it.
func (w *worker) launched() bool { return w.sub != nil && !w.replaced }

// startedAgain makes a worker of an element that its batch system has started once more. The one before is told to stop, wherever it may
// be; its blocks go out on its word, else when it has been silent for long enough.
func (e *Engine) startedAgain(old *worker, j *Join) *worker {
	e.notice("worker %s was started again by the batch system, on %s", old.id, orUnknown(j.Node))
	w := &worker{id: old.id, sub: old.sub, element: old.element, task: old.task, slots: old.slots, bornAt: e.now, hasBegun: true, heard: e.now, answer: never}
	e.book.Connected(e.now, old.name(), false)
	old.replaced, old.hinted = true, true
	w.sub.workers[w.element] = w
	e.workers[w.id] = w
	e.enlist(w)
	e.recount(w)
	e.tell(old, toStop, "its batch system has started it again")
	if old.session == 0 && old.held == 0 && !old.away { // who is away has blocks of which it has not told
		e.endWorker(old, "lost")
	} else {
		e.recount(old)
		e.lookAt(e.now + e.cfg.Job.HintAfter)
	}
	return w
}

// bookConnection tells the book whether a worker can be heard.
func (e *Engine) bookConnection(w *worker, is bool) {
	if e.book != nil && w.launched() {
		e.book.Connected(e.now, w.name(), is)
	}
}

// givenMore says once for a class that its workers have much more of their nodes than they were asked for with, as that is billed.
func (e *Engine) givenMore(w *worker, j *Join) {
	t := &e.tasks[w.task]
	asked := max((t.spec.Requires.Times(int64(w.slots)).Get("cpu")+999)/1000, 1) * 1000
	if w.sub == nil || e.book == nil || e.classes[t.class].more || j.CPUMilli <= asked+asked/2 {
		return
	}
	e.classes[t.class].more = true
	what, use := "had asked for "+amount("cpu", asked), `slots = "fill"`
	if j.Fill {
		what = fmt.Sprintf("has %s, which need %s", units.Plural(int64(w.slots), "slot"), amount("cpu", asked))
		use = "more of what is short for more slots (its memory, its GPUs, resources, max_workers)"
	}
	e.notice("task %q: worker %s was given %s CPUs of its node and %s: the site gives whole nodes, or CPUs with the memory, and bills them; %s would use them",
		t.spec.ID, w.id, amount("cpu", j.CPUMilli), what, use)
}

// closeBook: the run ends, and nothing more is asked for.
func (e *Engine) closeBook() {
	if e.book != nil {
		e.book.Close()
	}
}

// leftInOrder: at the end of the run nobody waits for the batch system to see what a worker has said itself.
func (e *Engine) leftInOrder(w *worker) bool { return e.book != nil && e.phase == leavingRun }

// goneWithin is how long a worker that is to go, and holds nothing, may still be there. One that nobody launched can only be cut off: it would come
// back, again and again, with a result that could not be acknowledged before.
func (e *Engine) goneWithin(w *worker) time.Duration {
	if !w.launched() {
		return max(e.cfg.Job.Grace, e.cfg.Job.ReconnectGrace)
	}
	if e.book != nil && w.session == 0 && w.leaving {
		return max(e.cfg.Job.Grace, leftWithin)
	}
	return e.cfg.Job.Grace
}

// reasonWords is a reason for people, with the system's own word.
func reasonWords(r launcher.Reason) string {
	switch {
	case r.Plain == "":
		return r.Word
	case r.Word == "":
		return r.Plain
	default:
		return fmt.Sprintf("%s (%s)", r.Word, r.Plain)
	}
}

// queueWaits says what the workers of a task wait for that have not connected.
func (e *Engine) queueWaits(i int) (parts []string) {
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	var tags []string
	seen := map[string]bool{}
	unsure := ""
	begun, first, queued := int64(0), (*worker)(nil), int64(0)
	for _, w := range e.live {
		if int(w.task) != i || w.sub == nil || w.nonce != 0 || w.spare {
			continue
		}
		if tag := w.sub.tag; !seen[tag] {
			seen[tag] = true
			tags = append(tags, tag)
			if e.book.Unsure(tag) {
				unsure = tag
			}
		}
		if !w.hasBegun {
			queued++
			continue
		}
		begun++
		if first == nil || w.bornAt < first.bornAt {
			first = w
		}
	}
	for _, r := range e.book.Waits(e.now, tags) {
		n := min(int64(r.Count), queued)
		if queued -= n; n == 0 {
			continue
		}
		when := ""
		if r.StartsIn > 0 {
			when = ", the first perhaps in " + units.Duration(r.StartsIn.Round(time.Minute))
		}
		why := ""
		if words := reasonWords(r.Reason); words != "" { // at first nothing has looked at them yet
			why = ": " + words
		}
		say("waiting for %s%s%s", units.Plural(n, "pending worker"), why, when)
	}
	if s := e.spareWaits(i); s != "" {
		say("%s", s)
	}
	if queued > 0 {
		say("%s asked for", units.Plural(queued, "worker"))
	}
	if begun > 0 {
		log := "the log of worker " + first.id
		if e.cfg.LogPath != nil {
			log = e.cfg.LogPath(first.id)
		}
		say("%s running, none connected for %s; see %s", units.Plural(begun, "job"), units.Duration((e.now - first.bornAt).Round(time.Second)), log)
	}
	if unsure != "" {
		say("it is not known whether submission %s was accepted", unsure)
	}
	if n := e.book.Silent(); n > 1 {
		say("the batch system has not answered %s", units.Plural(int64(n), "time"))
	}
	return parts
}
