package e2e

import (
	"path/filepath"
	"testing"
)

func TestACheckSkipsRunsOrFailsABlock(t *testing.T) {
	t.Parallel()
	const check = "check = { command = [\"sh\", \"-c\", \"echo checked {index}; exit {index}\"] }\n"
	for _, launcher := range []string{"local", "serial"} {
		t.Run(launcher, func(t *testing.T) {
			t.Parallel()
			// In a serial run the failed check of block 2 is the end.
			dir, path := writeJob(t, job(tracked+"\nlauncher = "+quote(launcher), blocks("work", 3)+shell("echo {index} >> ran")+check))
			r := wantStatus(t, 1, dir, "run", path, "--run-dir", "one")
			wantText(t, r.stdout, "check: exit status 2", "1 by check")
			stats := statsOf(t, dir+"/one")
			want := counts{State: "done", Blocks: 3, Success: 1, Skipped: 1, Failed: 1, Processed: 4, Retries: 2}
			if launcher == "serial" {
				want.Processed, want.Retries = 2, 0
			}
			got := countsOf(task(t, stats, "work"))
			got.State = want.State // nothing is left in either
			wantCounts := want
			if got != wantCounts {
				t.Errorf("counts: want %+v, got %+v", wantCounts, got)
			}
			if why := task(t, stats, "work").SkippedWhy; why.Check != 1 {
				t.Errorf("skipped because of %+v", why)
			}
			if ran := readFile(t, dir+"/ran"); ran != "1\n" {
				t.Errorf("what ran: %q", ran)
			}

			// Skipped by check is recorded as done: the check is not asked again.
			wantStatus(t, 1, dir, "run", path, "--run-dir", "two")
			if again := task(t, statsOf(t, dir+"/two"), "work"); again.Skipped != 2 || *again.SkippedWhy.DoneBefore != 2 || again.Failed != 1 {
				t.Errorf("the second run counts %+v, skipped because of %+v", countsOf(again), again.SkippedWhy)
			}
		})
	}
}

func TestASkippedBlockIsThereForThoseDownstream(t *testing.T) {
	t.Parallel()
	_, dir := runJob(t, 0, job("",
		blocks("first", 3)+shell("true")+"check = { command = [\"true\"] }\n",
		blocks("then", 3)+shell("touch then-{index}")+`after = ["first"]`))
	wantCounts(t, statsOf(t, dir), map[string]counts{
		"first": {State: "done", Blocks: 3, Skipped: 3},
		"then":  {State: "done", Blocks: 3, Success: 3, Processed: 3},
	})
	if made, err := filepath.Glob(filepath.Dir(dir) + "/then-*"); err != nil || len(made) != 3 {
		t.Errorf("%v, %v", made, err)
	}
}
