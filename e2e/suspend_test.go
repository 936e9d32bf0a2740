//go:build linux

package e2e

import (
	"syscall"
	"testing"
	"time"
)

// A batch system may stop all processes of a job, and let them go on when their blocks are others' already.
func TestAWorkerThatWasStoppedForTooLongKillsItsBlockFirst(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, jobOfTwo(d, "heartbeat_timeout = \"1s\"\nabandon_after = \"4s\""))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := d.next()
	helper := aHelper(t, dir)
	one, helped := helper.share(t, d, first)
	freeze(t, helper.Process.Pid)
	kill(t, helped.PID, syscall.SIGSTOP)
	one.ok()
	again := d.next()
	if again.Index != helped.Index || again.Worker == "helper" {
		t.Errorf("block %s of a stopped worker is given up; then came %+v", helped.Index, again.question)
	}
	on := kill(t, helped.PID, syscall.SIGCONT)
	kill(t, helper.Process.Pid, syscall.SIGCONT)
	helped.wantGone(t)
	t.Logf("its block was killed %v after it went on", time.Since(on).Round(time.Millisecond))
	helper.said.await(t, "the worker was stopped for ")
	helper.said.await(t, "connected again") // else the run may have ended before
	again.ok()
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	if err := helper.Wait(); err != nil {
		t.Errorf("the helper ended with %v: %s", err, helper.said)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{
		"first": {State: "done", Blocks: 1, Success: 1, Processed: 1},
		"work":  {State: "done", Blocks: 2, Success: 2, Processed: 2, Reclaimed: 1, Lost: 1},
	})
}
