package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

func TestWhatACommandUsesIsAllOfItsProcesses(t *testing.T) {
	// Each of the three keeps 40 MB for half a second.
	const body = `for i in 1 2 3; do (head -c 40000000 /dev/zero; sleep 0.5) | tail -c 40000000 > /dev/null & done; wait; exit 0`
	for _, tracked := range []bool{true, false} {
		task := testTask("command", "sh", "-c", body)
		task.ResourceTracking = tracked
		c, cfg := overTCP(t, task)
		w := start(t, cfg)
		s := c.next()
		r := runBlock(s)
		if r.Outcome != wire.Success || r.CPUNanos <= 0 {
			t.Errorf("got %+v", r)
		}
		if tracked && (r.PeakRSSBytes < 110e6 || r.ReadBytes < 240e6 || r.WrittenBytes < 240e6 || r.ReadBytes > 300e6 || r.WrittenBytes > 300e6) {
			t.Errorf("got %d bytes of memory, %d read, %d written, want 120 MB, 240 MB, 240 MB", r.PeakRSSBytes, r.ReadBytes, r.WrittenBytes)
		}
		if !tracked && (r.ReadBytes != 0 || r.WrittenBytes != 0) {
			t.Errorf("without resource tracking: got %d bytes read, %d written", r.ReadBytes, r.WrittenBytes)
		}
		s.acquire()
		s.drain()
		w.status()
	}
}

func TestABlockOfAStreamHasWhatCameSinceTheBlockBefore(t *testing.T) {
	f := newFifo(t)
	task := testTask("stream", streamer(f, `case $line in *'"block":7'*) head -c 5000000 /dev/zero > /dev/null;; *'"block":9'*) head -c 3000000 /dev/zero > /dev/null; exit 1;; esac
answer "{\"lease\":\"$lease\",\"ok\":true}"`)...)
	task.ResourceTracking = true
	c, cfg := overTCP(t, task)
	w := start(t, cfg)
	s := c.next()
	want := func(r wire.Release, outcome wire.Outcome, io int64) {
		t.Helper()
		const others = 500_000 // the line of the block, the answer, programs as they start
		if r.Outcome != outcome || r.PeakRSSBytes <= 0 || r.ReadBytes < io || r.ReadBytes > io+others || r.WrittenBytes < io || r.WrittenBytes > io+others {
			t.Errorf("got %v, %d bytes of memory, %d read, %d written, want %v and %d", r.Outcome, r.PeakRSSBytes, r.ReadBytes, r.WrittenBytes, outcome, io)
		}
	}
	want(runBlock(s), wire.Success, 5_000_000)
	for _, b := range []struct {
		block   uint64
		outcome wire.Outcome
		io      int64
	}{{8, wire.Success, 0}, {9, wire.Failed, 3_000_000}} {
		s.grant(s.acquire().Request, b.block)
		r := s.release()
		s.acknowledge(r.Seq)
		want(r, b.outcome, b.io)
	}
	s.acquire()
	s.drain()
	w.status()
}

func TestOfAFunctionOnlyTheTimeIsKnown(t *testing.T) {
	task := testTask("func")
	task.ResourceTracking = true
	c, cfg := overPipe(t, task)
	cfg.Funcs = map[string]Func{"predict": func(context.Context, *Block) error { return nil }}
	w := start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.Success || r.WallNanos <= 0 || r.CPUNanos != 0 || r.PeakRSSBytes != 0 || r.ReadBytes != 0 || r.WrittenBytes != 0 {
		t.Errorf("got %+v", r)
	}
	s.acquire()
	s.drain()
	w.status()
}

func TestAProcessThatIsKilledWithItsMemoryNearTheLimitIsProbablyOutOfMemory(t *testing.T) {
	for limit, want := range map[int64]wire.Outcome{200e6: wire.OutOfMemory, 400e6: wire.Failed} {
		task := testTask("command", "sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null; kill -9 $$")
		task.MemoryBytes = limit
		c, cfg := overTCP(t, task)
		w := start(t, cfg)
		s := c.next()
		r := runBlock(s)
		if r.Outcome != want || !strings.HasPrefix(r.Message, "signal 9 (killed)") || strings.Contains(r.Message, "which is a guess") != (want == wire.OutOfMemory) {
			t.Errorf("requires.memory %d: got %v %q, want %v", limit, r.Outcome, r.Message, want)
		}
		s.acquire()
		s.drain()
		w.status()
	}
}

func TestAProcessThatIsKilledWhileTheSystemKillsForLackOfMemoryIsOutOfMemory(t *testing.T) {
	root := t.TempDir()
	events := filepath.Join(root, "sys/fs/cgroup/memory.events")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "proc/self/cgroup"), "0::/\n")
	write(events, "oom_kill 3\n")
	memory := process.OpenMemoryKills(root)
	defer memory.Close()
	killed, shell, failed := process.Result{Exit: -1, Signal: syscall.SIGKILL}, process.Result{Exit: 137}, process.Result{Exit: 1}
	for _, c := range []struct {
		before int64
		end    process.Result
		want   wire.Outcome
	}{{3, killed, wire.Failed}, {2, killed, wire.OutOfMemory}, {2, shell, wire.OutOfMemory}, {2, failed, wire.Failed}} {
		synctest.Test(t, func(t *testing.T) {
			s := &slot{crew: &crew{memory: memory, stopping: make(chan struct{})}, task: &Task{Spec: api.TaskSpec{}}, memoryKills: c.before}
			if r := s.judge(c.end, ""); r.Outcome != c.want || strings.Contains(r.Message, "for lack of memory") != (c.want == wire.OutOfMemory) {
				t.Errorf("%v with %d kills before: got %v %q, want %v", c.end, c.before, r.Outcome, r.Message, c.want)
			}
		})
	}
}
