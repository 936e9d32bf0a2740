//go:build linux

package e2e

import (
	"strings"
	"testing"
)

func TestANewTimeoutHoldsForBlocksThatRun(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("stream")+"timeout = \"2h\"\nmax_retries = 0"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	wantStatus(t, 0, dir, "set", "out", "task.work.timeout=3h")
	v.ok()
	next := d.next() // the stream process goes on, and asks for the next one
	if next.PID != v.PID {
		t.Errorf("another process serves the task after its limit has changed")
	}
	wantStatus(t, 0, dir, "set", "out", "task.work.timeout=100ms")
	next.wantGone(t)
	if r := s.wait(); r.status != 1 {
		t.Errorf("exit status %d", r.status)
	}
	w := task(t, statsOf(t, dir+"/out"), "work")
	if w.Success != 1 || w.TimedOut != 1 || w.Lost != 0 || len(w.Failures) != 1 || !strings.HasSuffix(w.Failures[0].Message, "timed out after 100ms") {
		t.Errorf("%+v %+v", countsOf(w), w.Failures)
	}
}
