package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A Spawner starts processes and owns what keeps them from outliving it.
//
// On Linux the death signal of a child is tied to the thread that forked it, not to the process: when the Go runtime ends
// that thread, the child dies in the middle of its work. Therefore forks happen on threads that the Spawner locks for
// itself and keeps until Close. A Spawner may be used from several goroutines.
type Spawner struct {
	requests chan *request
	threads  sync.WaitGroup
	null     *os.File
	guard    *guard

	mu      sync.Mutex
	count   int // threads so far
	closed  bool
	pending sync.WaitGroup // Starts that have passed the check of closed
	live    map[*Process]struct{}
}

type request struct {
	path    string
	argv    []string
	attr    *os.ProcAttr
	process *os.Process
	err     error
	done    chan struct{} // closed by the thread that forked
}

// NewSpawner starts no process yet; on systems without death signals it starts the guard.
func NewSpawner() (*Spawner, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("prepare to start processes: %w", err)
	}
	s := &Spawner{requests: make(chan *request), null: null, live: map[*Process]struct{}{}}
	if s.guard, err = newGuard(null); err != nil {
		null.Close()
		return nil, err
	}
	return s, nil
}

// Start starts a program. The error says what could not be started and why; nothing is left behind then.
func (s *Spawner) Start(c Config) (*Process, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("cannot start %q: the spawner is closed", c.Argv[0])
	}
	s.pending.Add(1)
	s.mu.Unlock()
	defer s.pending.Done()

	p := &Process{spawner: s, markers: c.Markers, countIO: c.CountIO, done: make(chan struct{})}
	stdin := c.Stdin
	if c.Input != nil {
		var err error
		if stdin, p.input, err = openInput(c.Input); err != nil {
			return nil, fmt.Errorf("cannot start %q: make a pipe for its input: %w", c.Argv[0], err)
		}
		defer stdin.Close() // the process has its own by then
	}
	files := append([]*os.File{stdin, c.Stdout, c.Stderr}, c.ExtraFiles...)
	for i, file := range files[:3] {
		if file == nil {
			files[i] = s.null
		}
	}
	// A nil environment would mean the caller's own to package os.
	env := append(make([]string, 0, len(c.Env)), c.Env...)
	r := &request{
		path: c.Argv[0], argv: c.Argv,
		attr: &os.ProcAttr{Dir: c.Dir, Env: env, Files: files, Sys: attributes(c.Outlives)},
	}
	var told *os.File // by the process under a limit, until it has become the program
	if !c.Memory.isNone() {
		var err error
		if told, err = s.limit(&c, r); err != nil {
			p.abandonInput()
			return nil, err
		}
		defer told.Close()
	}
	p.started = time.Now()
	s.fork(r)
	if told != nil {
		r.attr.Files[len(r.attr.Files)-1].Close()
	}
	if r.err != nil {
		p.abandonInput()
		return nil, startError(&c, r.err)
	}
	if told != nil {
		if err := limitedError(&c, told); err != nil {
			p.abandonInput()
			_, _ = r.process.Wait()
			return nil, err
		}
	}
	p.process = r.process
	s.guard.add(p.PID())
	s.mu.Lock()
	s.live[p] = struct{}{}
	s.mu.Unlock()
	if p.input != nil {
		go feed(p.input, c.Input)
	}
	return p, nil
}

// limit makes the request one of this program, which limits itself before it becomes the one of c. Its last file is to be closed
// after the fork.
func (s *Spawner) limit(c *Config, r *request) (told *os.File, err error) {
	if r.path, r.argv, err = limited(c.Argv, c.Memory, strconv.Itoa(len(r.attr.Files))); err != nil {
		return nil, err
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: make a pipe: %w", c.Argv[0], err)
	}
	r.attr.Files = append(r.attr.Files, tell)
	return told, nil
}

// abandonInput is for a process that was not started.
func (p *Process) abandonInput() {
	if p.input != nil {
		p.input.Close()
	}
}

// fork hands the request to a free thread; there are at most as many as can be of use.
func (s *Spawner) fork(r *request) {
	r.done = make(chan struct{})
	select {
	case s.requests <- r:
	default:
		s.mu.Lock()
		if s.count < max(2, runtime.GOMAXPROCS(0)) {
			s.count++
			s.threads.Add(1)
			go s.serve(nil)
		}
		s.mu.Unlock()
		s.requests <- r
	}
	<-r.done
}

// serve forks on a thread of its own. It returns with the thread still locked, which ends the thread, and with it whatever
// child is left.
func (s *Spawner) serve(locked chan<- struct{}) {
	runtime.LockOSThread()
	if onMainThread() {
		// The runtime never ends the main thread, and adopted processes are told from our own by being its children.
		other := make(chan struct{})
		go s.serve(other)
		<-other
		runtime.UnlockOSThread()
		return
	}
	if locked != nil {
		close(locked)
	}
	defer s.threads.Done()
	for r := range s.requests {
		r.process, r.err = os.StartProcess(r.path, r.argv, r.attr)
		close(r.done)
	}
}

func (s *Spawner) forget(p *Process) {
	s.guard.remove(p.PID())
	s.mu.Lock()
	delete(s.live, p)
	s.mu.Unlock()
}

// Close kills every process that is left, with everything that it started, waits until they are gone, and ends the threads.
// If ctx ends first it says who is left; they have been sent SIGKILL. Later Starts are errors. Closing twice is allowed.
func (s *Spawner) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.pending.Wait()

	s.mu.Lock()
	left := make([]*Process, 0, len(s.live))
	for p := range s.live {
		left = append(left, p)
	}
	s.mu.Unlock()
	errs := make([]error, len(left))
	var killing sync.WaitGroup
	for i, p := range left {
		killing.Go(func() {
			errs[i] = p.Kill(ctx)
			select {
			case <-p.Done():
			case <-ctx.Done():
				errs[i] = errors.Join(errs[i], fmt.Errorf("process %d has not ended: %w", p.PID(), context.Cause(ctx)))
			}
		})
	}
	killing.Wait()
	close(s.requests)
	s.threads.Wait()
	errs = append(errs, s.guard.close(), s.null.Close())
	return errors.Join(errs...)
}

// startError explains what people trip over.
func startError(c *Config, err error) error {
	where := ""
	if c.Dir != "" {
		where = " in " + c.Dir
	}
	cause := err
	var path *fs.PathError
	if errors.As(err, &path) {
		cause = path.Err
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOENT):
		if _, statErr := os.Stat(c.Argv[0]); statErr == nil {
			hint = " (the file is there: the interpreter named in its first line, or its loader, or the working directory is missing)"
		}
	case errors.Is(err, syscall.ENOEXEC):
		hint = " (neither a program for this machine nor a script that begins with #!)"
	case errors.Is(err, syscall.EAGAIN):
		hint = " (no more processes allowed: see ulimit -u)"
	case errors.Is(err, syscall.E2BIG):
		hint = " (arguments and environment together are too long)"
	}
	return fmt.Errorf("cannot start %q%s: %w%s", c.Argv[0], where, cause, hint)
}
