package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
)

// The coordinator as a job of the batch system (run --coordinator job): it waits in the queue as others do, has a time limit of its own, is
// preempted and loses its node. Told of its end it steps aside, and goes on elsewhere once it is started again; its workers keep what they run.

// HomeConfig is the job that the coordinator is.
type HomeConfig struct {
	// Limit is how long it may run at a time, 0 = for ever; Warn is how long before that it is warned, 0 = it is not.
	Limit, Warn time.Duration
	// Away is what workers are told when it steps aside.
	Away time.Duration
	// Requeue: it waits once more when it was preempted, or lost with its node. Else that is its end.
	Requeue bool
	// Refuses: its first job cannot put itself back into the queue.
	Refuses bool
	// Priority is its place in the queue; workers have 0. Waits is the longest time for which nobody looks at it once it is in the queue.
	Priority int
	Waits    time.Duration
	// Late is how long the nodes see the discovery file as it was before.
	Late time.Duration
}

// A home is where the coordinator lives: the latest job, and the process in it.
type home struct {
	world    *World
	cfg      HomeConfig
	rng      *rand.Rand
	job      *array
	run      uint64 // counts starts of programs
	jobs     int    // submitted so far
	state    homeState
	co       *coordinator   // that runs in it
	over     bool           // the run has ended in order, whatever becomes of the job
	requeued bool           // it knows that it is in the queue again
	until    time.Duration  // when it tries no longer to return to the queue
	last     int            // node of the life before
	ghosts   []*coordinator // that live on nodes which are thought dead
	failed   map[uint64]int // the node that a fault has struck
	found    [2]discovery   // the discovery file as it is, and as it was before
}

// homeState is where the program of the job is.
type homeState uint8

const (
	homeNowhere  homeState = iota // the job waits, or there is none
	homeBegins                    // the program is about to begin
	homeRuns                      // the coordinator runs
	homeGoesBack                  // it has stepped aside, and the job is to return to the queue
	homeDead                      // it is gone with its node
)

// A discovery is what a file in the run directory says of the coordinator.
type discovery struct {
	co        *coordinator
	awayUntil time.Duration
	written   time.Duration
}

// What happens to a home.
const (
	homeProgram  what = iota // the program begins; n = run
	homeWarns                // the job is told that its end is near; n = run
	homeRequeues             // n = run
	homeReleased             // the queue looks at it from now on; n = run before
	homeFinds                // slurmd is back, and ends what it finds: n = index in ghosts
)

const (
	// Of cmd/daisy-submit.
	asideWithin  = 3 * time.Second
	requeueFor   = 2 * time.Minute
	requeueEvery = 5 * time.Second
	whyTime      = 5 * time.Second
)

func newHome(w *World, cfg HomeConfig) *home {
	return &home{world: w, cfg: cfg, rng: w.cfg.rng(streamHome), failed: make(map[uint64]int)}
}

func (h *home) batch() *batch { return h.world.launcher.(*queue).batch }

func (h *home) element() *arrayElement { return &h.job.elements[0] }

func (h *home) up(d time.Duration) time.Duration { return time.Duration(h.rng.Int64N(int64(d) + 1)) }

func (h *home) push(in time.Duration, what what) {
	h.world.queue.push(event{at: h.world.now + in, to: h, what: what, n: h.run})
}

// starts has a coordinator begin, where and as coordinators do in this world.
func (w *World) starts() {
	h := w.home
	switch {
	case h == nil:
		w.begin()
	case h.job != nil && h.element().state <= elementRunning: // the run is left to that, as long as it may come
		w.queue.push(event{at: w.now + time.Minute, to: &w.faults, what: faultResumes, n: w.epoch})
	default:
		h.submit()
	}
}

// submit is what a person does: run --resume --coordinator job.
func (h *home) submit() {
	b := h.batch()
	b.nextID++
	h.jobs++
	h.job = &array{id: strconv.Itoa(b.nextID), tag: "coordinator", foreign: true, home: h, priority: h.cfg.Priority, slots: 1, cpu: 1000, elements: make([]arrayElement, 1)}
	b.arrays = append(b.arrays, h.job)
	h.over, h.world.resumes = false, 0
	h.world.logf("the coordinator is job %s", h.job.id)
	h.queues()
}

// queues has the job wait, for a while because nobody looks at it.
func (h *home) queues() {
	h.state = homeNowhere
	h.job.exclude = nil
	if h.last > 0 && h.rng.IntN(2) == 0 {
		h.job.exclude = []int{h.last}
	}
	h.job.held = "BeginTime"
	h.push(h.up(h.cfg.Waits), homeReleased)
}

func (h *home) act(ev *event) {
	if ev.what == homeFinds {
		if co := h.ghosts[ev.n]; !co.dead {
			h.world.crash(co)
		}
		return
	}
	if ev.n != h.run {
		return
	}
	switch ev.what {
	case homeReleased:
		h.job.held = ""
		h.batch().wake()
	case homeProgram:
		h.program()
	case homeWarns:
		if h.state == homeRuns {
			h.world.queue.push(event{at: h.world.now, to: h.co, what: coWarned})
		}
	case homeRequeues:
		h.goesBack()
	}
}

// begins: the batch system has found room for the job.
func (h *home) begins() {
	e := h.element()
	h.run++
	h.state, h.requeued, e.limit = homeBegins, false, 0
	if h.cfg.Limit > 0 {
		e.limit = h.world.now + h.cfg.Limit
		h.world.queue.push(event{at: e.limit, to: h.batch(), what: batchLimits, n: h.batch().key(h.job, 0)})
		if h.cfg.Warn > 0 {
			h.push(h.cfg.Limit-h.cfg.Warn, homeWarns)
		}
	}
	if h.batch().nodes[e.node].down { // which was not seen yet
		h.state = homeDead
		return
	}
	h.push(time.Millisecond+h.up(5*time.Second), homeProgram)
}

// program is the beginning of daisy-submit.
func (h *home) program() {
	w, e := h.world, h.element()
	switch {
	case h.state != homeBegins:
	case h.batch().nodes[e.node].blackHole:
		h.ends("FAILED")
	case h.over: // the job was in the queue again when the run ended
		w.saw(sawHomeAgain)
		h.ends("COMPLETED")
	default:
		if h.last > 0 && h.last != e.node {
			w.saw(sawHomeMoved)
		}
		w.begin()
		h.state, h.co, h.last = homeRuns, w.co, e.node
		h.co.node = e.node
	}
}

// listens: a coordinator has written where it is.
func (h *home) listens(co *coordinator) {
	if h != nil {
		h.write(discovery{co: co})
		h.world.checks.aside = asideChecks{}
	}
}

func (h *home) write(d discovery) {
	d.written = h.world.now
	h.found[1], h.found[0] = h.found[0], d
}

// look is what a worker finds in the run directory.
func (h *home) look() discovery {
	if h.world.now < h.found[0].written+h.cfg.Late {
		return h.found[1]
	}
	return h.found[0]
}

// told: the job is told to end (SIGTERM); a harder signal follows later.
func (h *home) told() {
	switch h.state {
	case homeBegins:
		h.ends("")
	case homeRuns:
		h.world.queue.push(event{at: h.world.now, to: h.co, what: coTold})
	case homeGoesBack:
		if h.requeued {
			h.ends("")
		}
	}
}

// killed: the job gets SIGKILL.
func (h *home) killed() {
	if h.state == homeDead {
		return // nobody is there to see it
	}
	if h.state == homeGoesBack && !h.requeued {
		h.world.saw(sawHomeNotBack)
	}
	h.dies()
	h.ends("")
}

// dies ends the process, if there is one.
func (h *home) dies() {
	if co := h.co; co != nil {
		h.co = nil
		h.world.crash(co)
	}
}

// died: a coordinator's process has ended by itself, or could not begin.
func (h *home) died(co *coordinator) {
	if h != nil && h.co == co {
		h.co = nil
		h.ends("FAILED")
	}
}

// ends has the system see the end of the job's program; what it was to end for counts first.
func (h *home) ends(word string) {
	e := h.element()
	if h.state = homeNowhere; e.state != elementRunning {
		return
	}
	if e.ending != "" {
		word = e.ending
	}
	h.batch().over(h.job, e, elementEnded, word, launcher.End{Cause: launcher.Exited})
}

// ended: the system has seen the end of the job, or thinks so. Some go back into the queue; of others people hear.
func (h *home) ended(word string) {
	if h == nil {
		return
	}
	e := h.element()
	if co := h.co; co != nil && !co.dead { // on a node that is not heard
		h.ghosts = append(h.ghosts, co)
		h.co = nil
		h.world.saw(sawHomeNetless)
	}
	if h.run++; word == "REQUEUED" || h.cfg.Requeue && (word == "PREEMPTED" || word == "NODE_FAIL") {
		*e = arrayElement{restarts: e.restarts + 1}
		h.queues()
		return
	}
	if h.state = homeNowhere; h.world.resumes != h.world.epoch+1 {
		h.world.resumeLater()
	}
}

// nodeFails takes the process away, with what it had not synced.
func (h *home) nodeFails(where int) {
	if h == nil {
		return
	}
	for _, co := range h.ghosts {
		if co.node == where && !co.dead {
			h.world.crash(co)
		}
	}
	if h.job == nil || h.element().state != elementRunning || h.element().node != where {
		return
	}
	h.state = homeDead
	if h.co != nil {
		h.world.saw(sawHomeNode)
		for _, l := range h.co.open {
			l.deaf = true // nobody says that it is closed
		}
		h.dies()
		h.world.disk.powerFailure()
	}
}

// lost: its element has nothing to say for itself any more.
func (a *array) lost() bool { return a.home == nil || a.home.state == homeDead }

// netless: a node is cut off, also from the disk, so that a coordinator there comes no further.
func (h *home) netless(where int, lasts interval) {
	if h != nil && h.co != nil && h.co.node == where {
		h.world.stall(h.co, lasts.to-lasts.from)
	}
}

// slept is until when the last of those was asleep that are thought dead.
func (h *home) slept() (until time.Duration) {
	if h != nil {
		for _, co := range h.ghosts {
			until = max(until, co.stalledTo)
		}
	}
	return until
}

// rejoins: such a node is back, and what is not to run there any more is ended soon.
func (h *home) rejoins(where int) {
	if h == nil {
		return
	}
	for i, co := range h.ghosts {
		if co.node == where && !co.dead {
			h.world.queue.push(event{at: h.world.now + h.up(20*time.Second), to: h, what: homeFinds, n: uint64(i)})
		}
	}
}

// signalled is what daisy-submit does at a signal of the batch system.
func (co *coordinator) signalled(ev *event) {
	w, h := co.world, co.world.home
	if co.engine == nil || h.co != co {
		return
	}
	aside := func(why string) { co.apply(engine.Event{Kind: engine.EventAside, Left: h.cfg.Away, Text: why}) }
	switch ev.what {
	case coWarned:
		w.saw(sawHomeWarned)
		aside("its time is nearly over")
	case coTold: // it asks why
		q := w.launcher.(*queue)
		d := time.Duration(1)
		if q.batch.cfg.Answer > 0 {
			d += min(h.up(2*q.batch.cfg.Answer), whyTime)
		}
		w.queue.push(event{at: w.now + d, to: co, what: coLearns})
	case coLearns:
		switch e := h.element(); {
		case w.launcher.(*queue).deaf.has(w.now):
			co.apply(engine.Event{Kind: engine.EventStop, Stop: engine.StopInterrupt, Text: "told to end"})
		case e.ending == "PREEMPTED" && h.cfg.Requeue:
			h.requeued = true
			w.saw(sawHomePreempted)
			w.queue.push(event{at: w.now + asideWithin, to: co, what: coStops, n: uint64(engine.StopInterrupt)})
			aside("it is in the queue again")
		case e.ending == "TIMEOUT":
			w.saw(sawHomeLimit)
			w.queue.push(event{at: w.now + asideWithin, to: co, what: coStops, n: uint64(engine.StopInterrupt)})
			aside("its time is over")
		default:
			co.apply(engine.Event{Kind: engine.EventStop, Stop: engine.StopInterrupt, Text: "told to end"})
		}
	}
}

// endsLife: a life has ended in good order, for the run to go on or for good.
func (h *home) endsLife(co *coordinator) {
	if h == nil || h.co != co {
		return
	}
	h.co = nil
	if co.state != engine.RunAside {
		h.over = true
		h.ends("COMPLETED")
		return
	}
	h.world.saw(sawAside)
	h.write(discovery{co: co, awayUntil: h.world.now + h.cfg.Away})
	h.state, h.until = homeGoesBack, h.world.now+requeueFor
	if !h.requeued {
		h.push(1, homeRequeues)
	}
}

// goesBack returns the job to the queue.
func (h *home) goesBack() {
	switch q := h.world.launcher.(*queue); {
	case h.state != homeGoesBack:
	case h.world.now >= h.until:
		h.world.saw(sawHomeNotBack)
		h.ends("FAILED")
	case q.deaf.has(h.world.now), h.cfg.Refuses && h.jobs == 1:
		h.push(10*time.Second+requeueEvery, homeRequeues)
	default:
		h.state = homeNowhere
		h.batch().over(h.job, h.element(), elementEnded, "REQUEUED", launcher.End{Cause: launcher.Exited})
	}
}

// upset has something go wrong for the job that the coordinator is.
func (h *home) upset(f *Fault, n uint64, lasts interval) {
	if h == nil || h.job == nil || h.element().state != elementRunning {
		return
	}
	b, e := h.batch(), h.element()
	switch f.Kind {
	case FaultHomePreempted:
		if f.N%3 > 0 {
			if f.N%3 == 2 { // and nobody says why
				h.world.launcher.(*queue).deaf = interval{h.world.now, h.world.now + time.Minute}
			}
			b.finish(h.job, e, "PREEMPTED", b.key(h.job, 0))
		} else if h.state != homeDead {
			h.world.saw(sawHomeKilled)
			e.ending = "PREEMPTED"
			h.killed()
		}
	case FaultHomeCancelled:
		h.world.saw(sawHomeCancelled)
		b.finish(h.job, e, "CANCELLED", b.key(h.job, 0))
	case FaultHomeNode:
		h.failed[n] = e.node
		b.fail(e.node)
	case FaultHomeNetless:
		h.failed[n] = e.node
		h.world.launcher.(*queue).netless(e.node, lasts)
	}
	h.world.faults.passes(f, n)
}

// passes ends what lasted.
func (h *home) passes(f *Fault, n uint64) {
	if h == nil || h.failed[n] == 0 {
		return
	}
	switch f.Kind {
	case FaultHomeNode:
		h.batch().repair(h.failed[n])
	case FaultHomeNetless:
		h.batch().rejoins(h.failed[n])
	}
}

// finds is whom a worker reaches that looks for the coordinator: nobody if it is refused. Without an answer it is neither.
func (w *World) finds(x *worker) (co *coordinator, answers bool) {
	h := w.home
	if h == nil {
		return w.listening, w.net.reaches(x.node, w.now)
	}
	at := h.look().co
	switch {
	case at == nil: // nobody has ever been there: it waits for the file
		return nil, true
	case h.batch().nodes[at.node].down, at.node != x.node && !(w.net.reaches(x.node, w.now) && w.net.reaches(at.node, w.now)):
		return nil, false
	case at != w.listening:
		return nil, true
	}
	return at, true
}

// arrival is when something that is sent now comes.
func (w *World) arrival(l *link, toCo bool) time.Duration {
	n := &w.net
	switch {
	case l.co.node == 0:
		return n.arrival(l.w.node, toCo, w.now)
	case l.co.node == l.w.node:
		return w.now + n.delay(w.now)
	}
	at := n.arrival(l.w.node, toCo, w.now)
	if i, is := n.blocked(l.co.node, !toCo, w.now); is {
		at = max(at, i.to+n.delay(i.to))
	}
	return at
}

// looks reads the discovery file: one that starts while the coordinator is away waits for the next one.
func (w *worker) looks() {
	h := w.world.home
	if h == nil || w.known {
		return
	}
	if until := h.look().awayUntil; until > w.world.now {
		w.world.saw(sawAwaited)
		w.joinBy = max(w.joinBy, until+joinWithin)
	}
}

// patient is how much longer than otherwise a worker waits, and since when at least.
func (w *worker) patient() (more, since time.Duration) {
	switch {
	case w.away == 0:
		return 0, 0
	case len(w.held) > 0:
		return w.away, 0
	default: // it would keep a node for nothing, but its last result may still be fetched
		return 0, w.freeAt
	}
}

// What must hold when a coordinator steps aside.

// asideChecks is of the life of the latest coordinator.
type asideChecks struct {
	record uint64 // of the word that it steps aside, 0 = none
	more   bool   // a block has ended since, which may be for the next coordinator to count
}

// stepsAside looks at what a coordinator does that has written down that it steps aside.
func (c *checks) stepsAside(f *engine.Effect) {
	switch f.Kind {
	case engine.EffectAppend:
		switch kind := engine.RecordKind(f.Record[1]); {
		case kind == engine.RecordAside:
			c.aside.record = c.record
		case kind == engine.RecordEnd && c.aside.record != 0:
			c.aside.more = true
		}
	case engine.EffectAway:
		if c.aside.record == 0 || c.aside.record > c.durable {
			c.fail("workers are told that the coordinator steps aside, and it is not durable")
		}
		if f.Left != c.world.home.cfg.Away {
			c.fail("workers are told to wait for %v, and it was to be %v", f.Left, c.world.home.cfg.Away)
		}
	case engine.EffectDrain, engine.EffectStop, engine.EffectKillBlock, engine.EffectSubmit, engine.EffectCancel, engine.EffectKill, engine.EffectCancelArray, engine.EffectBlocks:
		if c.aside.record != 0 {
			c.fail("a coordinator that steps aside has effect %d", f.Kind)
		}
	}
}

// wentAside: such a life has ended. Whoever is connected and holds a block was told.
func (c *checks) wentAside(co *coordinator) {
	for _, l := range co.open {
		if l.id != 0 && l.coOpen && !l.told && slices.ContainsFunc(l.w.held, func(b heldBlock) bool { return b.run != 0 }) && !l.w.isGhost() {
			c.fail("worker %s runs a block, and is not told that the coordinator steps aside", l.w.id)
		}
	}
}

// gaveUp: a worker waits no longer for a coordinator, and kills what it runs.
func (c *checks) gaveUp(x *worker) {
	h := c.world.home
	if h == nil || x.away == 0 {
		return
	}
	if len(x.held) == 0 {
		c.world.saw(sawIdleAway)
		return
	}
	c.world.saw(sawAwayOver)
	if x.toldAt+h.cfg.Away*9/10 > c.world.now {
		c.fail("worker %s kills its blocks at %v, and was told at %v to keep them for %v", x.id, c.world.now, x.toldAt, h.cfg.Away)
	}
}

// cameBack: a worker that was told to wait has found the next coordinator.
func (c *checks) cameBack(x *worker) {
	if x.away > 0 && len(x.held) > 0 {
		c.world.saw(sawKeptAway)
	}
}

// netless cuts a node off from everybody, so that it is thought dead.
func (q *queue) netless(where int, lasts interval) {
	q.batch.nodes[where].unheard = true
	q.world.net.nodes[where] = cut{lasts, lasts}
	q.world.queue.push(event{at: q.world.now + q.batch.cfg.FailSeen, to: q.batch, what: batchSuspects, n: uint64(where)})
	q.world.home.netless(where, lasts)
}
