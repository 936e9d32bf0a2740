//go:build linux

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

// TestOnSlurmABlockOfAJobThatIsEndedIsReturned: an administrator ends the job, and Slurm signals user code and worker at once.
func TestOnSlurmABlockOfAJobThatIsEndedIsReturned(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{})
	dir, program := aliceHome(t, lab, `[run]
launcher = "slurm"
[slurm]
time = "10m"
[[task]]
id = "work"
total_write = { offset = [0], shape = [2] }
block = { shape = [1] }
run = { command = ["sh", "-c", 'echo "$SLURM_JOB_ID $DAISY_WORKER_ID" >>began; [ "$DAISY_ATTEMPT" = 2 ] || [ "$DAISY_BLOCK_INDEX" = 1 ] || exec sleep 1000'] }
max_workers = 1
max_retries = 0
`)
	out := filepath.Join(lab.Home("alice"), "out")
	cmd := lab.Command("alice", program, "run", "job.toml", "--run-dir", out)
	cmd.Dir = dir
	writeFile(t, filepath.Join(dir, "began"), "")
	lab.Run("root", "chown", "alice", filepath.Join(dir, "began"))
	said := newTranscript()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := awaitFile(t, filepath.Join(dir, "began"), " ")
	job, _, _ := strings.Cut(text, " ")
	ended := time.Now()
	lab.Run("root", "scancel", job)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Logf("the run ended %v after the job was", time.Since(ended).Round(time.Millisecond))
	stats := statsOf(t, out)
	wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 2, Returned: 1}})
	for _, w := range stats.Workers {
		if w.Node == nil || !strings.HasPrefix(*w.Node, "n") {
			t.Errorf("worker %s is said to be on %v", w.ID, w.Node)
		}
	}
	if left := processesOf(lab, "alice"); len(left) > 0 {
		t.Errorf("processes of alice are left: %q", left)
	}
}
