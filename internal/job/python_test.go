package job_test

import (
	"strings"
	"testing"

	"example.org/daisy/internal/job"
)

func TestAReferenceIsTakenApartAtItsLastColon(t *testing.T) {
	for ref, want := range map[string]struct {
		target, function string
		isFile           bool
	}{
		"m:f":            {"m", "f", false},
		"a.b:C.f":        {"a.b", "C.f", false},
		"/x/y:z/f.py:g":  {"/x/y:z/f.py", "g", true},
		"f.py":           {"f.py", "", true},
		"f":              {"f", "", false},
		"a.pyc:function": {"a.pyc", "function", false},
	} {
		target, function, isFile := job.SplitReference(ref)
		if target != want.target || function != want.function || isFile != want.isFile {
			t.Errorf("%s: got %q %q %v", ref, target, function, isFile)
		}
	}
}

func TestAnotherPythonFunctionIsAnotherJob(t *testing.T) {
	task := func(python string) *job.Job {
		j := sound(t, "a")
		j.Tasks[0].Runner = job.Runner{Kind: job.RunnerPython, Argv: []string{"python3"}, Python: python}
		return j
	}
	if changes := task("m:f").Changes(task("m:f")); changes != nil {
		t.Errorf("got %v", changes)
	}
	if changes := task("m:f").Changes(task("m:g")); len(changes) != 1 || changes[0] != `task "a": run was { python = "m:f", interpreter = "python3" }, and is { python = "m:g", interpreter = "python3" } now` {
		t.Errorf("got %v", changes)
	}
	other := task("m:f")
	other.Tasks[0].Runner.Block = "daisy"
	if changes := task("m:f").Changes(other); len(changes) != 1 || !strings.HasSuffix(changes[0], `, and is { python = "m:f", interpreter = "python3", block = "daisy" } now`) {
		t.Errorf("got %v", changes)
	}
}
