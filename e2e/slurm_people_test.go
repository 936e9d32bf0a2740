package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

// aliceSays runs one of alice's commands in the folder of her job and gives its output and exit status.
func aliceSays(t *testing.T, lab *slurmlab.Lab, dir, program string, args ...string) (string, int) {
	t.Helper()
	cmd := lab.Command("alice", program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestOnSlurmTheDoctorAndThePlanKnowWhatTheClusterGives(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{})
	const task = `[[task]]
id = "a"
total = { offset = [0], shape = [40] }
block = { shape = [4] }
run = { command = ["true"] }
requires = { cpu = 2, memory = "1GiB", gpu = 1 }
max_workers = 3
`
	dir, program := aliceHome(t, lab, "[run]\nlauncher = \"slurm\"\n"+task+"[task.slurm]\npartition = \"gpu\"\ntime = \"10m\"\n")
	text, status := aliceSays(t, lab, dir, program, "doctor", "job.toml", "--probe", "--json")
	var d struct {
		Checks []struct{ Check, State, Found string }
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil || status != 0 {
		t.Fatalf("status %d: %v\n%s", status, err, text)
	}
	got := map[string]string{}
	for _, c := range d.Checks {
		got[c.Check] = c.State + ": " + c.Found
	}
	for check, want := range map[string]string{
		"controller": "ok: Slurmctld(primary)", "munge": "ok: works", "accounts": "ok: acc (QOS", "MaxArraySize": "ok: 101", "task a: partition": "ok: gpu", "task a: time": "ok: 10m",
		"task a: nodes": "ok: 2 nodes with 2 cores, 1GiB, 1 GPU", "task a: architecture": "ok: ", "probe of a": "ok: a job ran on n", "probe of a: program": "ok: daisy-worker version", "probe of a: addresses": "ok: reached ", "nodes submit": "ok: n",
	} {
		if !strings.HasPrefix(got[check], want) {
			t.Errorf("%s: %q, want %q", check, got[check], want)
		}
	}
	text, status = aliceSays(t, lab, dir, program, "plan", "job.toml", "--test-only")
	wantText(t, text, "3 in an array", "2 cores, 1GiB, 1 GPU", "in gpu, 2 CPUs")
	if status != 0 {
		t.Errorf("plan: status %d", status)
	}
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte("[run]\nlauncher = \"slurm\"\n"+task+"[task.slurm]\npartition = \"short\"\naccount = \"nope\"\ntime = \"10m\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text, status = aliceSays(t, lab, dir, program, "doctor", "job.toml")
	wantText(t, text, "nope: you may not use that account", "10m, but partition short gives 5m")
	if status != 3 {
		t.Errorf("doctor of what cannot run: status %d", status)
	}
	text, status = aliceSays(t, lab, dir, program, "plan", "job.toml", "--test-only")
	wantText(t, text, "Slurm would refuse its workers: Invalid account")
	if status != 2 {
		t.Errorf("plan of what cannot run: status %d", status)
	}
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".daisy-doctor-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestOnSlurmStatusSaysWhyJobsWaitInSlurmsWordsAndOurs(t *testing.T) {
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true})
	dir, program := aliceHome(t, lab, `[run]
launcher = "slurm"
[[task]]
id = "a"
total = { offset = [0], shape = [40] }
block = { shape = [4] }
run = { command = ["sleep", "600"] }
requires = { cpu = 4 }
max_workers = 6
[task.slurm]
partition = "short"
time = "4m"
`)
	// So that not all first workers start at once.
	hog := lab.Run("alice", "sbatch", "--parsable", "-p", "cpu", "-w", "n1", "-c", "4", "--wrap=sleep 600")
	cmd := lab.Command("alice", program, "run", "job.toml", "--run-dir", "run")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	text := ""
	for begun := time.Now(); ; time.Sleep(300 * time.Millisecond) {
		text, _ = aliceSays(t, lab, dir, program, "status", "run")
		if words := strings.Join(strings.Fields(text), " "); strings.Contains(words, "a 3 running - on n") && strings.Contains(words, "a 1 pending Resources it waits for free nodes") {
			break
		}
		if time.Since(begun) > patience {
			t.Fatalf("status never says why jobs wait:\n%s", text)
		}
	}
	if text, _ = aliceSays(t, lab, dir, program, "workers", "run"); !strings.Contains(text, "_0") || !strings.Contains(text, "time left") {
		t.Errorf("workers say nothing of their jobs:\n%s", text)
	}
	lab.Run("alice", "scancel", hog)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if left := processesOf(lab, "alice"); len(left) > 0 {
		t.Errorf("processes of alice are left: %q", left)
	}
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
}
