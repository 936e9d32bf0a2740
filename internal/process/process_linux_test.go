package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Everything here holds with and without adoption; a process that adopts cannot go back, so all tests run once more in another.
func TestAllHoldsInAProcessThatAdopts(t *testing.T) {
	if os.Getenv(adoptVariable) != "" {
		return // that is this one
	}
	cmd := exec.Command(os.Args[0], "-test.count=1", "-test.timeout=90s")
	cmd.Env = append(os.Environ(), adoptVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	s := newStage(t)
	var plain, ours *Process
	asked := make(chan struct{})
	var ask func()
	ask = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if onMainThread() {    // which never ends
			go ask()
			<-asked
			runtime.UnlockOSThread()
			return
		}
		defer close(asked)
		ours = s.start(s.config("stubborn"))
		c := s.config("stubborn")
		process, err := os.StartProcess(c.Argv[0], c.Argv, &os.ProcAttr{Env: c.Env, Sys: attributes(false), Files: []*os.File{s.input, nil, nil, s.players}})
		if err != nil {
			t.Error(err)
			return
		}
		plain = &Process{spawner: s.spawner, process: process, done: make(chan struct{})}
	}
	go ask()
	<-asked
	if plain == nil {
		t.FailNow()
	}
	// The trap: a child that the ending thread forked is killed.
	if r := plain.Wait(); r.Signal != syscall.SIGKILL {
		t.Fatalf("the child of the thread ended as %v: the test tests nothing", r)
	}
	if _, alive := ours.Live(); !alive {
		t.Fatal("the spawner's child died with somebody else's thread")
	}
	s.stdin.Close()
	if r := ours.Wait(); !r.Success() {
		t.Errorf("the spawner's child ended as %v", r)
	}
}

func TestChildrenDieWithTheProcessThatStartedThem(t *testing.T) {
	for _, role := range []string{"coordinator", "guarded"} {
		t.Run(role, func(t *testing.T) {
			s := newStage(t)
			p := s.start(s.config(role))
			s.next() // its child
			if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.Wait()
			s.empty()
		})
	}
}

func TestKillEndsDescendantsOfEveryKind(t *testing.T) {
	s := newStage(t)
	p := s.start(s.config("tree"))
	pids := []int{s.next().PID, s.next().PID, s.next().PID}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if e, there := readStat(pid); there && !e.dead() {
			t.Errorf("process %d lives after Kill: %+v", pid, e)
		}
	}
	if r := p.Wait(); r.Signal != syscall.SIGKILL {
		t.Errorf("ended as %v", r)
	}
	s.empty()
}

func TestKillEndsAStoppedProcess(t *testing.T) {
	s := newStage(t)
	p := s.start(s.config("stubborn"))
	s.next()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.empty()
}

func TestStraysEndWithTheBlock(t *testing.T) {
	for _, test := range []struct {
		name   string
		config []string
		grace  time.Duration
	}{
		{"detached, willing", []string{"leave", "hold"}, patience},
		{"detached, stubborn", []string{"leave", "stubborn"}, 0},
		{"in the group, without markers", []string{"leave in secret", "stubborn"}, time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t)
			p := s.start(s.config(test.config[0], test.config[1:]...))
			bystander := s.start(s.config("hold"))
			if r := p.Wait(); !r.Success() {
				t.Fatal(r)
			}
			a, b := s.next().PID, s.next().PID
			stray := a
			if a == bystander.PID() {
				stray = b
			}
			found, err := p.EndStrays(t.Context(), test.grace)
			if err != nil || !slices.Equal(found, []int{stray}) {
				t.Errorf("EndStrays: %v, %v, want [%d]", found, err, stray)
			}
			if e, there := readStat(stray); there && !e.dead() {
				t.Errorf("the stray lives: %+v", e)
			}
			if _, alive := bystander.Live(); !alive {
				t.Error("a process of another block was ended")
			}
			s.stdin.Close()
			bystander.Wait()
			s.empty()
		})
	}
}

func TestAProcessCarriesMarkersAsWholeEntriesAndAllOfThem(t *testing.T) {
	s := newStage(t)
	c := s.config("hold")
	run := c.Env[0]
	c.Env = append(c.Env, "DAISY_WORKER_ID=3.1")
	s.start(c)
	pid := s.next().PID
	if !carries(pid, []string{run}) || !carries(pid, []string{"DAISY_WORKER_ID=3.1", run}) {
		t.Error("it does not carry its own markers")
	}
	for _, markers := range [][]string{{}, {run, "DAISY_WORKER_ID=3"}, {run + "0"}, {run[:len(run)-1]}} {
		if carries(pid, markers) {
			t.Errorf("it carries %q", markers)
		}
	}
}

func TestEndStraysGivesUpWithItsContext(t *testing.T) {
	s := newStage(t)
	p := s.start(s.config("leave", "stubborn"))
	p.Wait()
	s.next()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if found, err := p.EndStrays(ctx, patience); err == nil || len(found) != 1 {
		t.Errorf("EndStrays = %v, %v, want an error about one process", found, err)
	}
	if _, err := p.EndStrays(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.empty()
}

func TestAnAdoptingProcessReapsOrphansAndOnlyThose(t *testing.T) {
	if os.Getenv(adoptVariable) == "" {
		return // runs in the other process
	}
	s := newStage(t)
	foreign := exec.Command("/bin/sh", "-c", "exit 7") // ended, not reaped yet
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntilEnded(foreign.Process.Pid)
	p := s.start(s.config("leave", "hold"))
	p.Wait()
	stray := s.next().PID
	if e, _ := readStat(stray); e.parent != os.Getpid() {
		t.Fatalf("the orphan's parent is %d, want this process", e.parent)
	}
	s.stdin.Close()
	waitUntilEnded(stray)
	if found, err := p.EndStrays(t.Context(), 0); err != nil || len(found) != 0 {
		t.Errorf("EndStrays = %v, %v", found, err)
	}
	if e, there := readStat(stray); there {
		t.Errorf("the orphan is still there: %+v", e)
	}
	if err := foreign.Wait(); err == nil || err.Error() != "exit status 7" {
		t.Errorf("os/exec: %v, want its own child's exit status 7", err)
	}
}

func TestTheLastActEndsAllOrphans(t *testing.T) {
	if os.Getenv(adoptVariable) == "" {
		return // runs in the other process
	}
	s := newStage(t)
	c := s.config("leave", "stubborn")
	c.Markers = nil
	s.start(c).Wait()
	stray := s.next().PID
	if found, err := EndOrphans(t.Context()); err != nil || !slices.Contains(found, stray) {
		t.Errorf("EndOrphans = %v, %v, want %d among them", found, err, stray)
	}
	s.empty()
}

func TestNobodyIsOverlookedAmongManyOrphans(t *testing.T) {
	if os.Getenv(adoptVariable) == "" {
		return // runs in the other process
	}
	const each = 1600 // a page of the list holds fewer, all of them dead
	s := newStage(t)
	leader := s.start(Config{
		Argv: sh(`i=0; while [ $i -lt $1 ]; do : & i=$((i+1)); done; while [ $i -gt 0 ]; do read x <&4 & i=$((i-1)); done`, strconv.Itoa(each)),
		// They all hold these.
		ExtraFiles: []*os.File{s.players, s.input},
	})
	if r := leader.Wait(); !r.Success() {
		t.Fatal(r)
	}
	if found, err := EndOrphans(t.Context()); err != nil || len(found) != each {
		t.Errorf("EndOrphans ended %d (%v), want %d", len(found), err, each)
	}
	s.empty()
	if left, err := children(adopted.list); err != nil || len(left) > 0 {
		t.Errorf("%d are left, dead or alive (%v)", len(left), err)
	}
}

func TestAListIsBelievedOnlyAboutOurChildren(t *testing.T) {
	path := filepath.Join(t.TempDir(), "children")
	if err := os.WriteFile(path, fmt.Appendf(nil, "1 %d %d ", os.Getpid(), os.Getppid()), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	if got, err := children(list); err != nil || len(got) > 0 {
		t.Errorf("children = %+v, %v, want none", got, err)
	}
}

func TestWhoHungOnAProcessBeforeItAdoptedIsLeftAlone(t *testing.T) {
	s := newStage(t)
	begin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer begin.Close()
	c := s.config("end orphans")
	c.ExtraFiles = append(c.ExtraFiles, begin)
	// A shell that has a child, and another one with a child of its own, becomes the program.
	c.Argv = sh(`exec 5<&0; setsid "$1" play hold <&5 & setsid sh -c '"$0" play hold <&5; :' "$1" & exec "$@" $!`, c.Argv...)
	c.Env = append(c.Env, "PATH="+os.Getenv("PATH"))
	p := s.start(c)
	one, other := s.next().PID, s.next().PID
	end.Close()
	if r := p.Wait(); !r.Success() {
		t.Errorf("ended as %v, want that there was nobody to end", r)
	}
	for _, pid := range []int{one, other} {
		if e, there := readStat(pid); !there || e.dead() {
			t.Errorf("process %d, which was there before, has ended: %+v", pid, e)
		}
	}
	s.stdin.Close()
	s.empty()
}

func TestManyPIDsAreSaidInOneShortLine(t *testing.T) {
	if got, want := fmt.Sprint(PIDs{17, 18}), "[17 18]"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(PIDs(slices.Repeat([]int{7}, 1500))), "[7 7 7 7 7 7 7 7 7 7 and 1490 more]"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

func TestLiveAddsUpTheTree(t *testing.T) {
	s := newStage(t)
	c := s.config("burn")
	c.Argv = append(sh(`"$0" "$@" <&4 & "$0" "$@"; wait`), c.Argv[1:]...)
	c.Argv[3] = os.Args[0]
	c.ExtraFiles = append(c.ExtraFiles, s.input)
	p := s.start(c)
	s.next()
	s.next()
	alone := s.start(s.config("burn"))
	s.next()
	one, alive := alone.Live()
	if !alive || one.PeakRSSBytes < 64<<20 {
		t.Errorf("Live = %+v, %v of a process that holds 64 MiB", one, alive)
	}
	u, alive := p.Live()
	if !alive || u.CPU < 60*time.Millisecond || u.PeakRSSBytes < 64<<20 || u.PeakRSSBytes > one.PeakRSSBytes*3/2 {
		t.Errorf("Live = %+v, %v, want the CPU time of two processes that burnt 50 ms each and the peak of one of them, about %d", u, alive, one.PeakRSSBytes)
	}
	s.stdin.Close()
	p.Wait()
	if u, alive := p.Live(); alive {
		t.Errorf("Live after the end = %+v", u)
	}
}

func TestForksNeverHappenOnTheMainThread(t *testing.T) {
	s := newSpawner(t)
	input, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	defer end.Close()
	p, err := s.Start(Config{Argv: sh("read x"), Stdin: input})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range bytes.Fields(list) {
		if string(field) == strconv.Itoa(p.PID()) {
			t.Error("the child hangs on the main thread")
		}
	}
	if !slices.Contains(childrenOf(os.Getpid()), p.PID()) {
		t.Error("the child is nobody's")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (a b) c) S 1 2 3 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 77 0"))
	f.Add([]byte("7 (x"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, ok := parseStat(7, text)
		if ok && e.pid != 7 || !ok && e != (entry{}) {
			t.Errorf("%+v, %v", e, ok)
		}
	})
}

func TestStatIsReadBehindTheLastParenthesis(t *testing.T) {
	got, ok := parseStat(7, []byte("7 (a b) c) Z 1 2 3 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 77 0"))
	want := entry{pid: 7, parent: 1, group: 2, state: 'Z', ticks: 100, start: 5, rssPages: 77}
	if !ok || got != want || !got.dead() {
		t.Errorf("%+v, %v, want %+v", got, ok, want)
	}
}

func TestWhatAProcessAndItsChildrenReadAndWroteIsCounted(t *testing.T) {
	spawner, err := NewSpawner()
	if err != nil {
		t.Fatal(err)
	}
	defer spawner.Close(context.Background())
	for _, counted := range []bool{true, false} {
		p, err := spawner.Start(Config{Argv: []string{"/bin/sh", "-c", "head -c 300000 /dev/zero | cat > /dev/null"}, Env: os.Environ(), CountIO: counted})
		if err != nil {
			t.Fatal(err)
		}
		r := p.Wait()
		const each, programs = 600000, 100000 // what both read, and write; what starting programs adds
		switch {
		case !r.Success():
			t.Error(r)
		case !counted && r.IO != IO{}:
			t.Errorf("counted %+v though nobody asked", r.IO)
		case counted && (r.IO.ReadBytes < each || r.IO.ReadBytes > each+programs || r.IO.WrittenBytes < each || r.IO.WrittenBytes > each+programs):
			t.Errorf("got %+v, want %d of both", r.IO, each)
		}
		if _, alive := p.LiveIO(); alive {
			t.Error("a process that has ended still reads and writes")
		}
	}
}

func TestAMeterAddsUpTheMemoryOfATree(t *testing.T) {
	s := newStage(t)
	p := s.start(s.config("tree"))
	for range 3 {
		s.next()
	}
	largest, _ := p.Live()
	if peak := p.Meter().Stop(); peak < largest.PeakRSSBytes*3/2 {
		t.Errorf("processes alike have %d bytes together, one of them %d", peak, largest.PeakRSSBytes)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	if peak := p.Meter().Stop(); peak != 0 {
		t.Errorf("a process that has ended has %d bytes", peak)
	}
}
