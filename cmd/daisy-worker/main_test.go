package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		{nil, []string{"--run-dir", dir, "--slots", "0"}, "daisy-worker: --slots is 0, at least 1 is needed\n"},
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
