package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

func testLauncher(t *testing.T) *Launcher {
	t.Helper()
	l, err := New(Config{Run: "abcd2345", Dir: "/run/scripts", Base: "/job", Env: []string{"PATH=/bin", "SLURM_JOB_ID=3", "SBATCH_PARTITION=x"}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheCoordinatorIsOneJobThatMayBeRequeued(t *testing.T) {
	l := testLauncher(t)
	o, faults, warnings := ParseCoordinator(map[string][]string{
		"cpu": {"2"}, "memory": {"3GiB"}, "time": {"2d"}, "away": {"90m"}, "partition": {"long"}, "account": {"lab"}, "prefix": {"p"}, "exclude": {"n1", "n2"}, "setup": {"module load x"}, "options": {"--mail-type=END"},
	})
	if len(faults)+len(warnings) > 0 {
		t.Fatalf("%v %v", faults, warnings)
	}
	if o.Away != 90*time.Minute {
		t.Errorf("away is %v", o.Away)
	}
	s, err := l.PlanCoordinator(&o, []string{"/run/bin/daisy-submit", "run", "--resume", "/run/it's"}, "/job", "/run/100%.log", []string{"afterok:7", "afterany:8"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"sbatch", "--parsable", "--job-name=p-dz-abcd2345", "--output=/run/100%%.log", "--open-mode=append", "--chdir=/job", "--export=ALL", "--signal=B:USR1@60", "--nodes=1", "--ntasks=1",
		"--cpus-per-task=2", "--mem=3072M", "--requeue", "--time=2-00:00:00", "--partition=long", "--account=lab", "--exclude=n1,n2", "--dependency=afterok:7,afterany:8", "--kill-on-invalid-dep=yes",
		"--mail-type=END", "/run/scripts/coordinator.sbatch",
	}
	if d := cmp.Diff(want, s.Argv); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := cmp.Diff([]string{"PATH=/bin"}, s.Env); d != "" {
		t.Errorf("environment (-want +got)\n%s", d)
	}
	for _, part := range []string{"\ntrap '' USR1\n", "\nmodule load x\n", "\nexec /run/bin/daisy-submit run --resume \"/run/it's\"\n"} {
		if !strings.Contains(string(s.Script), part) {
			t.Errorf("there is no %q in\n%s", part, s.Script)
		}
	}
	if _, ours := tagOf(s.Name, "abcd2345"); ours {
		t.Error("the coordinator is taken for a submission of workers, and would be cancelled as one")
	}
}

func TestWhatIsWrongWithTheOptionsOfACoordinatorIsSaid(t *testing.T) {
	given := map[string][]string{"cpu": {"0"}, "memory": {"1MiB"}, "away": {"7"}, "time": {"7"}, "partition": {"a b"}}
	_, faults, _ := ParseCoordinator(given)
	var keys []string
	for _, f := range faults {
		keys = append(keys, f.Key)
	}
	slices.Sort(keys)
	if want := []string{"away", "cpu", "memory", "partition", "time"}; !slices.Equal(keys, want) {
		t.Errorf("faults of %q, want %q: %v", keys, want, faults)
	}
}

func TestTheJobOfACoordinatorIsFoundByItsName(t *testing.T) {
	l := testLauncher(t)
	row := func(id, state, start, node, name, reason string) string {
		return rowBegin + strings.Join([]string{id, state, start, node, name, reason}, "|") + rowEnd + "\n"
	}
	of := row("90", "PENDING", "N/A", "", "dz-other234", "Priority") + row("92", "RUNNING", "1700000000", "n2", "dz-abcd2345-1", "None")
	if j, err := l.parseCoordinator("Welcome to the cluster\n" + of); j != nil || err != nil {
		t.Errorf("found %+v, %v", j, err)
	}
	for name, tc := range map[string]struct {
		rows string
		want CoordinatorJob
	}{
		"waits":       {row("7", "PENDING", "1700000000", "", "dz-abcd2345", "Priority"), CoordinatorJob{ID: "7", Name: "dz-abcd2345", State: launcher.Pending, Word: "PENDING", Plain: "waits in the queue", Reason: launcher.Reason{Word: "Priority", Plain: "other jobs go first"}, Start: time.Unix(1700000000, 0)}},
		"runs":        {row("7", "RUNNING", "1700000000", "n2", "p-dz-abcd2345", "None"), CoordinatorJob{ID: "7", Name: "p-dz-abcd2345", State: launcher.Running, Word: "RUNNING", Plain: "runs", Node: "n2", Start: time.Unix(1700000000, 0)}},
		"the live":    {row("7", "PENDING", "N/A", "", "dz-abcd2345", "None") + row("8", "CANCELLED", "N/A", "", "dz-abcd2345", "None"), CoordinatorJob{ID: "7", Name: "dz-abcd2345", State: launcher.Pending, Word: "PENDING", Plain: "waits in the queue"}},
		"or the last": {row("9", "FAILED", "N/A", "n1", "dz-abcd2345", "None") + row("10", "CANCELLED", "N/A", "n1", "dz-abcd2345", "None"), CoordinatorJob{ID: "10", Name: "dz-abcd2345", State: launcher.Ended, Word: "CANCELLED", Plain: "was cancelled", Node: "n1"}},
	} {
		j, err := l.parseCoordinator(of + tc.rows)
		if j == nil {
			t.Errorf("%s: none is found: %v", name, err)
		} else if d := cmp.Diff(tc.want, *j); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
}

// TestAnAnswerThatIsNotWholeIsNoAbsenceOfACoordinator: of a run without one the directory may be removed, and anybody may resume it.
func TestAnAnswerThatIsNotWholeIsNoAbsenceOfACoordinator(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for _, a := range []launchertest.Answer{
		{Stdout: "daisy|7|RUNN"}, {Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}, {Status: 1},
	} {
		fake.Say("squeue", a)
		if j, err := l.FindCoordinator(t.Context()); err == nil {
			t.Errorf("%+v: %+v and no error", a, j)
		}
	}
	fake.Say("squeue", launchertest.Answer{Stdout: "CLUSTER: west\n"})
	if j, err := l.FindCoordinator(t.Context()); j != nil || err != nil {
		t.Errorf("an empty queue: %+v, %v", j, err)
	}
}

// TestOnlyAJobWithTheNameOfTheCoordinatorIsCancelledAsOne: its id may have been given to another job since.
func TestOnlyAJobWithTheNameOfTheCoordinatorIsCancelledAsOne(t *testing.T) {
	l, fake := faked(t, 0, all...)
	for _, bad := range [][2]string{{"x", "dz-" + aRun}, {"7", "dz-" + aRun + "-3"}, {"7", ""}} {
		if err := l.CancelCoordinator(t.Context(), bad[0], bad[1]); err == nil || len(fake.Calls("scancel")) > 0 {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := l.CancelCoordinator(t.Context(), "7", "p-dz-"+aRun); err != nil {
		t.Fatal(err)
	}
	if got, want := fake.Calls("scancel")[0].Args, []string{"-u", l.user, "-n", "p-dz-" + aRun, "7"}; !slices.Equal(got, want) {
		t.Errorf("scancel %q, want %q", got, want)
	}
}

// As Slurm 22.05 said it on SIGTERM.
func TestWhyAJobIsToldToEnd(t *testing.T) {
	const answer = "JobId=3 JobName=p.sbatch UserId=alice(1001) JobState=COMPLETING Reason=%s Dependency=(null) Requeue=1 Restarts=%d BatchFlag=1 ExitCode=0:0 RunTime=00:01:14 TimeLimit=00:01:00"
	for _, tc := range []struct {
		reason         string
		says, restarts int
		want           EndReason
	}{
		{"None", 0, 0, EndWanted}, {"None", 2, 2, EndWanted}, {"None", 1, 0, EndRequeued}, {"None", 3, 2, EndRequeued}, {"TimeLimit", 1, 1, EndTimeLimit},
	} {
		if got := whyEnds(fmt.Sprintf(answer, tc.reason, tc.says), tc.restarts); got != tc.want {
			t.Errorf("Reason=%s Restarts=%d after %d restarts: %v, want %v", tc.reason, tc.says, tc.restarts, got, tc.want)
		}
	}
	if got := whyEnds("slurm_load_jobs error: Invalid job id specified", 0); got != EndWanted {
		t.Errorf("without an answer: %v", got)
	}
}
