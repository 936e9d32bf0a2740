package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/job"
)

func TestARunThatDoesNotEndAtOnceIsEndedByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		r := &jobRun{stderr: &said, job: &job.Job{Launcher: "slurm"}}
		status := make(chan int, 1)
		stop := r.force(syscall.SIGINT, func(n int) { status <- n })
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

		stop = r.force(syscall.SIGINT, func(int) { t.Error("ended although the run has") })
		stop()
		time.Sleep(2 * forceAfter)
	})
}
