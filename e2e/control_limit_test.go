//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheReportHasTheLimitsThatWereInForceAndThoseOfTheStart(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")+"timeout = \"2h\"\nmax_workers = 3", blocks("then", 1)+shell("true")+"after = [\"work\"]"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	wantStatus(t, 0, dir, "set", "out", "task.work.timeout=3h", "task.work.max_workers=5")
	v.ok()
	s.wait()
	stats := statsOf(t, dir+"/out")
	var got []string
	for _, r := range stats.Run.Resources {
		if r.Resource == "timeout" || r.Resource == "max_workers" {
			text := fmt.Sprintf("%s %s:", r.Task, r.Resource)
			for _, n := range []*float64{r.Asked, r.AskedAtStart} {
				if n == nil {
					text += " -"
				} else {
					text += fmt.Sprintf(" %g", *n)
				}
			}
			got = append(got, text)
		}
	}
	if want := "work timeout: 10800 7200, work max_workers: 5 3, then timeout: 600 -, then max_workers: - -"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if w := task(t, stats, "work"); w.TimeoutSeconds == nil || *w.TimeoutSeconds != 10800 {
		t.Errorf("the timeout is %v s, want that of the end", w.TimeoutSeconds)
	}
	wantText(t, wantStatus(t, 0, dir, "stats", "out").stdout, "3h00m (2h00m at the start)", "5 (3 at the start)")
}

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
