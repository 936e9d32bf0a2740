//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/slurmlab"
)

// A slurmJob is one job of a user of a cluster, that can be run on Slurm and, for comparison, on this machine: each in a folder of its own,
// in which its blocks write into out/.
type slurmJob struct {
	t          *testing.T
	lab        *slurmlab.Lab
	user, home string
	program    string
	// path is put before the PATH of the run on Slurm, for commands that take the place of Slurm's.
	path string
}

func newSlurmJob(t *testing.T, lab *slurmlab.Lab, user, name, text string) *slurmJob {
	t.Helper()
	j := &slurmJob{t: t, lab: lab, user: user, home: filepath.Join(lab.Home(user), name), program: filepath.Join(lab.Home(user), "daisy-submit")}
	for _, name := range []string{"daisy-submit", "daisy-worker"} {
		to := filepath.Join(lab.Home(user), name)
		if _, err := os.Stat(to); err == nil {
			continue // and perhaps running
		}
		data, err := os.ReadFile(filepath.Join(bin, name))
		j.must(err)
		j.must(os.WriteFile(to, data, 0o755))
	}
	for _, launcher := range []string{"local", "slurm"} {
		dir := filepath.Join(j.home, launcher)
		j.must(os.MkdirAll(filepath.Join(dir, "out"), 0o755))
		j.must(os.WriteFile(filepath.Join(dir, "job.toml"), []byte(text), 0o644))
		j.must(os.Chown(dir, lab.UID(user), -1))
		j.must(os.Chown(filepath.Join(dir, "out"), lab.UID(user), -1))
	}
	return j
}

func (j *slurmJob) must(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}

// folder is where the job is, run is its run directory, results what its blocks wrote.
func (j *slurmJob) folder(launcher string) string { return filepath.Join(j.home, launcher) }
func (j *slurmJob) run(launcher string) string    { return filepath.Join(j.home, launcher, "run") }

func (j *slurmJob) results(launcher string) map[string]string {
	return filesIn(j.t, filepath.Join(j.folder(launcher), "out"))
}

// start starts the run; env are further variables of its environment.
func (j *slurmJob) start(launcher string, env ...string) *submit {
	j.t.Helper()
	if launcher == "local" {
		env = append(env, "CUDA_VISIBLE_DEVICES=0,1") // which this machine does not have
	}
	return j.command(launcher, env, j.program, "run", "job.toml", "--launcher", launcher, "--run-dir", "run")
}

// command starts any command of the user in the folder of the job.
func (j *slurmJob) command(launcher string, env []string, name string, args ...string) *submit {
	j.t.Helper()
	s := &submit{t: j.t, cmd: j.lab.Command(j.user, name, args...), stdout: newTranscript(), stderr: newTranscript(), over: make(chan struct{})}
	s.cmd.Dir = j.folder(launcher)
	s.cmd.Env = append(s.cmd.Env, env...)
	if j.path != "" && launcher == "slurm" {
		s.cmd.Env = append(s.cmd.Env, "PATH="+j.path+":/usr/local/bin:/usr/bin:/bin")
	}
	s.cmd.Stdout, s.cmd.Stderr = s.stdout, s.stderr
	s.cmd.SysProcAttr.Setpgid = true
	s.cmd.WaitDelay = 10 * time.Second
	s.begin()
	return s
}

// ends waits for the end of a run and wants its status.
func (j *slurmJob) ends(s *submit, status int) result {
	j.t.Helper()
	select {
	case <-s.over:
	case <-time.After(slurmPatience):
		j.t.Fatalf("%v has not ended within %v; the queue:\n%s", s.cmd.Args, slurmPatience, j.lab.Run("root", "squeue", "-o", "%i %T %r %j"))
	}
	r := s.wait()
	if r.status != status {
		j.t.Fatalf("exit status %d, want %d", r.status, status)
	}
	return r
}

// completes runs it on Slurm and here, and wants the same of both, and nothing left.
func (j *slurmJob) completes(env ...string) result {
	j.t.Helper()
	return j.wantComplete(j.start("slurm", env...))
}

// wantComplete is completes of a run that has been started.
func (j *slurmJob) wantComplete(s *submit) result {
	j.t.Helper()
	r := j.ends(s, 0)
	j.wantNothingLeft()
	j.wantAsHere()
	return r
}

// wantAsHere compares a run on Slurm that has ended with one on this machine: counts, names and bytes of results.
func (j *slurmJob) wantAsHere() {
	j.t.Helper()
	j.ends(j.start("local"), 0)
	if d := cmp.Diff(counted(j.t, j.run("local")), counted(j.t, j.run("slurm"))); d != "" {
		j.t.Errorf("counts (-local +slurm):\n%s", d)
	}
	if d := cmp.Diff(j.results("local"), j.results("slurm")); d != "" {
		j.t.Errorf("results (-local +slurm):\n%s", d)
	}
}

// wantNothingLeft looks for jobs and processes of the user.
func (j *slurmJob) wantNothingLeft() {
	j.t.Helper()
	if left := j.lab.Run("root", "squeue", "-h", "-u", j.user, "-o", "%i %T %r %j"); left != "" {
		j.t.Errorf("jobs of %s are left:\n%s", j.user, left)
	}
	if left := processesOf(j.lab, j.user); len(left) > 0 {
		j.t.Errorf("processes of %s are left: %q", j.user, left)
	}
}

// stats is what the run says of itself.
func (j *slurmJob) stats() (s api.Stats) {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.run("slurm"), "stats.json"))
	j.must(err)
	j.must(json.Unmarshal(text, &s))
	return s
}

// status asks where the run on Slurm stands.
func (j *slurmJob) status() (s situation) {
	j.t.Helper()
	cmd := j.lab.Command(j.user, j.program, "status", "run", "--json")
	cmd.Dir = j.folder("slurm")
	text, err := cmd.Output()
	if err == nil {
		j.must(json.Unmarshal(text, &s))
	}
	return s
}

// waitsFor is what the tasks of the run on Slurm wait for, in its own words.
func (j *slurmJob) waitsFor() string {
	s := j.status()
	var all []string
	if s.Live != nil {
		for _, t := range s.Live.Tasks {
			if t.Waits != nil {
				all = append(all, t.ID+": "+*t.Waits)
			}
		}
	}
	return strings.Join(all, "\n")
}

// await looks, not too often, until something is so.
func (j *slurmJob) await(what string, is func() bool) {
	j.t.Helper()
	for until := time.Now().Add(slurmPatience); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(until) {
			j.t.Fatalf("%s: it has not come to that within %v; the queue:\n%s", what, slurmPatience, j.lab.Run("root", "squeue", "-o", "%i %T %r %j"))
		}
	}
}

// awaitResults waits until at least n files are written.
func (j *slurmJob) awaitResults(n int) {
	j.t.Helper()
	j.await(fmt.Sprintf("%d results", n), func() bool {
		files, err := os.ReadDir(filepath.Join(j.folder("slurm"), "out"))
		return err == nil && len(files) >= n
	})
}

// arrays are the elements of each array that the user's runs had, by the names of the arrays' jobs, as Slurm knows them.
func (j *slurmJob) arrays() map[string]int {
	j.t.Helper()
	elements := map[string]int{}
	for line := range strings.Lines(j.lab.Run("root", "squeue", "-h", "-r", "-t", "all", "-u", j.user, "-o", "%F %j %T %N")) {
		if f := strings.Fields(line); len(f) == 4 { // without those that never had a node
			elements[f[0]+" "+f[1]]++
		}
	}
	return elements
}

// root runs a command of an administrator.
func (j *slurmJob) root(args ...string) string {
	j.t.Helper()
	return j.lab.Run("root", args[0], args[1:]...)
}

// lineOf are n blocks in one dimension that run a line of sh, with $I being the index of the block.
func lineOf(id string, n int, line string) string {
	return blocks(id, n) + shell("I=$DAISY_BLOCK_INDEX; "+line)
}

// slow is a line of sh that takes so many seconds, on Slurm only.
func slow(seconds float64) string {
	return fmt.Sprintf("[ -z \"$SLURM_JOB_ID\" ] || sleep %g; ", seconds)
}

// writes is a line of sh that writes a small result, the same wherever it runs.
const writes = `printf '%s %s' "$DAISY_TASK_ID" "$DAISY_WRITE_OFFSET" >out/$DAISY_TASK_ID.$I`

func TestOnSlurmTasksOfTwoKindsShareOneBudget(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{}), "alice", "kinds", job("resources = { cpu = 4, memory = \"2GiB\", gpu = 1 }\n[slurm]\ntime = \"10m\"",
		lineOf("predict", 12, slow(0.3)+`[ -n "$CUDA_VISIBLE_DEVICES" ] && `+writes)+"requires = { cpu = 1, memory = \"200MiB\", gpu = 1 }\n[task.slurm]\npartition = \"gpu\"",
		lineOf("label", 12, slow(0.3)+writes)+"after = [\"predict\"]\nrequires = { cpu = 2, memory = \"100MiB\" }\n[task.slurm]\npartition = \"cpu\""))
	s := j.start("slurm")
	most, asked := 0, map[string]int{"gpu": 1, "cpu": 2}
	for running := true; running; {
		cores := 0
		for p := range strings.FieldsSeq(j.root("squeue", "-h", "-r", "-t", "R", "-o", "%P")) {
			cores += asked[p]
		}
		most = max(most, cores)
		select {
		case <-s.over:
			running = false
		case <-time.After(300 * time.Millisecond):
		}
	}
	j.ends(s, 0)
	j.wantNothingLeft()
	if most > 4 || most < 3 {
		t.Errorf("jobs with %d cores ran at once, the budget has 4", most)
	}
	nodes := j.root("squeue", "-h", "-t", "all", "-u", "alice", "-P", "-o", "%P %N %b")
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); f[0] == "gpu" && len(f) == 3 && (f[1] != "n3" && f[1] != "n4" || !strings.Contains(f[2], "gpu:1")) {
			t.Errorf("a worker with a GPU was %q", line)
		}
	}
	wantText(t, nodes, "gpu n", "cpu n")
	j.wantAsHere()
}

func TestOnSlurmAPipelineOfOneKindWaitsInTheQueueOnce(t *testing.T) {
	t.Parallel()
	tasks := []string{lineOf("a", 12, slow(0.1)+writes)}
	for i, id := range []string{"b", "c", "d"} {
		tasks = append(tasks, lineOf(id, 12, slow(0.1)+writes)+fmt.Sprintf("after = [%q]", "abc"[i:i+1]))
	}
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true}), "alice", "pipe", job("resources = { cpu = 4, memory = \"1GiB\" }\n[slurm]\ntime = \"10m\"", tasks...))
	j.completes()
	if a := j.arrays(); len(a) != 1 || slices.Max(slices.Collect(maps.Values(a))) != 4 {
		t.Errorf("four tasks of one kind had the workers %v, want one array of 4", a)
	}
}

func TestOnSlurmFourHundredWorkersOfOneBlockEach(t *testing.T) {
	t.Parallel()
	j := newSlurmJob(t, slurmlab.Start(t, slurmlab.Options{NoAccounting: true, MaxArraySize: 1001, Nodes: 10}), "alice", "many", job("[slurm]\ntime = \"10m\"",
		lineOf("one", 400, writes)+"requires = { cpu = 1, memory = \"50MiB\" }\nmax_workers = 400\nmax_blocks_per_worker = 1"))
	j.completes()
	if n := len(j.stats().Workers); n != 400 {
		t.Errorf("%d workers, want 400", n)
	}
}

func TestOnSlurmFourWorkersOfTenThousandBlocks(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true})
	j := newSlurmJob(t, lab, "alice", "small", job("resources = { cpu = 4, memory = \"1GiB\" }\n[slurm]\ntime = \"10m\"",
		blocks("small", 10_000)+`run = { python = "small.py:process" }`))
	for _, launcher := range []string{"local", "slurm"} {
		j.must(os.WriteFile(filepath.Join(j.folder(launcher), "small.py"), []byte(`import os
def process(block): # each has a line of its own
    at = block.write.offset[0]
    f = os.open("out/" + str(at % 7), os.O_CREAT | os.O_WRONLY, 0o644)
    os.pwrite(f, b"%09d\n" % at, at // 7 * 10)
    os.close(f)
`), 0o644))
	}
	j.completes()
	if n := len(j.stats().Workers); n != 4 {
		t.Errorf("%d workers, want 4", n)
	}
}

func TestOnSlurmOneOfThreeRunsThatIsCancelledLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{})
	text := job("resources = { cpu = 3, memory = \"1GiB\" }\n[slurm]\ntime = \"10m\"", lineOf("work", 40, slow(0.5)+writes))
	jobs := []*slurmJob{newSlurmJob(t, lab, "alice", "one", text), newSlurmJob(t, lab, "alice", "two", text), newSlurmJob(t, lab, "bob", "three", text)}
	var runs []*submit
	for _, j := range jobs {
		runs = append(runs, j.start("slurm"))
	}
	for _, j := range jobs {
		j.awaitResults(2)
	}
	two := jobs[1]
	two.ends(two.command("slurm", nil, two.program, "cancel", "run", "--now"), 0)
	two.ends(runs[1], 1)
	for _, i := range []int{0, 2} {
		jobs[i].ends(runs[i], 0)
		jobs[i].wantAsHere()
		if w := jobs[i].stats().Workers; len(w) != 3 {
			t.Errorf("%d workers, want the 3 that the run had all the time", len(w))
		}
	}
	for _, j := range jobs {
		j.wantNothingLeft()
	}
}

func TestOnSlurmARunWithinAnAllocation(t *testing.T) {
	t.Parallel()
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true})
	j := newSlurmJob(t, lab, "alice", "inside", job("resources = { cpu = 3, memory = \"1GiB\" }\n[slurm]\ntime = \"5m\"", lineOf("work", 12, "echo ${SLURM_ARRAY_TASK_ID:-none} ${SLURM_PROCID:-none} ${SBATCH_PARTITION:-none} >out/$I")))
	s := j.command("slurm", []string{"SBATCH_PARTITION=nope", "SBATCH_ARRAY_INX=7", "SBATCH_TIMELIMIT=abc", "SQUEUE_STATES=FAILED"}, "srun", "--partition=high", "--ntasks=1", "--cpus-per-task=2", "--mem=100", "--time=7",
		j.program, "run", "job.toml", "--launcher", "slurm", "--run-dir", "run")
	j.ends(s, 0)
	j.await("the allocation is given back", func() bool { return j.root("squeue", "-h", "-n", "daisy-submit", "-o", "%i") == "" })
	j.wantNothingLeft()
	for line := range strings.Lines(j.root("squeue", "-h", "-t", "all", "-n", "", "-u", "alice", "-o", "%j %P %C %l")) {
		if strings.HasPrefix(line, "dz-") && !strings.HasSuffix(strings.TrimSpace(line), " cpu 1 5:00") {
			t.Errorf("a worker is %q", line)
		}
	}
	j.wantAsHere()
}
