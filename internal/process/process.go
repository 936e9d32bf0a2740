package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says what to start. Only Argv is needed.
type Config struct {
	// Argv is the program with its arguments, passed byte for byte. Argv[0] is a path (see LookPath); PATH is not searched.
	Argv []string
	// Env is the whole environment ("K=V"), passed as it is. nil is an empty environment, not the caller's.
	Env []string
	// Dir is the working directory; "" is the caller's.
	Dir string

	// At most one of the next two gives standard input; without any it is empty (/dev/null).

	// Input is all that the process gets to read.
	Input []byte
	// Stdin is handed over as it is; the caller closes it.
	Stdin *os.File

	// Stdout and Stderr are handed over as they are, and may be the same; nil discards the output. The caller closes them.
	Stdout, Stderr *os.File
	// ExtraFiles become descriptors 3, 4, … The caller closes them.
	ExtraFiles []*os.File

	// Markers are entries of Env ("K=V") that, all together, only this process and its descendants carry. Processes that left
	// the process group and lost their parents are found by them. Without markers only the group and the parentage count.
	Markers []string

	// Outlives: the program goes on when its starter dies, and sees to its own end. Another process can take it over then (Marked,
	// Spawner.Take). Linux; elsewhere nobody could find it, and the guard kills it.
	Outlives bool

	// CountIO has Result.IO filled in, which costs one read.
	CountIO bool

	// Memory limits what the process and all that it starts may use. It costs the start of this program in between, some
	// milliseconds; see RunLimited.
	Memory MemoryLimit
}

// check refuses what the system would cut short or misread.
func (c *Config) check() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errors.New("no program to start: argv is empty")
	}
	for i, arg := range c.Argv {
		if hasNUL(arg) {
			return fmt.Errorf("cannot start %q: argument %d has a zero byte, which no program can be given", c.Argv[0], i)
		}
	}
	for _, entry := range c.Env {
		if hasNUL(entry) {
			return fmt.Errorf("cannot start %q: the environment entry %q has a zero byte, which no program can be given", c.Argv[0], entry)
		}
	}
	if c.Input != nil && c.Stdin != nil {
		return fmt.Errorf("cannot start %q: Input and Stdin exclude each other", c.Argv[0])
	}
	return nil
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// A Process is a started program: the leader of a process group of its own.
type Process struct {
	spawner *Spawner
	process *os.Process
	markers []string
	countIO bool
	input   *os.File // the end that feed writes to; nil if nothing had to be fed
	taken   *target  // nil if this process has started it

	started time.Time
	wait    sync.Once
	result  Result
	done    chan struct{} // closed when result is there
	watch   sync.Once

	// reap guards the moment at which the pid becomes free for others: no signal is sent to the group after it.
	reap   sync.Mutex
	reaped bool
}

// A Result is how a process ended and what it used.
type Result struct {
	// Exit is the exit status; -1 if a signal ended the process, or if nobody is told.
	Exit int
	// Signal is the signal that ended it, 0 if it exited.
	Signal syscall.Signal
	// CPU is user and system time of the process and of those descendants that were waited for.
	CPU time.Duration
	// PeakRSSBytes is the peak resident memory of the largest process among these (not their sum). Linux counts what the
	// starting process had in memory into it, so that it is never less than that.
	PeakRSSBytes int64
	// IO is what the process and those descendants that were waited for have read and written, if Config.CountIO asked for it. Linux.
	IO IO
	// Wall is the time from start to end.
	Wall time.Duration
	// Err is why nobody is told how it ended (somebody else reaped the process, or it was taken over), normally nil.
	Err error
}

// Success: it exited with status 0.
func (r Result) Success() bool { return r.Err == nil && r.Exit == 0 && r.Signal == 0 }

// String says it in words: "exit status 3", "signal 9 (killed)".
func (r Result) String() string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Signal != 0:
		return fmt.Sprintf("signal %d (%s)", int(r.Signal), r.Signal)
	default:
		return fmt.Sprintf("exit status %d", r.Exit)
	}
}

// PID is the process id, which is also the id of its process group.
func (p *Process) PID() int { return p.process.Pid }

// Done is closed when the process has ended and Wait would not block. Its first use costs a goroutine; a caller that can
// block uses Wait.
func (p *Process) Done() <-chan struct{} {
	p.watch.Do(func() { go p.Wait() }) // ends with the process
	return p.done
}

// Terminate sends SIGTERM to the process group, or to the process alone if it was taken over; those that left the group do not get it. It
// is no error that nobody is left.
func (p *Process) Terminate() error { return p.Signal(syscall.SIGTERM) }

// Signal sends a signal to whom Terminate does. It is no error that nobody is left.
func (p *Process) Signal(sig syscall.Signal) error {
	p.reap.Lock()
	defer p.reap.Unlock()
	if p.reaped {
		return nil
	}
	if p.taken != nil {
		return p.signalTaken(sig)
	}
	err := syscall.Kill(-p.PID(), sig)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send signal %d to process group %d: %w", int(sig), p.PID(), err)
	}
	return nil
}

// Wait blocks until the process has ended and says how. It may be called any number of times, from any goroutine. It does
// not wait for descendants (EndStrays).
func (p *Process) Wait() Result {
	p.wait.Do(func() {
		if p.taken != nil {
			p.waitTaken()
			return
		}
		waitUntilEnded(p.PID())
		p.reap.Lock()
		var io IO
		if p.countIO {
			io = readIO(p.PID()) // gone once it is reaped
		}
		state, err := p.process.Wait()
		p.reaped = true
		p.reap.Unlock()
		p.result = resultOf(state, err)
		p.result.IO = io
		p.result.Wall = time.Since(p.started)
		if p.input != nil {
			p.input.Close() // what the process did not read need not wait for its descendants
		}
		p.spawner.forget(p)
		close(p.done)
	})
	return p.result
}

func resultOf(state *os.ProcessState, err error) Result {
	if err != nil {
		return Result{Exit: -1, Err: fmt.Errorf("the end of the process could not be observed: %w", err)}
	}
	r := Result{Exit: state.ExitCode(), CPU: state.UserTime() + state.SystemTime()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Exit, r.Signal = -1, status.Signal()
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		r.PeakRSSBytes = maxRSSBytes(usage)
	}
	return r
}

// isReaped: the pid may belong to somebody else by now.
func (p *Process) isReaped() bool {
	p.reap.Lock()
	defer p.reap.Unlock()
	return p.reaped
}
