package worker

import "time"

const (
	// wakeStep is how often the worker looks at its clock.
	wakeStep = 500 * time.Millisecond
	// wakeJump is by how much the clock is ahead then if the worker was stopped meanwhile, and not only kept waiting for a processor.
	wakeJump = 2 * time.Second
)

// A look is what the worker knew when it last looked at its clock.
type look struct{ at, heard, answered time.Duration }

func (c *Client) look() look {
	return look{c.clock(), time.Duration(c.heard.Load()), time.Duration(c.answered.Load())}
}

// watchClock notices that the worker was stopped (SIGSTOP, a batch system that suspends jobs) for so long that its blocks may have gone to
// others.
func (c *Client) watchClock() {
	for {
		timer := time.NewTimer(wakeStep)
		select {
		case <-c.life.Done():
			timer.Stop()
			return
		case <-c.ended:
			timer.Stop()
			return
		case <-timer.C:
			c.lookAtClock()
		}
	}
}

// lookAtClock wakes the worker if it was stopped since the last look. Whoever judges a silence calls it first: after a stop, what has come
// says nothing, since it waited to be read, and what has not come says nothing either.
func (c *Client) lookAtClock() {
	c.looking.Lock()
	defer c.looking.Unlock()
	before := c.lastLook
	c.lastLook = c.look()
	if now := c.lastLook.at; c.slept(before, now) {
		c.wake(now - before.at)
		c.lastLook = c.look()
	}
}

// slept reports whether the worker was stopped between a look and now, past the life of its leases.
func (c *Client) slept(before look, now time.Duration) bool {
	c.mu.Lock()
	p := c.patience
	c.mu.Unlock()
	life := min(before.heard+p.abandon, max(before.heard, before.answered)+p.hint)
	return now-before.at > wakeJump && now >= life
}

// wake kills all blocks, before anything else, and begins anew: the coordinator may have a place for it still.
func (c *Client) wake(slept time.Duration) {
	if c.cfg.OnWake != nil {
		c.cfg.OnWake()
	}
	c.heard.Store(int64(c.clock()))
	c.answered.Store(int64(c.clock()))
	c.mu.Lock()
	lost := c.forgetLocked(func(leaseKey) bool { return true })
	l := c.link
	c.mu.Unlock()
	c.kill(lost)
	c.logf("the worker was stopped for %v, so that its blocks may be others' now: %d were killed", slept.Round(time.Second), len(lost))
	if l != nil {
		l.conn.Close() // the next connection says what is held: nothing
	}
}
