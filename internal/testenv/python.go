package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Daisy is the released daisy, whose clients are what tests of its protocol are about.
const Daisy = "daisy==2.0.0"

// Python is the interpreter of a virtual environment with the requirements, as pip has them. It is made once and kept in the folder for
// temporary files, for all tests of this user; so nobody installs more into it. Where it cannot be had the test ends by Unavailable.
func Python(t testing.TB, requirements ...string) string {
	t.Helper()
	requirements = slices.Sorted(slices.Values(requirements))
	python3, err := exec.LookPath("python3")
	if err != nil {
		Unavailable(t, err.Error())
	}
	key := sha256.Sum256([]byte(strings.Join(append(requirements, python3), "\n")))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("daisy-test-python-%d-%x", os.Getuid(), key[:6]))
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	python, complete := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil && exec.CommandContext(t.Context(), python, "-c", "").Run() == nil {
		return python
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{python3, "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, requirements...),
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			Unavailable(t, fmt.Sprintf("%s: %v\n%s", strings.Join(command, " "), err, out))
		}
	}
	if err := os.WriteFile(complete, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return python
}
