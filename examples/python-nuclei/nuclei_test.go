package nuclei

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

// The steps of README.md, in a folder of their own.
func TestTheResultIsThatOfTheReference(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs packages")
	}
	root := t.TempDir()
	dir := filepath.Join(root, "python-nuclei")
	for _, folder := range []string{dir, filepath.Join(root, "nuclei")} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"data", "reference.json"} {
		original, err := filepath.Abs(filepath.Join("..", "nuclei", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(original, filepath.Join(root, "nuclei", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"nuclei.toml", "nuclei.py", "requirements.txt"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	python := filepath.Join(dir, ".venv", "bin", "python")
	if out, err := run("python3", "-m", "venv", ".venv"); err != nil {
		testenv.Unavailable(t, fmt.Sprintf("python3 -m venv: %v\n%s", err, out))
	}
	if out, err := run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"); err != nil {
		testenv.Unavailable(t, fmt.Sprintf("pip install numpy and zarr: %v\n%s", err, out))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", root+"/bin/", "example.org/daisy/cmd/daisy-submit", "example.org/daisy/cmd/daisy-worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}

	for _, step := range [][]string{{python, "nuclei.py", "prepare"}, {filepath.Join(root, "bin", "daisy-submit"), "run", "nuclei.toml", "--set", "run.tracking=tracking"}} {
		if out, err := run(step[0], step[1:]...); err != nil {
			t.Fatalf("%v: %v\n%s", step, err, out)
		}
	}
	out, err := run(python, "nuclei.py", "verify")
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(string(readme), "    "+line) {
			t.Errorf("README.md does not say %q", line)
		}
	}
	if n := strings.Count(out, "\n"); n != 3 {
		t.Errorf("got %d lines, want 3:\n%s", n, out)
	}

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tracking.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, reads, found := strings.Cut(string(page), "```python\n")
	reads, _, closed := strings.Cut(reads, "```")
	if !found || !closed {
		t.Fatal("docs/tracking.md shows no program")
	}
	out, err = run(python, "-W", "error", "-c", reads)
	if err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("what docs/tracking.md reads: %v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(string(page), "    "+line) {
			t.Errorf("docs/tracking.md does not say %q", line)
		}
	}
}
