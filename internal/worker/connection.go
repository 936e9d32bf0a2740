package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// firstLink waits for the run directory's files and tries every address in turn until one accepts the worker, the
// coordinator refuses for good, or the time for joining is over.
func (c *Client) firstLink(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(c.cfg.JoinTimeout, func() { cancel(errJoinTime) })
	defer limit.Stop()
	if err := c.places.find(ctx, &c.cfg); err != nil {
		return nil, joinError(ctx, StatusNoAnswer, err)
	}
	for wait := firstBackoff; ; wait = min(2*wait, longestBackoff) {
		if left := time.Until(c.places.awayUntil); left > 0 {
			limit.Reset(left + c.cfg.JoinTimeout)
		}
		l, err := c.tryAll(ctx)
		if l != nil {
			return l, nil
		}
		var no *refusal
		if errors.As(err, &no) && no.final() {
			if exit := no.exit(); exit != nil {
				return nil, exit
			}
			return nil, ErrNoMore
		}
		if !pause(ctx, jitter(wait)) {
			status := StatusNoAnswer
			if no != nil && no.code != "" && no.code != "busy" {
				status = StatusRefused
			}
			return nil, joinError(ctx, status, fmt.Errorf("no coordinator accepted this worker: %s", c.places.summary()))
		}
		_ = c.places.reread(&c.cfg, 0) // else the addresses that are known
	}
}

var errJoinTime = errors.New("the time for joining is over")

func joinError(ctx context.Context, status int, err error) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errJoinTime) {
		return cause
	}
	return &ExitError{Status: status, Err: err}
}

// tryAll tries each address once. The error is the most telling one: a refusal, else the last.
func (c *Client) tryAll(ctx context.Context) (*link, error) {
	var telling error
	missed := func(address string, err error) {
		if isThere(err) {
			c.answered.Store(int64(c.clock()))
		}
		c.places.noted(ctx, address, err)
		if telling == nil || errors.As(err, new(*refusal)) {
			telling = err
		}
	}
	left := c.places.inOrder()
	if len(left) > 1 {
		first, others, failed := reach(ctx, left, c.dialAnew)
		for address, err := range failed {
			missed(address, err)
		}
		left = nil
		if first != nil {
			c.places.open, left = first, append([]string{first.address}, others...)
			defer c.places.closeOpen()
		}
	}
	for _, address := range left {
		l, err := c.establish(ctx, address)
		if err == nil {
			c.places.answers = address
			c.heard.Store(int64(c.clock()))
			c.answered.Store(int64(c.clock()))
			return l, nil
		}
		missed(address, err)
		var no *refusal
		if errors.As(err, &no) && no.final() {
			return nil, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, telling
}

// All that is sent again goes out at once, and a connection over which more than wire.MaxPending waits is closed: of many failures at a time
// only the first are told at length. The log has all.
const (
	mostTexts = 1 << 20 // bytes
	shortText = 100
)

// attach makes l the connection: what is unacknowledged is sent again, what waits is asked for again.
func (c *Client) attach(l *link) {
	c.mu.Lock()
	c.link, c.open, c.away, c.unsaid = l, 0, 0, 0
	texts := 0
	for _, u := range c.unacked.list() {
		m := u.Release
		if texts += len(m.Message) + len(m.Tail); texts > mostTexts {
			m.Message, m.Tail = beginningOf(m.Message, shortText), ""
		}
		_ = l.out.Queue(func(dst []byte) []byte { return wire.AppendRelease(dst, m) })
	}
	c.sayEndLocked()
	if c.leaving {
		c.sayLeavingLocked()
	}
	c.askLocked()
	over := c.life.Err() != nil
	c.mu.Unlock()
	l.flush()
	if over {
		l.conn.Close() // Close came before it could see this connection
	}
}

// serve reads the connection, and replaces it when it ends.
func (c *Client) serve(l *link) {
	defer close(c.ended)
	for {
		err := c.read(l)
		l.conn.Close()
		c.mu.Lock()
		c.link, c.open, c.unsaid = nil, 0, 0
		leave := c.pointlessLocked()
		c.mu.Unlock()
		if leave {
			return
		}
		c.logf("the connection to the coordinator ended (%v): connecting again", err)
		if l, err = c.reconnect(); l == nil {
			if c.life.Err() == nil {
				c.fail(err)
			}
			return
		}
		c.attach(l)
		c.logf("connected again")
	}
}

// pointlessLocked: there is nothing left that a new connection would be good for.
func (c *Client) pointlessLocked() bool {
	if c.life.Err() != nil {
		return true
	}
	if !c.leaving || len(c.held) > 0 {
		return false
	}
	for _, u := range c.unacked.list() {
		if worthKeeping(u.Outcome) {
			return false
		}
	}
	return true
}

// reconnect tries until an address accepts the worker. It gives nil and why there will be no connection, or nil and nil
// when the run is over.
func (c *Client) reconnect() (*link, error) {
	for wait := firstBackoff; ; wait = min(2*wait, longestBackoff) {
		left, why := c.patienceLeft()
		if left <= 0 {
			return nil, &ExitError{Status: StatusGone, Err: fmt.Errorf("%s: the blocks that ran were killed, since the coordinator hands them out again; last tried: %s", why, c.places.summary())}
		}
		ctx, cancel := context.WithTimeout(c.life, left)
		c.mu.Lock()
		epoch, leave := c.epoch, c.pointlessLocked()
		c.mu.Unlock()
		if leave {
			cancel()
			return nil, nil
		}
		if err := c.places.reread(&c.cfg, epoch); err != nil {
			c.logf("no new addresses: %v", err)
		}
		l, err := c.tryAll(ctx)
		if l != nil {
			cancel()
			return l, nil
		}
		var no *refusal
		if errors.As(err, &no) && no.final() {
			cancel()
			return nil, no.exit()
		}
		if wait == firstBackoff || wait == longestBackoff {
			c.logf("cannot reach the coordinator: %s", c.places.summary())
		}
		if c.places.awaitNews(ctx, &c.cfg, jitter(wait)) {
			wait = firstBackoff
		}
		cancel()
		if c.life.Err() != nil {
			return nil, nil
		}
	}
}

// patienceLeft is for how long the worker still tries, and why not for longer. The coordinator gives the worker's blocks to
// others a little later.
func (c *Client) patienceLeft() (time.Duration, string) {
	c.lookAtClock()
	c.mu.Lock()
	p := c.patience
	since := time.Duration(math.MinInt64)
	switch {
	case c.away == 0:
	case len(c.held) > 0: // nobody else may have its blocks so soon
		p.abandon, p.hint = p.abandon+c.away, p.hint+c.away
	default: // it would keep a node for nothing, but its last result may still be fetched
		since = c.freeAt
	}
	c.mu.Unlock()
	now := c.clock()
	contact := max(time.Duration(c.heard.Load()), since) + p.abandon - now
	// A refused connection is an answer: the machine is there, and a coordinator may come back to it.
	answer := max(time.Duration(max(c.heard.Load(), c.answered.Load())), since) + p.hint - now
	if answer < contact {
		return answer, fmt.Sprintf("nobody has answered for %v", p.hint)
	}
	return contact, fmt.Sprintf("no contact with the coordinator for %v", p.abandon)
}

// read handles the messages of one connection until it ends.
func (c *Client) read(l *link) error {
	var blocks wire.Blocks
	for {
		kind, payload, err := l.in.Next()
		if err != nil {
			return err
		}
		c.heard.Store(int64(c.clock()))
		switch kind {
		case wire.KindBlocks:
			if err = wire.DecodeBlocks(payload, &blocks); err == nil {
				c.granted(&blocks)
			}
		case wire.KindAcknowledged:
			var m wire.Acknowledged
			if m, err = wire.DecodeAcknowledged(payload); err == nil {
				c.acknowledged(m.Seq)
			}
		case wire.KindRefused:
			var m wire.Refused
			if m, err = wire.DecodeRefused(payload); err == nil {
				c.refusedResult(m)
			}
		case wire.KindRecall:
			var m wire.Recall
			if m, err = wire.DecodeRecall(payload); err == nil {
				c.recalled(m.Leases)
			}
		case wire.KindReassign:
			var m wire.Reassign
			if m, err = wire.DecodeReassign(payload); err == nil {
				err = c.reassigned(m.Spec)
			}
		case wire.KindDrain:
			var m wire.Drain
			if m, err = wire.DecodeDrain(payload); err == nil {
				c.logf("told to leave: %s", api.OneLine(m.Message))
				c.Leave(wire.LeaveTold, "")
			}
		case wire.KindStop:
			var m wire.Stop
			if m, err = wire.DecodeStop(payload); err == nil {
				c.logf("told to stop: %s", api.OneLine(m.Message))
				c.Leave(wire.LeaveTold, "")
				if c.cfg.OnStop != nil {
					c.cfg.OnStop(m.Message)
				}
			}
		case wire.KindKillBlock:
			var m wire.KillBlock
			if m, err = wire.DecodeKillBlock(payload); err == nil {
				c.killed(m.Lease)
			}
		case wire.KindTimeLeft:
			var m wire.TimeLeft
			if m, err = wire.DecodeTimeLeft(payload); err == nil {
				c.timeLeft(time.Duration(m.LeftNanos))
			}
		case wire.KindAway:
			var m wire.Away
			if m, err = wire.DecodeAway(payload); err == nil {
				c.isAway(time.Duration(m.ForNanos))
			}
		case wire.KindHeartbeat:
			err = wire.DecodeHeartbeat(payload)
		default:
			err = fmt.Errorf("%w: %v (%d) is nothing that a coordinator sends now", wire.ErrMalformed, kind, kind)
		}
		if err != nil {
			return err
		}
	}
}

// granted takes blocks in: first to those that wait, the rest into the queue.
func (c *Client) granted(m *wire.Blocks) {
	c.mu.Lock()
	c.open = max(c.open-1, 0)
	task := c.tasks[m.Task]
	all := make([]heldBlock, len(m.Grants))
	for i, g := range m.Grants {
		h, key := &all[i], leaseKey{c.epoch, g.Lease}
		*h = heldBlock{task: task, flat: int64(g.Block), handed: key, first: int32(g.Attempt), now: key, attempt: int32(g.Attempt), at: -1}
		switch {
		case task == nil:
			c.releaseLocked(h, &Result{Outcome: wire.Recalled, Message: fmt.Sprintf("task number %d was never specified", m.Task)})
		case g.Block >= uint64(task.Grid.Len()):
			h.flat = 0 // there is no such block that could be named
			c.releaseLocked(h, &Result{Outcome: wire.Failed, Message: fmt.Sprintf("block %d is outside the grid of task %q, which has %d", g.Block, task.Spec.ID, task.Grid.Len())})
		case c.leaving:
			c.releaseLocked(h, &recalled)
		default:
			c.held.add(h)
			c.queue.add(h)
		}
	}
	for len(c.waiting) > 0 && c.queue.len() > 0 {
		w := c.waiting[0]
		c.waiting = c.waiting[:copy(c.waiting, c.waiting[1:])]
		w.got = c.takeLocked(w.max, nil)
		close(w.ready)
	}
	if c.open == 0 && c.batch.size <= 1 {
		// Nobody waits any more and blocks are long: others may have these.
		for _, h := range c.queue.list() {
			c.releaseLocked(h, &recalled)
		}
		c.queue.drop(c.queue.len())
	}
	c.askLocked()
	l := c.saidLocked()
	c.mu.Unlock()
	l.flush()
}

func (c *Client) acknowledged(upTo uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unacked := c.unacked.list()
	n := 0
	for n < len(unacked) && unacked[n].Seq <= upTo {
		n++
	}
	c.unacked.drop(n)
	c.settleLocked()
}

// refusedResult: a result came too late. It is not sent again.
func (c *Client) refusedResult(m wire.Refused) {
	c.mu.Lock()
	c.saidLocked()
	c.unacked.keep(slices.DeleteFunc(c.unacked.list(), func(u undelivered) bool { return u.Lease == m.Lease }))
	c.settleLocked()
	c.mu.Unlock()
	c.logf("the result of lease %d was refused: %s", m.Lease, api.OneLine(m.Message))
}

// recalled gives back the blocks that no slot has begun.
func (c *Client) recalled(leases []uint64) {
	wanted := make(map[uint64]bool, len(leases))
	for _, lease := range leases {
		wanted[lease] = true
	}
	c.mu.Lock()
	c.queue.keep(slices.DeleteFunc(c.queue.list(), func(h *heldBlock) bool {
		if !wanted[h.now.lease] {
			return false
		}
		c.releaseLocked(h, &recalled)
		return true
	}))
	c.settleLocked()
	l := c.saidLocked()
	c.mu.Unlock()
	l.flush()
}

func (c *Client) reassigned(spec []byte) error {
	var s api.TaskSpec
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("%w: the specification of a task: %w", wire.ErrMalformed, err)
	}
	task, err := NewTask(s)
	if err != nil {
		return fmt.Errorf("%w: the specification of a task: %w", wire.ErrMalformed, err)
	}
	c.mu.Lock()
	other := c.serveLocked(task)
	if other {
		c.batch = batch{} // blocks of another task take another time
	}
	c.mu.Unlock()
	if other {
		c.logf("serves task %q from now on", s.ID)
	} else {
		c.logf("the timeout of task %q is %s from now on (0s is none)", s.ID, units.Duration(task.Timeout()))
	}
	return nil
}

// killed: a block is no longer the worker's own. Nothing is said of it, but that there is somebody who ends it: the coordinator asks whether
// the worker lives, and the process may be one that nobody can end soon.
func (c *Client) killed(lease uint64) {
	c.mu.Lock()
	lost := c.forgetLocked(func(key leaseKey) bool { return key.lease == lease })
	if c.link != nil {
		_ = c.link.out.Send(wire.AppendHeartbeat)
	}
	c.mu.Unlock()
	c.kill(lost)
}
