//go:build linux

package e2e

import (
	"strings"
	"testing"
)

func TestWhatABlockLeavesBehindEndsWithIt(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	// One slot: the second block starts only after the first one has ended for its worker.
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command", "E2E_LEAVE=session")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := visitsOf(d, map[string]int{"ask": 1, "sit": 1})
	first["ask"][0].ok()
	second := visitsOf(d, map[string]int{"ask": 1, "sit": 1})
	// It ignores SIGTERM and holds the output of its block open: neither helped it, nor held up the block.
	first["sit"][0].wantGone(t)
	if second["ask"][0].Worker != first["ask"][0].Worker {
		t.Error("the worker was replaced")
	}
	second["ask"][0].ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	second["sit"][0].wantGone(t)
	stats := statsOf(t, dir+"/out")
	wantNoneLeft(t, stats.Run.ID, dir+"/out")
}

func TestWhatHidesFromItsBlockEndsWithTheRun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"command", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code(kind, "E2E_LEAVE=orphan session")))
			s := start(t, dir, "run", path, "--run-dir", "out")
			v := visitsOf(d, map[string]int{"ask": 1, "sit": 2})
			v["ask"][0].ok()
			if r := s.wait(); r.status != 0 {
				t.Errorf("exit status %d", r.status)
			}
			v["sit"][0].wantGone(t)
			v["sit"][1].wantGone(t)
		})
	}
}

func TestABlockWhoseTimeIsUpEndsWithAllThatItStarted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"command", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"400ms\"",
				blocks("work", 1)+d.code(kind, "E2E_LEAVE=session", "E2E_DEAF=1")+"timeout = \"300ms\"\nmax_retries = 0"))
			s := start(t, dir, "run", path, "--run-dir", "out")
			v := visitsOf(d, map[string]int{"ask": 1, "sit": 1})
			v["ask"][0].wantGone(t)
			v["sit"][0].wantGone(t)
			r := s.wait()
			if r.status != 1 {
				t.Errorf("exit status %d, want 1", r.status)
			}
			wantText(t, r.stdout, "timed out after 300ms", "--set task.work.timeout=")
			wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 1, Failed: 1, Reclaimed: 1, TimedOut: 1}})
		})
	}
}

// A worker gives user code that does not heed SIGTERM, and then what that has left behind, some seconds. The coordinator, which has a timer of its own for
// workers that cannot, has to wait for longer: else it takes the block from a worker that is at it to end it.
func TestABlockThatHeedsNothingIsEndedByItsWorkerAndNotTakenFromIt(t *testing.T) {
	t.Parallel()
	_, dir := runJob(t, 1, job("resources = { cpu = 1 }",
		blocks("work", 1)+shell(`trap "" TERM; (trap "" TERM; setsid sleep 1000) & while :; do sleep 1; done`)+"timeout = \"100ms\"\nmax_retries = 0"))
	w := task(t, statsOf(t, dir), "work")
	if len(w.Failures) != 1 || !strings.HasSuffix(w.Failures[0].Message, "timed out after 100ms") {
		t.Errorf("got %+v", w.Failures)
	}
}

func TestABackgroundChildDoesNotHoldUpItsBlock(t *testing.T) {
	t.Parallel()
	_, dir := runJob(t, 0, job("resources = { cpu = 1 }", blocks("work", 3)+shell("sleep 1000 & echo done {index}")))
	if w := task(t, statsOf(t, dir), "work"); w.Success != 3 || *w.BlockSeconds.Max > 20 {
		t.Errorf("%d succeeded, the longest took %g s", w.Success, *w.BlockSeconds.Max)
	}
}
