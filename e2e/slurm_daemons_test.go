package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

// Daemons of Slurm that die, stand still, forget or lie while a run goes on.

// wantUndisturbed checks that nothing was submitted since, and that all goes on where it was.
func (r *slurmRun) wantUndisturbed(s *submit, submitted []string) {
	r.t.Helper()
	r.wantSubmitted(len(submitted))
	r.open()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantOneArrayEach()
	r.wantAsHere()
}

func TestOnSlurmWorkersGoOnWithoutAController(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 24, `hint_after = "4s"`, "", "max_workers = 20")
	s := r.begin()
	r.untilBegun(17)
	r.untilQueued(16, 4)
	submitted, begun := r.submissions(), r.begun()
	time.Sleep(7 * time.Second) // until then the controller has written nothing down
	r.lab.Signal("slurmctld", syscall.SIGKILL)
	time.Sleep(20 * time.Second)
	if got := r.begun(); !maps.Equal(got, begun) {
		t.Errorf("blocks had begun as %v, and now %v", begun, got)
	}
	r.lab.Up()
	time.Sleep(6 * time.Second)
	r.wantUndisturbed(s, submitted)
}

func TestOnSlurmIdsThatWereGivenToOthersAreNotTouched(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "", "max_workers = 4")
	s := r.begin()
	r.untilBegun(5)
	r.lab.Signal("slurmctld", syscall.SIGKILL)
	time.Sleep(200 * time.Millisecond)
	state, err := filepath.Glob(filepath.Join(r.lab.Dir, "state", "*job*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range state {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	r.lab.Up()
	var theirs []string
	for range 6 {
		theirs = append(theirs, r.lab.Run("bob", "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300"))
	}
	if theirs[0] != "1" {
		t.Fatalf("bob got the jobs %v, want ids that alice had", theirs)
	}
	r.open()
	r.ends(s, 0)
	for line := range strings.Lines(r.lab.Run("root", "squeue", "-h", "-t", "all", "-u", "bob", "-o", "%A %T") + "\n") {
		if strings.Contains(line, "CANCELLED") {
			t.Errorf("a job of bob's is %s", line)
		}
	}
	r.wantAsHere()
}

func TestOnSlurmTheAccountingMayGoAway(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 12, `hint_after = "4s"`, "", "max_workers = 4\nmax_retries = 0")
	s := r.begin()
	r.untilBegun(5)
	r.lab.Signal("slurmdbd", syscall.SIGKILL)
	r.lab.Run("root", "scancel", r.jobOf("running")) // only the accounting knows by whom
	r.until("it is gone", func() bool { return r.inState("RUNNING") == 3 })
	time.Sleep(time.Second)
	r.open()
	r.ends(s, 0)
	r.wantOneArrayEach()
	r.wantAsHere()
}

func TestOnSlurmWorkersGoOnWithoutMunge(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 12, `hint_after = "4s"`, "", "max_workers = 4")
	s := r.begin()
	r.untilBegun(5)
	submitted := r.submissions()
	r.lab.Signal("munged", syscall.SIGSTOP)
	time.Sleep(40 * time.Second) // longer than a command may take
	r.lab.Signal("munged", syscall.SIGCONT)
	time.Sleep(5 * time.Second)
	r.wantUndisturbed(s, submitted)
}

// liesOfSqueue is a squeue that answers as it is told.
const liesOfSqueue = `how=$(cat "$TOLD" 2>/dev/null)
[ -z "$how" ] || echo >>"$TOLD.asked"
case $how in
nothing) exit 0 ;;
hangs) sleep 1000 ;;
ended) "$REAL" "$@" | sed 's/RUNNING/COMPLETED/' ;;
cancelled) "$REAL" "$@" | sed 's/PENDING/CANCELLED/' ;;
unknown) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
*) exec "$REAL" "$@" ;;
esac`

// lying has squeue lie for some answers while all workers are alive.
func lying(t *testing.T, how string, answers int) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 24, `hint_after = "4s"`, "", "max_workers = 20")
	told := r.wrap("squeue", liesOfSqueue)
	s := r.begin()
	r.untilBegun(17)
	r.untilQueued(16, 4)
	submitted, begun := r.submissions(), r.begun()
	writeFile(t, told+".asked", "")
	writeFile(t, told, how)
	for _, path := range []string{told, told + ".asked"} {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r.until("squeue was asked", func() bool { return strings.Count(readFile(t, told+".asked"), "\n") >= answers })
	if how == "hangs" {
		time.Sleep(35 * time.Second)
	} else {
		time.Sleep(time.Second)
	}
	writeFile(t, told, "")
	if got := r.begun(); !maps.Equal(got, begun) {
		t.Errorf("blocks had begun as %v, and now %v", begun, got)
	}
	time.Sleep(3 * time.Second)
	r.wantUndisturbed(s, submitted)
}

func TestOnSlurmASqueueThatHangsIsNotBelieved(t *testing.T)           { lying(t, "hangs", 1) }
func TestOnSlurmASqueueThatSaysNothingIsNotBelieved(t *testing.T)     { lying(t, "nothing", 3) }
func TestOnSlurmASqueueThatSaysAllHasEndedIsNotBelieved(t *testing.T) { lying(t, "ended", 3) }
func TestOnSlurmASqueueThatSaysPendingJobsAreCancelledIsNotBelieved(t *testing.T) {
	lying(t, "cancelled", 3)
}
func TestOnSlurmASqueueThatKnowsNoJobIsNotBelieved(t *testing.T) { lying(t, "unknown", 2) }
