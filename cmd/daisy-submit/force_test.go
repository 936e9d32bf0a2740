package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

func TestARunThatDoesNotEndAtOnceIsEndedByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		r := &jobRun{stderr: &said, job: &job.Job{Launcher: "slurm"}}
		status := make(chan int, 1)
		stop := r.force(syscall.SIGINT, func() bool { return false }, func(n int) { status <- n })
		time.Sleep(forceAfter - time.Millisecond)
		synctest.Wait()
		if len(status) > 0 {
			t.Error("it was not given its time")
		}
		time.Sleep(time.Millisecond)
		if got := <-status; got != 130 {
			t.Errorf("exit status %d", got)
		}
		if !strings.Contains(said.String(), "Slurm does not answer, or the disk") {
			t.Errorf("said %q", said.String())
		}
		if stop() {
			t.Error("it can still be stopped")
		}

		stop = r.force(syscall.SIGINT, func() bool { return false }, func(int) { t.Error("ended although the run has") })
		stop()
		time.Sleep(2 * forceAfter)
	})
}

// closed is a launcher that cannot end its workers.
type closed struct {
	launcher.Launcher
	times int
}

func (c *closed) Close(context.Context) error {
	c.times++
	return errors.New("jobs 7 have not ended")
}

// TestWhoIsEndedByForceLeavesTheWorkersOfAnotherAlone: of a run that was taken over meanwhile, and says of its own which are left.
func TestWhoIsEndedByForceLeavesTheWorkersOfAnotherAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		takenOver func() bool
		ends      int
	}{
		"its own":           {func() bool { return false }, 1},
		"another's":         {func() bool { return true }, 0},
		"a disk that hangs": {func() bool { time.Sleep(time.Hour); return false }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				l, status := &closed{}, make(chan int, 1)
				r := &jobRun{stderr: &said, job: &job.Job{Launcher: "slurm"}, launcher: l}
				began := time.Now()
				r.force(syscall.SIGTERM, tc.takenOver, func(n int) { status <- n })
				if got := <-status; got != 143 || time.Since(began) > forceAfter+time.Second {
					t.Errorf("exit status %d after %v", got, time.Since(began))
				}
				if l.times != tc.ends || strings.Contains(said.String(), "jobs 7 have not ended") != (tc.ends > 0) {
					t.Errorf("ended %d times, want %d, and said %q", l.times, tc.ends, said.String())
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
