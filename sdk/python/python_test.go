package python

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

func TestTheModuleKeepsItsPromises(t *testing.T) {
	python := python3(t)
	out, err := exec.CommandContext(t.Context(), python, "-B", "-W", "error", "-m", "unittest", "-v", "test_daisy_worker").CombinedOutput()
	if err != nil || strings.Contains(string(out), "Ran 0 tests") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The module as people get it: installed into a virtual environment from a copy of this folder, since building leaves files in it.
func TestTheInstalledModuleKeepsTheProtocol(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs a package")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run(python3(t), "-m", "venv", filepath.Join(dir, "venv")); err != nil {
		testenv.Unavailable(t, fmt.Sprintf("python3 -m venv: %v\n%s", err, out))
	}
	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, "venv", "bin", "python")
	if out, err := run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", source); err != nil {
		testenv.Unavailable(t, fmt.Sprintf("pip install ./sdk/python: %v\n%s", err, out))
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "```python\nimport daisy_worker\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("docs/programs.md shows no program with daisy_worker")
	}
	program := filepath.Join(dir, "program.py")
	text := "import daisy_worker\n\ndef work(read, write):\n    print(read, write)\n" + example
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	worker := filepath.Join(dir, "daisy-worker")
	if out, err := run("go", "build", "-o", worker, "example.org/daisy/cmd/daisy-worker"); err != nil {
		t.Fatalf("building daisy-worker: %v\n%s", err, out)
	}
	out, err := run(worker, "conformance", "--", python, program)
	if err != nil || !strings.Contains(out, "\n11 passed, 0 failed\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func python3(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		testenv.Unavailable(t, err.Error())
	}
	return path
}
