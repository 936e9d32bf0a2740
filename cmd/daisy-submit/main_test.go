package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// An output takes what several goroutines write, as a file does.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// call runs daisy-submit in this process.
func call(args ...string) (status int, stdout, stderr string) {
	var out, errs output
	status = run(append([]string{"daisy-submit"}, args...), &out, &errs)
	return status, out.text.String(), errs.text.String()
}

// writeJob writes a job file into a new folder.
func writeJob(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheHelpOfEachCommandHasAnExampleAndItsOwnExitStatuses(t *testing.T) {
	for command, want := range map[string][]string{
		"run":     {"0", "1", "2", "3", "130"},
		"plan":    {"0", "2", "3"},
		"stats":   {"0", "2", "3"},
		"version": {"0", "2", "3"},
	} {
		status, help, _ := call(command, "--help")
		head, statuses, found := strings.Cut(help, "\nEXIT STATUS\n")
		if status != 0 || !found || !strings.Contains(head, "\nEXAMPLE\n   daisy-submit "+command) {
			t.Errorf("%s --help: status %d\n%s", command, status, help)
		}
		var got []string
		for line := range strings.Lines(statuses) {
			if fields := strings.Fields(line); len(fields) > 0 {
				got = append(got, fields[0])
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s --help lists the statuses %v, want %v", command, got, want)
		}
		if blocks := strings.Contains(statuses, "block"); blocks != (command == "run") {
			t.Errorf("%s --help speaks of blocks: %v\n%s", command, blocks, statuses)
		}
	}
}

func TestTheVersionIsThereAsAFlagToo(t *testing.T) {
	for _, more := range [][]string{nil, {"--json"}} {
		_, want, _ := call(append([]string{"version"}, more...)...)
		if status, got, said := call(append([]string{"--version"}, more...)...); status != exitOK || got != want || got == "" {
			t.Errorf("status %d, %q, want %q; %s", status, got, want, said)
		}
	}
}

func TestTheHelpOfRunSaysThatItGoesOnWithoutItsTerminal(t *testing.T) {
	if _, help, _ := call("run", "--help"); !strings.Contains(help, "SIGHUP") {
		t.Error(help)
	}
}

const oneBlock = `
[run]
launcher = "serial"
[[task]]
id = "work"
total = { offset = [0], shape = [1] }
block = { shape = [1] }
run = { command = ["touch", "ran"] }
`

func TestAUsedRunDirectoryIsAFaultOfTheCommandLine(t *testing.T) {
	path := writeJob(t, oneBlock)
	at := func(name string) string { return filepath.Join(filepath.Dir(path), name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := call("run", path, "--run-dir", at("out")); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if err := os.Remove(at("ran")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir    string
		status int
		want   string
	}{
		"of a run":     {"out", exitUsage, "holds run "},
		"in use":       {".", exitUsage, "is not empty"},
		"a file":       {"file", exitUsage, "is a file"},
		"below a file": {"file/out", exitInfrastructure, "file/out"},
	} {
		status, _, stderr := call("run", path, "--run-dir", at(c.dir))
		if status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, want %d with %q:\n%s", name, status, c.status, c.want, stderr)
		}
	}
	if _, err := os.Stat(at("ran")); err == nil {
		t.Error("a block ran")
	}
}

func TestAProbablyMisspeltPlaceholderIsSaidByPlanAndRun(t *testing.T) {
	path := writeJob(t, strings.Replace(oneBlock, `"ran"`, `"{raed}"`, 1))
	const want = `warning: task "work": run.command: {raed} is no placeholder and stays as it is; did you mean {read_offset}?`
	if status, stdout, stderr := call("plan", path); status != exitOK || !strings.Contains(stdout, want) {
		t.Errorf("plan: status %d\n%s%s", status, stdout, stderr)
	}
	if status, _, stderr := call("run", path); status != exitOK || !strings.Contains(stderr, want) {
		t.Errorf("run: status %d\n%s", status, stderr)
	}
}
