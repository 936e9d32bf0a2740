package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const tracked = "resources = { cpu = 2 }\ntracking = \"tracking\""

func TestASecondRunSkipsWhatIsDone(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job(tracked,
		blocks("first", 7)+shell("echo x >> ran"), blocks("then", 7)+shell("echo x >> ran")+`after = ["first"]`))
	wantStatus(t, 0, dir, "run", path, "--run-dir", "one")
	once := readFile(t, dir+"/ran")
	r := wantStatus(t, 0, dir, "run", path, "--run-dir", "two")
	wantText(t, r.stdout, "all 14 blocks were done before: nothing to run.")
	if again := readFile(t, dir+"/ran"); again != once || len(once) != 28 {
		t.Errorf("the first run wrote %q, after the second there is %q", once, again)
	}
	stats := statsOf(t, dir+"/two")
	done := counts{State: "done", Blocks: 7, Skipped: 7}
	wantCounts(t, stats, map[string]counts{"first": done, "then": done})
	for _, ts := range stats.Tasks {
		if why := ts.SkippedWhy; why.DoneBefore == nil || *why.DoneBefore != 7 || why.Check != 0 {
			t.Errorf("task %s: skipped because of %+v", ts.ID, why)
		}
	}
	if logs, err := os.ReadDir(dir + "/two/logs"); err != nil || len(logs) != 0 || len(stats.Workers) != 0 {
		t.Errorf("a worker was started: logs %v (%v), rows %v", logs, err, stats.Workers)
	}
}

func TestOnlyWhatFailedAndWhatNeedsItRunsAgain(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job(tracked,
		blocks("first", 5)+shell("echo first {index} >> ran; test {index} != 3 || test -e mended")+"max_retries = 0",
		blocks("then", 5)+shell("echo then {index} >> ran")+`after = ["first"]`))
	wantStatus(t, 1, dir, "run", path, "--run-dir", "one")
	wantCounts(t, statsOf(t, dir+"/one"), map[string]counts{
		"first": {State: "done", Blocks: 5, Success: 4, Failed: 1, Processed: 5},
		"then":  {State: "done", Blocks: 5, Success: 4, Orphaned: 1, Processed: 4},
	})
	writeFile(t, dir+"/mended", "")
	if err := os.Remove(dir + "/ran"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, 0, dir, "run", path, "--run-dir", "two")
	one := counts{State: "done", Blocks: 5, Success: 1, Skipped: 4, Processed: 1}
	wantCounts(t, statsOf(t, dir+"/two"), map[string]counts{"first": one, "then": one})
	if ran := readFile(t, dir+"/ran"); ran != "first 3\nthen 3\n" {
		t.Errorf("what ran again: %q", ran)
	}
}

func TestMarksOfAnotherLayoutAreRefused(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return job(tracked, blocks("work", n)+shell("true")) }
	dir, path := writeJob(t, text(4))
	wantStatus(t, 0, dir, "run", path, "--run-dir", "one")
	writeFile(t, path, text(5))
	r := run(t, dir, "run", path, "--run-dir", "two")
	if r.status == 0 || r.status == 1 {
		t.Errorf("exit status %d", r.status)
	}
	wantText(t, r.stderr, `task "work"`, "another layout", "rm -r")
	hashes := regexp.MustCompile(`\b[0-9a-f]{64}\b`).FindAllString(r.stderr, -1)
	if len(hashes) != 2 || hashes[0] == hashes[1] {
		t.Errorf("want both hashes, got %v", hashes)
	}
	if exists(dir + "/two") {
		t.Error("a run directory without a run is left")
	}
}

func TestTwoRunsDoNotShareTheirMarks(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job(tracked, blocks("work", 1)+d.code("command")))
	first := start(t, dir, "run", path)
	v := d.next()
	latest, err := os.Readlink(dir + "/runs/latest")
	if err != nil {
		t.Fatal(err)
	}
	second := run(t, dir, "run", path)
	if second.status != 3 {
		t.Errorf("exit status %d, want 3", second.status)
	}
	wantText(t, second.stderr, "is being written by another run", fmt.Sprintf("pid %d", first.cmd.Process.Pid))
	if strings.Contains(second.stderr, "did not end") {
		t.Errorf("it takes a run that goes on for one that did not end:\n%s", second.stderr)
	}
	if now, err := os.Readlink(dir + "/runs/latest"); err != nil || now != latest {
		t.Errorf("latest leads to %q (%v), want %q: the first run", now, err, latest)
	}
	d.none()
	v.ok()
	if r := first.wait(); r.status != 0 {
		t.Errorf("exit status %d, want 0", r.status)
	}
	wantStatus(t, 0, dir, "run", path, "--run-dir", "three")
}
