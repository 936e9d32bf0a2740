package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// EndMarked ends every process that carries all the markers ("K=V") in the environment that it was started with, and none of those to
// be spared, and its descendants: SIGTERM, and SIGKILL after grace (at once if grace is 0). It returns when none is left, with the pids of
// those that it found. It searches all processes of this machine; this one and its ancestors are spared.
func EndMarked(ctx context.Context, markers, spared []string, grace time.Duration) (PIDs, error) {
	if len(markers) == 0 {
		return nil, nil
	}
	return end(ctx, grace, nil, func() ([]target, error) {
		all, err := processes()
		if err != nil {
			return nil, err
		}
		return living(all, func(e entry) bool { return carries(e.pid, markers) && !carriesAny(e.pid, spared) }), nil
	})
}

func carriesAny(pid int, markers []string) bool {
	return slices.ContainsFunc(markers, func(m string) bool { return carries(pid, []string{m}) })
}

// Marked finds the processes that carry all the markers ("K=V") in the environment that they were started with, the oldest first. This
// one and its ancestors are not among them.
func Marked(markers []string) ([]Found, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, t := range living(all, func(e entry) bool { return carries(e.pid, markers) }) {
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(t.pid) + "/environ")
		if err == nil && hasEntries(environ, markers) { // else a descendant without them, or one that has just ended
			found = append(found, Found{t, string(environ)})
		}
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.target.start, b.target.start), cmp.Compare(a.target.pid, b.target.pid))
	})
	return found, nil
}

// Env is a variable of the environment that the process was started with.
func (f *Found) Env(name string) (value string, ok bool) {
	for entry := range strings.SplitSeq(f.environ, "\x00") {
		if value, ok = strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Take takes over a process that another process has started: it is signalled, waited for and killed like one of the Spawner's own, but that
// nobody is told how it ended. markers are entries of its environment that only it and its descendants carry. It gives nil if the
// process has ended.
func (s *Spawner) Take(f Found, markers []string) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("cannot take over process %d: the spawner is closed", f.target.pid)
	}
	handle, err := os.FindProcess(f.target.pid) // holds on to the process, not to its number
	if err != nil {
		return nil, fmt.Errorf("cannot take over process %d: %w", f.target.pid, err)
	}
	if !f.target.alive() {
		return nil, handle.Release()
	}
	p := &Process{spawner: s, process: handle, markers: markers, done: make(chan struct{}), taken: &f.target, started: time.Now()}
	s.live[p] = struct{}{}
	return p, nil
}

func (p *Process) signalTaken(sig syscall.Signal) error {
	if !p.taken.alive() {
		return nil
	}
	if err := p.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send signal %d to process %d: %w", int(sig), p.taken.pid, err)
	}
	return nil
}

// errTaken is why there is no exit status.
var errTaken = errors.New("it was another process's child, which alone could have been told how it ended")

// takenLook is how often it is looked whether a process is there where the system gives no descriptor to wait on.
const takenLook = 50 * time.Millisecond

// waitTaken is Wait.
func (p *Process) waitTaken() {
	if fd, err := unix.PidfdOpen(p.taken.pid, 0); err == nil {
		for p.taken.alive() { // the descriptor is of this process, unless it had ended before
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_ = unix.Close(fd)
	}
	for p.taken.alive() {
		time.Sleep(takenLook)
	}
	p.reap.Lock()
	p.reaped = true
	p.reap.Unlock()
	p.result = Result{Exit: -1, Err: errTaken, Wall: time.Since(p.started)}
	p.spawner.forget(p)
	close(p.done)
}
