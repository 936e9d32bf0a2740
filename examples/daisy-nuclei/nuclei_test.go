package nuclei

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/testenv"
)

// folder makes the folders of the examples in root, with the programs in root/bin, and gives that of this one.
func folder(t *testing.T, root string) string {
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
	} {
		text, err := os.ReadFile(from)
		must(err)
		must(os.WriteFile(filepath.Join(root, to), text, 0o644))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", root+"/bin/", "example.org/daisy/cmd/daisy-submit", "example.org/daisy/cmd/daisy-worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
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
	for name, command := range map[string][]string{
		"daisy, functions":        {"pipeline.py", "run"},
		"daisy, worker scripts":   {"pipeline.py", "run", "--scripts"},
		"daisy_submit, functions": {"pipeline.py", "submit"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := folder(t, root)
			run := func(args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), python, args...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), variables(root)...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			run("pipeline.py", "prepare")
			counts := run(command...)
			wantSaid(t, counts+run("pipeline.py", "verify"))
		})
	}
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
