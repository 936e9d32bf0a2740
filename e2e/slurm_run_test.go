package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/slurmlab"
)

// A slurmRun is a run of alice's on a Slurm of its own. Its blocks begin and wait while the gate is closed, all but the first, which shows
// that workers work; so a fault finds the run where the test wants it to be.
type slurmRun struct {
	t            *testing.T
	lab          *slurmlab.Lab
	dir, program string
	env          []string // in place of what alice has
}

// newSlurmRun starts a Slurm and writes the job file: keys of [run], of [slurm] and of the task, which has n blocks.
func newSlurmRun(t *testing.T, o slurmlab.Options, n int, run, slurm, task string) *slurmRun {
	t.Helper()
	t.Parallel()
	r := &slurmRun{t: t, lab: slurmlab.Start(t, o)}
	const work = `echo "$DAISY_WORKER_ID $SLURM_JOB_ID" >>"$MARKS/$DAISY_BLOCK_INDEX"; while [ "$DAISY_BLOCK_INDEX" != 0 ] && [ -e "$MARKS/closed" ]; do sleep 0.1; done; printf "%s" "$DAISY_WRITE_OFFSET" >"$OUT/$DAISY_BLOCK_INDEX"`
	text := fmt.Sprintf("[run]\nname = \"faults\"\nreconnect_grace = \"1s\"\nheartbeat_timeout = \"6s\"\n%s\n[slurm]\ntime = \"10m\"\n%s\n", run, slurm) +
		fmt.Sprintf("[[task]]\nid = \"work\"\ntotal_write = { offset = [0], shape = [%d] }\nblock = { shape = [4] }\n", 4*n) +
		"run = { command = [\"sh\", \"-c\", '" + work + "'] }\nenv = { OUT = \"\", MARKS = \"\" }\n" + task + "\n"
	r.dir, r.program = aliceHome(t, r.lab, text)
	r.env = r.lab.Environment("alice")
	for _, d := range []string{"here", "there", "marks-here", "marks-there"} {
		path := filepath.Join(r.dir, d)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, r.lab.UID("alice"), -1); err != nil {
			t.Fatal(err)
		}
	}
	r.close()
	return r
}

func (r *slurmRun) gate() string { return filepath.Join(r.dir, "marks-there", "closed") }

func (r *slurmRun) close() { writeFile(r.t, r.gate(), "") }

func (r *slurmRun) open() {
	r.t.Helper()
	if err := os.Remove(r.gate()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *slurmRun) places(where string) []string {
	return []string{"--set", "task.work.env.OUT=" + filepath.Join(r.dir, where), "--set", "task.work.env.MARKS=" + filepath.Join(r.dir, "marks-"+where)}
}

// runDir is that of the run on Slurm.
func (r *slurmRun) runDir() string { return filepath.Join(r.dir, "run-there") }

// begin begins the run.
func (r *slurmRun) begin() *submit {
	r.t.Helper()
	return r.start(r.lab.Command("alice", r.program, append([]string{"run", "job.toml", "--launcher", "slurm", "--run-dir", "run-there"}, r.places("there")...)...))
}

// resume goes on with it.
func (r *slurmRun) resume(args ...string) *submit {
	r.t.Helper()
	return r.start(r.lab.Command("alice", r.program, append([]string{"run", "--resume", "run-there"}, args...)...))
}

// resumeElsewhere goes on with it on a machine of another name.
func (r *slurmRun) resumeElsewhere(args ...string) *submit {
	r.t.Helper()
	script := `hostname elsewhere && exec setpriv --reuid=alice --regid=alice --init-groups "$@"`
	return r.start(r.lab.Command("root", "unshare", append([]string{"--uts", "sh", "-c", script, "sh", r.program, "run", "--resume", "run-there"}, args...)...))
}

func (r *slurmRun) start(cmd *exec.Cmd) *submit {
	r.t.Helper()
	s := &submit{t: r.t, cmd: cmd, stdout: newTranscript(), stderr: newTranscript(), over: make(chan struct{})}
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.Stdout, cmd.Stderr = s.stdout, s.stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.WaitDelay = 10 * time.Second
	s.begin()
	return s
}

// until waits until something is so. What it asks cannot be waited for.
func (r *slurmRun) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(slurmPatience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %v: %s\nqueue:\n%s", slurmPatience, what, r.queue())
		}
	}
}

// ends waits for the end of daisy-submit.
func (r *slurmRun) ends(s *submit, status int) result {
	r.t.Helper()
	select {
	case <-s.over:
	case <-time.After(slurmPatience):
		r.t.Fatalf("it has not ended within %v\nqueue:\n%s", slurmPatience, r.queue())
	}
	got := s.wait()
	if got.status != status {
		r.t.Errorf("exit status %d, want %d", got.status, status)
	}
	return got
}

// crash kills a coordinator, and nothing else.
func (r *slurmRun) crash(s *submit) {
	r.t.Helper()
	kill(r.t, s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.over
}

// begun is which worker, and which job, began each block, in order, by the name of its file.
func (r *slurmRun) begun() map[string]string {
	r.t.Helper()
	all := filesIn(r.t, filepath.Dir(r.gate()))
	delete(all, "closed")
	return all
}

func (r *slurmRun) untilBegun(n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d blocks have begun", n), func() bool { return len(r.begun()) >= n })
}

// queue is what squeue shows of elements that have not ended.
func (r *slurmRun) queue() string {
	out, _ := r.lab.Command("root", "squeue", "-h", "-r", "-u", "alice", "-o", "%i %j %T %N %r").CombinedOutput()
	return strings.TrimSpace(string(out))
}

// inState counts the elements that have not ended, by the state that squeue shows.
func (r *slurmRun) inState(state string) (n int) {
	for line := range strings.Lines(r.queue()) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == state {
			n++
		}
	}
	return n
}

func (r *slurmRun) untilQueued(running, pending int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d run and %d are pending", running, pending), func() bool { return r.inState("RUNNING") == running && r.inState("PENDING") == pending })
}

// submissions are the arrays that Slurm has ever had of alice, each as its job name and id, in order.
func (r *slurmRun) submissions() (list []string) {
	r.t.Helper()
	for line := range strings.Lines(r.lab.Run("root", "squeue", "-h", "-t", "all", "-u", "alice", "-o", "%j %F") + "\n") {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// accounted is how many elements the accounting has ever had of alice that were started.
func (r *slurmRun) accounted() int {
	r.t.Helper()
	return len(strings.Fields(r.lab.Run("root", "sacct", "-X", "-n", "-D", "-P", "-u", "alice", "-o", "JobIDRaw")))
}

// wantSubmitted checks how often Slurm was asked for workers.
func (r *slurmRun) wantSubmitted(n int) {
	r.t.Helper()
	if got := r.submissions(); len(got) != n {
		r.t.Errorf("submitted were %v, want %d", got, n)
	}
}

// wantOneArrayEach checks that no submission was made twice.
func (r *slurmRun) wantOneArrayEach() {
	r.t.Helper()
	arrays := map[string][]string{}
	for _, s := range r.submissions() {
		name, id, _ := strings.Cut(s, " ")
		arrays[name] = append(arrays[name], id)
	}
	for name, ids := range arrays {
		if len(ids) != 1 {
			r.t.Errorf("%s is the arrays %v, want one", name, ids)
		}
	}
}

// wantRunsOnce checks that no block ran twice.
func (r *slurmRun) wantRunsOnce() {
	r.t.Helper()
	for block, workers := range r.begun() {
		if n := strings.Count(workers, "\n"); n != 1 {
			r.t.Errorf("block %s was begun by %q, want one worker", block, workers)
		}
	}
}

// wantAsHere checks that results and counts are those of a local run, and that nothing is left.
func (r *slurmRun) wantAsHere() {
	r.t.Helper()
	cmd := r.lab.Command("alice", r.program, append([]string{"run", "job.toml", "--launcher", "local", "--run-dir", "run-here"}, r.places("here")...)...)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("the local run: %v\n%s", err, out)
	}
	if d := cmp.Diff(counted(r.t, filepath.Join(r.dir, "run-here")), counted(r.t, r.runDir())); d != "" {
		r.t.Errorf("counts (-local +slurm):\n%s", d)
	}
	if d := cmp.Diff(filesIn(r.t, filepath.Join(r.dir, "here")), filesIn(r.t, filepath.Join(r.dir, "there"))); d != "" {
		r.t.Errorf("results (-local +slurm):\n%s", d)
	}
	r.wantNothingLeft()
}

// wantNothingLeft checks that no job and no process is left.
func (r *slurmRun) wantNothingLeft() {
	r.t.Helper()
	if left := r.queue(); left != "" {
		r.t.Errorf("jobs are left:\n%s", left)
	}
	if left := processesOf(r.lab, "alice"); len(left) > 0 {
		r.t.Errorf("processes of alice are left: %q", left)
	}
}

// wrap puts a shell script in place of a command of Slurm, for whoever starts the run from now on. In it $REAL is that command, and $TOLD
// a file by which the test and the script speak.
func (r *slurmRun) wrap(name, script string) (told string) {
	r.t.Helper()
	real, err := exec.LookPath(name)
	if err != nil {
		r.t.Fatal(err)
	}
	dir := filepath.Join(r.lab.Dir, "wrapped")
	told = filepath.Join(r.dir, "marks-here", "told-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/bash\nREAL=%s\nTOLD=%s\n%s\n", real, told, script)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // alice runs it
		r.t.Fatal(err)
	}
	if first := "PATH=" + dir; !strings.HasPrefix(r.env[0], first) {
		r.env[0] = first + ":" + strings.TrimPrefix(r.env[0], "PATH=")
	}
	return told
}

// nodeOf and jobOf are where an element runs, and its raw id; any that runs.
func (r *slurmRun) nodeOf() string {
	r.t.Helper()
	return strings.Fields(r.lab.Run("root", "squeue", "-h", "-r", "-u", "alice", "-t", "running", "-o", "%N"))[0]
}

func (r *slurmRun) jobOf(state string) string {
	r.t.Helper()
	return strings.Fields(r.lab.Run("root", "squeue", "-h", "-r", "-u", "alice", "-t", state, "-o", "%i"))[0]
}
