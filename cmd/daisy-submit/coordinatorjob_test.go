package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

func TestRenderShowsTheCoordinatorThatIsAJob(t *testing.T) {
	path, fake := slurmJobFile(t, strings.Replace(slurmJob, "[slurm]\n", "[slurm]\naccount = \"lab\"\nprefix = \"p\"\n", 1))
	status, stdout, stderr := call("render", path, "--coordinator", "job")
	if status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for _, want := range []string{"#### the coordinator, as the job p-dz-xxxxxxxx\n", "'--account=lab'", "--requeue", "'--mem=2048M'", "'DAISY_COORDINATOR=job' ", "bin/daisy-submit run --resume ", "#### task a: "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
	head, _, _ := strings.Cut(stdout, "#### task a")
	if strings.Contains(head, "--partition") {
		t.Errorf("the tasks differ in their partition, and the coordinator has one of theirs:\n%s", head)
	}
	if calls := fake.Calls("sbatch"); len(calls) > 0 {
		t.Errorf("it was submitted: %v", calls)
	}
	if _, stdout, _ := call("render", path); strings.Contains(stdout, "the coordinator") {
		t.Error("it is shown without being asked for")
	}
	path, _ = slurmJobFile(t, strings.Replace(slurmJob, "[slurm]\n", "[slurm]\ncoordinator = { partition = \"long\", cpu = 2 }\n", 1))
	if _, stdout, _ := call("render", path); !strings.Contains(stdout, "'--partition=long'") || !strings.Contains(stdout, "'--cpus-per-task=2'") {
		t.Errorf("its own table is not followed:\n%s", stdout)
	}
}

func TestDependenciesOfACoordinator(t *testing.T) {
	for given, want := range map[string]string{"7": "afterany:7", "7:afterok": "afterok:7", "7_3:afternotok": "afternotok:7_3", "7:after": "after:7"} {
		if got, err := dependencyOf(given); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", given, got, err, want)
		}
	}
	for _, given := range []string{"", "x", "7:ok", "afterok:7", "7,8", "7:", "-7", "7?afterok:8"} {
		var wrong *statusError
		if got, err := dependencyOf(given); !errors.As(err, &wrong) || wrong.status != exitUsage {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
}

// queuedRun is a run directory whose coordinator is job 7.
func queuedRun(t *testing.T) *rundir.Dir {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "segment", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dir.WriteJob([]byte("x")), dir.WriteCoordinatorJob(rundir.CoordinatorJob{Job: "7", Submitted: time.Now()})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// rowOfSqueue is a row as squeue writes it where it is asked for a coordinator.
func rowOfSqueue(fields string) string { return "daisy|" + fields + "|$\n" }

func fakeQueue(t *testing.T) *launchertest.Fake {
	t.Helper()
	fake := launchertest.NewFake(t, "squeue", "scancel", "sbatch", "scontrol")
	t.Setenv("PATH", fake.Dir+":"+os.Getenv("PATH"))
	return fake
}

func TestStatusOfARunWhoseCoordinatorIsInTheQueue(t *testing.T) {
	dir := queuedRun(t)
	name := "|dz-" + dir.RunID() + "|"
	for say, tc := range map[string]struct {
		answer launchertest.Answer
		status int
		words  []string
	}{
		"pending": {launchertest.Answer{Stdout: rowOfSqueue("7|PENDING|N/A|" + name + "Priority")}, exitOK, []string{"the coordinator is job 7 of Slurm, which waits in the queue: other jobs go first (Priority)", "cancel"}},
		"running": {launchertest.Answer{Stdout: rowOfSqueue("7|RUNNING|N/A|n2" + name + "None")}, exitOK, []string{"the coordinator is job 7 of Slurm, which runs on n2"}},
		"ended":   {launchertest.Answer{Stdout: rowOfSqueue("7|TIMEOUT|N/A|n2" + name + "None")}, exitInfrastructure, []string{"job 7 of Slurm, which was ended at its time limit", "run --resume " + dir.Path() + " --coordinator job"}},
		"gone":    {launchertest.Answer{Stdout: ""}, exitInfrastructure, []string{"job 7 of Slurm, which it does not know any more"}},
		"silent":  {launchertest.Answer{Status: 1, Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}, exitInfrastructure, []string{"job 7 of Slurm, of which nothing is known now", "Unable to contact"}},
	} {
		fakeQueue(t).Say("squeue", tc.answer)
		status, stdout, stderr := call("status", dir.Path())
		if status != tc.status {
			t.Errorf("%s: status %d, want %d\n%s%s", say, status, tc.status, stdout, stderr)
		}
		for _, want := range tc.words {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: there is no %q in\n%s%s", say, want, stdout, stderr)
			}
		}
	}
}

// Else the job would take the run over from whoever has resumed it, when it starts.
func TestARunIsNotResumedWhileItsCoordinatorIsInTheQueue(t *testing.T) {
	dir := queuedRun(t)
	for _, answer := range []launchertest.Answer{
		{Stdout: rowOfSqueue("7|PENDING|N/A||dz-" + dir.RunID() + "|Priority")}, {Status: 1, Stderr: "Unable to contact slurm controller\n"},
		{Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}, {Stdout: "daisy|7|PENDI"},
	} {
		fakeQueue(t).Say("squeue", answer)
		var wrong *statusError
		if err := checkNoCoordinatorJob(t.Context(), dir, false); !errors.As(err, &wrong) || wrong.status != exitUsage {
			t.Errorf("%v", err)
		}
	}
	fakeQueue(t).Say("squeue", launchertest.Answer{Stdout: rowOfSqueue("7|CANCELLED|N/A||dz-" + dir.RunID() + "|None")})
	if err := checkNoCoordinatorJob(t.Context(), dir, false); err != nil {
		t.Error(err)
	}
	if j, err := dir.CoordinatorJob(); j != nil || err != nil {
		t.Errorf("it still has %+v, %v", j, err)
	}
}

// A second job of the run, or one that is left of an earlier resume, must not coordinate it.
func TestOnlyTheJobThatTheRunDirectoryNamesCoordinatesTheRun(t *testing.T) {
	defer func(d time.Duration) { notedWithin = d }(notedWithin)
	notedWithin = 100 * time.Millisecond
	dir := queuedRun(t)
	if err := dir.WriteCoordinatorJob(rundir.CoordinatorJob{Job: "7", Set: []string{"task.a.timeout"}}); err != nil {
		t.Fatal(err)
	}
	r := jobRun{life: &jobLife{id: "7"}}
	if err := r.takesUp(dir); err != nil || len(r.set) != 1 {
		t.Errorf("%v, with the limits %q", err, r.set)
	}
	r = jobRun{life: &jobLife{id: "7", restarts: 1}}
	if err := r.takesUp(dir); err != nil || len(r.set) != 0 {
		t.Errorf("started again: %v, with the limits %q, which may have been changed since", err, r.set)
	}
	r = jobRun{life: &jobLife{id: "8"}}
	if err := r.takesUp(dir); err == nil || !strings.Contains(err.Error(), "is job 7: this job, 8, is not wanted") {
		t.Errorf("another job: %v", err)
	}
	if err := dir.ForgetCoordinatorJob(); err != nil {
		t.Fatal(err)
	}
	if err := r.takesUp(dir); err == nil {
		t.Error("a job takes up a run that has none")
	}
}

func TestASubmissionOfACoordinatorThatIsNotAnsweredIsLookedFor(t *testing.T) {
	defer func(d []time.Duration) { unsureFor = d }(unsureFor)
	unsureFor = []time.Duration{0, time.Millisecond, time.Millisecond}
	dir := queuedRun(t)
	for say, tc := range map[string]struct {
		answer launchertest.Answer
		id     string
	}{
		"is there":        {launchertest.Answer{Then: "printf '" + rowOfSqueue("9|PENDING|N/A||dz-"+dir.RunID()+"|None") + "' >\"$own/stdout\""}, "9"},
		"is not there":    {launchertest.Answer{}, ""},
		"only an old one": {launchertest.Answer{Stdout: rowOfSqueue("7|FAILED|N/A||dz-" + dir.RunID() + "|None")}, ""},
	} {
		fakeQueue(t).Say("squeue", tc.answer)
		l, err := slurmOf(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		id, err := lookFor(t.Context(), l, launcher.ErrUnsure)
		if id != tc.id || (err == nil) != (tc.id != "") {
			t.Errorf("%s: %q, %v", say, id, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir.Path(), "coordinator.json")); err != nil {
		t.Error(err)
	}
}

// full is an output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// The run is in the hands of its coordinator then, which gives its blocks their grace.
func TestACancelThatTheCoordinatorHasHeardEndsNoJobThoughNobodyCanBeToldOfIt(t *testing.T) {
	dir := queuedRun(t)
	secret, err := dir.Secret()
	if err != nil {
		t.Fatal(err)
	}
	heard := 0
	coordinator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard++
		text, _ := json.Marshal(api.Done{Version: api.ControlVersion, Message: "it ends"})
		w.Header().Set(api.HeaderProof, api.Key{Run: dir.RunID(), Secret: secret}.ProveAnswer(r, http.StatusOK, text))
		_, _ = w.Write(text)
	}))
	defer coordinator.Close()
	if err := dir.WriteDiscovery(rundir.Discovery{Epoch: 1, Addresses: []string{coordinator.Listener.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	fake := fakeQueue(t)
	fake.Say("squeue", launchertest.Answer{Stdout: rowOfSqueue("7|RUNNING|N/A|n2|dz-" + dir.RunID() + "|None")})
	var errs output
	if status := run([]string{"daisy-submit", "cancel", dir.Path()}, full{}, &errs); status != exitInfrastructure || heard != 1 {
		t.Errorf("status %d, heard %d times: %s", status, heard, errs.text.String())
	}
	if asked := append(fake.Calls("squeue"), fake.Calls("scancel")...); len(asked) > 0 {
		t.Errorf("Slurm is asked %v", asked)
	}
}

func TestARunWhoseCoordinatorIsInTheQueueIsNotRemoved(t *testing.T) {
	dir := queuedRun(t)
	folder := filepath.Dir(dir.Path())
	for _, answer := range []launchertest.Answer{
		{Stdout: rowOfSqueue("7|PENDING|N/A||dz-" + dir.RunID() + "|Priority")}, {Status: 1, Stderr: "Unable to contact slurm controller\n"},
		{Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}, {Stdout: "daisy|7|PENDI"},
	} {
		fakeQueue(t).Say("squeue", answer)
		status, stdout, stderr := call("runs", folder, "--prune", "--unfinished", "--yes")
		if status != exitOK || !strings.Contains(stdout, "There is nothing to remove") {
			t.Errorf("status %d: %s%s", status, stdout, stderr)
		}
		if _, stdout, _ = call("runs", folder); !strings.Contains(stdout, "queued") {
			t.Errorf("its state:\n%s", stdout)
		}
	}
	fakeQueue(t).Say("squeue", launchertest.Answer{})
	if status, stdout, stderr := call("runs", folder, "--prune", "--unfinished", "--yes"); status != exitOK || exists(dir.Path()) {
		t.Errorf("of a job that is gone: status %d: %s%s", status, stdout, stderr)
	}
}

// TestTheEndOfACoordinatorIsAskedForGently: a second signal would end its run without the grace of its blocks.
func TestTheEndOfACoordinatorIsAskedForGently(t *testing.T) {
	for name, tc := range map[string]struct {
		ends           time.Duration
		cancels, looks int
		fails          string
	}{
		"it waits in the queue": {0, 1, 1, ""},
		"it ends in order":      {30 * time.Second, 1, 10, ""},
		"it does not end":       {time.Hour, 3, 30, "it runs after 2m"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, cancels, looks := time.Now(), 0, 0
				err := awaitEnd(t.Context(), func() error {
					cancels++
					return nil
				}, func() (bool, string, error) {
					looks++
					return time.Since(begun) >= tc.ends, "runs", nil
				})
				if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
					t.Error(err)
				}
				if took := time.Since(begun); cancels != tc.cancels || looks > tc.looks || took > min(tc.ends, endPatience)+endLast {
					t.Errorf("after %v: cancelled %d times and looked at %d times, want %d and at most %d", took, cancels, looks, tc.cancels, tc.looks)
				}
			})
		})
	}
	silent := errors.New("Slurm does not answer")
	synctest.Test(t, func(t *testing.T) {
		err := awaitEnd(t.Context(), func() error { return nil }, func() (bool, string, error) { return false, "", silent })
		if !errors.Is(err, silent) {
			t.Error(err)
		}
	})
}

// TestARunThatWasLeftToSlurmStaysThoughNobodyCanBeToldOfIt: its coordinator, in the queue by then, would find no run.
func TestARunThatWasLeftToSlurmStaysThoughNobodyCanBeToldOfIt(t *testing.T) {
	fake := aSite(t)
	fake.Say("sbatch", launchertest.Answer{Stdout: "7\n"})
	worker := program(t, "daisy-worker", "echo daisy-worker")
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(worker))
	folder := t.TempDir()
	path, where := filepath.Join(folder, "job.toml"), filepath.Join(folder, "there")
	if err := os.WriteFile(path, []byte(ofTask("cpu = 1")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--parsable"}} {
		var errs output
		dir := where + strings.Join(args, "")
		status := run(append([]string{"daisy-submit", "run", path, "--run-dir", dir, "--coordinator", "job"}, args...), full{}, &errs)
		if status != exitInfrastructure || len(fake.Calls("sbatch")) == 0 {
			t.Fatalf("status %d: %s", status, errs.text.String())
		}
		if d, err := rundir.Open(dir); err != nil {
			t.Errorf("%v: the run is gone: %v\n%s", args, err, errs.text.String())
		} else if j, err := d.CoordinatorJob(); err != nil || j == nil || j.Job != "7" {
			t.Errorf("%v: its coordinator is %+v, %v", args, j, err)
		}
	}
}
