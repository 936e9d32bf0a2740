//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// detached runs daisy-submit with --detach, which returns by itself, and gives what it says. The coordinator that it leaves, if any, goes
// at the end of the test.
func detached(t *testing.T, status int, dir string, args ...string) result {
	t.Helper()
	t.Cleanup(func() { endDetached(dir) })
	return wantStatus(t, status, dir, append(args, "--detach")...)
}

// endDetached kills what coordinators in a folder are left.
func endDetached(dir string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && strings.Contains(string(line), "run\x00--resume\x00"+dir+"/") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	endWorkers(dir)
}

// processOf is the coordinator of a run, by its lock.
func processOf(t *testing.T, run string) int {
	t.Helper()
	_, text, _ := strings.Cut(readFile(t, filepath.Join(run, "lock")), `"pid":`)
	digits, _, _ := strings.Cut(text, ",")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestADetachedRunStaysThoughItCannotBePrintedThatItHasBegun(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	t.Cleanup(func() { endDetached(dir) })
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	s := prepare(t, dir, "run", path, "--run-dir", "out", "--detach")
	s.cmd.Stdout = full
	s.begin()
	r := s.wait()
	run := filepath.Join(dir, "out")
	wantText(t, r.stderr, "the run in "+run+" has begun, and its coordinator is process ", "no space left")
	look := start(t, dir, "attach", "out")
	d.next().ok()
	if got := look.wait(); r.status != 3 || got.status != 0 {
		t.Errorf("status %d, and of the run %d", r.status, got.status)
	}
}

func TestADetachedRunGoesOnWithoutTheTerminalThatItWasBegunIn(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command")))
	r := detached(t, 0, dir, "run", path, "--run-dir", "out")
	run := filepath.Join(dir, "out")
	wantText(t, r.stdout, "run directory: "+run+"\n", "the coordinator is up: process ", "daisy-submit attach "+run, "daisy-submit status "+run, "daisy-submit cancel "+run)
	v := d.next()
	pid := processOf(t, run)
	if session, _, err := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0); err != 0 || int(session) != pid {
		t.Errorf("the coordinator, process %d, is in session %d (%v)", pid, session, err)
	}
	for fd, want := range map[string]string{"0": "/dev/null", "1": filepath.Join(run, "coordinator.log"), "2": filepath.Join(run, "coordinator.log")} {
		if got, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd); err != nil || got != want {
			t.Errorf("its descriptor %s is %s, %v", fd, got, err)
		}
	}
	if env := readFile(t, "/proc/"+strconv.Itoa(v.PPID)+"/environ"); strings.Contains(env, "DAISY_COORDINATOR") {
		t.Error("its worker takes itself for a detached coordinator")
	}
	wantText(t, detached(t, 2, dir, "run", "--resume", "out").stderr, "the run is being coordinated by pid "+strconv.Itoa(pid))
	if log := readFile(t, filepath.Join(run, "coordinator.log")); strings.Contains(log, "is being coordinated") {
		t.Errorf("a coordinator that may not begin speaks in the log of the one that runs\n%s", log)
	}
	kill(t, pid, syscall.SIGHUP) // as at a logout
	look := start(t, dir, "attach", "out")
	v.ok()
	d.next().ok()
	if got := look.wait(); got.status != 0 {
		t.Errorf("attach ends with %d\n%s", got.status, got.stderr)
	}
	wantText(t, readFile(t, filepath.Join(run, "coordinator.log")), "2 of 2 done", "2 blocks: 2 succeeded")
	awaitProcessEnd(t, pid)
	wantNoneLeft(t, statsOf(t, run).Run.ID, run)
}

func TestTwoRunsThatAreDetachedAtOnceAreTwo(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+shell("true")))
	var both sync.WaitGroup
	said := make([]result, 2)
	for i := range said {
		both.Go(func() { said[i] = detached(t, 0, dir, "run", path) })
	}
	both.Wait()
	if said[0].stdout == said[1].stdout {
		t.Errorf("both say\n%s", said[0].stdout)
	}
	for _, r := range said {
		_, run, _ := strings.Cut(r.stdout, "run directory: ")
		run, _, _ = strings.Cut(run, "\n")
		if got := start(t, dir, "attach", run).wait(); got.status != 0 {
			t.Errorf("%s ends with %d\n%s", run, got.status, got.stderr)
		}
	}
}

func TestOfTwoResumesThatAreDetachedAtOnceOneGoesOn(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	killKnown(t, s, dir)
	t.Cleanup(func() { endDetached(dir) })
	first, second := start(t, dir, "run", "--resume", "out", "--detach"), start(t, dir, "run", "--resume", "out", "--detach")
	a, b := first.wait(), second.wait()
	if a.status != 0 {
		a, b = b, a
	}
	if a.status != 0 || b.status != 2 {
		t.Errorf("they end with %d and %d\n%s\n%s", a.status, b.status, a.stderr, b.stderr)
	}
	wantText(t, a.stdout, "the coordinator is up")
	wantText(t, b.stderr, "the run is being coordinated by pid ")
	v.ok()
	d.next().ok()
	if got := start(t, dir, "attach", "out").wait(); got.status != 0 {
		t.Errorf("it ends with %d\n%s", got.status, got.stderr)
	}
}

func TestADetachedRunThatCannotBeginSaysSoHere(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 1)+"wrong = 1\n"+shell("true")))
	r := detached(t, 2, dir, "run", path)
	wantText(t, r.stderr, `unknown key "wrong"`)
	if exists(filepath.Join(dir, "runs")) {
		t.Error("there is a run directory")
	}

	dir, path = writeJob(t, job("tracking = \"marks\"", blocks("work", 2)+shell("true")))
	if r := wantStatus(t, 0, dir, "run", path); r.status != 0 {
		t.FailNow()
	}
	// What only the coordinator can find: marks of other blocks.
	if err := os.WriteFile(path, []byte(strings.Replace(readFile(t, path), "block = { shape = [1] }", "block = { shape = [2] }", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	before := first2(filepath.Glob(filepath.Join(dir, "runs", "*")))
	r = detached(t, 2, dir, "run", path)
	wantText(t, r.stderr, "another layout")
	if after := first2(filepath.Glob(filepath.Join(dir, "runs", "*"))); len(after) != len(before) {
		t.Errorf("run directories were %v, and are %v", before, after)
	}
	for _, args := range [][]string{{"--coordinator", "job"}, {"--parsable"}, {"--after", "7"}, {"--detach", "--json"}, {"--detach", "--with-stdin"}, {"--detach", "--launcher", "serial"}, {"--coordinator", "there"}, {"--detach", "--coordinator", "job"}} {
		wantStatus(t, 2, dir, append([]string{"run", path}, args...)...)
	}
}

func TestCtrlCEndsADetachedRunThatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	d.next()
	killAll(t, s, dir)
	lock, err := os.OpenFile(filepath.Join(dir, "out", "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.WriteAt([]byte(strings.Replace(readFile(t, lock.Name()), `"host":"`, `"host":"elsewhere-`, 1)[:1024]), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endDetached(dir) })
	again := start(t, dir, "run", "--resume", "out", "--detach")
	again.stderr.await(t, "waiting until it moves") // what the coordinator says is shown here as long as it is not up
	again.signal(syscall.SIGINT)
	if r := again.wait(); r.status != 3 {
		t.Errorf("exit status %d\n%s", r.status, r.stderr)
	}
	wantText(t, again.stderr.String(), "was ended before it was up")
}
