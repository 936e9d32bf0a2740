package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// job is the text of a job file: keys of [run], and tasks.
func job(run string, tasks ...string) string {
	return "[run]\n" + run + "\n\n[[task]]\n" + strings.Join(tasks, "\n[[task]]\n")
}

// blocks are the first keys of a task with n blocks in one dimension, each at the index that is its only coordinate.
func blocks(id string, n int) string {
	return fmt.Sprintf("id = %q\ntotal = { offset = [0], shape = [%d] }\nblock = { shape = [1] }\n", id, n)
}

// shell is user code: a line for sh.
func shell(line string) string {
	return fmt.Sprintf("run = { command = [\"sh\", \"-c\", %s] }\n", quote(line))
}

// code is user code: the test binary in a role (see userCode), with further variables NAME=value.
func code(kind, role string, env ...string) string {
	return fmt.Sprintf("run = { %s = [%s] }\n", kind, quote(self())) + environment(append(env, "E2E_ROLE="+role)...)
}

func environment(env ...string) string {
	var pairs []string
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		pairs = append(pairs, name+" = "+quote(value))
	}
	return "env = { " + strings.Join(pairs, ", ") + " }\n"
}

// self is the test binary.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// quote makes a TOML string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// runJob writes the job and runs it to its end in the run directory "out", which it returns.
func runJob(t testing.TB, want int, text string, args ...string) (result, string) {
	t.Helper()
	dir, path := writeJob(t, text)
	r := wantStatus(t, want, dir, append([]string{"run", path, "--run-dir", "out"}, args...)...)
	return r, dir + "/out"
}
