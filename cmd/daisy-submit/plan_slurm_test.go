package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/launcher/launchertest"
)

// planned is what plan says of slurmJob, whose worker is a program beside the job file.
func planned(t *testing.T, text string, args ...string) (plan, int, string, *launchertest.Fake) {
	t.Helper()
	path, fake := slurmJobFile(t, text)
	worker := program(t, "daisy-worker", "true")
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(worker))
	fake.Say("sbatch", launchertest.Answer{Stderr: "sbatch: Job 3 to start at 1796043952 using 4 processors on nodes n3 in partition gpu\n"})
	status, stdout, stderr := call(append([]string{"plan", path, "--json"}, args...)...)
	var p plan
	if stdout != "" {
		if err := json.Unmarshal([]byte(stdout), &p); err != nil {
			t.Fatal(err)
		}
	}
	return p, status, stderr, fake
}

func TestThePlanSaysWhatWorkersAskOfSlurm(t *testing.T) {
	text := strings.Replace(slurmJob, "[slurm]", "[slurm]\ntime = \"90m\"", 1)
	text = strings.Replace(text, "slots = 2\n", "slots = 2\ntimeout = \"30m\"\nmax_retries = 2\n", 1)
	p, status, stderr, fake := planned(t, text)
	if status != exitOK || len(p.Slurm) != 2 {
		t.Fatalf("status %d: %+v\n%s", status, p, stderr)
	}
	a, b := p.Slurm[0], p.Slurm[1]
	if a.Workers != 3 || a.First != 3 || !a.Arrays || a.Cores != 4 || a.MemoryBytes != 2<<30 || a.GPUs != 2 || *a.TimeSeconds != 5400 {
		t.Errorf("a: %+v", a)
	}
	// 3 workers of 4 cores for 1.5 h; 10 blocks tried 3 times for half an hour on 2 cores each.
	if *a.CoreHours != 18 || *a.BlockCoreHours != 30 {
		t.Errorf("a: %v and %v core-hours", *a.CoreHours, *a.BlockCoreHours)
	}
	if b.Workers != 8 || b.First != 4 || b.Cores != 1 || *b.CoreHours != 12 || b.Forecast != nil {
		t.Errorf("b: %+v", b)
	}
	if n := len(fake.Calls("sbatch")); n != 0 {
		t.Errorf("sbatch was called %d times unasked", n)
	}
	path, _ := slurmJobFile(t, text)
	_, stdout, _ := call("plan", path)
	for _, want := range []string{"3 in an array", "4 cores, 2GiB, 2 GPUs", "1h30m", "all at once: 20 cores, and 30 core-hours"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
}

func TestThePlanShowsTheWorstCaseOfWorkersThatFill(t *testing.T) {
	text := strings.Replace(slurmJob, "[slurm]", "[slurm]\ntime = \"90m\"", 1)
	text = strings.Replace(text, "slots = 2\n", "slots = \"fill\"\n", 1)
	p, status, stderr, _ := planned(t, text)
	if status != exitOK {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	// A slot for each worker: 6 of 2 cores for 1.5 h, as nobody knows yet what they are given.
	if a := p.Slurm[0]; !a.Fill || a.Workers != 6 || a.Cores != 2 || *a.CoreHours != 18 || p.Slurm[1].Fill {
		t.Errorf("%+v", a)
	}
	p, _, _, _ = planned(t, text, "--test-only")
	if a := p.Slurm[0]; a.Workers != 6 || *a.Forecast.Cores != 4 || *a.CoreHours != 36 {
		t.Errorf("where Slurm gives 4 cores: %+v, %v core-hours", a, *a.CoreHours)
	}
	path, _ := slurmJobFile(t, text)
	_, stdout, _ := call("plan", path)
	for _, want := range []string{"2 cores, 1GiB, 1 GPU, and fills what it is given", "a fills: that many workers, with one slot each, is the most there can be", "--test-only"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
}

func TestThePlanAsksSlurmOnceForEachKindOfWorker(t *testing.T) {
	same := slurmJob + "[[task]]\nid = \"c\"\nafter = [\"b\"]\ntotal = { offset = [0], shape = [100] }\nblock = { shape = [10] }\nrun = { command = [\"true\"] }\nmax_workers = 2\n[task.slurm]\npartition = \"gpu\"\nsetup = \"module load 'cuda'\"\n"
	p, status, stderr, fake := planned(t, same, "--test-only")
	if status != exitOK || len(p.Slurm) != 3 {
		t.Fatalf("status %d: %+v\n%s", status, p, stderr)
	}
	calls := fake.Calls("sbatch")
	if len(calls) != 2 || calls[0].Args[0] != "--test-only" {
		t.Errorf("calls %v", calls)
	}
	if f := p.Slurm[2].Forecast; f == nil || f.Start == nil || *f.Cores != 4 || *f.Nodes != "n3" || *f.Partition != "gpu" {
		t.Errorf("%+v", f)
	}
}

func TestThePlanFailsWhereSlurmWouldRefuse(t *testing.T) {
	path, fake := slurmJobFile(t, slurmJob)
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(program(t, "daisy-worker", "true")))
	fake.Say("sbatch", launchertest.Answer{Stderr: "allocation failure: Invalid partition name specified\n", Status: 1})
	status, stdout, stderr := call("plan", path, "--test-only")
	if status != exitUsage || !strings.Contains(stderr, `task "b": Slurm would refuse its workers: Invalid partition name specified: there is no such partition`) || !strings.Contains(stdout, "none: Invalid partition") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	fake.Say("sbatch", launchertest.Answer{Stderr: "allocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", Status: 1})
	if status, stdout, stderr = call("plan", path, "--test-only"); status != exitOK || !strings.Contains(stdout, "none: Job violates") {
		t.Errorf("a refusal that may pass: status %d\n%s%s", status, stdout, stderr)
	}
	fake.Say("scontrol", launchertest.Answer{Stderr: "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n", Status: 1})
	if status, _, stderr = call("plan", path, "--test-only"); status != exitInfrastructure || !strings.Contains(stderr, "Unable to contact") {
		t.Errorf("without a controller: status %d\n%s", status, stderr)
	}
	if status, _, stderr = call("plan", writeJob(t, oneBlock), "--test-only"); status != exitUsage || !strings.Contains(stderr, "--launcher slurm") {
		t.Errorf("of a local run: status %d\n%s", status, stderr)
	}
}

func TestHoursBeyondAllNumbersAreNotNegative(t *testing.T) {
	for hours, want := range map[float64]string{0: "0", 0.2: "1", 12345.1: "12,346", 7.2e25: "7.2e+25"} {
		if got := wholeHours(hours); got != want {
			t.Errorf("%g hours are %s, want %s", hours, got, want)
		}
	}
}
