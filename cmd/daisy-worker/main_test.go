package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func call(env map[string]string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(append([]string{"daisy-worker"}, args...), func(k string) string { return env[k] }, &out, &errs)
	return status, out.String(), errs.String()
}

func TestAWrongCommandLineIsOneLineAndStatus2(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tagged := map[string]string{"DAISY_TAG": "3", "DAISY_ELEMENT": "x"}
	for _, tc := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, nil, "daisy-worker: --run-dir is needed: the directory that daisy-submit printed when the run began\n"},
		{nil, []string{"--run-dir", file}, "daisy-worker: --run-dir " + file + " is not a directory\n"},
		{nil, []string{"--run-dir", dir, "--slots", "0"}, "daisy-worker: --slots is \"0\", wanted a number from 1, or fill\n"},
		{nil, []string{"--run-dir", dir, "extra"}, "daisy-worker: \"extra\" is not expected; all that there is are flags, see --help\n"},
		{nil, []string{"--nonsense"}, "daisy-worker: flag provided but not defined: -nonsense\n"},
		{tagged, []string{"--run-dir", dir}, "daisy-worker: DAISY_TAG is \"3\", but DAISY_ELEMENT is \"x\": it must be a number from 0\n"},
		{map[string]string{"DAISY_TAG": "3", "DAISY_ELEMENT": "0"}, []string{"--run-dir", dir, "--name", "n"}, "daisy-worker: --name and --task are for a worker that no launcher started, and DAISY_TAG says that one did\n"},
	} {
		status, stdout, stderr := call(tc.env, tc.args...)
		if status != 2 || stdout != "" || stderr != tc.want {
			t.Errorf("%q: got %d %q %q, want 2 and %q", tc.args, status, stdout, stderr, tc.want)
		}
	}
}

func TestAWorkerStopsAtASignalAndIsAbortedAtASecondOne(t *testing.T) {
	for _, c := range []struct {
		name     string
		signals  int // one a second
		late     time.Duration
		finished time.Duration // when its blocks have ended by themselves
		want     string
	}{
		{"nobody stops it", 0, 0, time.Hour, ""},
		{"once", 1, 0, time.Hour, "stop at 1s"},
		{"twice", 2, 0, time.Hour, "stop at 1s, abort at 2s"},
		{"it is faster", 1, 0, 9 * time.Second, "stop at 1s"},
		{"it is slow, and will be killed", 1, 18 * time.Second, time.Hour, "stop at 1s, abort at 19s"},
		{"it is slow, and faster than that", 1, 18 * time.Second, 9 * time.Second, "stop at 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				signals, finished := make(chan os.Signal), make(chan struct{})
				go func() {
					for range c.signals {
						time.Sleep(time.Second)
						signals <- syscall.SIGTERM
					}
				}()
				time.AfterFunc(c.finished, func() { close(finished) })
				var done []string
				note := func(what string) func() {
					return func() { done = append(done, what+" at "+time.Since(start).String()) }
				}
				obey(signals, finished, c.late, note("stop"), note("abort"))
				if got := strings.Join(done, ", "); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestHelpHasAnExampleAndTheExitStatuses(t *testing.T) {
	status, stdout, _ := call(nil, "--help")
	if status != 0 || !strings.Contains(stdout, "daisy-worker --run-dir runs/") || !strings.Contains(stdout, "6  no GPU") {
		t.Errorf("got %d %s", status, stdout)
	}
}

func TestVersionIsPrinted(t *testing.T) {
	if status, stdout, _ := call(nil, "--version"); status != 0 || !strings.HasPrefix(stdout, "daisy-worker version ") {
		t.Errorf("got %d %q", status, stdout)
	}
}

func TestAConformanceTestSaysWhichRulesAreKept(t *testing.T) {
	const good = `while read line; do lease=${line##*\"lease\":\"}; echo "{\"lease\":\"${lease%%\"*}\",\"ok\":true}" >&3; done`
	status, stdout, stderr := call(nil, "conformance", "--", "sh", "-c", good)
	if status != 0 || stderr != "" || !strings.HasPrefix(stdout, "pass  one block is answered, once, with its lease\n") || !strings.HasSuffix(stdout, "\n11 passed, 0 failed\n") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = call(nil, "conformance", "--timeout", "20s", "sh", "-c", "exit 3")
	if status != 1 || !strings.HasSuffix(stderr, "/sh breaks 11 of 11 rules\n") && !strings.HasSuffix(stderr, "sh breaks 11 of 11 rules\n") || !strings.HasSuffix(stdout, "\n0 passed, 11 failed\n") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	for _, args := range [][]string{{}, {"--timeout", "0s", "true"}, {"--timeout", "2h", "true"}, {"--block", "{", "true"}, {"--nonsense", "true"}} {
		if status, _, stderr := call(nil, append([]string{"conformance"}, args...)...); status != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d\n%s", args, status, stderr)
		}
	}
	if status, _, stderr := call(nil, "conformance", "--", "no-such-program"); status != 1 || !strings.Contains(stderr, `cannot find the program "no-such-program"`) {
		t.Errorf("status %d\n%s", status, stderr)
	}
}
