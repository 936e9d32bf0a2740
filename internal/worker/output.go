package worker

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// An output is the pipe into which the processes of one slot write. One pipe serves the slot's whole life: no process costs
// one, and no grandchild that keeps it open can hold anybody up. What comes is cut into lines, marked with the block that runs,
// and written to the log; the end of it is kept for the report of a failure.
type output struct {
	log   *blockLog
	file  *os.File // writing end, for the processes
	read  *os.File
	owned sync.WaitGroup

	mu     sync.Mutex // held while reading, so that what is read is also in order
	fd     int
	closed bool
	taken  int64 // bytes so far
	chunk  []byte
	marked []byte // lines on their way to the log
	mark   string
	line   []byte // the line that is not complete yet
	cut    bool   // line is full; the rest of it is dropped
	tail   tail
}

func newOutput(log *blockLog) (*output, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the output of user code: %w", err)
	}
	raw, err := read.SyscallConn()
	if err != nil {
		read.Close()
		write.Close()
		return nil, fmt.Errorf("make a pipe for the output of user code: %w", err)
	}
	o := &output{log: log, file: write, read: read, chunk: make([]byte, 32<<10)}
	if err := raw.Control(func(fd uintptr) { o.fd = int(fd) }); err != nil {
		read.Close()
		write.Close()
		return nil, err
	}
	o.owned.Go(func() {
		_ = raw.Read(func(uintptr) bool { // returns when the pipe is closed
			o.mu.Lock()
			defer o.mu.Unlock()
			o.takeLocked()
			return o.closed
		})
	})
	return o, nil
}

// begin marks what comes from now on.
func (o *output) begin(label string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takeLocked() // what is left of the block before
	o.endLineLocked()
	o.flushLocked()
	o.mark = "[" + label + "] "
	o.tail.reset()
}

// end gives the end of the block's output. Everything that was written before the call is in it and in the log.
func (o *output) end() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takeLocked()
	o.endLineLocked()
	o.flushLocked()
	return o.tail.text()
}

// addUnless adds a text that the block's processes did not print, unless its last words have been printed.
func (o *output) addUnless(lastWords, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takeLocked()
	o.endLineLocked()
	if !bytes.Contains(o.tail.kept, []byte(lastWords)) {
		o.splitLocked([]byte(text))
		o.endLineLocked()
	}
	o.flushLocked()
}

// total is how many bytes have been written before the call.
func (o *output) total() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takeLocked()
	return o.taken
}

// close ends the reading; what is still in the pipe goes to the log.
func (o *output) close() {
	o.mu.Lock()
	o.takeLocked()
	o.endLineLocked()
	o.flushLocked()
	o.closed = true
	o.mu.Unlock()
	o.file.Close()
	o.read.Close()
	o.owned.Wait()
}

// takeLocked reads what is in the pipe without waiting; a process that writes for ever cannot hold it up for ever.
func (o *output) takeLocked() {
	for range 64 {
		if o.closed {
			return
		}
		n, err := syscall.Read(o.fd, o.chunk)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			break
		}
		o.taken += int64(n)
		o.splitLocked(o.chunk[:n])
	}
	o.flushLocked()
}

func (o *output) splitLocked(text []byte) {
	for len(text) > 0 {
		part, rest, whole := bytes.Cut(text, newline)
		if room := maxLine - len(o.line); !o.cut {
			if len(part) > room {
				o.line = append(o.line, part[:room]...)
				o.cut = true
			} else {
				o.line = append(o.line, part...)
			}
		}
		if !whole {
			return
		}
		o.finishLocked()
		text = rest
	}
}

var newline = []byte{'\n'}

// endLineLocked ends a line that has no end of its own.
func (o *output) endLineLocked() {
	if len(o.line) > 0 || o.cut {
		o.finishLocked()
	}
}

func (o *output) finishLocked() {
	if o.cut {
		o.line = fmt.Appendf(o.line, "… [line cut at %d KiB]", maxLine>>10)
	}
	o.marked = append(append(append(o.marked, o.mark...), o.line...), '\n')
	o.tail.add(o.line)
	o.line, o.cut = o.line[:0], false
}

func (o *output) flushLocked() {
	o.log.output(o.marked)
	o.marked = o.marked[:0]
}
