package sim

import (
	"cmp"
	"slices"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// What happens to a worker.
const (
	workerStarts    what = iota // the process begins
	workerDials                 // the pause before the next try is over; n = try
	workerNoAnswer              // the time of a try is over; n = try
	workerRefused               // the machine refuses the connection; n = try
	workerPacket                // packet
	workerClosed                // packet.link is closed
	workerBlockEnds             // n = run of the block
	workerBeats                 // it is time for a heartbeat
	workerHalts                 // what runs has had its grace
	workerGivesUp               // told by a signal, it waits no longer for acknowledgements
	workerPatience              // n = try: nobody has answered for too long
)

// Times of internal/worker.
const (
	dialTimeout    = 10 * time.Second
	joinTimeout    = 40 * time.Second
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = 5 * time.Second
	joinWithin     = time.Minute
	lastDelivery   = 5 * time.Second
)

// A worker is one process: internal/worker with its client and its slots, as a state machine.
type worker struct {
	world *World
	at    launcher.Worker
	// number counts processes, index is its place in World.workers.
	number, index int
	id            string
	nonce         uint64
	// array is what its batch system calls its submission, "" where there is none.
	array   string
	element *array
	node    int
	slots   int
	dead    bool
	// dud: it ends as soon as it starts. broken: it cannot start any user code.
	dud, broken bool
	// guest: it came by itself; wants is the task that it asks for, "" = any. beside: it is a second process of an element.
	guest, beside bool
	wants         string
	restart       int
	// stalledTo: its process is stopped until then.
	stalledTo time.Duration

	link      *link
	welcomed  bool // the link's stream is open
	try       uint64
	backoff   time.Duration
	born      time.Duration
	known     bool // it has been let in before
	epoch     uint64
	task      int32
	limit     time.Duration // of the blocks of its task, 0 = none
	patience  patience
	heard     time.Duration
	answered  time.Duration
	beating   bool
	runs      uint64
	held      []heldBlock
	busy      int
	open      int // requests without an answer
	request   uint64
	seq       uint64
	unacked   []undelivered
	batchSize int
	mean      time.Duration
	leaving   bool
	reason    engine.LeaveReason
	stopping  bool // by a signal or the coordinator
	signalled bool
	served    int64
	// away is how much longer to wait for the next coordinator with blocks that run, as this one has said at toldAt; freeAt is when the last of
	// them ended. joinBy: one that was never let in waits until then, or joinWithin.
	away, toldAt, freeAt, joinBy time.Duration
}

type patience struct{ heartbeat, abandon, hint, grace time.Duration }

type heldBlock struct {
	epoch uint64
	h     scheduler.Handout
	// run is 0 while it waits for a slot.
	run     uint64
	limit   time.Duration
	began   time.Duration
	took    time.Duration
	outcome scheduler.Outcome
	kills   bool
}

// An undelivered is a release that was not acknowledged.
type undelivered struct {
	ev engine.Event
	h  scheduler.Handout
}

func (w *worker) act(ev *event) {
	if w.dead {
		return
	}
	if w.world.now < w.stalledTo {
		w.world.saw(sawWorkerStalled)
		w.world.queue.postpone(ev, w.stalledTo)
		return
	}
	switch ev.what {
	case workerStarts:
		w.born, w.answered, w.heard, w.backoff = w.world.now, w.world.now, w.world.now, firstBackoff
		if w.dud {
			if w.element != nil {
				w.world.saw(sawBlackHole)
			}
			w.world.saw(sawDud)
			w.exit(1)
			return
		}
		w.dial()
	case workerDials:
		if ev.n == w.try {
			w.dial()
		}
	case workerNoAnswer:
		if ev.n == w.try && !w.welcomed {
			w.lose()
			w.dialLater()
		}
	case workerRefused:
		if ev.n == w.try {
			w.answered = w.world.now
			w.dialLater()
		}
	case workerPatience:
		if ev.n == w.try && !w.welcomed {
			w.lose()
			w.checkPatience()
		}
	case workerPacket:
		if ev.packet.link == w.link {
			w.receive(ev.packet)
		}
	case workerClosed:
		if l := ev.packet.link; l == w.link {
			w.answered = w.world.now
			open := w.welcomed
			w.world.saw(sawClosed)
			w.lose()
			w.try++
			if open {
				w.reconnect()
			} else {
				w.dialLater()
			}
		}
	case workerBlockEnds:
		w.blockEnds(ev.n)
	case workerBeats:
		w.beat()
	case workerHalts:
		w.halt()
	case workerGivesUp:
		w.giveUp(0)
	}
}

// lose forgets the connection.
func (w *worker) lose() {
	w.world.closeByWorker(w.link)
	w.link, w.welcomed, w.open = nil, false, 0
}

// reconnect begins to look for the coordinator after a connection was lost.
func (w *worker) reconnect() {
	if w.pointless() {
		w.exit(0)
		return
	}
	w.backoff = firstBackoff
	w.dial()
}

// pointless: there is nothing left that a connection would be good for.
func (w *worker) pointless() bool {
	if !w.leaving || len(w.held) > 0 {
		return false
	}
	for i := range w.unacked {
		if worthKeeping(w.unacked[i].ev.Outcome) {
			return false
		}
	}
	return true
}

func worthKeeping(o scheduler.Outcome) bool {
	return o != scheduler.Returned && o != scheduler.Recalled
}

// patienceLeft is for how long it still tries.
func (w *worker) patienceLeft() time.Duration {
	if !w.known {
		return max(w.born+joinWithin, w.joinBy) - w.world.now
	}
	more, since := w.patient()
	return min(max(w.heard, since)+w.patience.abandon, max(w.heard, w.answered, since)+w.patience.hint) + more - w.world.now
}

// checkPatience ends the worker when nobody has answered for too long, and reports whether it has.
func (w *worker) checkPatience() bool {
	switch {
	case w.patienceLeft() > 0:
		return false
	case w.known:
		w.world.saw(sawAbandoned)
		w.world.checks.gaveUp(w)
		w.giveUp(5)
	default:
		w.exit(3)
	}
	return true
}

// dial tries to connect.
func (w *worker) dial() {
	w.looks()
	if w.checkPatience() || w.dead {
		return
	}
	if w.pointless() {
		w.exit(0)
		return
	}
	w.try++
	now, net := w.world.now, &w.world.net
	w.world.queue.push(event{at: now + w.patienceLeft(), to: w, what: workerPatience, n: w.try})
	switch co, answers := w.world.finds(w); {
	case !answers:
		w.world.saw(sawUnreachable)
		w.world.queue.push(event{at: now + dialTimeout, to: w, what: workerNoAnswer, n: w.try})
	case co == nil:
		w.world.queue.push(event{at: now + 2*net.delay(now), to: w, what: workerRefused, n: w.try})
	default:
		w.link = &link{w: w, co: co, index: -1, workerOpen: true, coOpen: true}
		p := w.world.packet(w.link)
		p.events = append(p.events, engine.Event{Kind: engine.EventJoin, Join: w.introduction()})
		w.world.sendToCo(p, coPacket)
		w.world.queue.push(event{at: now + joinTimeout, to: w, what: workerNoAnswer, n: w.try})
	}
}

// introduction is what it says of itself.
func (w *worker) introduction() *engine.Join {
	j := &engine.Join{Tag: w.at.Tag, Element: w.at.Element, Array: w.array, Restart: w.restart, Nonce: w.nonce, Slots: w.slots, Node: w.world.nodeName(w.node), PID: 1}
	switch {
	case w.guest:
		j.Name, j.Task = w.id, w.wants
	case w.beside:
		j.Process = w.number % 2
	}
	if w.element != nil {
		if e := &w.element.elements[w.at.Element]; e.x == w && e.limit > 0 {
			j.Left = max(e.limit-w.world.now, time.Second)
		}
	}
	return j
}

func (w *worker) dialLater() {
	w.try++
	pause := time.Duration(w.world.net.rng.Int64N(int64(w.backoff)))
	w.backoff = min(2*w.backoff, longestBackoff)
	w.world.queue.push(event{at: w.world.now + pause, to: w, what: workerDials, n: w.try})
}

// receive takes in what the coordinator says.
func (w *worker) receive(p *packet) {
	w.answered = w.world.now
	if w.welcomed {
		w.heard = w.world.now
	}
	for i := range p.orders {
		o := &p.orders[i]
		if w.dead || w.link != p.link {
			return
		}
		if !w.welcomed && o.kind != engine.EffectJoined && o.kind != engine.EffectRefused && o.kind != engine.EffectWelcome {
			continue // heartbeats may come at any time
		}
		switch o.kind {
		case engine.EffectJoined:
			w.joined(o, p)
		case engine.EffectRefused:
			if o.code != "" {
				w.turnedAway(o.code)
			} else {
				w.refused(o.lease)
			}
		case engine.EffectWelcome:
			w.welcome(o, p)
		case engine.EffectBlocks:
			w.granted(o, p)
		case engine.EffectAcknowledge:
			w.acknowledged(o.seq)
		case engine.EffectRecall:
			for _, lease := range p.leases[o.first:o.last] {
				for k := range w.held {
					if b := &w.held[k]; b.run == 0 && b.h.Lease == lease {
						w.release(k, scheduler.Recalled, 0)
						w.world.saw(sawRecalled)
						break
					}
				}
			}
			w.flush()
		case engine.EffectReassign:
			w.limit = o.limit
			if w.task != o.task {
				w.world.saw(sawReassigned)
				w.task, w.mean, w.batchSize, w.served = o.task, 0, 0, 0
			}
		case engine.EffectDrain:
			w.leave(engine.LeaveTold)
		case engine.EffectStop:
			w.leave(engine.LeaveTold)
			w.stop()
		case engine.EffectAway:
			w.away, w.toldAt = max(o.limit, 0), w.world.now
		case engine.EffectKillBlock:
			w.forget(func(b *heldBlock) bool { return b.h.Lease == o.lease })
			w.work()
		}
	}
	if !w.dead && w.link == p.link {
		w.settle()
	}
}

// joined: it was let in, and says what it holds.
func (w *worker) joined(o *order, p *packet) {
	if o.epoch < w.epoch {
		w.lose() // a coordinator that was taken over
		w.dialLater()
		return
	}
	if !w.known {
		w.sawJoin()
	}
	w.patience = w.world.patience()
	w.task, w.limit, w.id = o.task, o.limit, o.id
	hello := w.world.packet(w.link)
	ev := engine.Event{Kind: engine.EventAttach, Worker: w.id, Nonce: w.nonce}
	claim := func(epoch uint64, h scheduler.Handout) {
		ev.Held = append(ev.Held, engine.Held{Epoch: epoch, Lease: h.Lease, Task: h.Task, Block: h.Block, Attempt: h.Attempt})
	}
	for i := range w.unacked { // results first: those leave their slots free
		if u := &w.unacked[i]; u.ev.Epoch == o.epoch || u.ev.Outcome != scheduler.Recalled {
			claim(u.ev.Epoch, u.h)
		}
	}
	results := len(ev.Held)
	for i := range w.held {
		claim(w.held[i].epoch, w.held[i].h)
	}
	slices.SortFunc(ev.Held[results:], func(a, b engine.Held) int { return cmp.Compare(a.Lease, b.Lease) })
	hello.events = append(hello.events, ev)
	w.world.sendToCo(hello, coPacket)
}

// turnedAway: the coordinator does not want it.
func (w *worker) turnedAway(code string) {
	switch {
	case code == "twin" && w.guest:
		w.world.saw(sawGuestTwin)
	case code == "twin":
		w.world.saw(sawTwin)
	}
	switch code {
	case "ended":
		w.giveUp(0)
	case "version", "epoch", "twin", "unknown_tag":
		w.giveUp(4)
	default:
		w.lose()
		w.dialLater()
	}
}

// sawJoin notes who has come.
func (w *worker) sawJoin() {
	switch {
	case w.beside:
		w.world.saw(sawBeside)
	case w.guest:
		w.world.saw(sawGuest)
		if w.world.cfg.External {
			w.world.saw(sawExternal)
		}
	}
}

// welcome: the stream is open. What was not acknowledged is sent again, what waits is asked for again.
func (w *worker) welcome(o *order, p *packet) {
	w.epoch, w.welcomed, w.known, w.heard = o.epoch, true, true, w.world.now
	w.try++ // this one has succeeded
	for _, lease := range p.leases[o.first:o.last] {
		w.forget(func(b *heldBlock) bool { return b.h.Lease == lease })
	}
	if len(p.kept) > 0 {
		w.world.saw(sawTakenOver)
	}
	w.world.checks.cameBack(w)
	w.away = 0
	w.rename(p.kept)
	if !w.beating {
		w.beating = true
		w.world.queue.push(event{at: w.world.now + w.patience.heartbeat, to: w, what: workerBeats})
	}
	if w.broken {
		w.world.saw(sawBroken)
		w.leave(engine.LeaveBroken)
	}
	out := w.world.packet(w.link)
	for i := range w.unacked {
		out.events = append(out.events, w.unacked[i].ev)
	}
	if w.leaving {
		out.events = append(out.events, engine.Event{Kind: engine.EventLeaving, Leave: w.reason})
	}
	if len(out.events) > 0 {
		w.world.sendToCo(out, coPacket)
	} else {
		w.world.recycle(out)
	}
	w.work()
}

// rename takes over the names that a coordinator of a later epoch has given to hand-outs of earlier ones. Results of those that have
// got none are not sent again.
func (w *worker) rename(kept []engine.Kept) {
	for _, k := range kept {
		for i := range w.held {
			if b := &w.held[i]; b.epoch == k.Epoch && b.h.Lease == k.Was {
				b.epoch, b.h.Lease, b.h.Attempt = w.epoch, k.Now, k.Attempt
				break
			}
		}
		for i := range w.unacked {
			if u := &w.unacked[i]; u.ev.Epoch == k.Epoch && u.ev.Lease == k.Was {
				u.ev.Epoch, u.ev.Lease, u.h.Lease, u.h.Attempt = w.epoch, k.Now, k.Now, k.Attempt
				w.world.checks.gives(u)
				break
			}
		}
	}
	w.unacked = slices.DeleteFunc(w.unacked, func(u undelivered) bool { return u.ev.Epoch != w.epoch })
}

// say queues a message; flush sends what is queued.
func (w *worker) say(ev engine.Event) {
	if w.link == nil || !w.welcomed {
		return
	}
	if w.world.pending != nil && w.world.pending.link != w.link {
		w.flush()
	}
	if w.world.pending == nil {
		w.world.pending = w.world.packet(w.link)
	}
	w.world.pending.events = append(w.world.pending.events, ev)
}

func (w *worker) flush() {
	if p := w.world.pending; p != nil {
		w.world.pending = nil
		w.world.sendToCo(p, coPacket)
	}
}

// granted takes blocks in.
func (w *worker) granted(o *order, p *packet) {
	w.open = max(w.open-1, 0)
	for _, h := range p.handouts[o.first:o.last] {
		w.held = append(w.held, heldBlock{epoch: w.epoch, h: h, limit: w.limit})
		if w.leaving {
			w.release(len(w.held)-1, scheduler.Recalled, 0)
		}
	}
	w.begin()
	if w.open == 0 && w.batchSize <= 1 {
		for i := len(w.held) - 1; i >= 0; i-- { // nobody waits any more and blocks are long: others may have these
			if w.held[i].run == 0 {
				w.release(i, scheduler.Recalled, 0)
			}
		}
	}
	w.work()
}

// work gives free slots blocks, or asks for some.
func (w *worker) work() {
	w.begin()
	if w.link != nil && w.welcomed && !w.leaving {
		for ; w.open < w.slots-w.busy; w.open++ {
			w.request++
			w.say(engine.Event{Kind: engine.EventAcquire, Request: w.request, N: int32(w.nextBatch())})
		}
	}
	w.flush()
}

// Of internal/worker's batch.
const (
	shortBlock = 10 * time.Millisecond
	batchTime  = 100 * time.Millisecond
	maxBatch   = 1024
)

func (w *worker) nextBatch() int {
	if w.mean == 0 || w.mean >= shortBlock {
		w.batchSize = 1
		return 1
	}
	w.batchSize = int(min(int64(batchTime/w.mean), int64(2*max(w.batchSize, 1)), maxBatch))
	return w.batchSize
}

// begin starts blocks in free slots.
func (w *worker) begin() {
	for i := range w.held {
		if w.busy == w.slots {
			return
		}
		b := &w.held[i]
		if b.run != 0 {
			continue
		}
		if b.h.Task == w.task {
			b.limit = w.limit
		}
		w.runs++
		w.busy++
		b.run, b.began = w.runs, w.world.now
		b.took, b.outcome, b.kills = w.world.runs(w, b)
		w.world.checks.began(w, b)
		at := b.began + b.took
		if b.took == never {
			at = never
		}
		if limit := b.limit; limit > 0 && b.took > limit {
			b.outcome, b.kills, at = scheduler.TimedOut, false, b.began+limit
		}
		if at != never {
			w.world.queue.push(event{at: at, to: w, what: workerBlockEnds, n: b.run})
		}
	}
}

func (w *worker) blockEnds(run uint64) {
	for i := range w.held {
		b := &w.held[i]
		if b.run != run {
			continue
		}
		if b.kills {
			w.world.saw(sawKillsWorker)
			w.die(launcher.End{Cause: launcher.Signalled, Signal: 11})
			return
		}
		task := &w.world.cfg.Job.Tasks[b.h.Task]
		switch b.outcome {
		case scheduler.TimedOut:
			w.world.saw(sawTimeout)
		case scheduler.OutOfMemory:
			w.world.saw(sawOutOfMemory)
		}
		w.release(i, b.outcome, w.world.now-b.began)
		w.served++
		if task.MaxBlocksPerWorker > 0 && w.served >= task.MaxBlocksPerWorker {
			w.leave(engine.LeaveDone)
		}
		w.work()
		w.settle()
		return
	}
}

// release gives a block back. It is sent with the next flush.
func (w *worker) release(i int, outcome scheduler.Outcome, wall time.Duration) {
	b := w.held[i]
	w.end(i, outcome)
	if w.away > 0 && len(w.held) == 0 {
		w.freeAt = w.world.now
	}
	w.seq++
	ev := engine.Event{Kind: engine.EventRelease, Seq: w.seq, Epoch: b.epoch, Lease: b.h.Lease, Outcome: outcome, Use: engine.Use{WallNanos: int64(wall)}}
	if outcome == scheduler.Failed {
		ev.Failure = failedBlock
	}
	if outcome != scheduler.Recalled && wall > 0 {
		if w.mean == 0 {
			w.mean = wall
		} else {
			w.mean = max(w.mean+(wall-w.mean)/8, 1)
		}
	}
	w.unacked = append(w.unacked, undelivered{ev, b.h})
	w.world.checks.gives(&w.unacked[len(w.unacked)-1])
	w.say(ev)
}

var failedBlock = &engine.Failure{Message: "exit status 1"}

// end takes a block out of its slot.
func (w *worker) end(i int, outcome scheduler.Outcome) {
	b := w.held[i]
	if b.run != 0 {
		w.busy--
		w.world.checks.ended(w, &b, outcome)
	}
	w.held = append(w.held[:i], w.held[i+1:]...)
}

// forget kills blocks without a word.
func (w *worker) forget(match func(*heldBlock) bool) {
	for i := len(w.held) - 1; i >= 0; i-- {
		if match(&w.held[i]) {
			w.end(i, scheduler.Recalled)
		}
	}
}

func (w *worker) acknowledged(upTo uint64) {
	n := 0
	for n < len(w.unacked) && w.unacked[n].ev.Seq <= upTo {
		w.world.checks.acknowledged(w, &w.unacked[n])
		n++
	}
	w.unacked = append(w.unacked[:0], w.unacked[n:]...)
}

// refused: a result came too late. It is not sent again.
func (w *worker) refused(lease scheduler.Lease) {
	for i := range w.unacked {
		if w.unacked[i].ev.Lease == lease {
			w.unacked = append(w.unacked[:i], w.unacked[i+1:]...)
			return
		}
	}
}

// leave ends acquiring.
func (w *worker) leave(why engine.LeaveReason) {
	if w.leaving {
		return
	}
	w.leaving, w.reason = true, why
	w.say(engine.Event{Kind: engine.EventLeaving, Leave: why})
	for i := len(w.held) - 1; i >= 0; i-- {
		if w.held[i].run == 0 {
			w.release(i, scheduler.Recalled, 0)
		}
	}
	w.flush()
}

// stop ends what runs within the grace time.
func (w *worker) stop() {
	if w.stopping {
		return
	}
	w.stopping = true
	grace := w.patience.grace
	w.world.queue.push(event{at: w.world.now + grace - min(grace/4, 2*time.Second), to: w, what: workerHalts})
}

// endsSoon: its batch system has told it that its time is nearly over.
func (w *worker) endsSoon(left time.Duration) {
	if w.link == nil || !w.welcomed {
		return
	}
	w.say(engine.Event{Kind: engine.EventEnding, Left: left})
	w.flush()
	w.world.saw(sawWarned)
}

func (w *worker) halt() {
	for i := len(w.held) - 1; i >= 0; i-- {
		w.release(i, scheduler.Returned, w.world.now-w.held[i].began)
	}
	w.flush()
	if w.signalled {
		w.world.queue.push(event{at: w.world.now + lastDelivery, to: w, what: workerGivesUp})
	}
	w.settle()
}

// settle ends the worker once it leaves and has nothing left to deliver.
func (w *worker) settle() {
	switch {
	case w.dead || !w.leaving || len(w.held) > 0:
	case len(w.unacked) == 0, w.link == nil && w.pointless():
		if w.reason == engine.LeaveBroken {
			w.exit(1)
		} else {
			w.exit(0)
		}
	}
}

// signal is SIGTERM.
func (w *worker) signal() {
	if w.dead {
		return
	}
	if !w.known {
		w.exit(0)
		return
	}
	w.signalled = true
	w.leave(engine.LeaveSignal)
	w.stop()
	w.settle()
}

// beat says that the worker lives, and gives up a connection over which nothing comes.
func (w *worker) beat() {
	w.world.queue.push(event{at: w.world.now + w.patience.heartbeat, to: w, what: workerBeats})
	if w.link == nil || !w.welcomed {
		return
	}
	if w.world.now-w.heard > 3*w.patience.heartbeat {
		w.lose()
		w.try++
		w.reconnect()
		return
	}
	w.say(engine.Event{Kind: engine.EventHeartbeat})
	w.flush()
}

// giveUp kills what runs, leaves what it could not deliver in the outbox, and ends.
func (w *worker) giveUp(status int) {
	w.forget(func(*heldBlock) bool { return true })
	for i := range w.unacked {
		if u := &w.unacked[i]; worthKeeping(u.ev.Outcome) {
			w.world.saw(sawOutbox)
			w.world.outbox = append(w.world.outbox, leftover{worker: w.id, nonce: w.nonce, u: *u})
		}
	}
	w.unacked = nil
	w.exit(status)
}

// exit ends the process by itself.
func (w *worker) exit(status int) { w.die(launcher.End{Cause: launcher.Exited, Exit: status}) }

// die ends the process, with its blocks. Its connections are closed by the system, unless the machine is gone, too.
func (w *worker) die(how launcher.End) {
	if w.dead {
		return
	}
	w.forget(func(*heldBlock) bool { return true })
	w.dead = true
	if how.Cause == launcher.NodeFailed && w.link != nil {
		w.link.deaf = true
	}
	w.world.closeByWorker(w.link)
	w.world.logf("worker %s ends: %s %d/%d", w.id, how.Cause, how.Exit, how.Signal)
	if w.guest || w.beside {
		w.world.gone(w)
		if h, is := w.world.launcher.(*host); is {
			h.left()
		}
		return
	}
	w.world.launcher.ended(w, how)
}
