package main

import (
	"fmt"
	"strings"
	"testing"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
)

// jobOf loads a job with the resources of [run] and tasks of 1,000 blocks with these keys each.
func jobOf(t *testing.T, run string, tasks ...string) *job.Job {
	t.Helper()
	text := "[run]\n" + run + "\n"
	for i, keys := range tasks {
		text += fmt.Sprintf("[[task]]\nid = \"t%d\"\ntotal = { offset = [0], shape = [1000] }\nblock = { shape = [1] }\nrun = { command = [\"true\"] }\n%s\n", i, keys)
	}
	j, err := jobfile.Load(writeJob(t, text), nil, jobfile.Options{Machine: machine()})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestNoMoreWorkersAreCountedThanThereCanBeAtOnce(t *testing.T) {
	for _, c := range []struct {
		run   string
		tasks []string
		want  int64
	}{
		{"resources = { cpu = 40 }", []string{""}, 40},
		{"resources = { cpu = 40 }", []string{"slots = 4"}, 10},
		{"resources = { cpu = 40 }", []string{"max_workers = 7"}, 7},
		{"resources = { cpu = 40 }", []string{"slots = 4\nmax_workers = 7"}, 1},
		{"resources = { cpu = 5000 }", []string{""}, 1000},          // there are no more blocks
		{"resources = { cpu = 5000 }", []string{"slots = 300"}, 4},  // the last one has blocks for a part of its slots
		{"resources = { cpu = 40 }", []string{"", ""}, 40},          // they share
		{"resources = { cpu = 40 }", []string{"", "slots = 2"}, 40}, // the second has none while the first has all
		{"resources = { cpu = 40 }", []string{"max_workers = 7", "max_workers = 8"}, 15},
		{"resources = { cpu = 40, gpu = 2 }", []string{"", "requires = { cpu = 0, gpu = 1 }"}, 42},
		{"resources = { cpu = 40, gpu = 2 }", []string{"", "requires = { cpu = 1, gpu = 1 }"}, 40},
	} {
		j := jobOf(t, c.run, c.tasks...)
		if got := mostWorkers(j, j.Budget(machine())); got != c.want {
			t.Errorf("%s, tasks %q: %d workers, want %d", c.run, c.tasks, got, c.want)
		}
	}
}

func TestAJobThatNeedsMoreOpenFilesThanAllowedIsRefused(t *testing.T) {
	many := jobOf(t, "resources = { cpu = 40 }", "")
	for limit, fits := range map[uint64]bool{1 << 63: true, 156: true, 155: false} {
		err := checkFileLimit(many, many.Budget(machine()), limit)
		if (err == nil) != fits {
			t.Errorf("with %d open files: %v", limit, err)
		}
		for _, part := range []string{"40 workers at once", "needs 156 open files", "limit is 155", "ulimit -n 157", "allow 39 workers"} {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("there is no %q in: %v", part, err)
			}
		}
	}
	wide := jobOf(t, "resources = { cpu = 100 }", "slots = 100")
	if err := checkFileLimit(wide, wide.Budget(machine()), 831); err == nil || !strings.Contains(err.Error(), `task "t0": a worker with 100 slots needs 832 open files`) {
		t.Errorf("a worker with 100 slots and 831 open files: %v", err)
	}
	many.Launcher = "serial"
	if err := checkFileLimit(many, many.Budget(machine()), 155); err != nil {
		t.Errorf("one block at a time: %v", err)
	}
}

func TestKeepingWhatBlocksUseTakesOpenFilesWhereThereIsTracking(t *testing.T) {
	for run, need := range map[string]string{"tracking = \"t\"": "needs 163 open files", "": "needs 156 open files"} {
		j := jobOf(t, "resources = { cpu = 40 }\n"+run, "resource_tracking = true")
		if err := checkFileLimit(j, j.Budget(machine()), 100); err == nil || !strings.Contains(err.Error(), need) {
			t.Errorf("%q: there is no %q in: %v", run, need, err)
		}
	}
}
