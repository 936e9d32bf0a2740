//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestUserCodeIsNotToldWhichWorkerOfItsLauncherRunsIt(t *testing.T) {
	t.Parallel()
	runJob(t, 0, job("resources = { cpu = 1 }", blocks("work", 1)+shell(`test -z "$DAISY_TAG$DAISY_ELEMENT"`)))
}

func TestWhatAShellStartedBeforeItBecameTheRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, launcher := range []string{"local", "serial"} {
		t.Run(launcher, func(t *testing.T) {
			t.Parallel()
			dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+shell("true")))
			s := prepare(t, dir, "run", path, "--run-dir", "out", "--launcher", launcher)
			s.through("setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid")
			s.begin()
			if r := s.wait(); r.status != 0 {
				t.Errorf("exit status %d", r.status)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, filepath.Join(dir, "pid"))))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("it has ended: %v", err)
			}
		})
	}
}

func TestARunEndsMoreOrphansThanAPageCanName(t *testing.T) {
	t.Parallel()
	// 1,000 that have ended, which fill the first page of the list of orphans, and as many that have not, out of sight of their block.
	script := `exec </dev/null >/dev/null 2>&1; i=0; while [ $i -lt 1000 ]; do : & i=$((i+1)); done; while [ $i -gt 0 ]; do read x < fifo & i=$((i-1)); done`
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+shell("mkfifo fifo; env -i setsid sh many")))
	if err := os.WriteFile(filepath.Join(dir, "many"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, 0, dir, "run", path, "--run-dir", "out")
	if f, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		f.Close()
		t.Error("somebody still reads the fifo")
	} else if !errors.Is(err, syscall.ENXIO) {
		t.Error(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "out", "logs", "*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	wantText(t, readFile(t, logs[0]), "ended 1000 processes that were left behind: [", " and 990 more]\n")
}
