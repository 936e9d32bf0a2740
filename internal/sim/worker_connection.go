package sim

import (
	"cmp"
	"slices"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

// How a worker finds its coordinator, says what it has, hears what it is to do, and looks for the next one.

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
