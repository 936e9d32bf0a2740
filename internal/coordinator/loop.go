package coordinator

import (
	"sync"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

const (
	// lazyDelay is for how long an acknowledgement may wait for something else to go to the same worker.
	lazyDelay = 2 * time.Millisecond
	// applyAtOnce is how many events are applied before their effects are done, so that a burst does not delay the first
	// answers.
	applyAtOnce = 256
)

// owned is what only the owner of the engine touches: whoever holds the lock. The owner is not one goroutine but one at a
// time: the loop below, or a reader of a connection that has just put events into the inbox. A hand-over to another
// goroutine costs more than all that the engine does for a block; a reader that finds the lock free needs none.
type owned struct {
	sync.Mutex
	fx    engine.Effects
	lists [][]engine.Event
	calls []func()
	marks []mark // of one perform, for the flusher
	// answered have bytes queued that are to go out at once.
	answered []*session
	beat     time.Duration // when the next heartbeat goes out
	beating  []*session    // to whom the present one is still to go
	armed    time.Duration // when the loop wakes by itself
}

// tick says that the time has come.
var tick = engine.Event{Kind: engine.EventTick}

// loop keeps the run going until it is over and all that was appended is durable.
func (c *Coordinator) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	c.owned.Lock()
	c.owned.beat = c.now() + c.heartbeatEvery()
	c.engine.Apply(c.now(), &tick, &c.owned.fx)
	c.perform()
	c.release()
	for {
		c.owned.Lock()
		c.turn(nil)
		if c.over() {
			c.release()
			return
		}
		due := c.due()
		c.owned.armed = due
		c.release()
		if due == 0 || !c.inbox.empty() {
			continue
		}
		timer.Reset(max(due-c.now(), 0))
		select {
		case <-c.inbox.wake:
		case <-timer.C:
		}
	}
}

// turnsOfReader bounds how long a reader works for others before its own connection is read again.
const turnsOfReader = 4

// work has events of a connection applied, and then what is in the inbox: by the calling goroutine, unless another is at it;
// then that one finds them in the inbox before it stops. It returns an empty slice for the next ones.
func (c *Coordinator) work(events []engine.Event) (empty []engine.Event) {
	if !c.owned.TryLock() {
		empty, events = c.inbox.give(events), nil
		if !c.owned.TryLock() {
			return empty
		}
	}
	for turn := 1; ; turn++ {
		c.turn(events)
		if events != nil {
			clear(events) // drop what they point to
			empty, events = events[:0], nil
		}
		due := c.due()
		early := due < c.owned.armed || c.over()
		if early {
			c.owned.armed = due
		}
		c.release()
		if early {
			c.inbox.ring()
		}
		switch {
		case c.inbox.empty():
			return empty
		case turn == turnsOfReader:
			c.inbox.ring()
			return empty
		case !c.owned.TryLock():
			return empty
		}
	}
}

// release lets go of the engine, and then writes the answers: a system call for each, which the next owner need not wait for.
func (c *Coordinator) release() {
	var some [32]*session
	list := append(some[:0], c.owned.answered...)
	for i, s := range list {
		s.answered = false
		c.owned.answered[i] = nil
	}
	c.owned.answered = c.owned.answered[:0]
	c.owned.Unlock()
	for _, s := range list {
		s.w.Flush()
	}
}

// turn applies all that has come, then the given events, and does what is due.
func (c *Coordinator) turn(events []engine.Event) {
	o := &c.owned
	o.lists, o.calls = c.inbox.swap(o.lists, o.calls)
	for _, events := range o.lists {
		c.applyAll(events)
	}
	c.applyAll(events)
	for _, f := range o.calls {
		f()
	}
	now := c.now()
	if next, timed := c.engine.Next(); c.engine.More() || timed && now >= next {
		c.engine.Apply(now, &tick, &o.fx)
		c.perform()
	}
	if now >= o.beat && len(o.beating) == 0 {
		c.heartbeat()
		o.beat = now + c.heartbeatEvery()
	}
	if len(o.beating) > 0 {
		c.beatSome()
	}
	if len(c.lazy) > 0 && now >= c.lazyAt {
		c.flushLazy()
	}
}

// applyAll takes events to the engine.
func (c *Coordinator) applyAll(events []engine.Event) {
	for len(events) > 0 {
		some := events[:min(len(events), applyAtOnce)]
		events = events[len(some):]
		for i := range some {
			switch e := &some[i]; e.Kind {
			case engine.EventCommitted:
				c.committed = max(c.committed, e.UpTo)
			case engine.EventBroken:
				c.broken = true
				c.letGo()
			}
		}
		if len(c.waiters) > 0 {
			c.wakeWaiters()
		}
		c.engine.ApplyAll(c.now(), some, &c.owned.fx)
		c.perform()
	}
}

// over: the run has ended, and all of it is durable or never will be.
func (c *Coordinator) over() bool { return c.finished && (c.committed >= c.appended || c.broken) }

// due is when the next turn is needed at the latest.
func (c *Coordinator) due() time.Duration {
	if c.engine.More() || len(c.owned.beating) > 0 {
		return 0
	}
	due := c.owned.beat
	if next, timed := c.engine.Next(); timed {
		due = min(due, next)
	}
	if len(c.lazy) > 0 {
		due = min(due, c.lazyAt)
	}
	return due
}

// heartbeatEvery is how often a worker hears of us, in one burst for all: one wake-up of ours for a thousand workers.
func (c *Coordinator) heartbeatEvery() time.Duration {
	return max(c.cfg.Job.HeartbeatTimeout/3, 10*time.Millisecond)
}

// perform does what the engine wants done, in its order.
func (c *Coordinator) perform() {
	fx := &c.owned.fx
	if c.letsGo {
		fx.Reset() // what the engine wants of workers is another coordinator's business now
		return
	}
	for i := range fx.List {
		f := &fx.List[i]
		switch f.Kind {
		case engine.EffectAppend:
			c.appended++
			c.journal.Append(f.Record)
		case engine.EffectCommit:
			c.flusher.commit(f.Urgent)
		case engine.EffectTrack:
			if c.flusher.stores[f.Task] != nil {
				c.owned.marks = append(c.owned.marks, mark{task: f.Task, done: f.Done, block: f.Block})
			}
		case engine.EffectJoined, engine.EffectRefused, engine.EffectWelcome, engine.EffectBlocks, engine.EffectAcknowledge,
			engine.EffectRecall, engine.EffectReassign, engine.EffectDrain, engine.EffectStop, engine.EffectKillBlock, engine.EffectTimeLeft, engine.EffectAway,
			engine.EffectClose:
			c.tell(f)
		case engine.EffectSubmit:
			c.submit(f.Submit)
		case engine.EffectCancel, engine.EffectKill:
			c.end(f.Kind, f.Workers)
		case engine.EffectBind, engine.EffectList, engine.EffectKnown, engine.EffectAccount, engine.EffectThrottle, engine.EffectExclude, engine.EffectCancelArray:
			c.ask(f.Kind, *f.Ask)
		case engine.EffectEnded:
			c.record(f.Attempt)
			c.events.attempt(f.Attempt)
			if s := c.flusher.stores[f.Task]; s != nil && s.HasResources() && f.Attempt.Verdict == scheduler.Succeeded {
				use := f.Attempt.Use // the attempt's own memory is used again
				c.owned.marks = append(c.owned.marks, mark{task: f.Task, block: f.Attempt.Handout.Block, use: &use})
			}
		case engine.EffectWorker:
			c.events.worker(f.Worker)
		case engine.EffectTaskEnded:
			c.events.add(happening{kind: api.EventTaskEnded, task: f.Task, state: f.Text})
		case engine.EffectNotice:
			c.cfg.Notice(f.Text)
		case engine.EffectFinished:
			c.finished, c.outcome, c.why, c.wrong = true, f.State, f.Text, f.Wrong
			if f.State == engine.RunAside {
				c.events.notice("this coordinator ends, and another is to go on with the run: " + f.Text)
				break
			}
			c.events.add(happening{kind: api.EventRunEnded, task: -1, state: f.State.String(), message: f.Text})
		}
	}
	fx.Reset()
	if marks := c.owned.marks; len(marks) > 0 {
		c.flusher.track(marks)
		c.owned.marks = marks[:0]
	}
}
