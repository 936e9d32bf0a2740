//go:build linux && amd64

package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/testenv"
)

// jumpClock puts the wall clock of one process forward, or back, from the true time; its monotonic clock goes on. Nobody can
// set the clock of a process, but a Go program reads it by a function that the kernel has mapped into it (vdso(7)), and that
// can be written over in a process that is stopped.
func jumpClock(t testing.TB, pid int, by time.Duration) {
	t.Helper()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		testenv.Unavailable(t, fmt.Sprintf("it needs to write into the memory of a process of its own: %v", err))
	}
	defer mem.Close()
	at := clockFunction(t, pid, mem)
	code := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov $clock_gettime, %eax
		0x0f, 0x05, // syscall
		0x85, 0xff, // test %edi, %edi: is it CLOCK_REALTIME?
		0x75, 0x07, // jne to the end
		0x48, 0x81, 0x06, // addq $seconds, (%rsi)
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(int32(by/time.Second)))
	code = append(code, 0xc3) // ret
	for freeze(t, pid); isWithin(t, pid, at, at+int64(len(code))); freeze(t, pid) {
		kill(t, pid, syscall.SIGCONT)
	}
	if _, err := mem.WriteAt(code, at); err != nil {
		kill(t, pid, syscall.SIGCONT)
		testenv.Unavailable(t, fmt.Sprintf("it needs to write over code of a process of its own: %v", err))
	}
	kill(t, pid, syscall.SIGCONT)
}

// clockFunction is where a process has the function that reads its clocks.
func clockFunction(t testing.TB, pid int, mem *os.File) int64 {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/maps", pid))) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var begin, end int64
		if _, err := fmt.Sscanf(line, "%x-%x ", &begin, &end); err != nil {
			t.Fatal(err)
		}
		image := make([]byte, end-begin)
		if _, err := mem.ReadAt(image, begin); err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" {
				return begin + int64(s.Value)
			}
		}
	}
	testenv.Unavailable(t, "it needs a kernel that maps a clock into processes (vdso)")
	return 0
}

// isWithin reports whether a thread of a stopped process is about to run code there.
func isWithin(t testing.TB, pid int, begin, end int64) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		fields := strings.Fields(readFile(t, thread)) // the last one is the program counter
		pc, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
		if err == nil && begin <= pc && pc < end {
			return true
		}
	}
	return false
}

func TestNothingHappensWhenTheWallClockJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }\nheartbeat_timeout = \"400ms\"\nabandon_after = \"4s\"\nidle_timeout = \"1m\"",
		blocks("work", 2)+d.code("command")+"timeout = \"1m\"\nretry_backoff = \"1s\"\n"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	held, failing := d.next(), d.next()
	for _, by := range []time.Duration{day, -day} {
		// The workers look for the coordinator meanwhile, and so look at how long it has been silent.
		freeze(t, s.cmd.Process.Pid)
		jumpClock(t, held.PPID, by)
		jumpClock(t, failing.PPID, by)
		<-time.After(time.Second)
		jumpClock(t, s.cmd.Process.Pid, by)
		worker := failing.Worker
		failing.conn.Close()
		// It comes back when its pause is over, which is longer than the silence that makes a worker suspect.
		if failing = d.next(); failing.Index == held.Index || failing.Worker != worker {
			t.Errorf("block %s comes to worker %s", failing.Index, failing.Worker)
		}
	}
	failing.ok()
	held.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 4, Retries: 2}})
	if took := stats.Run.Ended.Sub(stats.Run.Started); took > -day+time.Hour || took < -day {
		t.Errorf("from start to end the clock went by %v; it was put back by a day", took)
	}
	if stats.Run.WallSeconds < 0 || stats.Run.WallSeconds > 3600 {
		t.Errorf("the run took %v s", stats.Run.WallSeconds)
	}
	for _, w := range stats.Workers {
		wantEnd(t, stats.Workers, w.ID, "left")
	}
}
