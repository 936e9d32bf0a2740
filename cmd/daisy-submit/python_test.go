package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

// pythonJob writes a job of two Python tasks, whose functions are in predict.py beside it.
func pythonJob(t *testing.T, first, second, interpreter string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		testenv.Unavailable(t, err.Error())
	}
	path := writeJob(t, fmt.Sprintf(`[run]
launcher = "serial"
[[task]]
id = "first"
total = { offset = [0], shape = [3] }
block = { shape = [1] }
run = { python = %[1]q%[3]s }
env = { MINE = "yes", PYTHONDONTWRITEBYTECODE = "1" }
[[task]]
id = "second"
total = { offset = [0], shape = [3] }
block = { shape = [1] }
run = { python = %[2]q%[3]s }
env = { MINE = "yes", PYTHONDONTWRITEBYTECODE = "1" }
`, first, second, interpreter))
	code := "import os\nassert os.environ['MINE'] == 'yes' and os.path.exists('job.toml')\ndef work(block): open(f'done-{block.task}-{block.block}', 'w').close()\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "predict.py"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPythonFunctionsThatCannotBeImportedAreRefusedBeforeAnythingStarts(t *testing.T) {
	path := pythonJob(t, "predict:wrok", "predct.py:work", "")
	for _, command := range []string{"plan", "run"} {
		status, _, stderr := call(command, path)
		// The file is missing for certain, so nothing is imported.
		want := path + `:13: task "second": run.python: there is no file ` + filepath.Dir(path) + `/predct.py; paths are relative to the job file; did you mean "predict.py"?`
		if status != exitUsage || !strings.Contains(stderr, want) || strings.Contains(stderr, "wrok") {
			t.Errorf("%s: status %d\n%s\nwant\n%s", command, status, stderr, want)
		}
	}
	path = pythonJob(t, "predict:wrok", "predict:work", "")
	for _, command := range []string{"plan", "run"} {
		status, _, stderr := call(command, path)
		want := path + `:7: task "first": run.python: ` + filepath.Dir(path) + `/predict.py has no wrok; did you mean "work"?`
		if status != exitUsage || !strings.Contains(stderr, want) || strings.Contains(stderr, "second") {
			t.Errorf("%s: status %d\n%s\nwant\n%s", command, status, stderr, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 2 {
		t.Errorf("something was started, or a run directory made: %v", left)
	}
}

func TestPythonFunctionsAreImportedByPlanAndRunByRun(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", "/home/ada/venv")
	t.Setenv("CONDA_PREFIX", "")
	path := pythonJob(t, "predict:work", "predict.py:work", "")
	want := regexp.MustCompile(`warning: task "first": run.python: VIRTUAL_ENV says that /home/ada/venv is active, but \S+ \(Python \S+\) is not its`)
	if text := planText(t, path); !want.MatchString(text) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	status, _, stderr := call("run", path)
	if status != exitOK || !want.MatchString(stderr) {
		t.Errorf("status %d\n%s", status, stderr)
	}
	if done, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "done-*")); len(done) != 6 {
		t.Errorf("done: %v", done)
	}

	found, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	path = pythonJob(t, "predict:work", "predict.py:work", fmt.Sprintf(", interpreter = %q", found))
	if text := planText(t, path); strings.Contains(text, "VIRTUAL_ENV") {
		t.Errorf("whoever names an interpreter is warned of it:\n%s", text)
	}
}
