package sim

import (
	"fmt"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
)

// A Fault is something that goes wrong at a time. Taking one out of a list changes nothing in the others.
type Fault struct {
	At   time.Duration
	Kind FaultKind
	// For is how long it lasts, of those that last.
	For time.Duration
	// N chooses its victim, or says how many operations later it strikes.
	N int
}

// FaultKind is what goes wrong.
type FaultKind uint8

const (
	// FaultCrash kills the coordinator at the N-th effect from now; it begins again after For.
	FaultCrash FaultKind = iota
	// FaultCrashOnDisk kills it at the N-th operation on its disk.
	FaultCrashOnDisk
	// FaultCrashUncommitted kills it after the N-th hand-out from now, before it commits anything more.
	FaultCrashUncommitted
	// FaultPower takes the power from its machine, and what was not synced with it.
	FaultPower
	// FaultDiskFull fills the disk for a while.
	FaultDiskFull
	// FaultSync has one sync fail; with an odd N the coordinator dies of it.
	FaultSync
	// FaultSlowSync makes commits slow for a while.
	FaultSlowSync
	// FaultStall stops the coordinator's process for a while, FaultSuspend its machine.
	FaultStall
	FaultSuspend
	// FaultTakeOver has another coordinator take over while this one is stopped; it wakes after For.
	FaultTakeOver
	// FaultWorkerDies ends a worker's process by a signal, FaultWorkerStalls stops it for a while.
	FaultWorkerDies
	FaultWorkerStalls
	// FaultDisconnect ends connections of workers again and again for a while, FaultHalfOpen ends one and tells nobody.
	FaultDisconnect
	FaultHalfOpen
	// FaultCut cuts a node off for a while; FaultCutOut and FaultCutIn only in one direction.
	FaultCut
	FaultCutOut
	FaultCutIn
	// FaultSlowNet delays packets for a while.
	FaultSlowNet
	// FaultRefuse has the launcher refuse for a while, FaultDuds has workers end as they start, FaultBroken has them unable to start user code.
	FaultRefuse
	FaultDuds
	FaultBroken
	// FaultStop has a person end the run: N is the engine.StopKind. It is resumed later.
	FaultStop
	// Of a batch system: FaultNode takes the power from a node for a while, FaultPreempt ends what runs there, FaultBlackHole has whatever
	// starts there end at once for a while, FaultDrain keeps it empty, FaultNetless cuts it off from everybody, so that it is thought dead.
	FaultNode
	FaultPreempt
	FaultBlackHole
	FaultDrain
	FaultNetless
	// FaultDeaf: it does not answer for a while. FaultEmpty: it answers that there is nothing.
	FaultDeaf
	FaultEmpty
	// For a while, answers to submissions are lost after they were made (FaultUnsure), before (FaultLost), or they are made much later
	// (FaultLate), or twice (FaultTwice).
	FaultUnsure
	FaultLost
	FaultLate
	FaultTwice
	// A person has other limits hold (FaultSet), excludes a node for a while (FaultExclude), stops one worker (FaultStopWorker).
	FaultSet
	FaultExclude
	FaultStopWorker
	// FaultGuest: workers come by themselves.
	FaultGuest
	// FaultFlaky: for a while, connections end when a worker is about to hear that it is welcome.
	FaultFlaky
	// FaultPartial: answers leave rows out. FaultGang: what runs on a node is suspended. FaultVanish: an element ends and leaves no trace.
	// FaultBeside: a second process of an element starts.
	FaultPartial
	FaultGang
	FaultVanish
	FaultBeside
	// FaultForgets: the controller loses its state, and gives ids to others. FaultHand: an administrator cancels an element.
	FaultForgets
	FaultHand
	// FaultRot: bytes of the journal change on the disk, and the coordinator dies.
	FaultRot
	faultKinds
)

var faultNames = [...]string{"crash", "crash-on-disk", "uncommitted", "power", "disk-full", "sync", "slow-sync", "stall", "suspend", "take-over", "worker-dies", "worker-stalls",
	"disconnect", "half-open", "cut", "cut-out", "cut-in", "slow-net", "refuse", "duds", "broken", "stop", "node", "preempt", "black-hole", "drain", "netless", "deaf", "empty", "unsure", "lost", "late", "twice", "set", "exclude", "stop-worker", "guest", "flaky", "partial", "gang", "vanish", "beside", "forgets", "hand", "rot"}

// String is the fault's name.
func (k FaultKind) String() string { return faultNames[k] }

// String is the fault in one line.
func (f Fault) String() string {
	return fmt.Sprintf("%-13s at %v for %v, n %d", f.Kind, f.At, f.For, f.N)
}

// faultActor has faults happen, and the coordinator begin again.
type faultActor struct{ world *World }

const (
	faultHappens     what = iota // n = index in Config.Faults
	faultResumes                 // n = epoch that has ended
	faultPasses                  // what lasted is over; n = index
	faultDisconnects             // n = whom
	faultIncludes                // the node of an exclusion may be used again; n = index
)

func (a *faultActor) act(ev *event) {
	w := a.world
	switch ev.what {
	case faultHappens:
		f := &w.cfg.Faults[ev.n]
		w.logf("fault %d: %s", ev.n, f)
		a.happen(f, ev.n)
	case faultResumes:
		if ev.n == w.epoch && !w.over {
			w.begin()
		}
	case faultDisconnects:
		a.disconnect(int(ev.n))
	case faultIncludes:
		a.include(ev.n)
	case faultPasses:
		w.logf("fault %d is over", ev.n)
		if q, is := w.launcher.(*queue); is {
			q.passes(&w.cfg.Faults[ev.n])
		}
		switch w.cfg.Faults[ev.n].Kind {
		case FaultDiskFull:
			w.disk.full = false
		case FaultPower:
			w.net.hostDown = false
		case FaultExclude:
			a.include(ev.n)
		}
	}
}

// disconnect ends a worker's connection on both sides.
func (a *faultActor) disconnect(n int) {
	w := a.world
	if x := w.victim(n); x != nil && x.link != nil {
		w.sendToWorker(w.packet(x.link), workerClosed)
		w.queue.push(event{at: w.now, to: x.link.co, what: coClosed, packet: w.packet(x.link)})
	}
}

func (a *faultActor) passes(f *Fault, n uint64) {
	a.world.queue.push(event{at: a.world.now + f.For, to: a, what: faultPasses, n: n})
}

func (a *faultActor) happen(f *Fault, n uint64) {
	w := a.world
	lasts := interval{w.now, w.now + f.For}
	co := w.co
	alive := co != nil && !co.dead && co.engine != nil
	procs, _ := w.launcher.(*processes)
	switch f.Kind {
	case FaultCrash:
		w.killIn, w.resumeIn = f.N, f.For
	case FaultCrashOnDisk:
		w.disk.killIn, w.resumeIn = f.N, f.For
	case FaultCrashUncommitted:
		w.killAfter, w.resumeIn = 1+f.N%8, f.For
	case FaultPower:
		w.net.hostDown, w.resumeIn = true, f.For+time.Second
		a.passes(f, n)
		if alive {
			w.saw(sawPower)
			w.powerFailure(co)
		}
	case FaultDiskFull:
		w.disk.full = true
		a.passes(f, n)
	case FaultSync:
		w.disk.failSync, w.disk.failedSync = true, true
		w.disk.killSync, w.resumeIn = f.N%2 == 1, f.For
	case FaultRot:
		if w.disk.rot(journalDir, f.N) && alive {
			w.resumeIn = f.For
			w.crash(co)
		}
	case FaultSlowSync:
		w.slowSync = lasts
	case FaultStall:
		if alive {
			w.stall(co, f.For)
		}
	case FaultSuspend:
		if alive {
			w.suspend(co, f.For)
		}
	case FaultTakeOver:
		if alive {
			w.takeOver(co, f.For)
		}
	case FaultWorkerDies:
		if x := w.victim(f.N); x != nil {
			w.saw(sawWorkerDied)
			x.die(launcher.End{Cause: launcher.Signalled, Signal: 11})
		}
	case FaultWorkerStalls:
		if x := w.victim(f.N); x != nil {
			w.stallWorker(x, f.For)
		}
	case FaultDisconnect:
		a.disconnect(f.N)
		for i := range f.N % 16 {
			w.queue.push(event{at: w.now + f.For/16*time.Duration(i+1), to: a, what: faultDisconnects, n: uint64(f.N + i)})
		}
	case FaultHalfOpen:
		if x := w.victim(f.N); x != nil && x.link != nil {
			x.link.deaf = true
		}
	case FaultCut, FaultCutOut, FaultCutIn:
		c := &w.net.nodes[f.N%len(w.net.nodes)]
		if f.Kind != FaultCutIn {
			c.toCo = lasts
		}
		if f.Kind != FaultCutOut {
			c.toNode = lasts
		}
	case FaultSlowNet:
		w.net.slow, w.net.slowBy = lasts, 2*time.Second
	case FaultRefuse:
		if procs != nil {
			procs.refuses = lasts
		}
	case FaultDuds:
		if procs != nil {
			procs.dies = lasts
		}
	case FaultBroken:
		if procs != nil {
			procs.broken = lasts
		}
	case FaultStop:
		if alive {
			w.saw(sawStopped)
			w.resumeIn = f.For
			w.queue.push(event{at: w.now, to: co, what: coStops, n: uint64(f.N % int(engine.StopNow+1))})
		}
	case FaultSet, FaultExclude, FaultStopWorker:
		if alive {
			a.orders(f, n)
		}
	case FaultGuest:
		a.guests(f)
	case FaultFlaky:
		w.net.flaky = interval{w.now, w.now + 2*f.For}
	default:
		if q, is := w.launcher.(*queue); is {
			q.upset(f, lasts)
			a.passes(f, n)
		}
	}
}

// victim is a worker that lives, nil if there is none.
func (w *World) victim(n int) *worker {
	if len(w.workers) == 0 {
		return nil
	}
	return w.workers[n%len(w.workers)]
}

// powerFailure is the sudden end of the coordinator's machine, with all that runs on it.
func (w *World) powerFailure(co *coordinator) {
	for _, l := range co.open {
		l.deaf = true // nobody says that it is closed
	}
	w.crash(co)
	w.disk.powerFailure()
	for i := len(w.workers) - 1; i >= 0; i-- {
		if x := w.workers[i]; x.node == 0 {
			x.die(launcher.End{Cause: launcher.NodeFailed})
		}
	}
}

// takeOver stops the coordinator, and has another begin that takes its lock.
func (w *World) takeOver(co *coordinator, d time.Duration) {
	w.stall(co, d)
	w.logf("epoch %d is taken over", co.epoch)
	w.begin()
}
