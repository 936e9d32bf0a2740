package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A submit is a daisy-submit that runs in a process group of its own, as a shell would start it.
type submit struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr *transcript
	over           chan struct{} // closed when it has ended
	err            error
}

// start starts daisy-submit in dir. It is killed at the end of the test if it still runs.
func start(t testing.TB, dir string, args ...string) *submit {
	t.Helper()
	s := prepare(t, dir, args...)
	s.begin()
	return s
}

// prepare makes a daisy-submit whose command can still be changed before begin.
func prepare(t testing.TB, dir string, args ...string) *submit {
	s := &submit{t: t, stdout: newTranscript(), stderr: newTranscript(), over: make(chan struct{})}
	s.cmd = exec.Command(filepath.Join(bin, "daisy-submit"), args...)
	s.cmd.Dir = dir
	s.cmd.Stdout, s.cmd.Stderr = s.stdout, s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.WaitDelay = 10 * time.Second // whoever holds the output open for longer was left behind
	return s
}

func (s *submit) begin() {
	s.t.Helper()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.over)
	}()
	s.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.over
		endWorkers(s.cmd.Dir)
		if s.t.Failed() {
			s.t.Logf("%v\nstdout:\n%s\nstderr:\n%s", s.cmd.Args, s.stdout, s.stderr)
		}
	})
}

// killAll kills a coordinator and its workers, as when the machine goes down.
func killAll(t testing.TB, s *submit, dir string) {
	t.Helper()
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	endWorkers(dir)
}

// endWorkers kills the workers of runs in a folder, which outlive their coordinator for a while (Linux; elsewhere they do not).
func endWorkers(dir string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && bytes.Contains(line, []byte("/daisy-worker\x00--slots")) && bytes.Contains(line, []byte(dir+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// signal goes to the whole process group, as from a terminal.
func (s *submit) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, sig); err != nil {
		s.t.Fatal(err)
	}
}

// kill sends a signal to one process and gives the time of it.
func kill(t testing.TB, pid int, sig syscall.Signal) time.Time {
	t.Helper()
	now := time.Now()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %v to process %d: %v", sig, pid, err)
	}
	return now
}

// result is what a finished daisy-submit left.
type result struct {
	status         int
	stdout, stderr string
}

// all is everything that it said.
func (r result) all() string { return r.stdout + r.stderr }

// wait waits for the end.
func (s *submit) wait() result {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(patience):
		s.t.Fatalf("%v has not ended within %v", s.cmd.Args, patience)
	}
	if errors.Is(s.err, exec.ErrWaitDelay) {
		s.t.Error("a process that was left behind holds the output open")
	}
	if strings.Contains(s.stderr.String(), "DATA RACE") {
		s.t.Error("the coordinator has a data race")
	}
	return result{s.cmd.ProcessState.ExitCode(), s.stdout.String(), s.stderr.String()}
}

// run runs daisy-submit in dir to its end.
func run(t testing.TB, dir string, args ...string) result {
	t.Helper()
	return start(t, dir, args...).wait()
}

// wantStatus runs daisy-submit in dir to its end, which must have an exit status.
func wantStatus(t testing.TB, want int, dir string, args ...string) result {
	t.Helper()
	r := run(t, dir, args...)
	if r.status != want {
		t.Fatalf("exit status %d, want %d", r.status, want)
	}
	return r
}

// wantText checks that a text has each of some parts.
func wantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in:\n%s", part, text)
		}
	}
}

// A transcript keeps what is written to it, and can be waited for.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed at the next write
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.text.Write(p)
	close(tr.changed)
	tr.changed = make(chan struct{})
	return len(p), nil
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// await waits until the text has a part.
func (tr *transcript) await(t testing.TB, part string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		tr.mu.Lock()
		text, changed := tr.text.String(), tr.changed
		tr.mu.Unlock()
		if strings.Contains(text, part) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%q has not come within %v; there is only:\n%s", part, patience, text)
		}
	}
}

// writeJob writes a job file into a new directory and returns both.
func writeJob(t testing.TB, text string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "job.toml")
	writeFile(t, path, text)
	return dir, path
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// exists reports whether there is something at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
