package coordinator

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
	"example.org/daisy/scheduler"
)

// helloTimeout is how long a new stream may take to say who it is.
const helloTimeout = 30 * time.Second

// frameHead is what a frame has besides its payload: length, version, kind.
const frameHead = 6

// session is one connection of a worker.
type session struct {
	id   engine.SessionID
	conn net.Conn
	w    *wire.Writer
	// greeted: the worker has said who it is, so that it has read the answer to the upgrade. Of Coordinator.mu.
	greeted bool
	// client, if not nil, is the client of daisy that this is a session of; it has no conn, no w.
	client *client
	// queued: bytes wait in w that nobody was woken for. Of the owner of the engine.
	queued bool
	// answered: it is in the list of those to be flushed once the owner lets go. Of the owner of the engine.
	answered bool
}

// startSession answers the upgrade and reads the stream in a goroutine of its own, so that nothing of the HTTP server stays
// with a connection that lives for weeks. head is what was read already, answer what the upgrade is answered. It is false when
// the run is over.
func (c *Coordinator) startSession(conn net.Conn, head []byte, answer string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions == nil {
		return false
	}
	c.lastID++
	s := &session{id: c.lastID, conn: conn, w: wire.NewWriter(conn)}
	c.sessions[s.id] = s
	c.readers.Go(func() { c.read(s, head, answer) })
	return true
}

// read turns the frames of a session into events until the connection ends.
func (c *Coordinator) read(s *session, head []byte, answer string) {
	defer func() {
		_ = s.conn.Close()
		if underlying(s.conn) == nil {
			c.listener.out.Add(int64(s.w.Written()))
		}
		c.mu.Lock()
		delete(c.sessions, s.id)
		c.mu.Unlock()
	}()
	_ = s.conn.SetDeadline(time.Now().Add(helloTimeout))
	if _, err := io.WriteString(s.conn, answer); err != nil {
		return
	}
	from := io.Reader(s.conn)
	if len(head) > 0 {
		from = io.MultiReader(bytes.NewReader(head), s.conn)
	}
	r := wire.NewReader(from)
	kind, payload, err := r.Next()
	if err != nil || kind != wire.KindHello {
		return
	}
	hello, err := wire.DecodeHello(payload)
	if err != nil {
		return
	}
	_ = s.conn.SetDeadline(time.Time{})
	if _, secure := s.conn.(api.TLSConn); secure {
		counted := underlying(s.conn)
		below := wire.NewWriter(counted.Conn)
		counted.sink.Store(below)
		s.w.GoesTo(below)
	}
	pid := c.greet(s, hello)
	attach := engine.Event{Kind: engine.EventAttach, Session: s.id, Worker: hello.Worker, Nonce: hello.Nonce}
	for _, h := range hello.Held {
		attach.Held = append(attach.Held, engine.Held{Epoch: h.Epoch, Lease: scheduler.Lease(h.Lease), Task: int32(min(h.Task, 1<<30)), Block: int64(h.Block), Attempt: int32(min(h.Attempt, 1<<30))})
	}
	c.inbox.put(attach)
	events, bytesIn := make([]engine.Event, 0, 2), int64(len(head))
	blocks := 0 // in events
	var successes wire.Successes
	for {
		kind, payload, err := r.Next()
		if err != nil {
			break
		}
		bytesIn += int64(len(payload)) + frameHead
		events = append(events, engine.Event{Session: s.id})
		if !decode(kind, payload, &events[len(events)-1], &successes) {
			events = events[:len(events)-1]
			break // malformed: it costs its sender the connection, and nobody else anything
		}
		blocks += len(events[len(events)-1].Successes)
		if !r.Buffered() || len(events)+blocks >= applyAtOnce {
			events, blocks = c.work(events), 0
		}
	}
	if underlying(s.conn) == nil { // else the bytes are counted where they come in
		c.listener.in.Add(bytesIn)
	}
	c.inbox.put(append(events, engine.Event{Kind: engine.EventDetach, Session: s.id, Gone: pid != 0 && process.Gone(c.listener.ctx, pid, goneWithin)})...)
}

// goneWithin is how long the end of a process may take after the end of its connection.
const goneWithin = 100 * time.Millisecond

// A watchable worker is a process that nobody launched, and whose end can be seen; a launcher says it of its own.
type watchable struct {
	nonce uint64 // of the process
	pid   int
}

// greet notes that a session has said who it is. It gives the PID of the worker if its end can be seen, else 0. A worker joins
// anew for every connection, so that the PID is good for this one only.
func (c *Coordinator) greet(s *session, hello wire.Hello) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.greeted = true
	joined := c.pids[hello.Worker]
	if joined.nonce != hello.Nonce {
		return 0
	}
	delete(c.pids, hello.Worker)
	return joined.pid
}

// decode makes an event of a worker's message. It is false for what no worker sends. successes is memory that it uses again.
func decode(kind wire.Kind, payload []byte, e *engine.Event, successes *wire.Successes) bool {
	switch kind {
	case wire.KindAcquire:
		m, err := wire.DecodeAcquire(payload)
		e.Kind, e.Request, e.N = engine.EventAcquire, m.Request, int32(min(m.Max, wire.MaxGrants))
		return err == nil
	case wire.KindRelease:
		m, err := wire.DecodeRelease(payload)
		e.Kind, e.Seq, e.Epoch, e.Lease = engine.EventRelease, m.Seq, m.Epoch, scheduler.Lease(m.Lease)
		e.Outcome = scheduler.Outcome(m.Outcome)
		e.Use = engine.Use{WallNanos: m.WallNanos, CPUNanos: m.CPUNanos, PeakRSSBytes: m.PeakRSSBytes, ReadBytes: m.ReadBytes, WrittenBytes: m.WrittenBytes, GPU: engine.GPU(m.GPU)}
		if m.Message != "" || m.Tail != "" {
			e.Failure = &engine.Failure{Message: m.Message, Tail: m.Tail}
		}
		return err == nil
	case wire.KindSuccesses:
		err := wire.DecodeSuccesses(payload, successes)
		e.Kind, e.Seq, e.Epoch = engine.EventSuccesses, successes.Seq, successes.Epoch
		e.Successes = make([]engine.Success, len(successes.Ended))
		for i, s := range successes.Ended {
			e.Successes[i] = engine.Success{Lease: scheduler.Lease(s.Lease), WallNanos: s.WallNanos}
		}
		return err == nil
	case wire.KindHeartbeat:
		e.Kind = engine.EventHeartbeat
		return wire.DecodeHeartbeat(payload) == nil
	case wire.KindLeaving:
		m, err := wire.DecodeLeaving(payload)
		e.Kind, e.Leave = engine.EventLeaving, engine.LeaveReason(m.Reason)
		if m.Message != "" {
			e.Failure = &engine.Failure{Message: m.Message}
		}
		return err == nil
	case wire.KindEnding:
		m, err := wire.DecodeEnding(payload)
		e.Kind, e.Left = engine.EventEnding, time.Duration(m.LeftNanos)
		return err == nil
	default:
		return false
	}
}

// session finds a session, nil if its connection has ended.
func (c *Coordinator) session(id engine.SessionID) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[id]
}

// tell sends an effect to the worker or the join that it is for. Called by the owner of the engine only.
func (c *Coordinator) tell(f *engine.Effect) {
	switch f.Kind {
	case engine.EffectJoined:
		c.answerJoin(f.Request, joinAnswer{worker: f.WorkerID, task: f.Task, slots: f.Slots})
		return
	case engine.EffectRefused:
		if f.Request != 0 {
			c.answerJoin(f.Request, joinAnswer{refusal: &api.Error{Code: f.Code, Message: f.Text}})
			return
		}
	}
	s := c.session(f.Session)
	if s == nil {
		return
	}
	if s.client != nil {
		s.client.take(f)
		return
	}
	var err error
	switch f.Kind {
	case engine.EffectBlocks:
		c.grants = c.grants[:0]
		for _, h := range f.Handouts {
			c.grants = append(c.grants, wire.Grant{Lease: uint64(h.Lease), Block: uint64(h.Block), Attempt: uint32(h.Attempt)})
		}
		err = s.w.Queue(func(dst []byte) []byte {
			return wire.AppendBlocks(dst, wire.Blocks{Request: f.Request, Task: uint32(f.Task), Grants: c.grants})
		})
	case engine.EffectAcknowledge:
		// It can wait for something else to go the same way: half the system calls of a run of short blocks.
		err = s.w.Queue(func(dst []byte) []byte { return wire.AppendAcknowledged(dst, wire.Acknowledged{Seq: f.Seq}) })
		if err == nil {
			c.later(s)
			return
		}
	case engine.EffectWelcome:
		err = s.w.Queue(func(dst []byte) []byte {
			return wire.AppendWelcome(dst, wire.Welcome{Epoch: c.epoch, Gone: leases(f.Leases), Kept: renamed(f.Kept)})
		})
	case engine.EffectRefused:
		err = s.w.Queue(func(dst []byte) []byte {
			return wire.AppendRefused(dst, wire.Refused{Lease: uint64(f.Lease), Message: f.Text})
		})
	case engine.EffectRecall:
		err = s.w.Queue(func(dst []byte) []byte { return wire.AppendRecall(dst, wire.Recall{Leases: leases(f.Leases)}) })
	case engine.EffectReassign:
		var spec []byte
		if spec, err = json.Marshal(c.specs[f.Task]); err == nil {
			err = s.w.Queue(func(dst []byte) []byte { return wire.AppendReassign(dst, wire.Reassign{Spec: spec}) })
		}
	case engine.EffectDrain:
		err = s.w.Queue(func(dst []byte) []byte { return wire.AppendDrain(dst, wire.Drain{Message: f.Text}) })
	case engine.EffectStop:
		err = s.w.Queue(func(dst []byte) []byte { return wire.AppendStop(dst, wire.Stop{Message: f.Text}) })
	case engine.EffectKillBlock:
		err = s.w.Queue(func(dst []byte) []byte { return wire.AppendKillBlock(dst, wire.KillBlock{Lease: uint64(f.Lease)}) })
	case engine.EffectTimeLeft:
		err = s.w.Queue(func(dst []byte) []byte { return wire.AppendTimeLeft(dst, wire.TimeLeft{LeftNanos: int64(f.Left)}) })
	case engine.EffectAway:
		err = s.w.Queue(func(dst []byte) []byte {
			return wire.AppendAway(dst, wire.Away{ForNanos: int64(0.9 * float64(f.Left))})
		})
	case engine.EffectClose:
		s.w.Flush()
		_ = s.conn.Close()
		return
	}
	if err != nil {
		_ = s.conn.Close() // its reader tells the engine
		return
	}
	c.flushSoon(s)
}

// flushSoon has what s has queued written as soon as the owner lets go.
func (c *Coordinator) flushSoon(s *session) {
	if !s.answered {
		s.answered = true
		c.owned.answered = append(c.owned.answered, s)
	}
}

func leases(list []scheduler.Lease) []uint64 {
	out := make([]uint64, len(list))
	for i, l := range list {
		out[i] = uint64(l)
	}
	return out
}

func renamed(list []engine.Kept) []wire.Kept {
	out := make([]wire.Kept, len(list))
	for i, k := range list {
		out[i] = wire.Kept{Epoch: k.Epoch, Lease: uint64(k.Was), Now: uint64(k.Now), Attempt: uint32(k.Attempt)}
	}
	return out
}

func (c *Coordinator) answerJoin(request uint64, a joinAnswer) {
	c.mu.Lock()
	got := c.joins[request]
	c.mu.Unlock()
	if got != nil {
		got <- a // has room for the one answer
	}
}

// later notes that s has bytes queued.
func (c *Coordinator) later(s *session) {
	if s.queued {
		return
	}
	s.queued = true
	if len(c.lazy) == 0 {
		c.lazyAt = c.now() + lazyDelay
	}
	c.lazy = append(c.lazy, s)
}

// flushLazy has what waits sent.
func (c *Coordinator) flushLazy() {
	for i, s := range c.lazy {
		s.queued = false
		c.flushSoon(s)
		c.lazy[i] = nil
	}
	c.lazy = c.lazy[:0]
}

// heartbeat begins one for every worker that has said who it is: earlier, it could come before the answer to the upgrade.
func (c *Coordinator) heartbeat() {
	c.mu.Lock()
	all := c.owned.beating[:0]
	var clients []engine.Event
	for _, s := range c.sessions {
		switch {
		case s.client != nil:
			clients = append(clients, engine.Event{Kind: engine.EventHeartbeat, Session: s.id})
		case s.greeted:
			all = append(all, s)
		}
	}
	c.mu.Unlock()
	if len(clients) > 0 {
		c.inbox.put(clients...) // which live as long as their connections
	}
	c.owned.beating = all
}

// beatsAtOnce is to how many workers a heartbeat goes before others get their turn: a system call for each of ten thousand would hold up
// everybody for a tenth of a second.
const beatsAtOnce = 128

// beatSome sends the present heartbeat to some of those to whom it is still to go.
func (c *Coordinator) beatSome() {
	rest := c.owned.beating
	for _, s := range rest[max(len(rest)-beatsAtOnce, 0):] {
		if s.w.Send(wire.AppendHeartbeat) != nil {
			_ = s.conn.Close()
		}
	}
	left := max(len(rest)-beatsAtOnce, 0)
	clear(rest[left:])
	c.owned.beating = rest[:left]
}

// closeSessions ends every connection, after what was queued is written, and takes no new ones.
func (c *Coordinator) closeSessions() {
	c.mu.Lock()
	all := c.sessions
	c.sessions = nil
	var open []*session
	for _, s := range all {
		if s.client == nil {
			open = append(open, s)
		}
	}
	for cl := range c.clients {
		cl.drop(errOver)
	}
	c.mu.Unlock()
	for _, s := range open {
		_ = s.w.Close()
		_ = s.conn.Close()
	}
	c.readers.Wait()
}
