package sim

import (
	"math/rand/v2"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

// A link is one connection between a worker and a coordinator. What is sent in one direction comes in its order; between links there is
// no order.
type link struct {
	w  *worker
	co *coordinator
	// id is that of the session, 0 until the worker has said who it is.
	id engine.SessionID
	// workerOpen and coOpen: that side has not closed it and does not know that the other has.
	workerOpen, coOpen bool
	// deaf: nothing comes through any more, and nobody is told.
	deaf bool
	// lastToCo and lastToWorker are when the last of what was sent arrives.
	lastToCo, lastToWorker time.Duration
	index                  int     // in coordinator.open, -1 until it has said something
	out                    *packet // what the coordinator has queued
	lazy                   bool    // only acknowledgements are queued, which may wait
}

// A packet is what one side sends in one write. Its memory is used again.
type packet struct {
	link *link
	// events are to the coordinator: each is one message of the worker.
	events []engine.Event
	// orders are to the worker.
	orders   []order
	handouts []scheduler.Handout
	leases   []scheduler.Lease
	kept     []engine.Kept
}

// An order is a message to a worker. Handouts and leases are the packet's from first to last.
type order struct {
	kind        engine.EffectKind
	task        int32
	first, last int
	epoch       uint64
	seq         uint64
	lease       scheduler.Lease
	code        string
	id          string        // of a worker that has joined
	limit       time.Duration // of the blocks of task, where it joins or moves
}

// heartbeat stands beside the kinds of effects, none of which it is.
const heartbeat engine.EffectKind = 255

// A network has the delays, and what of it is cut off.
type network struct {
	rng *rand.Rand
	// Base and Jitter make up the delay of a packet.
	base, jitter time.Duration
	slow         interval
	slowBy       time.Duration
	nodes        []cut // by node
	// flaky: connections end when a worker is to hear that it is welcome, or before that, that it is let in.
	flaky interval
	// hostDown: the coordinator's machine has no power. Nobody answers, and nobody refuses.
	hostDown bool
}

// An interval is from a time up to another.
type interval struct{ from, to time.Duration }

func (i interval) has(t time.Duration) bool { return t >= i.from && t < i.to }

// A cut keeps a node's packets back: those to the coordinator, those to the node, or both.
type cut struct{ toCo, toNode interval }

// halfCutLag is how long the good direction of a one-sided cut still works: TCP sends nothing new while what it sent is not
// acknowledged.
const halfCutLag = time.Second

func (n *network) delay(now time.Duration) time.Duration {
	d := n.base
	if n.jitter > 0 {
		d += time.Duration(n.rng.Int64N(int64(n.jitter)))
	}
	if n.slow.has(now) {
		d += time.Duration(n.rng.Int64N(int64(n.slowBy)))
	}
	return d
}

// blocked is until when packets of a node are kept back.
func (n *network) blocked(node int, toCo bool, now time.Duration) (i interval, is bool) {
	if node >= len(n.nodes) {
		return i, false
	}
	c := &n.nodes[node]
	this, other := c.toNode, c.toCo
	if toCo {
		this, other = other, this
	}
	if this.has(now) {
		return this, true
	}
	other.from += halfCutLag
	return other, other.has(now)
}

// reaches reports whether a connection can be made.
func (n *network) reaches(node int, now time.Duration) bool {
	if n.hostDown {
		return false
	}
	_, out := n.blocked(node, true, now)
	_, in := n.blocked(node, false, now)
	return !out && !in
}

// arrival is when something that is sent now comes.
func (n *network) arrival(node int, toCo bool, now time.Duration) time.Duration {
	at := now + n.delay(now)
	if i, is := n.blocked(node, toCo, now); is {
		// It is sent again after pauses that have grown meanwhile.
		at = i.to + n.delay(i.to) + time.Duration(n.rng.Int64N(int64(i.to-i.from)/4+1))
	}
	return at
}

// packet gives one with nothing in it.
func (w *World) packet(l *link) *packet {
	if n := len(w.packets); n > 0 {
		p := w.packets[n-1]
		w.packets = w.packets[:n-1]
		p.link = l
		return p
	}
	return &packet{link: l}
}

// recycle takes a packet back that nobody looks at any more.
func (w *World) recycle(p *packet) {
	clear(p.events)
	p.link, p.events, p.orders, p.handouts, p.leases, p.kept = nil, p.events[:0], p.orders[:0], p.handouts[:0], p.leases[:0], p.kept[:0]
	w.packets = append(w.packets, p)
}

// sendToCo sends what a worker has to say.
func (w *World) sendToCo(p *packet, how what) {
	l := p.link
	if !l.workerOpen {
		w.recycle(p)
		return
	}
	if l.deaf {
		w.saw(sawHalfOpen)
		w.recycle(p)
		return
	}
	w.sawCut(l.w.node, true)
	l.lastToCo = max(w.net.arrival(l.w.node, true, w.now), l.lastToCo)
	w.queue.push(event{at: l.lastToCo, to: l.co, what: how, packet: p})
}

// sendToWorker sends what the coordinator has to say.
func (w *World) sendToWorker(p *packet, how what) {
	l := p.link
	if l.deaf {
		w.saw(sawHalfOpen)
		w.recycle(p)
		return
	}
	w.sawCut(l.w.node, false)
	l.lastToWorker = max(w.net.arrival(l.w.node, false, w.now), l.lastToWorker)
	w.queue.push(event{at: l.lastToWorker, to: l.w, what: how, packet: p})
}

func (w *World) sawCut(node int, toCo bool) {
	if _, is := w.net.blocked(node, toCo, w.now); is {
		w.saw(sawHeldBack)
	}
}

// closeByWorker closes a link from the worker's side; the kernel does it for a process that has ended.
func (w *World) closeByWorker(l *link) {
	if l == nil || !l.workerOpen {
		return
	}
	w.sendToCo(w.packet(l), coClosed)
	l.workerOpen = false
}

// closeByCo closes it from the other side.
func (w *World) closeByCo(l *link) {
	if !l.coOpen {
		return
	}
	l.coOpen = false
	w.sendToWorker(w.packet(l), workerClosed)
}

// reset answers what comes for a connection that is no more.
func (w *World) reset(l *link) {
	if l.workerOpen && !l.deaf && !w.net.hostDown {
		w.sendToWorker(w.packet(l), workerClosed)
	}
}

// cutsOff reports whether a connection ends that is flaky, instead of letting a worker hear this.
func (n *network) cutsOff(orders []order) bool {
	for i := range orders {
		switch orders[i].kind {
		case engine.EffectWelcome:
			return n.rng.IntN(8) > 0
		case engine.EffectJoined:
			return n.rng.IntN(8) == 0
		}
	}
	return false
}
