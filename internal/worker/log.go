package worker

import (
	"fmt"
	"io"
	"sync"
)

const (
	// maxLogBytes is how much output of user code one worker's log takes.
	maxLogBytes = 64 << 20
	// maxLine is where a line of output is cut.
	maxLine = 16 << 10
)

// A blockLog is the worker's log: its own lines, and the output of user code up to a limit.
type blockLog struct {
	mu    sync.Mutex
	to    io.Writer
	limit int64
	used  int64
	full  bool
}

// Write is for the worker's own lines, which are few and always written. A log that cannot be written is no reason to lose a
// block, so there is never an error.
func (l *blockLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(line)
	return len(line), nil
}

// output writes whole lines of user code.
func (l *blockLog) output(lines []byte) {
	if len(lines) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return
	}
	if l.used += int64(len(lines)); l.used > l.limit {
		l.full = true
		lines = fmt.Appendf(nil, "[worker] this log has its %d MiB: further output of user code is dropped (the end of what a failed block writes is still reported)\n", l.limit>>20)
	}
	_, _ = l.to.Write(lines)
}
