package sim

import (
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
