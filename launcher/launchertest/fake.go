package launchertest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Fake are commands of a batch system that say what a test tells them, for what a real system cannot be made to say.
type Fake struct {
	// Dir is the folder to put on PATH.
	Dir string

	t testing.TB
}

// An Answer is what a fake command does.
type Answer struct {
	Stdout, Stderr string
	Status         int
	// Then is shell that runs after it has written and before it ends ("sleep 600").
	Then string
}

// A Call is one that a fake command got.
type Call struct{ Args, Env []string }

// fakeCommand notes the call, and does what the folder beside it says.
const fakeCommand = `#!/bin/sh
own=$0.d
call=$own/call.$(date +%s%N).$$
for a; do printf '%s\0' "$a"; done >"$call.args"
env -0 >"$call.env"
cat "$own/stdout"
cat "$own/stderr" >&2
. "$own/then"
exit $(cat "$own/status")
`

// NewFake makes commands that say nothing and succeed. Commands that are not named are missing.
func NewFake(t testing.TB, names ...string) *Fake {
	t.Helper()
	f := &Fake{Dir: t.TempDir(), t: t}
	for _, name := range names {
		f.write(name, fakeCommand, 0o755)
		if err := os.Mkdir(filepath.Join(f.Dir, name+".d"), 0o755); err != nil {
			t.Fatal(err)
		}
		f.Say(name, Answer{})
	}
	return f
}

func (f *Fake) write(name, text string, mode os.FileMode) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// Say sets what a command says from now on.
func (f *Fake) Say(name string, a Answer) {
	f.t.Helper()
	for file, text := range map[string]string{"stdout": a.Stdout, "stderr": a.Stderr, "then": a.Then + "\n", "status": strconv.Itoa(a.Status)} {
		f.write(filepath.Join(name+".d", file), text, 0o644)
	}
}

// Calls are those that a command got, in order.
func (f *Fake) Calls(name string) (calls []Call) {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.Dir, name+".d", "call.*.args"))
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(files)
	list := func(path string) []string {
		text, err := os.ReadFile(path)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(text) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	for _, file := range files {
		calls = append(calls, Call{list(file), list(strings.TrimSuffix(file, ".args") + ".env")})
	}
	return calls
}
