package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/slurmlab"
)

// slurmPatience bounds every wait for a run on Slurm, which takes its time: a node is given up after half a minute, a requeued job waits
// for a quarter.
const slurmPatience = 4 * time.Minute

// aliceHome gives alice the programs, and a folder with a job file.
func aliceHome(t *testing.T, lab *slurmlab.Lab, text string) (dir, program string) {
	t.Helper()
	dir = filepath.Join(lab.Home("alice"), "job")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	for _, name := range []string{"daisy-submit", "daisy-worker"} {
		data, err := os.ReadFile(filepath.Join(bin, name))
		must(err)
		must(os.WriteFile(filepath.Join(lab.Home("alice"), name), data, 0o755))
	}
	must(os.WriteFile(filepath.Join(dir, "job.toml"), []byte(text), 0o644))
	must(os.Chown(dir, lab.UID("alice"), -1))
	return dir, filepath.Join(lab.Home("alice"), "daisy-submit")
}

// counted is what a run says of its tasks.
func counted(t *testing.T, dir string) (list []string) {
	t.Helper()
	var stats struct {
		Tasks []struct {
			ID                                                               string
			State                                                            string
			Blocks, Success, Failed, Orphaned, Abandoned, Processed, Retries int64
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &stats); err != nil {
		t.Fatal(err)
	}
	for _, task := range stats.Tasks {
		list = append(list, fmt.Sprintf("%+v", task))
	}
	return list
}

// filesIn are the files in a folder with what is in them.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// processesOf are the processes of a user of a cluster that live.
func processesOf(lab *slurmlab.Lab, user string) (lines []string) {
	pids, _ := exec.Command("pgrep", "-u", user, "-f", "--", ".").Output()
	for pid := range strings.FieldsSeq(string(pids)) {
		env, _ := os.ReadFile("/proc/" + pid + "/environ")
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if strings.Contains(string(env), "SLURM_CONF="+lab.Conf+"\x00") && len(line) > 0 {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}

func TestOnSlurmAPipelineGivesWhatItGivesHere(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{})
	const job = `[run]
name = "pipe"
[slurm]
time = "10m"
[[task]]
id = "first"
total_write = { offset = [0], shape = [40] }
block = { shape = [4] }
run = { command = ["sh", "-c", 'mkdir -p "$OUT"; printf "%s %s" $DAISY_WRITE_OFFSET "$SLURM_PROCID" >"$OUT/first.$DAISY_BLOCK_INDEX"'] }
env = { OUT = "OUTDIR" }
max_workers = 3
[[task]]
id = "second"
after = ["first"]
total_write = { offset = [0], shape = [40] }
block = { shape = [8], context = 2 }
run = { command = ["sh", "-c", 'cat "$OUT/first."* >/dev/null && printf "%s" $DAISY_READ_OFFSET >"$OUT/second.$DAISY_BLOCK_INDEX"'] }
env = { OUT = "OUTDIR" }
max_workers = 2
[task.slurm]
partition = "high"
`
	dir, program := aliceHome(t, lab, job)
	run := func(out, launcher string) []string {
		t.Helper()
		path := filepath.Join(lab.Home("alice"), "run-"+launcher)
		cmd := lab.Command("alice", program, "run", "job.toml", "--launcher", launcher, "--run-dir", path,
			"--set", "task.first.env.OUT="+filepath.Join(dir, out), "--set", "task.second.env.OUT="+filepath.Join(dir, out))
		cmd.Dir = dir
		// As from inside of another job, whose variables sbatch would obey.
		cmd.Env = append(cmd.Env, "SLURM_JOB_ID=1", "SLURM_PROCID=5", "SBATCH_PARTITION=nope", "SBATCH_ARRAY_INX=7", "SLURM_EXPORT_ENV=NONE")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", launcher, err, text)
		}
		return counted(t, path)
	}
	here, there := run("here", "local"), run("there", "slurm")
	if d := cmp.Diff(here, there); d != "" {
		t.Errorf("counts (-local +slurm):\n%s", d)
	}
	if d := cmp.Diff(filesIn(t, filepath.Join(dir, "here")), filesIn(t, filepath.Join(dir, "there"))); d != "" {
		t.Errorf("results (-local +slurm):\n%s", d)
	}
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
	if left := processesOf(lab, "alice"); len(left) > 0 {
		t.Errorf("processes of alice are left: %q", left)
	}
	// Workers of tasks with other options are in other arrays.
	jobs := lab.Run("alice", "squeue", "-h", "-t", "all", "-u", "alice", "-o", "%P %j")
	for _, p := range []string{"cpu dz-", "high dz-"} {
		if !strings.Contains(jobs, p) {
			t.Errorf("no job %s among\n%s", p, jobs)
		}
	}
}

func TestOnSlurmAWrongOptionEndsTheRunBeforeAnythingIsQueued(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true})
	dir, program := aliceHome(t, lab, `[run]
launcher = "slurm"
[[task]]
id = "a"
total = { offset = [0], shape = [40] }
block = { shape = [4] }
run = { command = ["true"] }
max_workers = 3
slurm.options = ["--array=1-4"]
`)
	cmd := lab.Command("alice", program, "run", "job.toml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("%v, want status 2", err)
	}
	wantText(t, string(out), `job.toml:9: task "a": slurm.options: --array=1-4 is reserved`)
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("a run directory was made")
	}
}
