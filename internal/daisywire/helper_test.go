package daisywire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"example.org/daisy/geom"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A shelf has the blocks of a task: 10 wide, side by side. What comes back undone goes to its end.
type shelf struct {
	mu      sync.Mutex
	task    string
	ids     []uint64
	timeout time.Duration
	joined  []Client
	ends    []End
	left    int
	more    chan struct{} // closed and made anew whenever ids grows
	none    bool          // ErrNoMore where there is nothing, instead of waiting
}

func newShelf(task string, n int) *shelf {
	s := &shelf{task: task, more: make(chan struct{})}
	for i := range n {
		s.ids = append(s.ids, uint64(i))
	}
	return s
}

func (s *shelf) Join(_ context.Context, c Client) (Blocks, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Task != s.task {
		return nil, fmt.Errorf("there is no task %q here", c.Task)
	}
	s.joined = append(s.joined, c)
	return s, nil
}

func (s *shelf) Acquire(ctx context.Context) (Grant, error) {
	for {
		s.mu.Lock()
		if len(s.ids) > 0 {
			id := s.ids[0]
			s.ids = s.ids[1:]
			s.mu.Unlock()
			roi := geom.Roi{Offset: geom.Coord(10 * int64(id)), Shape: geom.Coord(10)}
			return Grant{Lease: id, SpatialID: id, Read: roi, Write: roi, Timeout: s.timeout}, nil
		}
		more, none := s.more, s.none
		s.mu.Unlock()
		if none {
			return Grant{}, ErrNoMore
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Grant{}, ctx.Err()
		}
	}
}

func (s *shelf) Release(e End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, e)
	if e.Outcome != Succeeded {
		s.ids = append(s.ids, e.Lease)
		close(s.more)
		s.more = make(chan struct{})
	}
}

func (s *shelf) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left++
}

// A peer is the client's end of a session.
type peer struct {
	t     *testing.T
	conn  net.Conn
	ended chan error
	err   error
	over  bool
}

// connect begins a session with a server.
func connect(t *testing.T, server Server) *peer { return connectWith(t.Context(), t, server) }

func connectWith(ctx context.Context, t *testing.T, server Server) *peer {
	ours, theirs := net.Pipe()
	p := &peer{t: t, conn: theirs, ended: make(chan error, 1)}
	go func() { p.ended <- Serve(ctx, ours, server) }()
	t.Cleanup(func() { _ = theirs.Close() })
	return p
}

func (p *peer) send(frame []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(frame); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		p.t.Fatal(err)
	}
}

func (p *peer) say(m *Message) { p.t.Helper(); p.send(Append(nil, Released, m)) }

func (p *peer) acquire(task string) { p.t.Helper(); p.say(&Message{Kind: AcquireBlock, TaskID: task}) }

// answer reads one message. It fails if the connection ends.
func (p *peer) answer() Message {
	p.t.Helper()
	payload, err := newFrameReader(p.conn).next()
	if err != nil {
		p.t.Fatalf("no answer: %v", err)
	}
	m, err := Decode(payload, Released)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// block asks for one and gets it.
func (p *peer) block(task string) Block {
	p.t.Helper()
	p.acquire(task)
	m := p.answer()
	if m.Kind != SendBlock {
		p.t.Fatalf("the answer is %s %q, want a block", m.Kind, m.Error)
	}
	return m.Block
}

// back gives a block back in a state.
func (p *peer) back(b Block, s Status) {
	p.t.Helper()
	b.Status = s
	p.say(&Message{Kind: ReleaseBlock, Block: b})
}

// dropped waits for the end of the session and returns what it ended with.
func (p *peer) dropped() error {
	p.t.Helper()
	if !p.over {
		_, _ = io.Copy(io.Discard, p.conn)
		p.err, p.over = <-p.ended, true
	}
	return p.err
}

// close ends the connection in order.
func (p *peer) close() error {
	_ = p.conn.Close()
	return p.dropped()
}

func frame(payload ...byte) []byte {
	return append([]byte{byte(len(payload) >> 24), byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload))}, payload...)
}

// pad repeats ü until a frame is as long as it says.
func pad(b []byte) []byte {
	n := 4 + (int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3]))
	return append(b, bytes.Repeat([]byte("ü"), (n-len(b))/2)...)
}
