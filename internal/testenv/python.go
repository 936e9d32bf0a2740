package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Python is the interpreter of a virtual environment with some packages of PyPI, as pip names them. It is made where it is
// missing, in .tools/ of the repository, so that every package's tests have the same; without python3 or the network the test is Unavailable.
func Python(t testing.TB, packages ...string) string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.version, sys.prefix)").CombinedOutput()
	if err != nil {
		Unavailable(t, fmt.Sprintf("python3: %v\n%s", err, version))
	}
	what := strings.Join(packages, "\n") + "\n" + string(version)
	dir := filepath.Join(tools(t), fmt.Sprintf("venv-%x", sha256.Sum256([]byte(what)))[:len("venv-")+12])
	python, whole := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "whole")
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o666) // the tests of several packages run at once
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(whole); err == nil {
		return python
	}
	for _, step := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...),
	} {
		if out, err := exec.CommandContext(t.Context(), step[0], step[1:]...).CombinedOutput(); err != nil {
			Unavailable(t, fmt.Sprintf("%s: %v\n%s", strings.Join(step, " "), err, out))
		}
	}
	if err := os.WriteFile(whole, []byte(what), 0o666); err != nil {
		t.Fatal(err)
	}
	return python
}

// tools is where scripts/go puts what it brings, too.
func tools(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("DAISY_TOOLS"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".tools")
		}
	}
	t.Fatal("the tests run outside the repository")
	return ""
}

// Daisy is Python with the packages of daisy 2.0.0, and what reads its arrays.
func Daisy(t testing.TB) string {
	t.Helper()
	return Python(t, "daisy==2.0.0", "zarr==3.1.6", "numpy")
}
