package python

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
	"example.org/daisy/internal/version"
)

func TestThePackageHasTheVersionOfTheProgram(t *testing.T) {
	for file, pattern := range map[string]string{"pyproject.toml": `(?m)^version = "(.*)"$`, "daisy_submit/__init__.py": `(?m)^__version__ = "(.*)"$`} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(pattern).FindSubmatch(text); found == nil || string(found[1]) != version.Version {
			t.Errorf("%s: got %s, want %s", file, found, version.Version)
		}
	}
}

// shell runs programs in one folder, without what would show the sources to Python.
type shell struct{ dir string }

func (s shell) run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = s.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DAISY_SUBMIT=") && !strings.HasPrefix(kv, "PYTHONPATH=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s shell) must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := s.run(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The package as people get it: a wheel in a new virtual environment, first without daisy, then with it. All of test_daisy_submit.py runs
// with that, from another folder.
func TestTheWheelIsAllThatAUserInstalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs and installs packages")
	}
	platform := map[string]string{"linux/amd64": "linux-x86_64", "linux/arm64": "linux-aarch64", "darwin/amd64": "macos-x86_64", "darwin/arm64": "macos-arm64"}[runtime.GOOS+"/"+runtime.GOARCH]
	if platform == "" {
		t.Skip("there is no wheel for this machine")
	}
	s := shell{t.TempDir()}
	python := python3(t)
	if _, err := s.run(t, python, "-c", "import tomllib"); err != nil {
		testenv.Unavailable(t, "making wheels needs Python 3.11")
	}
	script, err := filepath.Abs(filepath.Join("..", "..", "scripts", "wheel.py"))
	if err != nil {
		t.Fatal(err)
	}
	wheel := strings.TrimSpace(s.must(t, python, script, "-o", filepath.Join(s.dir, "dist"), platform))
	once, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	s.must(t, python, script, "-o", filepath.Join(s.dir, "again"), platform)
	twice, err := os.ReadFile(filepath.Join(s.dir, "again", filepath.Base(wheel)))
	if err != nil || sha256.Sum256(once) != sha256.Sum256(twice) {
		t.Errorf("equal sources made different wheels (%v)", err)
	}

	if out, err := s.run(t, python, "-m", "venv", "venv"); err != nil {
		testenv.Unavailable(t, fmt.Sprintf("python3 -m venv: %v\n%s", err, out))
	}
	bin := filepath.Join(s.dir, "venv", "bin")
	python = filepath.Join(bin, "python")
	s.must(t, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
	for _, program := range []string{"daisy-submit", "daisy-worker"} {
		if out := s.must(t, filepath.Join(bin, program), "--version"); !strings.Contains(out, version.Version) {
			t.Errorf("%s --version: %s", program, out)
		}
	}
	copyFile(t, "test_daisy_submit.py", filepath.Join(s.dir, "test_daisy_submit.py"))
	copyFile(t, filepath.Join("..", "..", "scheduler", "testdata", "golden", "blocks.jsonl"), filepath.Join(s.dir, "blocks.jsonl"))
	test := func(args ...string) {
		t.Helper()
		out, err := s.run(t, python, append([]string{"-m", "unittest", "-v", "test_daisy_submit"}, args...)...)
		if err != nil || strings.Contains(out, "Ran 0 tests") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	test()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "smooth.py"), []byte(fenced(string(readme), "python")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.must(t, python, "smooth.py"); !regexp.MustCompile(`(?m)^smooth +100 +100 +0 `).MatchString(out) {
		t.Errorf("the first program of README.md: %s", out)
	}
	if out, err := s.run(t, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "daisy==2.0.0", "numpy>=1.26"); err != nil {
		testenv.Unavailable(t, fmt.Sprintf("pip install daisy and numpy: %v\n%s", err, out))
	}
	test("-k", "daisy_is", "-k", "with_daisy", "-k", "WithDaisy")
	t.Run("the steps of docs/from-daisy.md", func(t *testing.T) { theDocumentedMove(t, s, python) })
}
