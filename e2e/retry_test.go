package e2e

import (
	"path/filepath"
	"testing"
)

func TestRetryRunsTheFailedBlocksAgainAndWhatWasOrphanedWithThem(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 2 }",
		blocks("one", 4)+shell("echo {index} $DAISY_ATTEMPT >> ran-one; test {index} != 2 || test -e mended")+"max_retries = 1",
		blocks("two", 4)+shell("echo {index} >> ran-two")+`after = ["one"]`))
	wantStatus(t, 1, dir, "run", path)
	wantStatus(t, 1, dir, "retry") // nothing is mended: it fails again, with all its retries
	writeFile(t, dir+"/mended", "")
	r := wantStatus(t, 2, dir, "retry", "--task", "three")
	wantText(t, r.stderr, "has no such task", "one, two")
	wantStatus(t, 0, dir, "retry", "runs/latest", "--task", "one")
	stats := statsOf(t, filepath.Join(dir, "runs", "latest"))
	wantCounts(t, stats, map[string]counts{
		"one": {State: "done", Blocks: 4, Success: 4, Processed: 8, Retries: 2},
		"two": {State: "done", Blocks: 4, Success: 4, Processed: 4},
	})
	if n := len(stats.Run.Segments); n != 3 || len(stats.Tasks[0].Failures) != 0 {
		t.Errorf("%d segments, failures %+v", n, stats.Tasks[0].Failures)
	}
	again := wantStatus(t, 0, dir, "retry")
	wantText(t, again.stderr, "nothing to retry")
	wantText(t, again.stdout, "8 blocks: 8 succeeded")
}

func TestARetryThatIsKilledGoesOnWithAResume(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+
		"max_retries = 0\ncheck = { command = [\"sh\", \"-c\", \"test -e mended || exit 3; exit 1\"] }\n"+d.code("command")))
	wantStatus(t, 1, dir, "run", path, "--run-dir", "out")
	writeFile(t, dir+"/mended", "")
	s := start(t, dir, "retry", "out")
	held := d.next()
	wantText(t, wantStatus(t, 2, dir, "retry", "out").stderr, "pid ")
	killAll(t, s, dir)
	held.wantGone(t)
	again := start(t, dir, "run", "--resume", "out")
	d.next().ok()
	d.next().ok()
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 4}})
}
