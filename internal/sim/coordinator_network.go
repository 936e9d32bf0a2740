package sim

import (
	"slices"
	"time"

	"example.org/daisy/internal/engine"
)

// What workers say to a coordinator, and it to them.

func (co *coordinator) heartbeatEvery() time.Duration {
	return max(co.world.cfg.Job.HeartbeatTimeout/3, 10*time.Millisecond)
}

// take applies what a worker says.
func (co *coordinator) take(p *packet) {
	l := p.link
	if !l.coOpen {
		co.world.reset(l)
		return
	}
	if l.index < 0 {
		l.index = len(co.open)
		co.open = append(co.open, l)
	}
	for i := range p.events {
		ev := &p.events[i]
		switch ev.Kind {
		case engine.EventJoin:
			co.lastRequest++
			co.joins[co.lastRequest] = l
			ev.Request = co.lastRequest
		case engine.EventAttach:
			co.lastSession++
			l.id = co.lastSession
			co.sessions[l.id] = l
		}
		ev.Session = l.id
	}
	co.applyAll(p.events)
}

// connectionEnded tells the engine.
func (co *coordinator) connectionEnded(l *link) {
	if !l.coOpen {
		return
	}
	l.coOpen = false
	co.drop(l)
}

// drop forgets a link that is closed.
func (co *coordinator) drop(l *link) {
	if l.index < 0 {
		return
	}
	last := co.open[len(co.open)-1]
	co.open[l.index], last.index = last, l.index
	co.open = co.open[:len(co.open)-1]
	l.index = -1
	if l.id == 0 {
		return
	}
	delete(co.sessions, l.id)
	co.apply(engine.Event{Kind: engine.EventDetach, Session: l.id})
}

// tell queues a message for the worker that it is for.
func (co *coordinator) tell(f *engine.Effect) {
	var l *link
	o := order{kind: f.Kind, task: f.Task, epoch: co.epoch, seq: f.Seq, lease: f.Lease, code: f.Code, id: f.WorkerID}
	if f.Kind == engine.EffectJoined || f.Kind == engine.EffectReassign {
		o.limit = co.engine.Limits().Tasks[f.Task].Timeout
	}
	if f.Kind == engine.EffectJoined || f.Kind == engine.EffectRefused && f.Request != 0 {
		l = co.joins[f.Request]
		delete(co.joins, f.Request)
	} else {
		l = co.sessions[f.Session]
	}
	if l == nil || !l.coOpen {
		return
	}
	if l.out == nil {
		l.out = co.world.packet(l)
		l.lazy = true
		co.lazy = append(co.lazy, l)
		if len(co.lazy) == 1 {
			co.world.queue.push(event{at: co.world.now + lazyDelay, to: co, what: coLazy})
		}
	}
	switch f.Kind {
	case engine.EffectBlocks:
		if q, is := co.world.launcher.(*queue); is {
			q.gives(l.w)
		}
		o.first = len(l.out.handouts)
		l.out.handouts = append(l.out.handouts, f.Handouts...)
		o.last = len(l.out.handouts)
	case engine.EffectAway:
		o.limit, l.told = f.Left*9/10, true // as internal/coordinator has it
	case engine.EffectWelcome, engine.EffectRecall:
		o.first = len(l.out.leases)
		l.out.leases = append(l.out.leases, f.Leases...)
		o.last = len(l.out.leases)
		l.out.kept = append(l.out.kept, f.Kept...)
	}
	l.out.orders = append(l.out.orders, o)
	if f.Kind != engine.EffectAcknowledge && l.lazy {
		l.lazy = false
	}
}

// send sends what cannot wait.
func (co *coordinator) send() {
	kept := co.lazy[:0]
	for _, l := range co.lazy {
		if l.lazy {
			kept = append(kept, l)
			continue
		}
		co.sendTo(l)
	}
	co.lazy = kept
}

func (co *coordinator) sendLazy() {
	for _, l := range co.lazy {
		co.sendTo(l)
	}
	co.lazy = co.lazy[:0]
}

// sendLazyTo sends what waits for one worker.
func (co *coordinator) sendLazyTo(l *link) {
	if i := slices.Index(co.lazy, l); i >= 0 {
		co.lazy = slices.Delete(co.lazy, i, i+1)
		co.sendTo(l)
	}
}

func (co *coordinator) sendTo(l *link) {
	p := l.out
	l.out, l.lazy = nil, false
	if w := co.world; w.net.flaky.has(w.now) && w.net.cutsOff(p.orders) {
		w.saw(sawFlaky)
		w.recycle(p)
		w.sendToWorker(w.packet(l), workerClosed)
		w.queue.push(event{at: w.now, to: co, what: coClosed, packet: w.packet(l)})
		return
	}
	if l.coOpen {
		co.world.sendToWorker(p, workerPacket)
	} else {
		co.world.recycle(p)
	}
}

// beat tells every worker that the coordinator lives.
func (co *coordinator) beat() {
	co.world.queue.push(event{at: co.world.now + co.heartbeatEvery(), to: co, what: coBeats})
	for _, l := range co.open {
		if l.id == 0 {
			continue
		}
		p := co.world.packet(l)
		p.orders = append(p.orders, order{kind: heartbeat})
		co.world.sendToWorker(p, workerPacket)
	}
}
