package worker

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/wire"
)

// daisyTask is a task whose worker script does what the words say.
func daisyTask(words ...string) api.TaskSpec {
	task := testTask("daisy", append([]string{os.Args[0]}, words...)...)
	task.Env = []string{clientVariable + "=1", "GORACE=atexit_sleep_ms=0"}
	return task
}

func TestADaisyWorkerServesOneBlockAfterAnother(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, daisyTask("say", f.path, "print", "at it", "loop", "say", f.path))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	for _, block := range []uint64{7, 8} {
		if r := s.release(); r.Lease != block || r.Outcome != wire.Success || r.Message != "" || r.Tail != "" || r.PeakRSSBytes <= 0 || r.WallNanos <= 0 {
			t.Errorf("got %+v", r)
		}
		if block == 7 {
			s.grant(s.acquire().Request, 8)
		}
	}
	s.acknowledge(2)
	s.acquire()
	s.drain()
	if got := f.readPID(); got != pid {
		t.Errorf("process %d came to its end, want %d: told that there is no more", got, pid)
	}
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
	if !strings.Contains(w.log.String(), "[predict 7 #1] at it\n") {
		t.Errorf("the log is\n%s", w.log)
	}
}

// Whatever a client does with its block, another block goes well afterwards.
func TestWhatAClientDoesWithItsBlockIsItsEnd(t *testing.T) {
	const its = "; its output may say why it ended"
	traceback := "Traceback (most recent call last):\n  File \"w.py\", line 1, in f\n    boom()\nValueError: größer\nals 1"
	for name, tc := range map[string]struct {
		words         []string
		outcome       wire.Outcome
		message, tail string
	}{
		"done":                  {[]string{"acquire", "release"}, wire.Success, "", ""},
		"failed":                {[]string{"acquire", "print", "x", "fail", "no good"}, wire.Failed, "no good", "x"},
		"with a traceback":      {[]string{"acquire", "fail", traceback}, wire.Failed, "ValueError: größer\nals 1", traceback},
		"which was printed":     {[]string{"acquire", "print", traceback, "fail", traceback}, wire.Failed, "ValueError: größer\nals 1", traceback},
		"without a word":        {[]string{"acquire", "fail", ""}, wire.Failed, "the daisy worker said that the block failed, and not why", ""},
		"by status":             {[]string{"acquire", "release failed"}, wire.Failed, "the daisy worker said that the block failed, and not why", ""},
		"given back twice":      {[]string{"acquire", "release", "release"}, wire.Success, "", ""},
		"failed after success":  {[]string{"acquire", "release", "fail", "late"}, wire.Success, "", ""},
		"another's given back":  {[]string{"acquire", "release another's", "print", "x", "exit", "4"}, wire.Failed, "the daisy worker ended without giving its block back: exit status 4" + its, "x"},
		"exit":                  {[]string{"acquire", "exit", "4"}, wire.Failed, "the daisy worker ended without giving its block back: exit status 4" + its, ""},
		"exit 0":                {[]string{"acquire", "exit", "0"}, wire.Failed, "the daisy worker ended without giving its block back: exit status 0" + its, ""},
		"of a child":            {[]string{"child", "acquire", "exit", "4"}, wire.Failed, "the daisy worker ended without giving its block back: exit status 7" + its, "exit status 4"},
		"killed":                {[]string{"acquire", "kill"}, wire.Failed, "the daisy worker ended without giving its block back: signal 9 (killed)" + its, ""},
		"closed":                {[]string{"acquire", "close", "hold"}, wire.Failed, "the daisy worker closed its connection without giving its block back", ""},
		"in the wrong place":    {[]string{"acquire", "release elsewhere", "hold"}, wire.Failed, `the daisy worker was dropped with its block: not a message of daisy 2: block 7 of task "predict" given back with other regions than it has`, ""},
		"half a frame":          {[]string{"acquire", "write", `\x00\x00\x00\x09\x02`, "close", "hold"}, wire.Failed, "the daisy worker was dropped with its block: not a message of daisy 2: the connection ended in the middle of a frame", ""},
		"nonsense":              {[]string{"acquire", "write", `\x00\x00\x00\x02\x02\x09`, "hold"}, wire.Failed, "the daisy worker was dropped with its block: not a message of daisy 2: message number 9", ""},
		"from a second":         {[]string{"second acquires", "second gets", "second releases"}, wire.Success, "", ""},
		"while a second waits":  {[]string{"acquire", "second acquires", "release"}, wire.Success, "", ""},
		"by one of two":         {[]string{"acquire", "second acquires", "exit", "4"}, wire.Failed, "the daisy worker ended without giving its block back: exit status 4" + its, ""},
		"and more is asked for": {[]string{"acquire", "ask", "release"}, wire.Success, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			words := append([]string{"say", f.path}, tc.words...)
			if tc.words[0] == "child" {
				words = tc.words // which says nothing
			}
			if last := words[len(words)-1]; last != "hold" && last != "kill" && words[len(words)-2] != "exit" {
				words = append(words, "say", f.path, "hold") // the test sees that all has been done
			}
			c, cfg := overTCP(t, daisyTask(words...))
			start(t, cfg)
			s := c.next()
			s.grant(s.acquire().Request, 7)
			if r := s.release(); r.Outcome != tc.outcome || r.Message != tc.message || r.Tail != tc.tail {
				t.Errorf("got %v\n%q, want\n%q; tail %q", r.Outcome, r.Message, tc.message, r.Tail)
			}
			if tc.words[0] == "child" {
				return
			}
			pid := f.readPID()
			if tc.words[len(tc.words)-1] == "hold" { // it may still work on the block
				if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
					t.Errorf("process %d: %v", pid, err)
				}
			}
			if words[len(words)-2] == f.path {
				f.readLine()
			}
		})
	}
}

// After a block a script may end as it likes, as daisy's own does after one that failed.
func TestADaisyWorkerMayEndOnceItHasGivenItsBlockBack(t *testing.T) {
	for name, words := range map[string][]string{
		"well":                       {"acquire", "release"},
		"badly":                      {"acquire", "release", "exit", "3"},
		"after it failed":            {"acquire", "fail", "no", "exit", "1"},
		"while it waits for another": {"acquire", "ask", "release", "exit", "1"},
		"killed":                     {"acquire", "release", "kill"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			c, cfg := overTCP(t, daisyTask(append([]string{"say", f.path}, words...)...))
			w := start(t, cfg)
			s := c.next()
			pids := map[int]bool{}
			for _, block := range []uint64{7, 8, 9} {
				s.grant(s.acquire().Request, block)
				pids[f.readPID()] = true
				if r := s.release(); r.Lease != block || r.Message != "" && r.Message != "no" {
					t.Errorf("block %d: got %v %q", block, r.Outcome, r.Message)
				}
			}
			if len(pids) != 3 {
				t.Errorf("processes %v served the blocks, want three", pids)
			}
			s.acknowledge(3)
			s.acquire()
			s.drain()
			if got := w.status(); got != 0 {
				t.Errorf("status: got %d, want 0", got)
			}
		})
	}
}

// The same, when the end is noticed only after the next block is there.
func TestABlockThatAnEndedDaisyWorkerDidNotAskForGoesToAnother(t *testing.T) {
	f := newFifo(t)
	s, task := aSlot(t, daisyTask("acquire", "release", "await", f.path, "exit", "5"))
	s.crew.started = map[string]bool{}
	first, _ := newBlock(task, 7, 2, 7, 1)
	started, err := s.startDaisy(&first)
	if err != nil {
		t.Fatal(err)
	}
	s.resident = started
	p := started.(*daisyProcess)
	if r, after := p.exchange(t.Context(), s, &first); r.Outcome != wire.Success || after != reuse {
		t.Fatalf("got %+v, %d", r, after)
	}
	f.writeLine()
	p.Wait()
	next, _ := newBlock(task, 8, 2, 8, 1)
	if r, after := p.exchange(t.Context(), s, &next); after != resend {
		t.Errorf("got %+v, %d, want %d", r, after, resend)
	}
}

func TestADaisyWorkerThatNeverAsksForABlockCannotBeStarted(t *testing.T) {
	for name, tc := range map[string]struct {
		words []string
		why   string
	}{
		"exit":               {[]string{"exit", "3"}, "the daisy worker ended without asking for a block: exit status 3"},
		"exit 0":             {[]string{"exit", "0"}, "the daisy worker ended without asking for a block: exit status 0"},
		"connects":           {[]string{"print", "last word", "exit", "3"}, `the daisy worker ended without asking for a block: exit status 3; its last words: "last word"`},
		"of another task":    {[]string{"ask for", "segment", "hold"}, `the connection of the daisy worker was dropped: it asks for blocks of task "segment", and it was started for task "predict", which DAISY_CONTEXT says too`},
		"of daisy 1":         {[]string{"write", `\x40\x00\x00\x00\x80\x04abcdefg`, "hold"}, "the connection of the daisy worker was dropped: " + daisywire.ErrDaisy1.Error()},
		"of another version": {[]string{"write", `\x00\x00\x00\x02\x03\x00`, "hold"}, "the connection of the daisy worker was dropped: not a message of daisy 2: its protocol has version 3, and this is version 2 of daisy 2.0.0: let the client use a released daisy 2 (pip install 'daisy>=2')"},
	} {
		t.Run(name, func(t *testing.T) {
			c, cfg := overTCP(t, daisyTask(tc.words...))
			w := start(t, cfg)
			s := c.next()
			s.grant(s.acquire().Request, 7)
			if got := s.leaving(); got.Reason != wire.LeaveBroken || got.Message != tc.why {
				t.Errorf("got %v %q, want\n%q", got.Reason, got.Message, tc.why)
			}
			if r := s.release(); r.Outcome != wire.Returned {
				t.Errorf("got %v %q, want no block to be to blame", r.Outcome, r.Message)
			}
			s.acknowledge(1)
			if err := w.wait(); w.status() != StatusCannotStart || !strings.Contains(err.Error(), tc.why) {
				t.Errorf("status %d, %v", w.status(), err)
			}
		})
	}
}

// Where the script could once be started, it is the block that is tried again, within its retries.
func TestADaisyWorkerThatDoesNotAskAnyMoreFailsTheBlock(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, daisyTask("exit", "3"))
	once := f.path + ".once"
	c.set(func(j *api.JoinResponse) {
		j.Task.Argv = script1(`test -e %q && exit 3; touch %q; exec %q acquire release`, once, once, os.Args[0])
	})
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	if r := s.release(); r.Outcome != wire.Success {
		t.Fatalf("got %v %q", r.Outcome, r.Message)
	}
	for _, block := range []uint64{8, 9} {
		s.grant(s.acquire().Request, block)
		if r := s.release(); r.Outcome != wire.Failed || r.Message != "the daisy worker ended without asking for a block: exit status 3" && !strings.HasSuffix(r.Message, "ended at this one too") {
			t.Errorf("got %v %q", r.Outcome, r.Message)
		}
	}
}

func TestADaisyWorkerIsKilledAtTheTimeoutAndAnotherStarted(t *testing.T) {
	for name, tc := range map[string]struct {
		words []string
		hint  string
	}{
		"with the block":    {[]string{"acquire"}, ""},
		"without asking":    {nil, "; it had not asked for the block"},
		"with half a frame": {[]string{"write", `\x00\x00`}, "; it had not asked for the block"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			spec := daisyTask(append(tc.words, "say", f.path, "hold")...)
			spec.TimeoutSeconds = 5
			s, task := aSlot(t, spec)
			s.crew.started = map[string]bool{}
			pids := map[int]bool{}
			for block := range uint64(2) {
				b, _ := newBlock(task, block, 2, block, 1)
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan Result, 1)
				go func() { ended <- s.residence(ctx, &b) }()
				pids[f.readPID()] = true
				cancel(errTimedOut)
				if r := <-ended; r.Outcome != wire.TimedOut || r.Message != "timed out after 5s"+tc.hint {
					t.Errorf("got %v %q", r.Outcome, r.Message)
				}
				if s.resident != nil {
					t.Error("it serves on")
				}
			}
			if len(pids) != 2 {
				t.Errorf("processes %v served the blocks", pids)
			}
		})
	}
}

// The process is stopped, which no signal but SIGKILL ends, and goes on.
func TestADaisyWorkerThatIsStoppedAndContinuedGoesOn(t *testing.T) {
	f, gate := newFifo(t), newFifo(t)
	c, cfg := overTCP(t, daisyTask("acquire", "say", f.path, "await", gate.path, "release", "loop"))
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	gate.writeLine()
	for _, block := range []uint64{7, 8} {
		if r := s.release(); r.Outcome != wire.Success || r.Lease != block {
			t.Errorf("got %+v", r)
		}
		if block == 7 {
			s.grant(s.acquire().Request, 8)
		}
	}
}

func TestABlockOfADaisyWorkerThatIsTakenAwayIsKilled(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, daisyTask("acquire", "say", f.path, "hold"))
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	first := f.readPID()
	s.kill(7)
	s.grant(s.acquire().Request, 8)
	if second := f.readPID(); second == first {
		t.Error("the same process serves the next block")
	}
	if err := syscall.Kill(first, 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v", first, err)
	}
}

func TestAStoppedWorkerGivesTheBlockOfItsDaisyWorkerBack(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, daisyTask("acquire", "say", f.path, "hold"))
	c.set(func(j *api.JoinResponse) { j.GraceSeconds = 0.2 })
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	s.stop()
	s.expect(wire.KindLeaving)
	if r := s.release(); r.Outcome != wire.Returned || r.Message != "the worker was stopped" {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acknowledge(1)
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v", pid, err)
	}
}

func TestADaisyWorkerThatDoesNotLeaveIsEnded(t *testing.T) {
	c, cfg := overTCP(t, daisyTask("acquire", "release", "hold"))
	c.set(func(j *api.JoinResponse) { j.GraceSeconds = 0.2 })
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	s.release()
	s.acknowledge(1)
	s.acquire()
	s.drain()
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
	if !strings.Contains(w.log.String(), "the daisy worker did not end when there was no more to do for it; it is ended\n") {
		t.Errorf("the log is\n%s", w.log)
	}
}

func TestWhatAClientMeasuresWins(t *testing.T) {
	f := newFifo(t)
	task := daisyTask("say", f.path, "acquire", "release measured", "acquire", "release",
		"acquire", "release mismeasured", "cpu", "acquire", "release mismeasured", "memory", "acquire", "release mismeasured", "read", "acquire", "release mismeasured", "written",
		"acquire", "release mismeasured", "wall", "acquire", "release mismeasured", "long", "acquire")
	task.ResourceTracking = true
	c, cfg := overTCP(t, task)
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	f.readLine()
	for block := uint64(7); block <= 14; block++ {
		r := s.release()
		if cpu := r.CPUNanos == int64(77*time.Second); cpu != (block == 14) || r.WallNanos >= int64(1000*time.Second) {
			t.Errorf("block %d: got %+v", block, r)
		}
		if block == 14 {
			break
		}
		said := r.WallNanos == int64(time.Millisecond) && r.CPUNanos == int64(250*time.Millisecond) && r.PeakRSSBytes == 4096 && r.ReadBytes == 300 && r.WrittenBytes == 70000
		if r.Outcome != wire.Success || said != (block == 7) || r.PeakRSSBytes <= 0 || r.WallNanos <= 0 || r.CPUNanos < 0 || r.ReadBytes < 0 || r.WrittenBytes < 0 {
			t.Errorf("block %d: got %+v", block, r)
		}
		s.grant(s.acquire().Request, block+1)
	}
}

func TestTheContextOfADaisyWorker(t *testing.T) {
	t.Setenv(daisywire.Variable, "hostname=elsewhere") // of a run in which this one runs
	t.Setenv("PYTHONUNBUFFERED", "")                   // so that it is restored
	os.Unsetenv("PYTHONUNBUFFERED")
	f := newFifo(t)
	for _, tracked := range []bool{false, true} {
		task := testTask("daisy", script1(`echo "$DAISY_CONTEXT $PYTHONUNBUFFERED $DAISY_SLOT" > %s`, f.path)...)
		task.ResourceTracking = tracked
		c, cfg := overTCP(t, task)
		start(t, cfg)
		s := c.next()
		s.grant(s.acquire().Request, 7)
		text, rest, _ := strings.Cut(f.readLine(), " ")
		got, err := daisywire.ParseContext(text)
		if err != nil || rest != "1 0" {
			t.Fatalf("%v, %q", err, rest)
		}
		port, _ := got.Get("port")
		want := fmt.Sprintf("hostname=127.0.0.1:port=%s:task_id=predict:worker_id=19:logdir=:resource_tracking=%d", port, map[bool]int{true: 1}[tracked])
		if text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}

func TestEverySlotHasANumberOfItsOwn(t *testing.T) {
	seen := map[string]place{}
	for _, worker := range []string{"0.0", "0.1", "1.0", "1.1", "10.2", "host-17", "host-18"} {
		for slot := range 3 {
			at := place{workerID: worker, slot: slot}
			n := daisyNumber(at)
			if other, ok := seen[n]; ok {
				t.Errorf("%v and %v have the number %s", at, other, n)
			}
			seen[n] = at
		}
	}
}

// Nobody else on this machine gets a block by connecting to the port.
func TestAStrangerAtThePortOfADaisyWorkerIsRefused(t *testing.T) {
	f := newFifo(t)
	task := testTask("daisy", script1(`echo "$DAISY_CONTEXT" > %s; sleep 100`, f.path)...)
	c, cfg := overTCP(t, task)
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	context, err := daisywire.ParseContext(f.readLine())
	if err != nil {
		t.Fatal(err)
	}
	port, _ := context.Get("port")
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	me := &client{conn: conn, task: "predict"}
	_ = conn.SetDeadline(time.Now().Add(soon))
	_, _ = conn.Write(daisywire.Append(nil, daisywire.Released, &daisywire.Message{Kind: daisywire.AcquireBlock, TaskID: "predict"}))
	if m, ok := me.next(); ok {
		t.Errorf("got %+v", m)
	}
	if !strings.Contains(w.log.String(), "to a daisy worker's port is refused: it is a connection of process ") {
		t.Errorf("the log is\n%s", w.log)
	}
}

func TestOneBlockInTheForegroundOfADaisyWorker(t *testing.T) {
	for name, tc := range map[string]struct {
		words  []string
		status int
		text   string
	}{
		"done":             {[]string{"acquire", "release", "loop"}, 0, ""},
		"done, ends badly": {[]string{"acquire", "release", "exit", "3"}, 0, ""},
		"failed":           {[]string{"acquire", "fail", "no good"}, 1, "no good"},
		"without a word":   {[]string{"acquire", "release failed"}, 1, "the daisy worker said that the block failed, and not why"},
		"kept":             {[]string{"acquire", "exit", "4"}, 4, "the daisy worker ended without giving its block back: exit status 4"},
		"never asked for":  {[]string{"exit", "4"}, 4, "the daisy worker ended without asking for a block: exit status 4"},
		"nonsense":         {[]string{"write", `\x00\x00\x00\x02\x03\x00`, "hold"}, 1, "the connection of the daisy worker was dropped: not a message of daisy 2: its protocol has version 3, and this is version 2 of daisy 2.0.0: let the client use a released daisy 2 (pip install 'daisy>=2')"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Foreground{Spec: daisyTask(tc.words...), Block: 7, Inherited: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
			if status, text, err := f.Run(); status != tc.status || text != tc.text || err != nil {
				t.Errorf("got %d, %q, %v", status, text, err)
			}
		})
	}
}

// A run that is started inside of a worker of daisy is none of that worker's clients.
func TestOtherProgramsHaveNoContextOfDaisy(t *testing.T) {
	t.Setenv(daisywire.Variable, "hostname=elsewhere")
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("command", script1(`echo "[$DAISY_CONTEXT]" > %s`, f.path)...))
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	if got := f.readLine(); got != "[]" {
		t.Errorf("got %s", got)
	}
}

func TestEachSlotHasADaisyWorkerOfItsOwn(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, daisyTask("acquire", "say", f.path, "hold"))
	cfg.Slots = 2
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	s.grant(s.acquire().Request, 8)
	if first, second := f.readPID(), f.readPID(); first == second {
		t.Errorf("process %d has both blocks", first)
	}
}

func TestTheCheckComesBeforeTheDaisyWorker(t *testing.T) {
	task := daisyTask("loop")
	task.Check = script1(`case $DAISY_BLOCK_ID in 7) exit 0;; 8) exit 1;; *) exit 5;; esac`)
	c, cfg := overTCP(t, task)
	start(t, cfg)
	s := c.next()
	for block, want := range map[uint64]wire.Outcome{7: wire.Skipped, 8: wire.Success, 9: wire.Failed} {
		s.grant(s.acquire().Request, block)
		if r := s.release(); r.Outcome != want {
			t.Errorf("block %d: got %v %q, want %v", block, r.Outcome, r.Message, want)
		}
	}
}
