package coordinator

import (
	"time"

	"example.org/daisy/internal/engine"
)

const (
	// lazyDelay is for how long an acknowledgement may wait for something else to go to the same worker.
	lazyDelay = 2 * time.Millisecond
	// applyAtOnce is how many events are applied before their effects are done, so that a burst does not delay the first
	// answers.
	applyAtOnce = 256
)

// loop owns the engine until the run is over and all that was appended is durable.
func (c *Coordinator) loop() {
	var (
		fx     engine.Effects
		events []engine.Event
		calls  []func()
		timer  = time.NewTimer(0)
		tick   = engine.Event{Kind: engine.EventTick}
		beat   = c.now() + c.heartbeatEvery()
	)
	defer timer.Stop()
	c.engine.Apply(c.now(), &tick, &fx)
	c.perform(&fx)
	for {
		events, calls = c.inbox.swap(events, calls)
		for rest := events; len(rest) > 0; {
			n := min(len(rest), applyAtOnce)
			now := c.now()
			for i := range n {
				switch rest[i].Kind {
				case engine.EventCommitted:
					c.committed = max(c.committed, rest[i].UpTo)
				case engine.EventBroken:
					c.broken = true
				}
				c.engine.Apply(now, &rest[i], &fx)
			}
			rest = rest[n:]
			c.perform(&fx)
		}
		for _, f := range calls {
			f()
		}
		now := c.now()
		next, timed := c.engine.Next()
		if c.engine.More() || timed && now >= next {
			c.engine.Apply(now, &tick, &fx)
			c.perform(&fx)
			next, timed = c.engine.Next()
		}
		if c.finished && (c.committed >= c.appended || c.broken) {
			return
		}
		if now >= beat {
			c.heartbeat()
			beat = now + c.heartbeatEvery()
		}
		if len(c.lazy) > 0 && now >= c.lazyAt {
			c.flushLazy()
		}
		if c.engine.More() {
			continue
		}
		wait := beat - now
		if timed {
			wait = min(wait, next-now)
		}
		if len(c.lazy) > 0 {
			wait = min(wait, c.lazyAt-now)
		}
		timer.Reset(max(wait, 0))
		select {
		case <-c.inbox.wake:
		case <-timer.C:
		}
	}
}

// heartbeatEvery is how often a worker hears of us, in one burst for all: one wake-up of ours for a thousand workers.
func (c *Coordinator) heartbeatEvery() time.Duration {
	return max(c.cfg.Job.HeartbeatTimeout/3, 10*time.Millisecond)
}

// perform does what the engine wants done, in its order.
func (c *Coordinator) perform(fx *engine.Effects) {
	for i := range fx.List {
		f := &fx.List[i]
		switch f.Kind {
		case engine.EffectAppend:
			c.appended++
			if c.journal != nil {
				c.journal.Append(f.Record)
			}
		case engine.EffectCommit:
			if c.journal != nil {
				c.flusher.commit()
			} else {
				c.inbox.put(engine.Event{Kind: engine.EventCommitted, UpTo: c.appended})
			}
		case engine.EffectTrack:
			if c.flusher.stores[f.Task] != nil {
				c.flusher.track(mark{task: f.Task, done: f.Done, block: f.Block})
			}
		case engine.EffectJoined, engine.EffectRefused, engine.EffectWelcome, engine.EffectBlocks, engine.EffectAcknowledge,
			engine.EffectRecall, engine.EffectReassign, engine.EffectDrain, engine.EffectStop, engine.EffectKillBlock, engine.EffectClose:
			c.tell(f)
		case engine.EffectSubmit:
			c.submit(f.Submit)
		case engine.EffectCancel, engine.EffectKill:
			c.end(f.Kind, f.Workers)
		case engine.EffectEnded:
			c.record(f.Attempt)
		case engine.EffectNotice:
			c.cfg.Notice(f.Text)
		case engine.EffectFinished:
			c.finished, c.outcome, c.why = true, f.State, f.Text
		}
	}
	fx.Reset()
}
