package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/rundir"
)

// detach starts the coordinator in a session of its own, and returns once it is up, or has ended. What it prints goes to the log of the run
// directory, and until then to this terminal, too. It reports whether the coordinator is up, which the error may be unable to say.
func (r *jobRun) detach(ctx context.Context, dir *rundir.Dir, args []string) (begun bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, infrastructure(err)
	}
	log, err := os.OpenFile(dir.CoordinatorLog(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return false, infrastructure(err)
	}
	defer log.Close()
	shown, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return false, infrastructure(err)
	}
	ready, told, err := os.Pipe()
	if err != nil {
		return false, infrastructure(err)
	}
	defer ready.Close()
	session := thisSession(ctx)
	for _, line := range session.warnings() {
		fmt.Fprintln(r.stderr, "daisy-submit: "+line)
	}
	argv := append(session.escape(), append([]string{self}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // this program
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{told}
	cmd.Env = append(os.Environ(), startedBy+"="+asDetached)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	told.Close()
	if err != nil {
		return false, infrastructure(fmt.Errorf("the coordinator cannot be started: %w", err))
	}
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	up := make(chan bool, 1)
	go func() {
		n, _ := ready.Read(make([]byte, 1))
		up <- n == 1
	}()
	for waits := true; waits; {
		select {
		case there := <-up:
			if !there {
				err := cmd.Wait()
				_ = showLog(r.stderr, dir, shown)
				return false, endOfDetached(err)
			}
			waits = false
		case s := <-stop:
			_ = cmd.Process.Signal(s)
		case <-time.After(100 * time.Millisecond):
			shown = showLog(r.stderr, dir, shown)
		}
	}
	_ = showLog(r.stderr, dir, shown)
	host, _ := os.Hostname()
	if _, err := fmt.Fprintf(r.stdout, "run directory: %s\nthe coordinator is up: process %d on %s; what it prints goes to %s\n", dir.Path(), cmd.Process.Pid, host, dir.CoordinatorLog()); err != nil {
		return true, unsaid(dir, fmt.Sprintf("its coordinator is process %d on %s", cmd.Process.Pid, host), err)
	}
	return true, sayHowToLook(r.stdout, dir)
}

// endOfDetached is the end of a coordinator that never came up. What there was to say is in the log, which has been shown.
func endOfDetached(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil: // there was nothing to do: a resume of a run that has ended
		return nil
	case errors.As(err, &exit) && exit.Exited():
		return &statusError{status: exit.ExitCode()}
	default:
		return infrastructure(fmt.Errorf("the coordinator was ended before it was up: %w", err))
	}
}

// showLog shows what has been added to the log of the coordinator, and gives its size.
func showLog(w io.Writer, dir *rundir.Dir, from int64) int64 {
	f, err := os.Open(dir.CoordinatorLog())
	if err != nil {
		return from
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return from
	}
	n, _ := io.Copy(w, f)
	return from + n
}

// sayReady tells who has started this coordinator, and waits, that it is up.
func (r *jobRun) sayReady() {
	if r.ready == nil {
		return
	}
	_, _ = r.ready.Write([]byte("\n"))
	_ = r.ready.Close()
	r.ready = nil
}

// readyPipe is where a detached coordinator says that it is up. Nothing that it starts inherits it.
func readyPipe() *os.File {
	syscall.CloseOnExec(readyFD)
	return os.NewFile(readyFD, "ready")
}

// thisSession is the login session of this process.
func thisSession(ctx context.Context) loginSession {
	return sessionAt("/", os.Getuid(), func(args ...string) (string, error) {
		path, err := exec.LookPath("loginctl")
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, path, args...).Output()
		return string(out), err
	}, process.CPULimit())
}
