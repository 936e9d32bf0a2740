package worker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

// runBlock gives block 7 to the worker and waits for its release.
func runBlock(s *stream) wire.Release {
	s.t.Helper()
	s.grant(s.acquire().Request, 7)
	r := s.release()
	s.acknowledge(r.Seq)
	return r
}

func TestACommandGetsItsBlockInEveryForm(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "DAISY_") {
			t.Setenv(name, "") // so that it is restored
			os.Unsetenv(name)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	task := testTask("command", "sh", "-c", `cat > "$OUT"; printf '%s\n' "$@" >> "$OUT"; env | grep -E '^(DAISY_|OMP_|MKL_|CUDA|MINE)' | sort >> "$OUT"`, "sh",
		"{block_id}", "{task_id}-{index}", "{read_offset} {read_shape} {read_end}", "{write_offset}:{write_shape}:{write_end}", "{attempt}", "{lease}", "{unknown} {}")
	task.Env = []string{"OUT=" + out, "MINE={block_id}", "MKL_NUM_THREADS=9"}
	task.GPUs = 1
	c, cfg := overTCP(t, task)
	cfg.GPUs = []string{"5"}
	t.Setenv("DAISY_TAG", "3")
	w := start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.Success || r.Epoch != 2 || r.Lease != 7 || r.WallNanos <= 0 || r.CPUNanos <= 0 || r.PeakRSSBytes <= 0 {
		t.Errorf("got %+v", r)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"task":"predict","block":7,"index":[7],"read":{"offset":[69],"shape":[12]},"write":{"offset":[70],"shape":[10]},"attempt":1,"lease":"2.7"}
7
predict-7
69 12 81
70:10:80
1
2.7
{unknown} {}
CUDA_VISIBLE_DEVICES=5
DAISY_ATTEMPT=1
DAISY_BLOCK_ID=7
DAISY_BLOCK_INDEX=7
DAISY_CPUS=2
DAISY_GPUS=5
DAISY_LEASE=2.7
DAISY_MEMORY_BYTES=1073741824
DAISY_READ_END=81
DAISY_READ_OFFSET=69
DAISY_READ_SHAPE=12
DAISY_RUN_DIR=` + cfg.RunDir + `
DAISY_RUN_ID=` + testRun + `
DAISY_SLOT=0
DAISY_TASK_ID=predict
DAISY_WORKER_ID=3.0
DAISY_WRITE_END=80
DAISY_WRITE_OFFSET=70
DAISY_WRITE_SHAPE=10
MINE={block_id}
MKL_NUM_THREADS=9
OMP_NUM_THREADS=2
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	s.drain()
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

func TestAFailureComesWithTheEndOfItsOutputAndTheLogIsMarked(t *testing.T) {
	c, cfg := overTCP(t, testTask("command", script1("echo one; echo two >&2; printf three; exit 3")...))
	w := start(t, cfg)
	s := c.next()
	r := runBlock(s)
	if r.Outcome != wire.Failed || r.Message != "exit status 3" || r.Tail != "one\ntwo\nthree" {
		t.Errorf("got %v %q %q", r.Outcome, r.Message, r.Tail)
	}
	for _, line := range []string{"[predict 7 #1] one\n", "[predict 7 #1] two\n", "[predict 7 #1] three\n"} {
		if !strings.Contains(w.log.String(), line) {
			t.Errorf("the log has no line %q", line)
		}
	}
	if r := runBlock(s); r.Tail != "one\ntwo\nthree" {
		t.Errorf("the second block's tail: got %q", r.Tail)
	}
}

func TestATimeoutEndsTheWholeTreeWithWhatLeftTheGroup(t *testing.T) {
	f := newFifo(t)
	task := testTask("command", script1(`trap "" TERM; echo waiting for the lock
(trap "" TERM; sleep 1000) & echo $! > %[1]s
setsid sh -c 'trap "" TERM; echo $$ > %[1]s; while :; do sleep 1000; done' &
wait; wait; wait`, f.path)...)
	task.TimeoutSeconds = 0.5
	c, cfg := overTCP(t, task)
	c.set(func(j *api.JoinResponse) { j.GraceSeconds = 0.2 })
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	child, far := f.readPID(), f.readPID()
	if r := s.release(); r.Outcome != wire.TimedOut || r.Message != "timed out after 500ms" || r.Tail != "waiting for the lock" || time.Duration(r.WallNanos) < 500*time.Millisecond {
		t.Errorf("got %v %q %q after %v", r.Outcome, r.Message, r.Tail, time.Duration(r.WallNanos))
	}
	if alive(child) || alive(far) {
		t.Errorf("left behind: child %v, in a session of its own %v", alive(child), alive(far))
	}
}

func TestWhatASuccessfulBlockLeavesBehindIsEnded(t *testing.T) {
	f, hold := newFifo(t), newFifo(t)
	c, cfg := overTCP(t, testTask("command", script1(`setsid sh -c 'echo $$ > %s; exec sleep 1000' & read x < %s`, f.path, hold.path)...))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	hold.writeLine()
	if r := s.release(); r.Outcome != wire.Success {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	if alive(pid) {
		t.Errorf("process %d was left behind", pid)
	}
	s.acknowledge(1)
	s.drain()
	w.wait()
	if !strings.Contains(w.log.String(), "that were left behind") {
		t.Error("the log does not tell")
	}
}

func TestABlockThatIsTakenAwayIsKilledAndNothingIsSaidOfIt(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("command", script1(`echo $$ > %s; exec sleep 1000`, f.path)...))
	start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	s.kill(7)
	s.expect(wire.KindHeartbeat) // long before the next is due: it lives, and is at it
	a := s.acquire()             // and no release before it
	gone(t, pid)
	if a.Request != 2 || a.Max != 1 {
		t.Errorf("got %+v", a)
	}
}

func TestADeathFromOutsideIsAFailureUnlessTheWorkerIsEndedToo(t *testing.T) {
	for name, tc := range map[string]struct {
		command string
		stopped bool
		want    wire.Outcome
		message string
	}{
		"killed alone":                  {"kill -KILL $$", false, wire.Failed, "signal 9 (killed)"},
		"killed with its worker":        {"kill -KILL $$", true, wire.Returned, "signal 9 (killed), while the worker was being stopped"},
		"a shell that tells of a TERM":  {"exit 143", true, wire.Returned, "exit status 143, while the worker was being stopped"},
		"an exit while worker is ended": {"read x < %s; exit 1", true, wire.Returned, "exit status 1, while the worker was being stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			f, hold := newFifo(t), newFifo(t)
			c, cfg := overTCP(t, testTask("command", script1("echo > %s; %s", f.path, strings.ReplaceAll(tc.command, "%s", hold.path))...))
			w := start(t, cfg)
			s := c.next()
			s.grant(s.acquire().Request, 7)
			f.readLine()
			if tc.stopped {
				w.cancel()
				if l := s.leaving(); l.Reason != wire.LeaveSignal {
					t.Errorf("got %v", l)
				}
				hold.writeLine()
			}
			if r := s.release(); r.Outcome != tc.want || r.Message != tc.message {
				t.Errorf("got %v %q, want %v %q", r.Outcome, r.Message, tc.want, tc.message)
			}
			s.acknowledge(1)
			if !tc.stopped {
				s.drain()
			}
			if got := w.status(); got != 0 {
				t.Errorf("status: got %d, want 0", got)
			}
		})
	}
}

func TestAStopLetsBlocksFinishWithinGrace(t *testing.T) {
	f, hold := newFifo(t), newFifo(t)
	c, cfg := overTCP(t, testTask("command", script1("echo > %s; read x < %s", f.path, hold.path)...))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	f.readLine()
	s.stop()
	s.leaving()
	hold.writeLine()
	if r := s.release(); r.Outcome != wire.Success {
		t.Errorf("got %v %q, want success", r.Outcome, r.Message)
	}
	s.acknowledge(1)
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

func TestAfterGraceAStoppedBlockIsReturned(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("command", script1(`trap "" TERM; echo $$ > %s; while :; do sleep 1000; done`, f.path)...))
	c.set(func(j *api.JoinResponse) { j.GraceSeconds = 0.4 })
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	s.stop()
	if l := s.leaving(); l.Reason != wire.LeaveTold {
		t.Errorf("got %v", l)
	}
	if r := s.release(); r.Outcome != wire.Returned {
		t.Errorf("got %v %q, want returned", r.Outcome, r.Message)
	}
	gone(t, pid)
	s.acknowledge(1)
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	f := newFifo(t)
	c, cfg := overTCP(t, testTask("command", script1(`trap "" TERM; echo $$ > %s; while :; do sleep 1000; done`, f.path)...))
	c.set(func(j *api.JoinResponse) { j.GraceSeconds = 3600 })
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	pid := f.readPID()
	w.cancel()
	s.leaving()
	w.now()
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
	gone(t, pid)
}

func TestUserCodeThatCannotBeStartedSendsTheWorkerAway(t *testing.T) {
	c, cfg := overTCP(t, testTask("command", "no-such-program"))
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	l := s.leaving()
	if l.Reason != wire.LeaveBroken || !strings.Contains(l.Message, `cannot find the program "no-such-program" in PATH`) {
		t.Errorf("got %+v", l)
	}
	if r := s.release(); r.Outcome != wire.Returned {
		t.Errorf("got %v, want returned: the block is not to blame", r.Outcome)
	}
	s.acknowledge(1)
	if got := w.status(); got != StatusCannotStart {
		t.Errorf("status: got %d, want %d", got, StatusCannotStart)
	}
}

func TestACheckDecidesBeforeTheBlockRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		check   string
		want    wire.Outcome
		message string
		runs    bool
	}{
		"done already": {"exit 0", wire.Skipped, "", false},
		"to run":       {"exit 1", wire.Success, "", true},
		"broken":       {"echo why; exit 2", wire.Failed, "check: exit status 2 (0 means that the block is done, 1 that it is to run)", false},
	} {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(t.TempDir(), "ran")
			task := testTask("command", "touch", ran)
			task.Check = script1(`test "$DAISY_LEASE" = 2.7 || exit 9; %s`, tc.check)
			c, cfg := overTCP(t, task)
			start(t, cfg)
			r := runBlock(c.next())
			if r.Outcome != tc.want || r.Message != tc.message {
				t.Errorf("got %v %q, want %v %q", r.Outcome, r.Message, tc.want, tc.message)
			}
			if _, err := os.Stat(ran); (err == nil) != tc.runs {
				t.Errorf("ran: got %v, want %v", err == nil, tc.runs)
			}
		})
	}
}

func TestABlockAsDataHasNoIDWhereItDoesNotFit(t *testing.T) {
	task, err := NewTask(testTask("command", "true"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := newBlock(task, 7, 2, 9, 3)
	b.IDFits = false
	got, err := json.Marshal(b)
	if err != nil || !strings.Contains(string(got), `"block":null`) || b.Label() != "predict (7) #3" {
		t.Errorf("got %s, %v, label %q", got, err, b.Label())
	}
}

func TestAWorkerWithoutItsGPUsSaysSo(t *testing.T) {
	task := testTask("command", "true")
	task.GPUs = 1
	c, cfg := overTCP(t, task)
	cfg.Slots, cfg.GPUs = 2, []string{"0"}
	w := start(t, cfg)
	if l := c.next().leaving(); l.Reason != wire.LeaveBroken {
		t.Errorf("got %v", l)
	}
	if got := w.status(); got != StatusNoGPU {
		t.Errorf("status: got %d, want %d", got, StatusNoGPU)
	}
}

func TestAWorkerLeavesAfterItsShareOfBlocks(t *testing.T) {
	task := testTask("command", "true")
	task.MaxBlocksPerWorker = 1
	c, cfg := overTCP(t, task)
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	s.release()
	if l := s.leaving(); l.Reason != wire.LeaveDone {
		t.Errorf("got %v", l)
	}
	s.acknowledge(1)
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}
