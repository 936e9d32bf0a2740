package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// bin is where TestMain has built the programs.
var bin string

// patience bounds every wait for something that has to happen. Nothing is measured with it.
const patience = 45 * time.Second

func TestMain(m *testing.M) {
	if role := os.Getenv("E2E_ROLE"); role != "" {
		os.Exit(userCode(role))
	}
	// A program with the race detector would sleep for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(withPrograms(m))
}

// withPrograms builds the programs, with the race detector if the tests have it, and runs the tests.
func withPrograms(m *testing.M) int {
	if bin = os.Getenv("E2E_PROGRAMS"); bin != "" {
		return m.Run() // for one test again, see smallDisk
	}
	dir, err := os.MkdirTemp("", "daisy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	args := []string{"build"}
	if raceDetector {
		args = append(args, "-race")
	}
	args = append(args, "-o", dir+string(filepath.Separator), "example.org/daisy/cmd/daisy-submit", "example.org/daisy/cmd/daisy-worker")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
