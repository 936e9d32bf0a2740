package sim

import (
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// What a worker does with its blocks: it asks for them, runs them in its slots, and gives them back.

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
