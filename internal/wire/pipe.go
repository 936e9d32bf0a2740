package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Pipe returns the two ends of a connection inside this process. As against one of net.Pipe, what is written to it waits there for
// its reader, and no write does: a Writer over it needs no goroutine.
func Pipe() (net.Conn, net.Conn) {
	there, back := newStream(), newStream()
	return &pipeEnd{in: back, out: there}, &pipeEnd{in: there, out: back}
}

type pipeEnd struct{ in, out *stream }

func (p *pipeEnd) Read(b []byte) (int, error)        { return p.in.read(b) }
func (p *pipeEnd) Write(b []byte) (int, error)       { return p.out.write(b) }
func (p *pipeEnd) LocalAddr() net.Addr               { return pipeAddr{} }
func (p *pipeEnd) RemoteAddr() net.Addr              { return pipeAddr{} }
func (p *pipeEnd) SetReadDeadline(t time.Time) error { p.in.setDeadline(t); return nil }
func (p *pipeEnd) SetWriteDeadline(time.Time) error  { return nil } // no write takes any time

func (p *pipeEnd) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

func (p *pipeEnd) Close() error {
	p.in.close(&p.in.unread)
	p.out.close(&p.out.ended)
	return nil
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "in this process" }

// stream is one direction of a pipe.
type stream struct {
	mu     sync.Mutex
	change sync.Cond
	bytes  []byte
	from   int  // bytes[from:] have not been read
	ended  bool // by who writes
	unread bool // nobody will read any more

	late  bool // the deadline of the read has passed
	timer *time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.change.L = &s.mu
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.unread:
			return 0, io.ErrClosedPipe
		case s.late:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case s.from < len(s.bytes):
			n := copy(b, s.bytes[s.from:])
			if s.from += n; s.from == len(s.bytes) {
				s.emptyLocked()
			}
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.change.Wait()
	}
}

// emptyLocked makes room. Large memory is not kept.
func (s *stream) emptyLocked() {
	if s.from = 0; cap(s.bytes) > keepBuffer {
		s.bytes = nil
	}
	s.bytes = s.bytes[:0]
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.unread {
		return 0, io.ErrClosedPipe
	}
	s.bytes = append(s.bytes, b...)
	s.change.Broadcast()
	return len(b), nil
}

// close notes which end is gone.
func (s *stream) close(end *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*end = true
	if s.unread {
		s.bytes, s.from = nil, 0
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.change.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.late = false; t.IsZero() || s.unread {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		s.late = true
		s.change.Broadcast()
		return
	}
	var mine *time.Timer
	mine = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer == mine { // it is still the deadline
			s.late = true
			s.change.Broadcast()
		}
	})
	s.timer = mine
}
