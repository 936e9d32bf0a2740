package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sh(script string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
}

func TestTheEndIsToldExactly(t *testing.T) {
	s := newSpawner(t)
	for _, test := range []struct {
		script string
		exit   int
		signal syscall.Signal
		says   string
	}{
		{"exit 0", 0, 0, "exit status 0"},
		{"exit 3", 3, 0, "exit status 3"},
		{"exit 255", 255, 0, "exit status 255"},
		{"kill -KILL $$", -1, syscall.SIGKILL, "signal 9 (killed)"},
		{"kill -TERM $$", -1, syscall.SIGTERM, "signal 15 (terminated)"},
	} {
		p, err := s.Start(Config{Argv: sh(test.script)})
		if err != nil {
			t.Fatal(err)
		}
		var again Result
		var both sync.WaitGroup
		both.Go(func() { <-p.Done(); again = p.Wait() })
		r := p.Wait()
		both.Wait()
		if r.Exit != test.exit || r.Signal != test.signal || r.String() != test.says || r.Success() != (test.exit == 0) || r != again {
			t.Errorf("%q ended as %+v (%v), want exit %d, signal %d", test.script, r, r, test.exit, test.signal)
		}
		if err := p.Terminate(); err != nil {
			t.Errorf("Terminate after the end: %v", err)
		}
	}
}

func TestAProcessGetsExactlyItsArgvEnvironmentAndFolder(t *testing.T) {
	s := newStage(t)
	c := s.config("hold", "", "a b", "line\nline", "体積", "-x")
	c.Env = append(c.Env, "EMPTY=", "LINES=1\n2")
	c.Dir, _ = filepath.EvalSymlinks(t.TempDir())
	s.start(c)
	got := s.next()
	if diff := cmp.Diff(part{c.Argv, c.Env, c.Dir, got.PID}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Env, c.Dir = nil, ""
	s.start(c)
	if got := s.next(); len(got.Env) != 0 {
		t.Errorf("without an environment it got %q", got.Env)
	}
}

func TestInputOfAnySizeArrivesWhole(t *testing.T) {
	s := newSpawner(t)
	for _, n := range []int{0, 1, surelyFits, surelyFits + 1, 1 << 20} {
		want := strings.Repeat("x", n)
		out, read := outputFile(t)
		p, err := s.Start(Config{Argv: []string{"/bin/cat"}, Input: []byte(want), Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		if r, got := p.Wait(), read(); !r.Success() || got != want {
			t.Errorf("%d bytes in, %d out, %v", n, len(got), r)
		}
	}
}

func TestInputThatNobodyReadsEndsWithTheProcess(t *testing.T) {
	// What it leaves behind keeps the pipe open.
	p, err := newSpawner(t).Start(Config{Argv: sh("exec 3<&0; /bin/sleep 1000 &"), Input: make([]byte, 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); !r.Success() {
		t.Errorf("ended as %v", r)
	}
	if err := p.input.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closing the pipe after Wait: %v, want that it is closed already", err)
	}
	if found, err := p.EndStrays(t.Context(), 0); err != nil || len(found) != 1 {
		t.Errorf("EndStrays: %v, %v, want one", found, err)
	}
}

func TestOneFileForBothOutputsKeepsTheOrder(t *testing.T) {
	out, read := outputFile(t)
	p, err := newSpawner(t).Start(Config{Argv: sh("echo 1; echo 2 >&2; echo 3"), Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	if r, got := p.Wait(), read(); !r.Success() || got != "1\n2\n3\n" {
		t.Errorf("%v, output %q", r, got)
	}
}

func TestEachOutputHasItsFile(t *testing.T) {
	out, read := outputFile(t)
	other, readOther := outputFile(t)
	p, err := newSpawner(t).Start(Config{Argv: sh("echo 1; echo 2 >&2"), Stdout: out, Stderr: other})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); !r.Success() || read() != "1\n" || readOther() != "2\n" {
		t.Errorf("%v, output %q, %q", r, read(), readOther())
	}
}

func TestWithoutFilesTheInputIsEmptyAndTheOutputDiscarded(t *testing.T) {
	p, err := newSpawner(t).Start(Config{Argv: sh("/bin/cat && echo 1 && echo 2 >&2")})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); !r.Success() {
		t.Errorf("ended as %v: a descriptor is not open", r)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := newSpawner(t)
	for _, test := range []struct {
		config Config
		says   string
	}{
		{Config{}, "argv is empty"},
		{Config{Argv: []string{"/no/such"}}, `cannot start "/no/such": no such file or directory`},
		{Config{Argv: sh("x"), Dir: "/no/dir"}, `cannot start "/bin/sh" in /no/dir: no such file or directory (the file is there`},
		{Config{Argv: []string{write("script", "#!/no/interpreter\n", 0o700)}}, "the interpreter named in its first line"},
		{Config{Argv: []string{write("plain", "echo\n", 0o700)}}, "neither a program for this machine nor a script that begins with #!"},
		{Config{Argv: []string{write("closed", "#!/bin/sh\n", 0o600)}}, "permission denied"},
		{Config{Argv: sh("a\x00b")}, "argument 2 has a zero byte"},
		{Config{Argv: sh("a"), Env: []string{"A=\x00"}}, "zero byte"},
		{Config{Argv: sh("a"), Input: []byte{}, Stdin: os.Stdin}, "exclude each other"},
		{Config{Argv: sh("a"), Env: []string{"A=" + strings.Repeat("x", 1<<22)}}, "too long"},
	} {
		if p, err := s.Start(test.config); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("Start: %v, %v, want an error with %q", p, err, test.says)
		}
	}
}

func TestTerminateReachesTheWholeGroup(t *testing.T) {
	s := newStage(t)
	c := s.config("hold")
	c.Argv = append(sh(`"$0" "$@" <&4 & exec "$0" "$@"`), c.Argv[1:]...)
	c.Argv[3] = os.Args[0]
	c.ExtraFiles = append(c.ExtraFiles, s.input)
	p := s.start(c)
	s.next()
	s.next()
	if err := p.Terminate(); err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); r.Signal != syscall.SIGTERM {
		t.Errorf("ended as %v", r)
	}
	s.empty()
}

func TestCloseEndsEverythingAndAllowsNoMore(t *testing.T) {
	s := newStage(t)
	c := s.config("tree")
	p := s.start(c)
	for range 3 {
		s.next()
	}
	for range 2 {
		if err := s.spawner.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r := p.Wait(); r.Signal != syscall.SIGKILL {
		t.Errorf("ended as %v", r)
	}
	s.empty()
	if _, err := s.spawner.Start(c); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Start after Close: %v", err)
	}
}

func TestManyProcessesAtOnceAmongOthersOfOsExec(t *testing.T) {
	s := newSpawner(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 20 {
				if err := exec.Command("/bin/sh", "-c", "exit 7").Run(); err == nil || err.Error() != "exit status 7" {
					t.Errorf("os/exec: %v, want its own child's exit status 7", err)
				}
				p, err := s.Start(Config{Argv: sh("exit $1", string(rune('0'+n%10))), Markers: []string{"NOBODY=1"}})
				if err != nil {
					t.Error(err)
					return
				}
				if r := p.Wait(); r.Exit != n%10 || r.Err != nil {
					t.Errorf("ended as %v, want exit status %d", r, n%10)
				}
				if found, err := p.EndStrays(context.Background(), 0); err != nil || len(found) > 0 {
					t.Errorf("EndStrays: %v, %v", found, err)
				}
			}
		})
	}
	all.Wait()
}

func TestWaitMeasures(t *testing.T) {
	s := newStage(t)
	p := s.start(s.config("burn"))
	s.next()
	s.stdin.Close()
	r := p.Wait()
	if r.CPU < 30*time.Millisecond || r.CPU > 20*time.Second {
		t.Errorf("CPU %v after 50 ms of burning", r.CPU)
	}
	if r.PeakRSSBytes < 64<<20 || r.PeakRSSBytes > 4<<30 {
		t.Errorf("peak %d bytes after touching 64 MiB", r.PeakRSSBytes)
	}
	if r.Wall <= 0 {
		t.Errorf("wall time %v", r.Wall)
	}
	if own := Self(); own.PeakRSSBytes <= 1<<20 || own.CPU <= 0 {
		t.Errorf("this process: %+v", own)
	}
}

func TestTheLimitOfOpenFilesIsRaisedHereAndChildrenGetTheOldOne(t *testing.T) {
	s := newStage(t)
	c := s.config("limits")
	out, read := outputFile(t)
	c.Argv, c.Stdout = sh(`ulimit -Sn 100; ulimit -Hn 200; exec "$@"`, c.Argv...), out
	if r := s.start(c).Wait(); !r.Success() {
		t.Fatal(r)
	}
	if got := read(); got != "199\n100\n" {
		t.Errorf("the limits here and in a child are %q, want 199 and 100", got)
	}
}
