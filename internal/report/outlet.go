package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"example.org/daisy/internal/units"
)

const (
	// What may wait for a slow reader before more of its kind is dropped, in bytes. A picture of the progress is out of date
	// when the next one comes; a notice is not; the end of a run is never dropped.
	roomForProgress = 64 << 10
	roomForNotices  = 1 << 20
	roomForTheEnd   = math.MaxInt

	// chunk is what is written at once, so that a slow reader can be told from a dead one.
	chunk = 32 << 10
	// patience is how long close waits for a reader that takes nothing.
	patience = 2 * time.Second
)

// An outlet writes to a terminal or pipe that may be slow, stopped or gone, and never lets its caller wait for it.
type outlet struct {
	out  io.Writer
	wake chan struct{} // something is pending, or closed; room for one
	done chan struct{} // closed when the writing goroutine has ended
	beat chan struct{} // a chunk was written; room for one

	mu      sync.Mutex
	pending []byte
	closed  bool
	dropped int64
	err     error // of the first write that failed; nothing is written after it
}

func newOutlet(out io.Writer) *outlet {
	o := &outlet{out: out, wake: make(chan struct{}, 1), done: make(chan struct{}), beat: make(chan struct{}, 1)}
	go o.run()
	return o
}

// send takes a copy of b to be written, unless more than room bytes are waiting; it says whether it did.
func (o *outlet) send(b []byte, room int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.err != nil {
		return false
	}
	if len(o.pending) > room {
		o.dropped++
		return false
	}
	o.pending = append(o.pending, b...)
	signal(o.wake)
	return true
}

// close waits until all is written, as long as the reader takes something every now and then, and says what went wrong.
// If the reader hangs, the writing goroutine hangs with it until the file is closed or the process ends: a write to a
// terminal cannot be interrupted.
func (o *outlet) close() error {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	signal(o.wake)

	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-o.done:
			waiting = false
		case <-o.beat:
			timer.Reset(patience)
		case <-timer.C:
			o.mu.Lock()
			defer o.mu.Unlock()
			return fmt.Errorf("progress: the reader took nothing for %v; not written: %s", patience, units.Plural(int64(len(o.pending)), "byte"))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var late error
	if o.dropped > 0 {
		late = fmt.Errorf("progress: the reader was too slow; dropped: %s", units.Plural(o.dropped, "message"))
	}
	return errors.Join(o.err, late)
}

func (o *outlet) run() {
	defer close(o.done)
	for range o.wake {
		for {
			o.mu.Lock()
			part := o.pending[:min(chunk, len(o.pending))]
			closed := o.closed
			o.mu.Unlock()
			if len(part) == 0 {
				if closed {
					return
				}
				break
			}
			// The bytes of part do not change: send appends behind them, and only this goroutine takes them away.
			n, err := o.out.Write(part)
			if err == nil && n < len(part) {
				err = io.ErrShortWrite
			}
			o.mu.Lock()
			if err != nil {
				o.err, o.pending = fmt.Errorf("progress: %w", err), nil
			} else if o.pending = o.pending[n:]; len(o.pending) == 0 {
				o.pending = nil
			}
			o.mu.Unlock()
			signal(o.beat)
		}
	}
}

// signal puts a token into a channel of one place unless one is there.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
