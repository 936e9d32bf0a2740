package nuclei

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/testenv"
)

// programs are daisy-submit and daisy-worker.
func programs(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "example.org/daisy/cmd/daisy-submit", "example.org/daisy/cmd/daisy-worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	return bin
}

// folder makes the folders of the examples in root, beside bin with the programs, and gives that of this one, whose .venv is that of python.
func folder(t *testing.T, root, bin, python string) string {
	t.Helper()
	dir := filepath.Join(root, "daisy-nuclei")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	must(os.MkdirAll(filepath.Join(root, "nuclei"), 0o755))
	must(os.CopyFS(filepath.Join(root, "nuclei", "data"), os.DirFS("../nuclei/data")))
	must(os.CopyFS(filepath.Join(root, "sdk"), os.DirFS("../../sdk")))
	for from, to := range map[string]string{
		"../nuclei/reference.json": "nuclei/reference.json", "pipeline.py": "daisy-nuclei/pipeline.py", "steps.py": "daisy-nuclei/steps.py", "worker.py": "daisy-nuclei/worker.py",
		"nuclei.toml": "daisy-nuclei/nuclei.toml",
	} {
		text, err := os.ReadFile(from)
		must(err)
		must(os.WriteFile(filepath.Join(root, to), text, 0o644))
	}
	must(os.Symlink(filepath.Dir(filepath.Dir(python)), filepath.Join(dir, ".venv")))
	must(os.Symlink(bin, filepath.Join(root, "bin")))
	return dir
}

// variables are those that daisy_submit needs where nobody has installed it.
func variables(root string) []string {
	return []string{"PYTHONPATH=" + filepath.Join(root, "sdk", "python"), "DAISY_SUBMIT=" + filepath.Join(root, "bin", "daisy-submit")}
}

func TestEveryWayOfRunningThePipelineGivesTheReferenceAndTheSameCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs packages")
	}
	python := testenv.Python(t, testenv.Daisy, "zarr==3.1.6", "numpy")
	bin := programs(t)
	for name, command := range map[string][]string{
		"daisy, functions":             {python, "pipeline.py", "run"},
		"daisy, worker scripts":        {python, "pipeline.py", "run", "--scripts"},
		"daisy-submit, worker scripts": {"../bin/daisy-submit", "run", "nuclei.toml", "--run-dir", "out/run"},
		"daisy_submit, functions":      {python, "pipeline.py", "submit"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := folder(t, root, bin, python)
			run := func(args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), variables(root)...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			run(python, "pipeline.py", "prepare")
			counts := run(command...)
			if command[0] != python {
				counts = counted(t, filepath.Join(dir, "out", "run"))
			}
			wantSaid(t, counts+run(python, "pipeline.py", "verify"))
		})
	}
}

// counted are the counts of a run of daisy-submit in the words of pipeline.py.
func counted(t *testing.T, runDirectory string) (lines string) {
	t.Helper()
	var stats api.Stats
	text, err := os.ReadFile(filepath.Join(runDirectory, "stats.json"))
	if err == nil {
		err = json.Unmarshal(text, &stats)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stats.Tasks {
		lines += fmt.Sprintf("%s: %d of %d blocks done, %d failed, %d orphaned\n", s.ID, s.Success+s.Skipped, s.Blocks, s.Failed, s.Orphaned)
	}
	return lines
}

// wantSaid compares what a run and verify print with README.md.
func wantSaid(t *testing.T, got string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for line := range strings.Lines(string(text)) {
		if shown, ok := strings.CutPrefix(line, "    "); ok {
			want += shown
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was said (-README.md +got):\n%s", diff)
	}
}
