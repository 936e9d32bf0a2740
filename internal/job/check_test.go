package job_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

var laptop = job.Machine{Cores: 8, MemoryBytes: 16 << 30, GPUs: 1}

// sound is a job of a Go program with these tasks, one after the other.
func sound(t *testing.T, ids ...string) *job.Job {
	t.Helper()
	block := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(10)}
	grid, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(30)}, Read: block, Write: block})
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{Name: "program", Launcher: "local"}
	for i, id := range ids {
		task := job.Task{
			ID: id, Grid: grid, Runner: job.Runner{Kind: job.RunnerFunc, Func: func() {}}, Requires: scheduler.NewResources(map[string]int64{"cpu": 1000}),
			Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10,
		}
		if i > 0 {
			task.After = []string{ids[i-1]}
		}
		j.Tasks = append(j.Tasks, task)
	}
	return j
}

func TestASoundJobOfAProgramHasNoErrorsAndAPipeline(t *testing.T) {
	j := sound(t, "a", "b", "c")
	if errs := j.Check(laptop); len(errs) != 0 {
		t.Fatal(errs)
	}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]scheduler.Edge{{Upstream: "a", Downstream: "b"}, {Upstream: "b", Downstream: "c"}}, p.Edges()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if j.Task("b") != &j.Tasks[1] || j.Task("x") != nil {
		t.Error("tasks are not found by id")
	}
}

func TestEveryErrorOfAProgramsJobIsSaidAtOnce(t *testing.T) {
	j := sound(t, "a", "b")
	j.Name, j.Launcher, j.PortLow, j.PortHigh, j.MaxFailures = "", "cloud", 5, 4, -1
	j.Tasks[0].Grid, j.Tasks[0].After = nil, []string{"b", "a"}
	j.Tasks[0].Runner = job.Runner{}
	b := &j.Tasks[1]
	b.Runner.Func, b.Slots, b.MaxRetries, b.MaxLost, b.Timeout, b.RetryBackoff = nil, 0, -1, 0, -1, -1
	b.Env = []string{"=x", "A=\x00"}
	b.Requires = scheduler.NewResources(map[string]int64{"memory": -1})
	want := []string{
		`run: name: empty; allowed are 1 to 64 letters a-z and A-Z, digits, "_", "-" and ".", beginning with a letter, a digit or "_"`,
		`run: launcher: unknown launcher "cloud"; allowed are "local", "serial" and "slurm"`,
		`run: port: 5-4 is no range of ports; ports are 0 to 65535, the lower one first`,
		`run: max_failures: -1 is below 0; 0 is no limit`,
		`task "a": grid: no blocks are described`,
		`task "a": run: missing; allowed are { command = [..] }, a process for each block, { stream = [..] }, a process for each slot, { python = "module:function" }, { daisy = [..] }, a worker script of daisy 2, and { clients = "daisy" }, scripts that you start yourself`,
		`task "b": run: the function is nil`,
		`task "b": slots: 0 is too small; allowed is 1 or more`,
		`task "b": max_retries: -1 is too small; allowed is 0 or more`,
		`task "b": max_lost: 0 is too small; allowed is 1 or more`,
		`task "b": timeout: -1ns is negative; "0s" is no timeout`,
		`task "b": retry_backoff: -1ns is negative; "0s" is no pause`,
		`task "b": env.: a variable has no name; allowed are letters, digits and "_"`,
		`task "b": env.A: the value has a NUL character, which no environment can hold`,
		`task "a": after: the task comes after itself; name other tasks only`,
		`task "a": after: tasks wait for each other in a cycle: a after b after a; take one of these links out`,
		`task "b": requires.memory: memory is negative; allowed is 0 or more`,
	}
	var got []string
	for _, err := range j.Check(laptop) {
		got = append(got, err.Error())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestAJobWithoutTasksIsRefused(t *testing.T) {
	errs := sound(t).Check(laptop)
	if len(errs) != 1 || errs[0].Error() != "run: no task; a job has at least one" {
		t.Error(errs)
	}
}

func TestTheBudgetIsThatOfTheMachineUnlessItIsGiven(t *testing.T) {
	j := sound(t, "a")
	if got, want := j.Budget(laptop).String(), "cpu=8 gpu=1 memory=16GiB"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	j.Resources, j.HasResources = scheduler.NewResources(map[string]int64{"cpu": 64000}), true
	if got, want := j.Budget(laptop).String(), "cpu=64"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if errs := j.Check(laptop); len(errs) != 0 || len(j.Warnings) != 1 || !strings.Contains(j.Warnings[0], "cpu = 64 is more than this machine has (8)") {
		t.Errorf("errors %v, warnings %q", errs, j.Warnings)
	}
}

func TestUnknownMemoryBoundsNothing(t *testing.T) {
	j := sound(t, "a")
	j.Tasks[0].Requires = scheduler.NewResources(map[string]int64{"cpu": 1000, "memory": 1 << 40})
	if errs := j.Check(job.Machine{Cores: 8}); len(errs) != 0 {
		t.Error(errs)
	}
}

func TestTheNearestNameIsSuggested(t *testing.T) {
	names := []string{"max_workers", "max_retries", "timeout", "fit"}
	for name, want := range map[string]string{
		"max_worker": `; did you mean "max_workers"?`,
		"timeuot":    `; did you mean "timeout"?`,
		"TIMEOUT":    `; did you mean "timeout"?`,
		"foo":        `; allowed are "max_workers", "max_retries", "timeout" and "fit"`,
		"":           `; allowed are "max_workers", "max_retries", "timeout" and "fit"`,
	} {
		if got := job.Nearest(name, names); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

func TestMemoryIsComparedInTheLargestUnitInWhichItStillDiffers(t *testing.T) {
	const machine = 15*1<<30 + 600<<20 + 4<<10
	for _, c := range []struct {
		need int64
		want string
	}{
		{64 << 30, "memory = 64GiB, and this machine has 15.6GiB"},
		{machine + 1<<10, "memory = 16343045KiB, and this machine has 16343044KiB"},
	} {
		j := sound(t, "a")
		j.Tasks[0].Requires = scheduler.NewResources(map[string]int64{"memory": c.need})
		errs := j.Check(job.Machine{Cores: 8, MemoryBytes: machine})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("got %v, want %q", errs, c.want)
		}
	}
}

func TestTheMemoryOfAGoFunctionCannotBeEnforced(t *testing.T) {
	for kind, want := range map[job.RunnerKind]bool{job.RunnerFunc: true, job.RunnerCommand: false} {
		j := &job.Job{Tasks: []job.Task{{ID: "a", EnforceMemory: true, Runner: job.Runner{Kind: kind}, Requires: scheduler.NewResources(map[string]int64{"memory": 1 << 30})}}}
		said := false
		for _, err := range j.Check(job.Machine{}) {
			said = said || strings.Contains(err.Error(), `task "a": enforce_memory: the memory of a Go function cannot be limited`)
		}
		if said != want {
			t.Errorf("%v: it is said %v, want %v", kind, said, want)
		}
	}
}
