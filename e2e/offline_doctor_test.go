package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestTheDoctorFindsNothingMissingWhereRunsWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wantText(t, wantStatus(t, 0, dir, "doctor").stdout, "daisy-worker", "flock", "free space", bin)
	var d struct {
		Version int
		OK      bool
		Checks  []struct{ Check, State, Found string }
	}
	if err := json.Unmarshal([]byte(wantStatus(t, 0, dir, "doctor", "--json", "elsewhere").stdout), &d); err != nil || d.Version != 1 || !d.OK || len(d.Checks) < 8 {
		t.Errorf("%+v, %v", d, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

func TestTheDoctorSaysThatTheWorkerIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone := filepath.Join(dir, "daisy-submit")
	if err := os.Link(filepath.Join(bin, "daisy-submit"), alone); err != nil {
		writeFile(t, alone, readFile(t, filepath.Join(bin, "daisy-submit")))
		if err := os.Chmod(alone, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(alone, "doctor")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH=/usr/bin:/bin")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("status %d", cmd.ProcessState.ExitCode())
	}
	wantText(t, string(out), "daisy-worker (missing): ", "looked for beside "+alone, "make build")
}
