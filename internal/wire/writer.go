package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// MaxPending is how much may wait for a peer that does not read: 4 MiB.
	MaxPending = 4 << 20
	// WriteTimeout is how long one write may take (at least three quarters of it).
	WriteTimeout = 20 * time.Second
)

// ErrClosed is given by Queue and Send after Close.
var ErrClosed = errors.New("the connection was closed here")

// A Writer collects frames and writes all that have come since its last write with one system call. Its methods never
// block on the connection: Flush writes what the system takes at once, and a goroutine that lives only as long as there is
// a rest writes that. Safe for several goroutines; frames keep the order in which they were queued.
type Writer struct {
	conn    net.Conn
	raw     syscall.RawConn // nil where the connection has no descriptor of its own: TLS, Pipe
	below   *Writer         // where the bytes of the connection go: TLS; else nil
	prompt  bool            // no write to the connection takes any time: below, or Pipe
	attempt func(fd uintptr) bool

	mu       sync.Mutex
	idle     sync.Cond // signalled when writing turns false
	pending  []byte    // queued, not yet taken by a write
	spare    []byte    // memory for the next pending
	writing  bool      // one goroutine is between taking pending and having written it
	failure  error
	deadline time.Time // that was last set on conn
	written  uint64

	// Owned by whoever set writing.
	taken []byte
	took  int
}

// NewWriter writes to conn, which it closes only when the peer does not read or a write fails.
func NewWriter(conn net.Conn) *Writer {
	w := &Writer{conn: conn}
	w.idle.L = &w.mu
	_, w.prompt = conn.(*pipeEnd)
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			w.raw = raw
			w.attempt = w.writeAtOnce
		}
	}
	return w
}

// GoesTo says that the bytes of the connection itself, which is one of TLS, go to below from now on, and so need not be waited for. A
// goroutine for each write costs more than the encryption does.
func (w *Writer) GoesTo(below *Writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.below, w.prompt = below, true
}

// Write takes bytes of a connection above, and starts writing them. Like all of a Writer it does not wait, and fails as Queue does.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	err := w.failure
	if err == nil {
		w.pending = append(w.pending, p...)
		err = w.boundLocked()
	}
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	w.Flush()
	return len(p), nil
}

// Send is Queue and Flush.
func (w *Writer) Send(frame func(dst []byte) []byte) error {
	err := w.Queue(frame)
	w.Flush()
	return err
}

// Queue appends one or more frames with the Append functions; they are written with the next Flush. A frame above MaxFrame
// is refused and nothing is queued. It fails for good when an earlier write
// failed, when MaxPending is exceeded (the connection is closed then), and after Close.
func (w *Writer) Queue(frame func(dst []byte) []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	before := len(w.pending)
	w.pending = frame(w.pending)
	for at := before; at < len(w.pending); {
		length := int(binary.BigEndian.Uint32(w.pending[at:]))
		if length > MaxFrame {
			w.pending = w.pending[:before]
			return fmt.Errorf("%w: its length is %d, allowed are 2 to %d", ErrFrame, length, MaxFrame)
		}
		at += header + length
	}
	return w.boundLocked()
}

func (w *Writer) boundLocked() error {
	if len(w.pending) > MaxPending {
		return w.failLocked(fmt.Errorf("the peer does not read: %d bytes wait for it", len(w.pending)))
	}
	return nil
}

// Flush starts writing what was queued. It writes as much as the system takes without waiting; a goroutine does the rest.
func (w *Writer) Flush() {
	w.mu.Lock()
	if w.writing || len(w.pending) == 0 || w.failure != nil {
		w.mu.Unlock() // whoever is writing takes what is pending too
		return
	}
	w.writing = true
	if w.raw == nil {
		prompt := w.prompt
		w.mu.Unlock()
		if prompt {
			w.writeAll()
		} else {
			go w.writeAll()
		}
		return
	}
	w.takeLocked()
	w.mu.Unlock()
	// An error of the attempt shows again, with its reason, when the rest is written.
	_ = w.raw.Write(w.attempt)
	w.mu.Lock()
	w.written += uint64(w.took)
	if w.took == len(w.taken) && len(w.pending) == 0 {
		w.restLocked()
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	go w.writeAll()
}

// takeLocked makes pending the bytes to be written.
func (w *Writer) takeLocked() {
	w.taken, w.took = w.pending, 0
	w.pending, w.spare = w.spare[:0], nil
}

// restLocked ends the time of one writing goroutine. Large memory is not kept.
func (w *Writer) restLocked() {
	if cap(w.taken) <= keepBuffer && w.spare == nil {
		w.spare = w.taken[:0]
	}
	w.taken, w.took = nil, 0
	w.writing = false
	w.idle.Broadcast()
}

// writeAll writes until nothing is left. The caller has set writing.
func (w *Writer) writeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.failure == nil {
		if w.took == len(w.taken) {
			if w.taken != nil && cap(w.taken) <= keepBuffer {
				w.spare = w.taken[:0]
			}
			w.taken, w.took = nil, 0
			if len(w.pending) == 0 {
				break
			}
			w.takeLocked()
		}
		var renew bool
		if !w.prompt {
			now := time.Now()
			if renew = w.deadline.Sub(now) < WriteTimeout*3/4; renew {
				w.deadline = now.Add(WriteTimeout)
			}
		}
		deadline := w.deadline
		w.mu.Unlock()
		if renew {
			_ = w.conn.SetWriteDeadline(deadline) // a closed connection says so when written to
		}
		n, err := w.conn.Write(w.taken[w.took:])
		w.mu.Lock()
		w.took += n
		w.written += uint64(n)
		if err != nil {
			_ = w.failLocked(err)
		}
	}
	w.restLocked()
}

// failLocked notes the first failure and closes the connection, so that its reader ends too.
func (w *Writer) failLocked(err error) error {
	if w.failure == nil {
		w.failure = err
		w.pending = nil
		_ = bare(w.conn).Close()
	}
	return w.failure
}

// bare is the connection below TLS, whose Close would wait to tell the peer.
func bare(conn net.Conn) net.Conn {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return c.NetConn()
	}
	return conn
}

// Written is how many bytes the system has taken so far.
func (w *Writer) Written() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written
}

// Close writes what is queued, waits until it is written or has failed (a peer that does not read is given up after
// WriteTimeout), and gives the first failure. It does not close the connection, unless it failed.
func (w *Writer) Close() error {
	w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing {
		w.idle.Wait()
	}
	if below := w.below; below != nil && w.failure == nil {
		w.mu.Unlock() // whoever queues meanwhile does not wait for the peer
		err := below.drain()
		w.mu.Lock()
		if w.failure == nil && err != nil {
			w.failure = err
		}
	}
	if w.failure == nil {
		w.failure = ErrClosed
		return nil
	}
	if w.failure == ErrClosed {
		return nil
	}
	return w.failure
}

// drain waits until all that came is written, or has failed.
func (w *Writer) drain() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing {
		w.idle.Wait()
	}
	return w.failure
}
