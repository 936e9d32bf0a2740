package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"example.org/daisy/internal/api"
)

func TestARunIsFollowedFromAnotherTerminalToItsReportAndStatus(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("bad", 2)+shell("test {index} != 1")+"max_retries = 0\npriority = 1", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	first, second, lines := start(t, dir, "attach", "out"), start(t, dir, "attach", "out"), start(t, dir, "attach", "out", "--json")
	lines.stdout.await(t, "task bad has ended: done")
	lines.stdout.await(t, `"event":"progress"`)
	first.stderr.await(t, "task bad has ended: done")
	second.stderr.await(t, "task bad has ended: done")
	second.signal(syscall.SIGINT)
	r := second.wait()
	wantText(t, r.stderr, "the run goes on", "daisy-submit attach ")
	if r.status != 130 {
		t.Errorf("a look that was interrupted ends with %d", r.status)
	}
	wantStatus(t, 0, dir, "set", "out", "task.work.timeout=1h")
	first.stderr.await(t, "timeout")
	v.ok()
	of, look := s.wait(), first.wait()
	if of.status != 1 || look.status != 1 {
		t.Errorf("the run ends with %d, the look with %d", of.status, look.status)
	}
	if of.stdout != look.stdout {
		t.Errorf("the report of the run:\n%s\nof the look:\n%s", of.stdout, look.stdout)
	}
	if r := lines.wait(); r.status != 1 || strings.Contains(r.stdout, "Tasks\n") {
		t.Errorf("the look with --json ends with %d", r.status)
	}
	wantLines := func(text string, want ...string) {
		t.Helper()
		var kinds []string
		for line := range strings.Lines(text) {
			var event struct {
				Event string
				Stats *api.Stats
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil || (event.Event == "end") != (event.Stats != nil && event.Stats.Run.State == "failed") {
				t.Errorf("%v: %s", err, line)
			}
			if !slices.Contains(kinds, event.Event) {
				kinds = append(kinds, event.Event)
			}
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("the lines are %v, want %v", kinds, want)
		}
	}
	wantLines(lines.stdout.String(), "notice", "progress", "end")
	wantLines(wantStatus(t, 1, dir, "attach", "out", "--json").stdout, "end")
	// Afterwards it is the report alone.
	if late := wantStatus(t, 1, dir, "attach", "out"); late.stdout != of.stdout {
		t.Errorf("afterwards:\n%s%s", late.stdout, late.stderr)
	}
}

func TestALookGoesOnWithTheNextCoordinator(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	look := start(t, dir, "attach", "out")
	look.stderr.await(t, "has joined for work")
	s.signal(syscall.SIGKILL)
	s.wait()
	again := start(t, dir, "run", "--resume", "out")
	v.ok()
	d.letAllEnd() // again, where the disk was slow and it was not known yet that the worker had come
	if of := again.wait(); of.status != 0 {
		t.Fatalf("the resume ends with %d\n%s", of.status, of.stderr)
	}
	if r := look.wait(); r.status != 0 {
		t.Errorf("the look ends with %d\n%s", r.status, r.stderr)
	}
}
