//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

// A coordinatedRun is a slurmRun whose coordinator is a job, too. Its workers stay away from n4, where the coordinator is alone.
type coordinatedRun struct {
	*slurmRun
	id string // of the coordinator
}

// newCoordinatedRun is newSlurmRun with keys of [slurm.coordinator].
func newCoordinatedRun(t *testing.T, o slurmlab.Options, n int, run, coordinator, task string) *coordinatedRun {
	t.Helper()
	return &coordinatedRun{slurmRun: newSlurmRun(t, o, n, run, "exclude = \"n4\"\n[slurm.coordinator]\nmemory = \"200MiB\"\nnodelist = \"n4\"\n"+coordinator, task)}
}

// submit begins the run.
func (r *coordinatedRun) submit(args ...string) {
	r.t.Helper()
	args = append([]string{"run", "job.toml", "--launcher", "slurm", "--run-dir", "run-there", "--coordinator", "job", "--parsable"}, append(args, r.places("there")...)...)
	cmd := r.lab.Command("alice", r.program, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	r.id = strings.TrimSuffix(string(out), "\n")
	if strings.Trim(r.id, "0123456789") != "" || r.id == "" {
		r.t.Fatalf("--parsable printed %q, want the id of a job and nothing else", out)
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("coordinator.log:\n%s", r.log())
			for _, f := range first2(filepath.Glob(filepath.Join(r.runDir(), "logs", "*"))) {
				r.t.Logf("%s:\n%s", filepath.Base(f), readFile(r.t, f))
			}
		}
	})
}

// says runs a command of alice's on the run, from this machine, which is no node.
func (r *coordinatedRun) says(status int, args ...string) string {
	r.t.Helper()
	text, got := aliceSays(r.t, r.lab, r.dir, r.program, args...)
	if got != status {
		r.t.Errorf("%v: status %d, want %d\n%s", args, got, status, text)
	}
	return text
}

func (r *coordinatedRun) log() string {
	text, _ := os.ReadFile(filepath.Join(r.runDir(), "coordinator.log"))
	return string(text)
}

// untilLife waits until the coordinator has been up n times.
func (r *coordinatedRun) untilLife(n int) {
	r.t.Helper()
	r.until("the coordinator is up once more", func() bool { return strings.Count(r.log(), "run directory: ") >= n })
}

// ofWorkers are the submissions of workers.
func (r *coordinatedRun) ofWorkers() []string {
	r.t.Helper()
	return slices.DeleteFunc(r.submissions(), func(s string) bool { return strings.HasSuffix(s, " "+r.id) })
}

// wantEnd waits for the end of the coordinator's job, and checks that nothing is left.
func (r *coordinatedRun) wantEnd(state string) {
	r.t.Helper()
	r.until("the run has ended", func() bool { return r.queue() == "" })
	if got := r.lab.Run("root", "squeue", "-h", "-t", "all", "-j", r.id, "-o", "%T"); got != state {
		r.t.Errorf("the job of the coordinator is %s, want %s", got, state)
	}
	r.wantNothingLeft()
}

func TestOnSlurmACoordinatorThatIsPreemptedGoesOnWithTheSameWorkers(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{}, 12, "", `partition = "low"`, "max_workers = 6")
	r.submit()
	r.untilBegun(7)
	look := r.start(r.lab.Command("alice", r.program, "attach", "run-there"))
	look.stderr.await(t, "6 running")
	submitted := r.ofWorkers()
	r.lab.Run("bob", "sbatch", "-p", "high", "-w", "n4", "-c", "4", "-o", "/dev/null", "--wrap", "sleep 3")
	r.untilLife(2)
	r.open()
	r.ends(look, 0)
	wantText(t, look.stderr.String(), "the coordinator is job "+r.id+" of Slurm, which waits in the queue")
	r.wantEnd("COMPLETED")
	if got := r.ofWorkers(); !slices.Equal(got, submitted) { // over the whole run, and no more
		t.Errorf("workers were submitted as %v, and are now %v", submitted, got)
	}
	r.wantRunsOnce()
	r.wantOneArrayEach()
	if got := r.accounted(); got != 6+2 {
		t.Errorf("%d starts are in the accounting, want those of 6 workers and 2 of the coordinator", got)
	}
	r.wantAsHere()
}

func TestOnSlurmACoordinatorOutlivesItsTimeLimit(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{}, 12, "", `time = "1m"`, "max_workers = 6")
	r.submit()
	r.untilBegun(7)
	submitted := r.ofWorkers()
	r.untilLife(3)
	if n := strings.Count(r.log(), "Slurm will soon end this job: the run goes on when job "+r.id+" starts again"); n != 2 {
		t.Errorf("it says %d times that it goes on later, want 2", n)
	}
	if got := r.ofWorkers(); !slices.Equal(got, submitted) {
		t.Errorf("workers were submitted as %v, and are now %v", submitted, got)
	}
	r.open()
	r.wantEnd("COMPLETED")
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmACoordinatorWhoseNodeFailsGoesOn(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{NoAccounting: true}, 12, "", "", "max_workers = 6")
	r.submit()
	r.untilBegun(7)
	submitted := r.ofWorkers()
	r.lab.KillNode(4, true)
	r.until("Slurm has put its job back into the queue", func() bool { return r.inState("PENDING") == 1 })
	r.lab.StartNode(4)
	r.untilLife(2)
	r.open()
	r.wantEnd("COMPLETED")
	if got := r.ofWorkers(); !slices.Equal(got, submitted) {
		t.Errorf("workers were submitted as %v, and are now %v", submitted, got)
	}
	r.wantRunsOnce()
	r.wantAsHere()
}

// The workers would have given up after 18 s, had they not been told to wait.
func TestOnSlurmWorkersKeepLongBlocksWhileTheCoordinatorIsAwayForAMinute(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{NoAccounting: true}, 7, "hint_after = \"10s\"\nabandon_after = \"20s\"", "", "max_workers = 6")
	r.submit()
	r.untilBegun(7)
	r.lab.Run("alice", "scontrol", "requeue", r.id)
	r.lab.Run("alice", "scontrol", "hold", r.id)
	r.until("the coordinator has stepped aside", func() bool { return strings.Contains(r.log(), "the run has not") })
	away := time.Now()
	r.until("its job is back in the queue", func() bool { return r.inState("COMPLETING") == 0 })
	wantText(t, r.says(0, "status", "run-there"), "the coordinator is job "+r.id+" of Slurm, which waits in the queue: you hold it", "(JobHeldUser)")
	text := r.says(2, "run", "--resume", "run-there")
	wantText(t, text, "the coordinator of the run in", "is job "+r.id, "end it first")
	time.Sleep(time.Until(away.Add(time.Minute)))
	r.lab.Run("alice", "scontrol", "release", r.id)
	r.untilLife(2)
	r.open()
	r.wantEnd("COMPLETED")
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmCancelEndsACoordinatorThatIsAJobAndItsWorkers(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{NoAccounting: true}, 24, "", "", "max_workers = 20")
	r.submit()
	r.untilQueued(13, 8) // 12 of the workers, as n4 is the coordinator's
	wantText(t, r.says(0, "cancel", "run-there"), "no more blocks are handed out")
	r.wantEnd("FAILED") // as the run, which ends with status 1
	wantText(t, r.says(0, "status", "run-there"), "stopped")
}

func TestOnSlurmCancelEndsWorkersWhoseCoordinatorIsInTheQueue(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{NoAccounting: true}, 24, "", "", "max_workers = 4")
	r.submit()
	r.untilBegun(5)
	r.lab.Run("alice", "scontrol", "requeue", r.id)
	r.until("its job is back in the queue", func() bool { return r.inState("PENDING") == 1 })
	wantText(t, r.says(0, "cancel", "run-there"), "which waits in the queue", "No job of the run is left")
	r.wantEnd("CANCELLED")
	// A second one, cancelled by hand in the queue, cannot tell its workers.
	r.says(0, "run", "--resume", "run-there", "--coordinator", "job")
	r.untilLife(2)
	r.until("workers run", func() bool { return r.inState("RUNNING") == 5 })
	id := strings.Fields(r.lab.Run("root", "squeue", "-h", "-w", "n4", "-u", "alice", "-o", "%i"))[0]
	r.lab.Run("alice", "scontrol", "requeue", id)
	r.until("its job is back in the queue", func() bool { return r.inState("PENDING") == 1 })
	r.lab.Run("alice", "scancel", id)
	r.says(3, "status", "run-there")
	wantText(t, r.says(0, "cancel", "run-there"), "which was cancelled", "No job of the run is left")
	r.wantNothingLeft()
}

func TestOnSlurmScancelOfTheCoordinatorEndsTheRun(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{NoAccounting: true}, 24, "grace = \"1s\"", "", "max_workers = 4")
	r.submit()
	r.untilBegun(5)
	r.lab.Run("alice", "scancel", r.id)
	r.wantEnd("CANCELLED")
	wantText(t, r.says(0, "status", "run-there"), "interrupted")
	r.open()
	// What is left is done by another coordinator, here.
	if text := r.says(0, "run", "--resume", "run-there"); !strings.Contains(text, "24 succeeded") {
		t.Errorf("the resume:\n%s", text)
	}
	r.wantNothingLeft()
}

func TestOnSlurmACoordinatorWaitsForAnotherJob(t *testing.T) {
	r := newCoordinatedRun(t, slurmlab.Options{NoAccounting: true}, 4, "", "", "max_workers = 4")
	r.open()
	before := r.lab.Run("alice", "sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true")
	r.submit("--after", before+":afterok")
	wantText(t, r.says(0, "status", "run-there"), "waits in the queue")
	r.until("Slurm has looked at it", func() bool { return strings.Contains(r.queue(), "Dependency") })
	wantText(t, r.says(0, "status", "run-there"), "it waits for another job (Dependency)")
	r.lab.Run("alice", "scontrol", "release", before)
	r.wantEnd("COMPLETED")
	wantText(t, r.says(2, "run", "job.toml", "--launcher", "slurm", "--coordinator", "job", "--set", "slurm.coordinator.partition=nope"), "nope")
	if left := first2(filepath.Glob(filepath.Join(r.dir, "runs", "*"))); len(left) != 0 {
		t.Errorf("of a coordinator that was refused there is left %v", left)
	}
	r.wantAsHere()
}
