package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/daisy/internal/jobfile"
	"example.org/daisy/launcher/launchertest"
	"example.org/daisy/launcher/slurm"
)

const slurmJob = `[run]
name = "segment"
launcher = "slurm"
[slurm]
partition = "cpu"
[[task]]
id = "a"
total = { offset = [0], shape = [100] }
block = { shape = [10] }
run = { command = ["true"] }
requires = { cpu = 2, memory = "1GiB", gpu = 1 }
slots = 2
max_workers = 6
[[task]]
id = "b"
after = ["a"]
total = { offset = [0], shape = [100] }
block = { shape = [10] }
run = { command = ["true"] }
max_workers = 8
[task.slurm]
partition = "gpu"
setup = "module load 'cuda'"
`

// slurmJobFile writes a job file, and fake commands of Slurm on PATH.
func slurmJobFile(t *testing.T, text string) (path string, fake *launchertest.Fake) {
	t.Helper()
	fake = launchertest.NewFake(t, "sbatch", "scontrol", "squeue", "scancel")
	fake.Say("scontrol", launchertest.Answer{Stdout: "KillWait                = 45 sec\n"})
	t.Setenv("PATH", fake.Dir+":"+os.Getenv("PATH"))
	t.Setenv("SLURM_JOB_ID", "7")
	path = filepath.Join(t.TempDir(), "job.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, fake
}

func TestRenderShowsTheCommandLineAndTheScript(t *testing.T) {
	path, fake := slurmJobFile(t, slurmJob)
	status, stdout, stderr := call("render", path, "--json")
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var got struct {
		Version     int
		Submissions []renderedTask
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != 1 || len(got.Submissions) != 2 {
		t.Fatalf("%s", stdout)
	}
	dir := filepath.Join(filepath.Dir(path), "runs", "segment-YYYY-MM-DDThh-mm-ss")
	a, b := got.Submissions[0], got.Submissions[1]
	want := []string{
		"sbatch", "--parsable", "--job-name=dz-xxxxxxxx-1", "--output=" + dir + "/logs/1.%a.log", "--open-mode=append", "--chdir=" + filepath.Dir(path), "--export=ALL", "--signal=B:USR1@105",
		"--nodes=1", "--ntasks=1", "--array=0-2", "--cpus-per-task=4", "--mem=2048M", "--gres=gpu:2", "--no-requeue", "--partition=cpu", dir + "/scripts/dz-xxxxxxxx-1.sbatch",
	}
	if !slices.Equal(a.Argv, want) {
		t.Errorf("command line\n %q\nwant\n %q", a.Argv, want)
	}
	if b.Workers != 4 || !slices.Contains(b.Argv, "--partition=gpu") || !strings.Contains(b.Script, "\nmodule load 'cuda'\n") {
		t.Errorf("task b: %+v", b)
	}
	if want := dir + "/bin/daisy-worker --slots 2 --run-dir " + dir; !strings.Contains(a.Script, want) {
		t.Errorf("the script lacks %q:\n%s", want, a.Script)
	}
	if slices.ContainsFunc(a.Environment, func(e string) bool { return strings.HasPrefix(e, "SLURM_JOB_ID") }) {
		t.Errorf("environment %q", a.Environment)
	}
	if n := len(fake.Calls("sbatch")); n != 0 {
		t.Errorf("sbatch was called %d times", n)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "runs")); err == nil {
		t.Error("something was written")
	}
}

// What people see can be pasted into a shell, which then runs the same command.
func TestTheShownCommandLineIsTheSameForAShell(t *testing.T) {
	path, fake := slurmJobFile(t, slurmJob)
	status, stdout, _ := call("render", path, "--task", "b", "--set", `task.b.slurm.options=["--comment=it's $HOME"]`)
	if status != exitOK || strings.Contains(stdout, "task a") {
		t.Fatalf("status %d: %s", status, stdout)
	}
	line := strings.Split(stdout, "\n")[1]
	if out, err := exec.Command("bash", "-c", line).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, stdout, _ = call("render", path, "--task", "b", "--json", "--set", `task.b.slurm.options=["--comment=it's $HOME"]`)
	var got struct{ Submissions []renderedTask }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if call := fake.Calls("sbatch")[0]; !slices.Equal(call.Args, got.Submissions[0].Argv[1:]) || !slices.Contains(call.Args, "--comment=it's $HOME") {
		t.Errorf("the shell ran %q\nwant %q", call.Args, got.Submissions[0].Argv[1:])
	}
}

func TestRenderRefusesWhatCannotBeSubmitted(t *testing.T) {
	path, fake := slurmJobFile(t, slurmJob)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{path, "--launcher", "local", "--set", "run.resources={cpu=8,memory='8GiB',gpu=8}"}, "submits nothing"},
		{[]string{path, "--task", "c"}, `no task "c"`},
		{[]string{path, "--set", `slurm.options=["--array=1-3"]`}, "--array=1-3 is reserved"},
		{[]string{path, "--set", "slurm.time=7"}, "no unit"},
		{[]string{path, "--set", "task.a.slurm.cluster=west"}, "write cluster in [slurm]"},
		{[]string{path, "--set", "task.b.slurm.gres=gpu:a100"}, "requires has no gpu"},
		{[]string{path, "--set", "task.b.slurm.template=none.tmpl"}, "there is no file " + filepath.Dir(path) + "/none.tmpl"},
	} {
		status, _, stderr := call(append([]string{"render"}, c.args...)...)
		if status != exitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: status %d, %s, want %q", c.args[1:], status, stderr, c.says)
		}
	}
	fake.Say("scontrol", launchertest.Answer{Status: 1, Stderr: "scontrol: error: no controller\n"})
	if status, stdout, stderr := call("render", path); status != exitOK || !strings.Contains(stdout, "USR1@90") || !strings.Contains(stderr, "by default") {
		t.Errorf("without a controller: status %d, %s", status, stderr)
	}
}

func TestTheJobFileHasTheKeysOfTheLauncher(t *testing.T) {
	var keys []string
	for _, k := range jobfile.Keys() {
		if k.Table == "slurm" && k.Name != "coordinator" {
			keys = append(keys, k.Name)
		}
	}
	slices.Sort(keys)
	if !slices.Equal(keys, slurm.Keys()) {
		t.Errorf("the job file has %q\nthe launcher %q", keys, slurm.Keys())
	}
}

func TestARunOnSlurmSaysLoudlyWhatIsMissing(t *testing.T) {
	path, _ := slurmJobFile(t, slurmJob)
	t.Setenv("PATH", "/bin:/usr/bin")
	if _, err := exec.LookPath("sbatch"); err == nil {
		empty := t.TempDir()
		for _, tool := range []string{"true"} {
			if err := os.Symlink("/bin/"+tool, filepath.Join(empty, tool)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", empty)
	}
	worker := filepath.Join(filepath.Dir(os.Args[0]), "daisy-worker")
	if err := os.WriteFile(worker, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(worker)
	status, _, stderr := call("run", path)
	if status != exitInfrastructure || !strings.Contains(stderr, `"sbatch"`) || !strings.Contains(stderr, "login node") {
		t.Errorf("status %d: %s", status, stderr)
	}
}
