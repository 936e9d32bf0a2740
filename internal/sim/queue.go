package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A queue is a launcher over a batch system, as launcher/slurm is: it carries out single requests, each of which takes a while and may
// get no answer.
type queue struct {
	world *World
	rng   *rand.Rand
	batch *batch
	bound map[string]string // array by tag
	given map[string]string // array of each tag that workers got blocks under
	calls []call
	// What goes wrong for a while: nobody answers; answers are empty; submissions are lost after they were made, or before, or
	// are made a while after their answer did not come; twice as many are made as were asked for.
	// Listings leave out every second row: the odd ones and the even ones in turn, as an element of which nothing was seen yet and that two
	// answers in a row lack was withdrawn.
	halves                                          int
	deaf, empty, unsure, lost, late, twice, partial interval
	forgot                                          time.Duration // when it last lost its state
	// Of the rates.
	changed  time.Duration // when the last changing call was answered
	polls    []time.Duration
	changes  []time.Duration
	accounts []time.Duration
}

// A call is one command.
type call struct {
	co      *coordinator
	kind    engine.EffectKind
	ask     engine.Ask
	submit  *engine.Submission
	workers []launcher.Worker
	answer  engine.Answer
}

const (
	queueMakes   what = iota // n = call: the system hears it
	queueAnswers             // n = call
	queueAppears             // n = call: a submission that nobody knows of is made
)

func newQueue(w *World) *queue {
	q := &queue{world: w, rng: w.cfg.rng(streamLauncher), bound: make(map[string]string), given: make(map[string]string), changed: -time.Hour, forgot: -time.Hour}
	q.batch = newBatch(w, *w.cfg.Batch, q.rng)
	q.batch.start = q.start
	q.batch.term = func(x *worker) { x.signal() }
	q.batch.kill = func(x *worker, how launcher.Cause) { x.die(launcher.End{Cause: how, Signal: 9}) }
	return q
}

func (q *queue) properties() launcher.Properties {
	return launcher.Properties{Queue: true, IdleTimeout: 2 * time.Minute, AbandonAfter: 15 * time.Minute}
}

func (q *queue) begins(*coordinator)                  { q.bound = make(map[string]string) } // what stands for what, it remembers no longer than it lives
func (q *queue) adopt(*coordinator) []launcher.Worker { return nil }

// close cancels what a run that ends has left, as far as the system hears it: an element that was put back into the queue when all it
// was known by had ended, say.
func (q *queue) close(co *coordinator) {
	if q.deaf.has(q.world.now) || co.mine() != nil {
		return
	}
	for _, a := range q.batch.arrays {
		if !a.foreign {
			q.batch.cancel(a, a.all(), launcher.CancelledByOwner)
		}
	}
}

func (q *queue) kill(*coordinator, []launcher.Worker) {
	q.world.checks.fail("a batch system is told to kill")
}
func (q *queue) submit(co *coordinator, s *engine.Submission) {
	copied := *s
	q.call(call{co: co, kind: engine.EffectSubmit, submit: &copied})
}

func (q *queue) cancel(co *coordinator, workers []launcher.Worker) {
	q.call(call{co: co, kind: engine.EffectCancel, workers: workers})
}

func (q *queue) ask(co *coordinator, kind engine.EffectKind, a engine.Ask) {
	if kind == engine.EffectBind {
		if co != q.world.co {
			return // it has slept while another took over, and speaks to nobody
		}
		if was := q.bound[a.Tag]; was != "" && was != a.Array {
			q.world.checks.fail("submission %s is bound to %s, and was to %s", a.Tag, a.Array, was)
		}
		q.bound[a.Tag] = a.Array
		return
	}
	q.call(call{co: co, kind: kind, ask: a})
}

// call sends a command off. One that was taken over changes nothing but by a submission that it was about to make.
func (q *queue) call(c call) {
	w := q.world
	switch c.kind {
	case engine.EffectCancel, engine.EffectCancelArray, engine.EffectThrottle, engine.EffectExclude:
		if c.co.mine() != nil {
			return
		}
	}
	q.rate(&c)
	q.calls = append(q.calls, c)
	n := uint64(len(q.calls) - 1)
	d := time.Duration(1)
	if q.batch.cfg.Answer > 0 {
		d += time.Duration(q.rng.Int64N(int64(2 * q.batch.cfg.Answer)))
	}
	if q.deaf.has(w.now) {
		d = 10 * time.Second
	}
	w.queue.push(event{at: w.now + d/2, to: q, what: queueMakes, n: n})
	w.queue.push(event{at: w.now + d, to: q, what: queueAnswers, n: n})
}

// Rates that are stated for an hour.
const mostPolls, mostChanges, mostAccounts = 150, 120, 20

// rate holds the calls to what a batch system is to be asked in an hour.
func (q *queue) rate(c *call) {
	now := q.world.now
	count := func(list *[]time.Duration, most int, what string) {
		for len(*list) > 0 && (*list)[0] <= now-time.Hour {
			*list = (*list)[1:]
		}
		if *list = append(*list, now); len(*list) > most*q.lives() {
			q.world.checks.fail("%d calls of the kind %s in an hour", len(*list), what)
		}
	}
	switch c.kind {
	case engine.EffectList, engine.EffectKnown:
		count(&q.polls, mostPolls, "squeue")
	case engine.EffectAccount:
		count(&q.accounts, mostAccounts, "sacct")
	default:
		count(&q.changes, mostChanges, "sbatch, scontrol, scancel")
		if now-q.changed < time.Second && c.co == q.world.co && q.lives() == 1 {
			q.world.checks.fail("a change follows another one after %v", now-q.changed)
		}
	}
}

// lives: each coordinator has an allowance of its own.
func (q *queue) lives() int { return int(q.world.epoch) }

func (q *queue) act(ev *event) {
	c := &q.calls[ev.n]
	switch ev.what {
	case queueMakes:
		q.make(c, ev.n)
	case queueAnswers:
		switch c.kind {
		case engine.EffectList, engine.EffectKnown, engine.EffectAccount:
		default:
			q.changed = q.world.now
		}
		if !c.co.dead {
			c.co.asked = append(c.co.asked, c.answer)
			q.world.queue.push(event{at: q.world.now, to: c.co, what: coAnswered, n: uint64(len(c.co.asked) - 1)})
		}
	case queueAppears:
		if a, err := q.made(c); err == nil {
			a.twin = true
			q.world.saw(sawLate)
		}
	}
}

var errDeaf = errors.New("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")

// make has the system do what it is asked.
func (q *queue) make(c *call, n uint64) {
	w := q.world
	if q.deaf.has(w.now) {
		w.saw(sawDeaf)
		c.answer.Err = errDeaf
		if c.kind == engine.EffectSubmit {
			c.answer.Err = &launcher.Refusal{Kind: launcher.RefusedForNow, Text: errDeaf.Error()}
		}
		return
	}
	b := q.batch
	switch c.kind {
	case engine.EffectSubmit:
		q.makeSubmission(c, n)
	case engine.EffectCancel:
		w.saw(sawCancelled)
		for i := 0; i < len(c.workers); {
			tag, list := c.workers[i].Tag, []int(nil)
			for ; i < len(c.workers) && c.workers[i].Tag == tag; i++ {
				list = append(list, c.workers[i].Element)
			}
			if a := q.ours(c.co, q.bound[tag], tag); a != nil {
				b.cancel(a, list, launcher.CancelledByOwner)
			}
		}
	case engine.EffectCancelArray:
		if a := b.find(c.ask.Array); a != nil && a.tag == c.ask.Tag { // the command's own filters
			b.cancel(a, a.all(), launcher.CancelledByOwner)
		}
	case engine.EffectList:
		c.answer.Listing = b.list()
		if n := len(c.answer.Listing.Elements); n > 0 && q.empty.has(w.now) {
			c.answer.Listing = launcher.Listing{}
			w.saw(sawEmpty)
		} else if n > 0 && q.partial.has(w.now) {
			q.halves++
			c.answer.Listing.Elements = halfOf(c.answer.Listing.Elements, q.halves%2)
			w.saw(sawPartial)
		}
	case engine.EffectKnown:
		w.saw(sawGone)
		c.answer.Known = b.find(c.ask.Array) != nil
	case engine.EffectAccount:
		if b.cfg.NoAccounts {
			c.answer.Err = launcher.ErrNoAccounting
		} else {
			c.answer.Listing = b.account(c.ask.Arrays)
		}
	case engine.EffectThrottle:
		switch a := b.find(c.ask.Array); {
		case a != nil && !a.foreign:
			a.throttle = c.ask.Count
			b.wake()
			w.saw(sawThrottled)
			w.checks.submitted(c.co, scheduler.Resources{}, 0)
		case a != nil && q.couldKnow(c.co):
			w.checks.fail("array %s of somebody else gets a throttle", a.id)
		}
	case engine.EffectExclude:
		a := b.find(c.ask.Array)
		switch {
		case b.cfg.FixedNodes:
			c.answer.Err = errors.New("update is not permitted")
		case a != nil && !a.foreign:
			b.keepOff(a, nodeNumbers(c.ask.Nodes))
		case a != nil && q.couldKnow(c.co):
			w.checks.fail("nodes of array %s of somebody else are excluded", a.id)
		}
	}
}

// couldKnow: the system has told everybody since that it lost its state. A call that was on its way then is not its caller's fault, nor what a
// coordinator does that has slept since.
func (q *queue) couldKnow(co *coordinator) bool {
	return q.world.now > max(q.forgot, co.stalledTo, q.world.home.slept())+2*time.Minute
}

// ours is an array that elements may be cancelled of. The command has no filter of its own.
func (q *queue) ours(co *coordinator, id, tag string) *array {
	a := q.batch.find(id)
	if a != nil && (a.foreign || a.tag != tag) {
		if !q.couldKnow(co) {
			return nil
		}
		q.world.checks.fail("elements of array %s are cancelled, which is not of submission %s", id, tag)
		return nil
	}
	return a
}

func (q *queue) makeSubmission(c *call, n uint64) {
	now := q.world.now
	switch {
	case q.lost.has(now):
		q.world.saw(sawLost)
		c.answer.Err = launcher.ErrUnsure
		return
	case q.late.has(now):
		c.answer.Err = launcher.ErrUnsure
		q.world.queue.push(event{at: now + time.Duration(q.rng.Int64N(int64(3*time.Minute))), to: q, what: queueAppears, n: n})
		return
	}
	count := int64(c.submit.Count)
	if c.submit.Throttle > 0 {
		count = min(count, int64(c.submit.Throttle))
		q.world.saw(sawSpare)
	}
	q.world.checks.submitted(c.co, c.submit.Requires.Times(int64(c.submit.Slots)), count)
	q.mostSubmitted(c)
	a, err := q.made(c)
	if err != nil {
		c.answer.Err = err
		return
	}
	c.answer.Array = a.id
	if q.twice.has(now) {
		if other, err := q.made(c); err == nil {
			other.twin = true
			q.world.saw(sawTwice)
		}
	}
	if q.unsure.has(now) {
		q.world.saw(sawUnsure)
		c.answer.Array, c.answer.Err = "", launcher.ErrUnsure
	}
}

// mostSubmitted holds a submission to what a job says that a batch system may have at once, but for what it should not have.
func (q *queue) mostSubmitted(c *call) {
	most := q.world.cfg.Job.MaxSubmitted
	if most == 0 || c.co != q.world.co {
		return
	}
	n := int64(c.submit.Count)
	for _, a := range q.batch.arrays {
		if a.foreign || a.twin || q.bound[a.tag] != "" && q.bound[a.tag] != a.id {
			continue
		}
		for i := range a.elements {
			if a.elements[i].state <= elementRunning {
				n++
			}
		}
	}
	if n > most {
		q.world.checks.fail("submission %s makes %d elements, and max_submitted is %d", c.submit.Tag, n, most)
	}
}

// halfOf is every second row, from the first or the second on.
func halfOf(rows []launcher.Element, first int) (half []launcher.Element) {
	for i := range rows {
		if i%2 == first {
			half = append(half, rows[i])
		}
	}
	return half
}

func (q *queue) made(c *call) (*array, error) {
	s := c.submit
	each := s.Requires.Times(int64(s.Slots))
	a, err := q.batch.submit(s.Tag, s.Count, s.Slots, each, nodeNumbers(s.Exclude))
	if err == nil {
		a.throttle = s.Throttle
	}
	return a, err
}

func nodeNumbers(names []string) (list []int) {
	for _, name := range names {
		n, _ := strconv.Atoi(strings.TrimPrefix(name, "n"))
		list = append(list, n)
	}
	return list
}

// start starts the program of an element.
func (q *queue) start(a *array, i int) {
	w, e := q.world, &a.elements[i]
	d := time.Millisecond
	if s := int64(w.cfg.StartTime); s > 0 {
		d += time.Duration(s/2 + q.rng.Int64N(s))
	}
	x := w.process(launcher.Worker{Tag: a.tag, Element: i}, e.node, a.slots, d)
	x.array, x.element, x.restart = a.id, a, e.restarts
	if e.restarts > 0 {
		w.saw(sawRestarted)
	}
	n := &q.batch.nodes[e.node]
	x.dud = n.blackHole
	e.x = x
	if n.down { // which was not seen yet
		x.die(launcher.End{Cause: launcher.NodeFailed})
	}
}

func (q *queue) ended(x *worker, how launcher.End) {
	q.world.gone(x)
	q.batch.ended(x.element, x.at.Element, x, how)
}

// held is what the system holds of this run, but for what it should not.
func (q *queue) held() (sum scheduler.Resources) {
	for _, a := range q.batch.arrays {
		if a.foreign || a.twin || q.bound[a.tag] != "" && q.bound[a.tag] != a.id {
			continue
		}
		n := a.may()
		sum = sum.Add(scheduler.NewResources(map[string]int64{"cpu": n * a.cpu, "gpu": n * a.gpu}))
	}
	return sum
}

// may is how many elements of an array run, or may start without a further call.
func (a *array) may() (n int64) {
	pending := int64(0)
	for i := range a.elements {
		switch a.elements[i].state {
		case elementRunning:
			n++
		case elementPending:
			pending++
		}
	}
	if a.throttle > 0 {
		pending = min(pending, max(int64(a.throttle)-n, 0))
	}
	return n + pending
}

// gives: a worker gets blocks. At most one array of a submission ever does.
func (q *queue) gives(x *worker) {
	if was := q.given[x.at.Tag]; was != "" && was != x.array {
		q.world.checks.fail("worker %s of array %s gets blocks, and array %s of the same submission had some", x.id, x.array, was)
	}
	q.given[x.at.Tag] = x.array
}

// upset has the batch system go wrong.
func (q *queue) upset(f *Fault, lasts interval) {
	b := q.batch
	where := 1 + f.N%(len(b.nodes)-1)
	switch f.Kind {
	case FaultNode:
		b.fail(where)
	case FaultPreempt:
		b.preempt(where)
	case FaultBlackHole:
		b.nodes[where].blackHole = true
	case FaultDrain:
		b.nodes[where].drained = true
	case FaultNetless:
		q.netless(where, lasts)
	case FaultDeaf:
		q.deaf = lasts
	case FaultEmpty:
		// As long as it can be seen through: a system that says for longer that there is nothing is believed.
		q.empty = interval{lasts.from, min(lasts.to, lasts.from+time.Minute)}
	case FaultUnsure:
		q.unsure = lasts
	case FaultLost:
		q.lost = lasts
	case FaultLate:
		q.late = lasts
	case FaultTwice:
		q.twice = lasts
	case FaultForgets:
		q.forgot = q.world.now
		b.forgetAll()
	case FaultHand:
		q.byHand(f.N)
	case FaultPartial:
		q.partial = interval{lasts.from, min(lasts.to, lasts.from+time.Minute)}
	case FaultGang:
		q.gang(where, lasts)
	case FaultVanish:
		q.vanishes(f.N)
	case FaultBeside:
		q.besides(f.N)
	}
}

// passes ends what lasted.
func (q *queue) passes(f *Fault) {
	b := q.batch
	where := 1 + f.N%(len(b.nodes)-1)
	switch f.Kind {
	case FaultNode:
		b.repair(where)
	case FaultBlackHole:
		b.nodes[where].blackHole = false
	case FaultDrain:
		b.nodes[where].drained = b.nodes[where].down
		b.wake()
	case FaultNetless:
		b.rejoins(where)
	case FaultGang:
		for _, e := range q.running(where) {
			e.suspended = false
		}
	}
}

// running are our elements that run on a node, on all with 0.
func (q *queue) running(where int) (list []*arrayElement) {
	for _, a := range q.batch.arrays {
		for i := range a.elements {
			if e := &a.elements[i]; !a.foreign && e.state == elementRunning && e.x != nil && (where == 0 || e.node == where) {
				list = append(list, e)
			}
		}
	}
	return list
}

// gang suspends what runs on a node for a while, for the sake of others.
func (q *queue) gang(where int, lasts interval) {
	for _, e := range q.running(where) {
		e.suspended = true
		q.world.stallWorker(e.x, lasts.to-lasts.from)
		q.world.saw(sawSuspended)
	}
}

// vanishes ends an element of which the system knows nothing from then on.
func (q *queue) vanishes(n int) {
	if list := q.running(0); len(list) > 0 {
		e := list[n%len(list)]
		x := e.x
		q.batch.over(x.element, e, elementGone, "FORGOTTEN", launcher.End{})
		x.die(launcher.End{Cause: launcher.Signalled, Signal: 9})
		q.world.saw(sawVanished)
	}
}

// besides starts a second process for an element.
func (q *queue) besides(n int) {
	list := q.running(0)
	if len(list) == 0 {
		return
	}
	e, w := list[n%len(list)], q.world
	x := &worker{world: w, beside: true, at: e.x.at, id: e.x.id, nonce: mix(w.cfg.Seed, uint64(w.number)) | 1, node: e.node, slots: e.x.slots, restart: e.restarts}
	x.array, x.element = e.x.array, e.x.element
	e.beside = append(e.beside, x)
	w.enlist(x, time.Second)
}

// byHand has an administrator cancel an element.
func (q *queue) byHand(n int) {
	var live []*array
	for _, a := range q.batch.arrays {
		if !a.foreign && slices.ContainsFunc(a.elements, func(e arrayElement) bool { return e.state <= elementRunning }) {
			live = append(live, a)
		}
	}
	if len(live) > 0 {
		a := live[n%len(live)]
		q.batch.cancel(a, []int{n % len(a.elements)}, launcher.CancelledByOther)
		q.world.saw(sawByHand)
	}
}
