//go:build linux

package e2e

import (
	"os"
	"syscall"
	"testing"
)

func TestABlockInTheForegroundHasTheTerminalOfItsUser(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("tracking = \"tracking\"", blocks("work", 3)+shell("test -t 0 && test -t 1 && test -t 2 || exit 9; read word; echo got $word in {index}; kill -TERM $$")))
	s := prepare(t, dir, "run-block", path, "work", "2", "--interactive")
	term := openTerminal(t, s)
	s.begin()
	term.write("hello\n")
	term.screen.await(t, "got hello in 2")
	if r := s.wait(); r.status != 128+int(syscall.SIGTERM) {
		t.Errorf("status %d", r.status)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("something was left: %v, %v", entries, err)
	}
}

func TestCtrlCReachesTheBlockInTheForegroundWhichDecides(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 1)+shell("trap 'echo caught; exit 5' INT; echo waits; while :; do sleep 0.1; done")))
	s := prepare(t, dir, "run-block", path, "work", "0")
	term := openTerminal(t, s)
	s.begin()
	term.screen.await(t, "waits")
	term.write("\x03")
	if r := s.wait(); r.status != 5 {
		t.Errorf("status %d, want that of the block", r.status)
	}
	term.screen.await(t, "caught")
}

func TestSIGTERMIsPassedOnToTheBlockInTheForeground(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run-block", path, "work", "0")
	v := d.next()
	kill(t, s.cmd.Process.Pid, syscall.SIGTERM)
	v.wantGone(t)
	if r := s.wait(); r.status != 128+int(syscall.SIGTERM) {
		t.Errorf("status %d", r.status)
	}
}
