package worker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

const (
	// maxLogBytes is how much output of user code one worker's log takes.
	maxLogBytes = 64 << 20
	// maxLine is where a line of output is cut.
	maxLine = 16 << 10
)

// A blockLog is the worker's log: its own lines, and the output of user code up to a limit. A log that cannot be written is no
// reason to lose a block, so there is never an error; what is lost is told in the log as soon as that can be written again.
type blockLog struct {
	mu    sync.Mutex
	to    io.Writer
	limit int64
	used  int64
	full  bool

	lost int64 // bytes, since the log could last be written
	why  error // the last reason
	torn bool  // the log ends within a line
}

// Write is for the worker's own lines, which are few and always written.
func (l *blockLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(line)
	return len(line), nil
}

// output writes whole lines of user code. It is called at the begin and end of each block, with none if there are none.
func (l *blockLog) output(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(lines) > 0 && !l.full && l.used+int64(len(lines)) > l.limit {
		l.full = true
		l.put(fmt.Appendf(nil, "[worker] this log has its %d MiB: further output of user code is dropped (the end of what a failed block writes is still reported)\n", l.limit>>20))
	}
	if l.full {
		lines = nil
	}
	l.used += int64(l.put(lines))
}

// put writes whole lines, after a word about those that were lost before. It gives how much of them is in the log.
func (l *blockLog) put(lines []byte) int {
	if l.lost > 0 {
		note := fmt.Appendf(nil, "[worker] %d bytes lost: %v\n", l.lost, l.why)
		if l.torn {
			note = append([]byte("\n"), note...)
		}
		if l.write(note) == len(note) {
			l.lost = 0
		}
	}
	if len(lines) == 0 {
		return 0
	}
	n := l.write(lines)
	l.lost += int64(len(lines) - n)
	return n
}

// write gives how much was written, and notes why it was not all.
func (l *blockLog) write(lines []byte) int {
	n, err := l.to.Write(lines)
	n = min(max(n, 0), len(lines))
	if n < len(lines) && err == nil {
		err = io.ErrShortWrite
	}
	if n > 0 {
		l.torn = lines[n-1] != '\n'
	}
	if n < len(lines) {
		l.why = err
		var pe *fs.PathError
		if errors.As(err, &pe) {
			l.why = pe.Err // the log's name is known to whoever reads it
		}
	}
	return n
}
