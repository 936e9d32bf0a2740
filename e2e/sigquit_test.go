//go:build linux

package e2e

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Without a handler a Go program prints its stacks at SIGQUIT (Ctrl-\) and ends at once, with all that it started left behind.
func TestSIGQUITEndsARunInOrderAsCtrlCDoes(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, interruptedJob(d, "2s"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	visits := visitsOf(d, map[string]int{"ask": 2, "sit": 4})

	s.signal(syscall.SIGQUIT)
	s.stderr.await(t, "no new blocks")
	visits["ask"][0].ok() // it uses its grace; the other one ignores what it is told
	r := s.wait()
	if want := 128 + int(syscall.SIGQUIT); r.status != want {
		t.Errorf("exit status %d, want %d", r.status, want)
	}
	d.none()
	for _, role := range []string{"ask", "sit"} {
		for _, v := range visits[role] {
			v.wantGone(t)
		}
	}
	stats := statsOf(t, filepath.Join(dir, "out"))
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
	if stats.Run.State != "interrupted" || *stats.Run.ExitStatus != r.status {
		t.Errorf("the state is %q, the exit status %d", stats.Run.State, *stats.Run.ExitStatus)
	}
	if work := task(t, stats, "work"); work.Success != 1 || work.Abandoned != 19 {
		t.Errorf("one block used its grace, 19 had none; the counts are %+v", countsOf(work))
	}
}

func TestASecondSIGQUITEndsARunAtOnce(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, interruptedJob(d, "10m"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	visits := visitsOf(d, map[string]int{"ask": 2, "sit": 4})
	s.signal(syscall.SIGQUIT)
	s.stderr.await(t, "no new blocks")
	s.signal(syscall.SIGQUIT)
	if r := s.wait(); r.status != 128+int(syscall.SIGQUIT) { // within less than the grace
		t.Errorf("exit status %d", r.status)
	}
	for _, role := range []string{"ask", "sit"} {
		for _, v := range visits[role] {
			v.wantGone(t)
		}
	}
}
