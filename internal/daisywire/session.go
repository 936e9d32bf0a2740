package daisywire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"example.org/daisy/geom"
)

const (
	// FrameTime is how long a frame may take from its first byte to its last, and one to the client until it is read. Between frames a client
	// may be silent for ever: it computes.
	FrameTime = 30 * time.Second
	// maxRequests bounds the blocks that a client has asked for and not got.
	maxRequests = 64
	// maxTaskID bounds the task that a client names: it stands in messages for people.
	maxTaskID = 1 << 10
)

// ErrNoMore is what Join and Acquire return when there is nothing to do any more: the client is told, and goes away in good order.
var ErrNoMore = errors.New("no more blocks")

// ErrSilent is wrapped by the error about a client that has begun a frame and does not end it.
var ErrSilent = fmt.Errorf("%w: it has begun a frame, and %s later not ended it", ErrMalformed, FrameTime)

// A Server has blocks for clients.
type Server interface {
	// Join lets a client in. It is called once for a connection, when a first frame names a task. An error turns the client away: its text
	// is in the exception that the client raises, and it is what Serve returns. ErrNoMore sends it away in good order.
	Join(context.Context, Client) (Blocks, error)
}

// A Client is who has connected, as far as it says so.
type Client struct {
	Task string
	// Worker is worker_id of its DAISY_CONTEXT, if HasWorker. Several connections may say the same.
	Worker    uint64
	HasWorker bool
}

// Blocks are the blocks of one client. Acquire is called by one goroutine, one call at a time, the other methods by another; a lease may
// be released before a later Acquire has returned.
type Blocks interface {
	// Acquire waits for a block. A client may have several at once. ErrNoMore: there will be none; another error ends the connection, and its
	// text is in the exception that the client raises. The context is done when the connection has ended.
	Acquire(context.Context) (Grant, error)
	// Release ends a lease: called once for each that Acquire has returned.
	Release(End)
	// Leave is the last call: the connection has ended, and every lease has been released.
	Leave()
}

// A Grant is a block in the hands of a client.
type Grant struct {
	// Lease is for the owner of the blocks: it comes back in End.
	Lease uint64
	// SpatialID is the block's number (geom.Grid.ID). A client knows its block by it: it may not have two of the same.
	SpatialID   uint64
	Read, Write geom.Roi
	// Timeout is told to the client, which ends its own process when it has had the block for so long. 0: no limit.
	Timeout time.Duration
}

// Outcome is how a lease ended.
type Outcome uint8

const (
	// Succeeded: the client says that the block is done.
	Succeeded Outcome = iota
	// Broke: the client says that it has failed.
	Broke
	// TimedOut: the connection has ended when the client had had the block for its timeout.
	TimedOut
	// Lost: the connection has ended before that.
	Lost
)

// An End is the end of a lease.
type End struct {
	Lease   uint64
	Outcome Outcome
	// Took is from when the block was sent to its end.
	Took time.Duration
	// Error is what the client says of a block that failed, "" if it says nothing. It can be long.
	Error string
	// Stats is what the client has measured, nil if nothing. Floats of any value may be in it.
	Stats *Stats
}

// Serve serves one connection of a client until it ends, and closes it. It returns nil if the client ended it, whatever it held, or was told
// that there is no more and holds nothing; and else why it was dropped: the cause of the context's end, what the client sent that it should not have (ErrMalformed), or what Join or Acquire had
// against it. What the client held is released as lost or timed out.
//
// A release of a block that the client does not hold is let be, as one that comes twice. Nothing that a client sends costs anybody but itself.
func Serve(ctx context.Context, conn net.Conn, server Server) error {
	ctx, drop := context.WithCancelCause(ctx)
	s := &session{ctx: ctx, drop: drop, conn: conn, server: server, asked: make(chan struct{}, maxRequests), held: map[uint64]*lease{}}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err := s.read()
	if ctx.Err() != nil {
		err = context.Cause(ctx) // whatever the reader then met
	}
	if errors.Is(err, errEnded) {
		err = nil
	}
	drop(errEnded)
	s.answers.Wait()
	stop()
	_ = conn.Close()
	if s.blocks != nil {
		s.giveBack()
		s.blocks.Leave()
	}
	return err
}

// errEnded is why nothing goes on when the client has ended the connection.
var errEnded = errors.New("the connection has ended")

// A session is one connection of a client.
type session struct {
	ctx    context.Context
	drop   context.CancelCauseFunc
	conn   net.Conn
	server Server
	// dialect, task and blocks are the reader's; it sets them before it starts the goroutine that answers.
	dialect Dialect
	task    string
	blocks  Blocks
	asked   chan struct{} // one for each request without an answer, nearly
	answers sync.WaitGroup
	started bool

	mu   sync.Mutex
	held map[uint64]*lease
}

type lease struct {
	Grant
	since time.Time
}

// read takes frames until the connection ends, or something is wrong with one.
func (s *session) read() error {
	frames := newFrameReader(s.conn)
	frames.begun = func(begun bool) {
		until := time.Time{}
		if begun {
			until = time.Now().Add(FrameTime)
		}
		_ = s.conn.SetReadDeadline(until)
	}
	for first := true; ; first = false {
		payload, err := frames.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return ErrSilent
		case errors.Is(err, ErrMalformed):
			return err
		case err != nil:
			return nil // it has ended, in order or not
		}
		if first {
			if s.dialect, err = DialectOf(payload); err != nil {
				return err
			}
		}
		m, err := Decode(payload, s.dialect)
		if err != nil {
			return err
		}
		if done, err := s.take(&m); done || err != nil {
			return err
		}
	}
}

// take does what a message asks for. done: the client goes away.
func (s *session) take(m *Message) (done bool, err error) {
	switch m.Kind {
	case AcquireBlock, Register:
		err := s.know(m)
		if errors.Is(err, ErrNoMore) {
			return true, s.send(&Message{Kind: RequestShutdown})
		}
		if err != nil || m.Kind == Register {
			return false, err
		}
		return false, s.ask()
	case ReleaseBlock, BlockFailed:
		return false, s.release(m)
	case Disconnect:
		return true, nil
	default:
		return false, malformed("a client that sends %s, which only servers do", m.Kind)
	}
}

// know has the server let the client in, the first time that it names a task.
func (s *session) know(m *Message) error {
	if len(m.TaskID) > maxTaskID {
		return s.refuse(malformed("a client of a task whose name has %d bytes", len(m.TaskID)))
	}
	if s.blocks != nil {
		if m.TaskID == s.task {
			return nil
		}
		return s.refuse(fmt.Errorf("%w: a client of task %q that asks for a block of task %q: let each connect by itself", ErrMalformed, s.task, m.TaskID))
	}
	blocks, err := s.server.Join(s.ctx, Client{Task: m.TaskID, Worker: m.Worker, HasWorker: m.HasWorker})
	if errors.Is(err, ErrNoMore) {
		return err
	}
	if err != nil {
		return s.refuse(err)
	}
	s.task, s.blocks = m.TaskID, blocks
	return nil
}

// ask notes that the client waits for a block.
func (s *session) ask() error {
	select {
	case s.asked <- struct{}{}:
	default:
		return malformed("a client that has asked for more than %d blocks without waiting", maxRequests)
	}
	if !s.started {
		s.started = true
		s.answers.Go(s.answer)
	}
	return nil
}

// answer gives the client the blocks that it has asked for, one after another.
func (s *session) answer() {
	for {
		select {
		case <-s.asked:
		case <-s.ctx.Done():
			return
		}
		g, err := s.blocks.Acquire(s.ctx)
		switch {
		case errors.Is(err, ErrNoMore):
			err = s.send(&Message{Kind: RequestShutdown})
			if err == nil && s.holdsNothing() {
				err = errEnded // the client says nothing more
			}
		case err != nil && s.ctx.Err() == nil:
			err = s.refuse(err)
		case err == nil:
			s.hold(g)
			err = s.send(&Message{Kind: SendBlock, HasTimeout: g.Timeout > 0, Timeout: g.Timeout.Seconds(), Block: Block{
				Read: regionOf(g.Read), Write: regionOf(g.Write), TaskID: s.task, SpatialID: g.SpatialID,
			}})
		}
		if err != nil {
			s.drop(err)
			return
		}
	}
}

func (s *session) hold(g Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[g.SpatialID] = &lease{g, time.Now()}
}

func (s *session) holdsNothing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) == 0
}

// release gives a block back, if the client has it.
func (s *session) release(m *Message) error {
	b := &m.Block
	if len(b.Read.Offset) != len(b.Read.Shape) || len(b.Write.Offset) != len(b.Write.Shape) {
		return malformed("a block whose regions have an offset and a shape of different dimensions")
	}
	outcome := Broke
	if m.Kind == ReleaseBlock {
		switch b.Status {
		case Success:
			outcome = Succeeded
		case Failed:
		default:
			return malformed("a block that is given back in the state %s: it is neither done nor failed", b.Status)
		}
	}
	s.mu.Lock()
	l := s.held[b.SpatialID]
	if l == nil || b.TaskID != s.task {
		s.mu.Unlock()
		return nil
	}
	if !b.Read.is(l.Read) || !b.Write.is(l.Write) {
		s.mu.Unlock()
		return malformed("block %d of task %q given back with other regions than it has", b.SpatialID, s.task)
	}
	delete(s.held, b.SpatialID)
	s.mu.Unlock()
	s.blocks.Release(End{Lease: l.Lease, Outcome: outcome, Took: time.Since(l.since), Error: m.Error, Stats: b.Stats})
	return nil
}

// giveBack releases what the client held when its connection ended.
func (s *session) giveBack() {
	s.mu.Lock()
	held := make([]*lease, 0, len(s.held))
	for _, l := range s.held {
		held = append(held, l)
	}
	s.mu.Unlock()
	slices.SortFunc(held, func(a, b *lease) int { return a.since.Compare(b.since) })
	for _, l := range held {
		e := End{Lease: l.Lease, Outcome: Lost, Took: time.Since(l.since)}
		if l.Timeout > 0 && e.Took >= l.Timeout {
			e.Outcome = TimedOut // the client ends its process itself
		}
		s.blocks.Release(e)
	}
}

// refuse tells the client why it gets nothing, and returns that. A client raises what it did not expect, with its text: so a person sees it.
func (s *session) refuse(why error) error {
	_ = s.send(&Message{Kind: BlockFailed, Block: Block{TaskID: "daisy-submit", Status: Failed}, Error: why.Error()})
	return why
}

// send sends a message, in one call of Write: the reader and who answers may both have something to say.
func (s *session) send(m *Message) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(FrameTime))
	if _, err := s.conn.Write(Append(nil, s.dialect, m)); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the client has not read its answer for %s", FrameTime)
		}
		return errEnded
	}
	return nil
}

func regionOf(r geom.Roi) Region { return Region{r.Offset.Slice(), r.Shape.Slice()} }

func (r Region) is(roi geom.Roi) bool {
	return slices.Equal(r.Offset, roi.Offset.Slice()) && slices.Equal(r.Shape, roi.Shape.Slice())
}
