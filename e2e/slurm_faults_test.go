package e2e

import (
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

func TestOnSlurmTheNextCoordinatorGoesOnWithTheSameWorkers(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 24, "", "", "max_workers = 20")
	s := r.begin()
	r.untilBegun(17)
	r.untilQueued(16, 4)
	submitted, begun := r.submissions(), r.begun()
	r.crash(s)
	s = r.resume()
	time.Sleep(3 * time.Second) // in which it could submit more
	r.crash(s)
	time.Sleep(15 * time.Second) // longer than workers are missed
	s = r.resumeElsewhere("--take-over")
	time.Sleep(10 * time.Second)
	r.wantSubmitted(len(submitted))
	if got := r.begun(); !maps.Equal(got, begun) {
		t.Errorf("blocks had begun as %v, and now %v", begun, got)
	}
	r.open()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantOneArrayEach()
	if got := r.accounted(); got > 20 {
		t.Errorf("%d elements in the accounting, want at most 20", got)
	}
	r.wantAsHere()
}

func TestOnSlurmAnInterruptLeavesNoJob(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 24, `grace = "1s"`, "", "max_workers = 20")
	s := r.begin()
	r.untilBegun(17)
	r.untilQueued(16, 4)
	s.signal(syscall.SIGINT)
	r.ends(s, 130)
	r.wantNothingLeft()
}

// waitsForGo is an sbatch that waits until the test lets it go.
const waitsForGo = `if [ ! -e "$TOLD.once" ]; then : >"$TOLD.once"; while [ ! -e "$TOLD" ]; do sleep 0.1; done; fi; exec "$REAL" "$@"`

// beginsUnanswered begins a run whose first sbatch has asked a controller that stands still.
func (r *slurmRun) beginsUnanswered() *submit {
	r.t.Helper()
	told := r.wrap("sbatch", waitsForGo)
	s := r.begin()
	r.until("sbatch runs", func() bool { return exists(told + ".once") })
	r.lab.Signal("slurmctld", syscall.SIGSTOP)
	writeFile(r.t, told, "")
	time.Sleep(2 * time.Second) // the request is with the controller, and nothing shows it
	return s
}

func TestOnSlurmAnAnswerThatCameTooLateIsFoundAndNotAskedForAgain(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 12, "", "", "max_workers = 4")
	s := r.beginsUnanswered()
	s.stderr.await(t, "it is not known whether submission 1 was accepted")
	r.lab.Signal("slurmctld", syscall.SIGCONT)
	r.open()
	r.ends(s, 0)
	r.wantSubmitted(1)
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmASubmissionWhoseCoordinatorWasKilledIsFoundByTheNext(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 12, "", "", "max_workers = 4")
	s := r.beginsUnanswered()
	r.crash(s)
	s = r.resume()
	time.Sleep(3 * time.Second)
	r.lab.Signal("slurmctld", syscall.SIGCONT)
	r.open()
	r.ends(s, 0)
	r.wantSubmitted(1)
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmOfTwoArraysUnderOneNameOneGetsBlocks(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 24, "", "", "max_workers = 4")
	r.wrap("sbatch", `"$REAL" "$@" >"$TOLD"; exec "$REAL" "$@"`)
	s := r.begin()
	s.stderr.await(t, "is a second array of submission 1")
	r.untilBegun(5)
	r.until("the twin is cancelled", func() bool { return r.inState("RUNNING") == 4 })
	r.open()
	r.ends(s, 0)
	arrays := map[string]string{} // of jobs
	for line := range strings.Lines(r.lab.Run("root", "squeue", "-h", "-r", "-t", "all", "-u", "alice", "-o", "%A %F") + "\n") {
		job, array, _ := strings.Cut(strings.TrimSpace(line), " ")
		arrays[job] = array
	}
	served := map[string]bool{}
	for _, by := range r.begun() {
		served[arrays[strings.Fields(by)[1]]] = true
	}
	if len(served) != 1 {
		t.Errorf("blocks went to the arrays %v, want one", served)
	}
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmTheBlocksOfANodeWithoutPowerRunElsewhere(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "", "max_workers = 6")
	s := r.begin()
	r.untilBegun(7)
	r.lab.KillNode(int(r.nodeOf()[1]-'0'), true)
	r.open()
	r.ends(s, 0)
	r.wantOneArrayEach()
	r.wantAsHere()
}

func TestOnSlurmJobsThatOutliveTheirSlurmdKeepTheirBlocks(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "", "max_workers = 6")
	s := r.begin()
	r.untilBegun(7)
	submitted := r.submissions()
	r.lab.KillNode(int(r.nodeOf()[1]-'0'), false)
	r.until("Slurm has given the node up", func() bool { return r.inState("RUNNING") == 2 })
	time.Sleep(10 * time.Second) // in which the run could ask for others
	r.wantSubmitted(len(submitted))
	r.open()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantAsHere()
}

func TestOnSlurmANodeOnWhichNoWorkerStartsIsLeftAlone(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 150, "", `setup = '[ "$SLURMD_NODENAME" != n2 ] || exit 3'`, "max_workers = 120")
	s := r.begin()
	r.untilBegun(13)
	s.stderr.await(t, "n2")
	r.until("pending elements keep off n2", func() bool {
		return strings.Contains(r.lab.Run("root", "squeue", "-h", "-t", "pending", "-u", "alice", "-o", "%x"), "n2")
	})
	if text := s.stderr.String(); strings.Contains(text, "cannot be kept off") {
		t.Errorf("Slurm lets pending elements be kept off nodes, and it says:\n%s", text)
	}
	r.open()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantAsHere()
}

// preempted has the workers on one node make room for another's job.
func preempted(t *testing.T, slurm string) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, slurm, "max_workers = 6\nmax_retries = 0")
	s := r.begin()
	r.untilBegun(7)
	r.lab.Run("bob", "sbatch", "-p", "high", "-w", r.nodeOf(), "-c", "4", "-o", "/dev/null", "--wrap", "sleep 3")
	r.until("bob's job has run", func() bool {
		return r.lab.Run("bob", "squeue", "-h", "-t", "completed", "-u", "bob", "-o", "%T") != ""
	})
	r.open()
	r.ends(s, 0)
	r.wantOneArrayEach()
	r.wantAsHere()
}

func TestOnSlurmPreemptionCostsNoAttemptWherePreemptedJobsEnd(t *testing.T) {
	preempted(t, `partition = "lowc"`)
}

func TestOnSlurmPreemptionCostsNoAttemptWhereOthersAreRequeued(t *testing.T) {
	preempted(t, `partition = "low"`)
}

func TestOnSlurmPreemptionCostsNoAttemptWhereJobsAreRequeued(t *testing.T) {
	preempted(t, "partition = \"low\"\nrequeue = true")
}
