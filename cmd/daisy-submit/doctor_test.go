package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/version"
)

// program writes an executable that runs a line of sh.
func program(t *testing.T, name, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+line+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantFinding checks the state of a finding, parts of its text, and that there is advice unless all is well.
func wantFinding(t *testing.T, f finding, state string, parts ...string) {
	t.Helper()
	text := f.Found
	if f.Advice != nil {
		text += "\n" + *f.Advice
	}
	if f.State != state || (f.State == fine) != (f.Advice == nil) {
		t.Errorf("%s is %s, want %s: %s", f.Check, f.State, state, text)
	}
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s: there is no %q in %s", f.Check, p, text)
		}
	}
}

func TestTheDoctorKnowsAWorkerThatFits(t *testing.T) {
	wantHelp(t, "doctor", "0", "2", "3")
	wantFinding(t, workerFinding(t.Context(), "", errors.New("daisy-worker is missing")), missing, "daisy-worker is missing")
	wantFinding(t, workerFinding(t.Context(), program(t, "w", "echo daisy-worker version "+version.String()), nil), fine)
	wantFinding(t, workerFinding(t.Context(), program(t, "w", "echo daisy-worker version 0.0.0-other"), nil), warning, "another version")
	wantFinding(t, workerFinding(t.Context(), program(t, "w", "exit 126"), nil), missing, "cannot be run", "126")
}

func TestTheDoctorKnowsPythonsThatAreTooOld(t *testing.T) {
	for line, want := range map[string]string{
		"echo Python 3.12.1": fine, "echo Python 3.8.0": fine, "echo Python 3.7.9": warning, "echo Python 2.7.18 >&2": warning, "exit 1": warning,
	} {
		path := program(t, "python3", line)
		t.Setenv("PATH", filepath.Dir(path))
		f := pythonFinding(t.Context())
		if f.State != want {
			t.Errorf("%s: %+v", line, f)
		}
	}
	t.Setenv("PATH", t.TempDir())
	wantFinding(t, pythonFinding(t.Context()), warning, "not in PATH", "install the package python3")
}

func TestTheDoctorJudgesLimits(t *testing.T) {
	wantFinding(t, filesFinding(1<<20, nil), fine, "1,048,576")
	wantFinding(t, filesFinding(256, nil), warning, "enough for 73 workers", "ulimit -n")
	wantFinding(t, filesFinding(32, nil), missing, "enough for 0 workers")
	wantFinding(t, judgeSpace("free space", 1<<40, 0, 0), fine, "1TiB")
	wantFinding(t, judgeSpace("free space", 1<<30, 1000, 500), warning, "1GiB", "--prune")
	wantFinding(t, judgeSpace("free space", 1<<20, 1000, 500), missing, "1MiB")
	wantFinding(t, judgeSpace("free space", 1<<40, 1000, 50), missing, "only 50 more files")
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	wantFinding(t, judgeClock(now, now.Add(-time.Second)), fine)
	wantFinding(t, judgeClock(now, now.Add(time.Hour)), warning, "1h")
	wantFinding(t, judgeClock(now.AddDate(-30, 0, 0), now.AddDate(-30, 0, 0)), warning, "1996")
	m := machineFindings(process.Machine{Cores: 2, MemoryBytes: 1 << 30}, 8, 4<<30)
	wantFinding(t, m[0], fine, "2 of 8")
	wantFinding(t, m[1], fine, "1GiB of 4GiB, by the cgroup")
}

func TestTheDoctorTriesTheFolderOfRunsAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{dir, filepath.Join(dir, "a", "b")} {
		for _, f := range folderFindings(at, false) {
			if f.State == missing || f.Check == "flock" && f.State != fine {
				t.Errorf("%s: %+v", at, f)
			}
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("it left %v", entries)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{file, filepath.Join(file, "below"), "/proc/runs"} {
		f := folderFindings(at, false)
		if len(f) != 1 || f[0].State != missing || f[0].Advice == nil {
			t.Errorf("%s: %+v", at, f)
		}
	}
}
