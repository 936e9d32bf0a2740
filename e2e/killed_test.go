package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
)

func TestOfARunThatWasKilledItIsSaidHowFarItCameByItsJournal(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ntracking = \"marks\"",
		blocks("work", 4)+shell("test {index} != 1 || { echo no such luck; exit 1; }")+"max_retries = 0\npriority = 1", blocks("then", 4)+d.code("command")+"after = [\"work\"]"))
	first := start(t, dir, "run", path, "--run-dir", "runs/first", "--limit", "1") // so that blocks are done before
	d.next().ok()
	first.wait()
	s := start(t, dir, "run", path, "--run-dir", "runs/out")
	held := d.next()
	wantText(t, wantStatus(t, 2, dir, "stats", "out").stderr, "it has not ended; ")
	killAll(t, s, dir)
	held.wantGone(t)

	files := func() (list []string) {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				list = append(list, path+" "+readFile(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := files()
	r := wantStatus(t, 0, dir, "stats", "out")
	wantText(t, r.stdout, "8 blocks: 2 succeeded, 2 skipped, 1 failed, 1 orphaned, 2 left. The run was killed after ", "by its journal; it is not running.", "no such luck", "1.0.log")
	var stats api.Stats
	if err := json.Unmarshal([]byte(wantStatus(t, 0, dir, "stats", "out", "--json").stdout), &stats); err != nil {
		t.Fatal(err)
	}
	work, then := task(t, stats, "work"), task(t, stats, "then")
	if work.Success != 2 || work.Failed != 1 || work.Skipped != 1 || *work.SkippedWhy.DoneBefore != 1 || work.Processed != 3 || work.BlockSeconds.Mean == nil || then.Orphaned != 1 || then.Skipped != 1 ||
		stats.Run.State != "killed" || stats.Run.Ended != nil || stats.Run.ExitStatus != nil || len(stats.Run.Segments) != 1 {
		t.Errorf("%+v\n%+v %+v", stats.Run, countsOf(work), countsOf(then))
	}
	if got := wantStatus(t, 0, dir, "runs").stdout; !strings.Contains(got, "killed") || !strings.Contains(got, " 4 of 8 ") {
		t.Errorf("there is no count in\n%s", got)
	}
	if diff := cmp.Diff(before, files()); diff != "" {
		t.Errorf("files have changed:\n%s", diff)
	}
}

func TestARunWhoseJournalCannotBeReadHasNoCount(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 3)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "runs/out")
	d.next().ok()
	held := d.next()
	killAll(t, s, dir)
	held.wantGone(t)
	if err := os.Remove(dir + "/runs/out/job.toml"); err != nil {
		t.Fatal(err)
	}
	wantText(t, wantStatus(t, 2, dir, "stats", "out").stderr, "job.toml")
	if got := wantStatus(t, 0, dir, "runs").stdout; !strings.Contains(got, "killed") || strings.Contains(got, " of 3") {
		t.Errorf("it is\n%s", got)
	}
}
