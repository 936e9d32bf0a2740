package sim

import (
	"strconv"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// crewState is where a worker is.
type crewState uint8

const (
	crewWaits  crewState = iota // in the queue of the batch system, or it is being started
	crewComes                   // its program runs and has not been let in
	crewServes                  // it is connected
	crewEnded
)

// A crewman is a worker as a forecast has it: what internal/worker says and does, without what goes wrong on the way.
type crewman struct {
	number  int
	at      launcher.Worker
	array   *crew // nil without a batch system
	nonce   uint64
	state   crewState
	task    int32
	slots   []crewSlot
	open    int // requests without an answer
	request uint64
	seq     uint64
	leaving bool
	served  int64
	heard   time.Duration // when it last said something
	asked   time.Duration // when it was submitted
	started time.Duration // by the batch system
	until   time.Duration // the batch system ends it then; never = not at all
	left    time.Duration // when it ended
	end     launcher.End
	gone    bool // pending ones that are cancelled leave no trace
}

// A crewSlot runs one block at a time.
type crewSlot struct {
	busy    bool
	lane    int32
	run     uint32 // counts its blocks, so that the end of one that was taken away is not taken for another's
	h       scheduler.Handout
	began   time.Duration
	took    time.Duration
	outcome scheduler.Outcome
	free    time.Duration // since then it has had no block
	path    Path          // what led to its latest block, and that block
}

// A crew is one submission.
type crew struct {
	tag, id string
	members []*crewman
}

// submit starts workers.
func (f *forecaster) submit(s *engine.Submission) {
	f.made++
	c := &crew{tag: s.Tag, id: strconv.Itoa(1000 + f.made)}
	for i := range s.Count {
		x := &crewman{number: len(f.workers), at: launcher.Worker{Tag: s.Tag, Element: i}, task: s.Task, slots: make([]crewSlot, s.Slots), asked: f.now, until: never}
		x.nonce = uint64(x.number) + 1
		f.workers = append(f.workers, x)
		c.members = append(c.members, x)
		at := f.now
		if f.cfg.Batch {
			x.array = c
			at += f.cfg.QueueWait.At(f.draw(2, uint64(x.number)))
		}
		f.at(at, crewStarts, x.number, 0)
	}
	f.arrays = append(f.arrays, c)
	if f.cfg.Batch {
		f.answers(engine.Answer{Array: c.id})
		return
	}
	tag, _ := strconv.ParseUint(s.Tag, 10, 64)
	f.at(f.now, runSubmitted, 0, tag)
}

// find is a worker that has not ended.
func (f *forecaster) find(w launcher.Worker) *crewman {
	for i := len(f.arrays) - 1; i >= 0; i-- {
		if c := f.arrays[i]; c.tag == w.Tag {
			if x := c.members[w.Element]; x.state != crewEnded {
				return x
			}
			return nil
		}
	}
	return nil
}

// happens: something happens to a worker.
func (f *forecaster) happens(x *crewman, ev *forecastEvent) {
	if x.state == crewEnded {
		if ev.kind == crewEndSeen {
			f.say(engine.Event{Kind: engine.EventStatus, Status: &launcher.Status{Worker: x.at, State: launcher.Ended, Node: f.node(x), End: x.end}})
			f.workers[x.number] = nil
		}
		return
	}
	switch ev.kind {
	case crewStarts:
		x.state, x.started = crewComes, f.now
		if f.cfg.Batch {
			f.out.Queued += f.now - x.asked
			if limit := f.cfg.timeLimit(x.task); limit > 0 {
				x.until = f.now + limit
				f.at(x.until, crewLimit, x.number, 0)
			}
		}
		if d := f.lifetime(x.number); d != never {
			f.at(f.now+d, crewFails, x.number, 0)
		}
		f.at(f.now+f.cfg.StartTime, crewJoins, x.number, 0)
	case crewJoins:
		j := &engine.Join{Tag: x.at.Tag, Element: x.at.Element, Nonce: x.nonce, Slots: len(x.slots), Node: f.node(x), PID: 1}
		if x.array != nil {
			j.Array = x.array.id
		}
		f.say(engine.Event{Kind: engine.EventJoin, Request: uint64(x.number) + 1, Join: j})
	case crewBlock:
		s := &x.slots[ev.n&0xffff]
		if s.busy && s.run == uint32(ev.n>>16) {
			f.blockEnds(x, s)
		}
	case crewFails:
		if f.cfg.Batch {
			f.die(x, launcher.End{Cause: launcher.Preempted})
		} else {
			f.die(x, launcher.End{Cause: launcher.Signalled, Signal: 9})
		}
	case crewLimit:
		f.halt(x)
		f.die(x, launcher.End{Cause: launcher.TimeLimit})
	}
}

// node is a machine for each worker of a batch system: none is worse than another.
func (f *forecaster) node(x *crewman) string {
	if x.array == nil {
		return "here"
	}
	return "n" + strconv.Itoa(x.number)
}

// joined: it was let in, and opens its stream.
func (f *forecaster) joined(x *crewman, task int32) {
	if x == nil || x.state != crewComes {
		return
	}
	x.state, x.task, x.heard = crewServes, task, f.now
	f.out.Workers++
	f.slots += int64(len(x.slots))
	f.out.MostSlots = max(f.out.MostSlots, f.slots)
	for i := range x.slots {
		s := &x.slots[i]
		s.free, s.lane = f.now, f.lanes.take()
		f.paths.begin(&s.path)
		f.out.Picture.begins(s.lane, f.now)
	}
	f.say(engine.Event{Kind: engine.EventAttach, Session: engine.SessionID(x.number) + 1, Worker: x.at.String(), Nonce: x.nonce})
}

// hears does what the coordinator says.
func (f *forecaster) hears(x *crewman, e *engine.Effect) {
	switch e.Kind {
	case engine.EffectWelcome:
		f.work(x)
	case engine.EffectBlocks:
		x.open--
		for _, h := range e.Handouts {
			f.granted(x, h)
		}
		f.work(x)
	case engine.EffectReassign:
		x.task, x.served = e.Task, 0
	case engine.EffectDrain:
		f.leave(x, engine.LeaveTold)
	case engine.EffectStop:
		f.leave(x, engine.LeaveTold)
		f.halt(x)
		f.work(x)
	case engine.EffectKillBlock:
		for i := range x.slots {
			if s := &x.slots[i]; s.busy && s.h.Lease == e.Lease {
				f.stops(s)
			}
		}
		f.work(x)
	case engine.EffectClose:
		f.die(x, launcher.End{Cause: launcher.Exited})
	}
}

// granted: a block is its own. It was asked for by a slot that is free.
func (f *forecaster) granted(x *crewman, h scheduler.Handout) {
	f.checks.handedOut(h)
	for i := range x.slots {
		if !x.slots[i].busy && !x.leaving {
			f.begins(x, i, h)
			return
		}
	}
	f.release(x, h, scheduler.Recalled, 0)
}

// work asks for a block for each free slot, or ends a worker that leaves. (A real worker asks for several at once where blocks
// are short; what that saves is in Turnaround.)
func (f *forecaster) work(x *crewman) {
	if x.state != crewServes {
		return
	}
	free := 0
	for i := range x.slots {
		if !x.slots[i].busy {
			free++
		}
	}
	switch {
	case !x.leaving:
		for ; x.open < free; x.open++ {
			x.request++
			f.tell(x, engine.Event{Kind: engine.EventAcquire, Request: x.request, N: 1})
		}
	case free == len(x.slots):
		f.die(x, launcher.End{Cause: launcher.Exited})
	}
}

// tell says something on its stream.
func (f *forecaster) tell(x *crewman, ev engine.Event) {
	x.heard = f.now
	ev.Session = engine.SessionID(x.number) + 1
	f.say(ev)
}

// begins: a block begins in a free slot.
func (f *forecaster) begins(x *crewman, slot int, h scheduler.Handout) {
	s := &x.slots[slot]
	f.paths.follow(s, h, f.now)
	s.busy, s.h = true, h
	s.run++
	s.took, s.outcome = f.attempt(h)
	s.began = f.now + Turnaround
	f.checks.begins(h.Task)
	f.at(s.began+s.took, crewBlock, x.number, uint64(s.run)<<16|uint64(slot))
}

func (f *forecaster) blockEnds(x *crewman, s *crewSlot) {
	f.release(x, s.h, s.outcome, s.took)
	f.stops(s)
	x.served++
	if most := f.tasks[x.task].MaxBlocksPerWorker; most > 0 && x.served >= most {
		f.leave(x, engine.LeaveDone)
		return
	}
	f.work(x)
}

// stops takes the block out of a slot.
func (f *forecaster) stops(s *crewSlot) {
	task := s.h.Task
	f.checks.stops(task)
	f.paths.ended(s, f.now)
	f.out.Picture.ran(s.lane, task, min(s.began, f.now), f.now)
	t := &f.out.Tasks[task]
	if t.Ended == 0 || s.began < t.Began {
		t.Began = s.began
	}
	t.Ended = max(t.Ended, f.now)
	s.busy, s.free = false, f.now
}

// release tells the end of a hand-out.
func (f *forecaster) release(x *crewman, h scheduler.Handout, outcome scheduler.Outcome, wall time.Duration) {
	x.seq++
	ev := engine.Event{Kind: engine.EventRelease, Seq: x.seq, Epoch: 1, Lease: h.Lease, Outcome: outcome, Use: engine.Use{WallNanos: int64(wall)}}
	if outcome == scheduler.Failed || outcome == scheduler.TimedOut {
		ev.Failure = failedBlock
	}
	f.tell(x, ev)
}

// leave ends acquiring.
func (f *forecaster) leave(x *crewman, why engine.LeaveReason) {
	if x.leaving {
		return
	}
	x.leaving = true
	f.tell(x, engine.Event{Kind: engine.EventLeaving, Leave: why})
	f.work(x)
}

// halt gives back what runs.
func (f *forecaster) halt(x *crewman) {
	for i := range x.slots {
		if s := &x.slots[i]; s.busy && x.state == crewServes {
			f.release(x, s.h, scheduler.Returned, f.now-min(s.began, f.now))
			f.stops(s)
		}
	}
}

// signal is SIGTERM.
func (f *forecaster) signal(x *crewman, how launcher.End) {
	if x.state == crewServes {
		f.halt(x)
		x.leaving = true
		f.tell(x, engine.Event{Kind: engine.EventLeaving, Leave: engine.LeaveSignal})
	}
	f.die(x, how)
}

// die ends a worker with its blocks.
func (f *forecaster) die(x *crewman, how launcher.End) {
	if x == nil || x.state == crewEnded {
		return
	}
	if x.state == crewServes {
		for i := range x.slots {
			if s := &x.slots[i]; s.busy {
				f.stops(s)
			}
		}
		f.leaves(x)
		f.slots -= int64(len(x.slots))
		f.say(engine.Event{Kind: engine.EventDetach, Session: engine.SessionID(x.number) + 1})
	}
	x.gone = x.state == crewWaits
	x.state, x.left, x.end = crewEnded, f.now, how
	x.slots = nil
	if f.cfg.Batch {
		f.workers[x.number] = nil
		return
	}
	f.at(f.now+EndSeen, crewEndSeen, x.number, 0)
}

// leaves gives its place in the picture back.
func (f *forecaster) leaves(x *crewman) {
	for i := range x.slots {
		f.out.Picture.leaves(x.slots[i].lane, f.now)
		f.lanes.give(x.slots[i].lane)
	}
}

// cancel has workers leave.
func (f *forecaster) cancel(list []launcher.Worker) {
	for _, w := range list {
		x := f.find(w)
		switch {
		case x == nil:
		case f.cfg.Batch:
			f.signal(x, launcher.End{Cause: launcher.Cancelled})
		default:
			f.signal(x, launcher.End{Cause: launcher.Signalled, Signal: 15, Ours: true})
		}
	}
}

// beat has those say that they live who have not said anything for long.
func (f *forecaster) beat() {
	every := f.cfg.Job.HeartbeatTimeout / 2
	f.at(f.now+every, runBeats, 0, 0)
	for _, x := range f.workers {
		if x != nil && x.state == crewServes && f.now-x.heard > every/2 {
			f.tell(x, engine.Event{Kind: engine.EventHeartbeat})
		}
	}
}

// lanes numbers slots: the smallest number that no other one has.
type lanes struct {
	free forecastHeap // each at its number
	next int32
}

func (l *lanes) take() int32 {
	if len(l.free) == 0 {
		l.next++
		return l.next - 1
	}
	return int32(l.free.pop().at)
}

func (l *lanes) give(n int32) { l.free.push(forecastEvent{at: time.Duration(n)}) }
