//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"example.org/daisy/internal/api"
)

// hostileJob has three blocks, one after another in one slot: the second one does what the test binary does in the role
// "hostile" for E2E_ACT.
func hostileJob(kind, act string, env ...string) string {
	return job("resources = { cpu = 1 }\ngrace = \"400ms\"",
		blocks("work", 3)+code(kind, "hostile", append(env, "E2E_ACT="+act)...)+"max_retries = 1\n")
}

// For the block after the hostile one, and for the one before, nothing has changed.
var (
	allWell    = counts{State: "done", Blocks: 3, Success: 3, Processed: 3}
	oneFailed  = counts{State: "done", Blocks: 3, Success: 2, Failed: 1, Processed: 4, Retries: 1}
	bothKinds  = []string{"command", "stream"}
	exitStatus = map[counts]int{allWell: 0, oneFailed: 1}
)

// wantWeathered checks how a hostile job has ended: with these counts, on one worker, with no process left. It gives the last
// failure, if there is one.
func wantWeathered(t testing.TB, r result, dir string, want counts) (last api.BlockFailure) {
	t.Helper()
	if r.status != exitStatus[want] {
		t.Errorf("exit status %d, want %d", r.status, exitStatus[want])
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{"work": want})
	if len(stats.Workers) != 1 {
		t.Errorf("there were %d workers, want one that lives through it", len(stats.Workers))
	}
	wantNoneLeft(t, stats.Run.ID, dir+"/out")
	for _, f := range task(t, stats, "work").Failures {
		last = f
	}
	return last
}

// weather runs a hostile job to its end.
func weather(t testing.TB, text string, want counts) (api.BlockFailure, string) {
	t.Helper()
	dir, path := writeJob(t, text)
	r := run(t, dir, "run", path, "--run-dir", "out")
	return wantWeathered(t, r, dir, want), dir
}

// peakRSS is the most memory that a process has had so far, in bytes.
func peakRSS(t testing.TB, pid int) int64 {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if kilobytes, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kilobytes), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("process %d has no peak", pid)
	return 0
}

func TestAGigabyteWithoutALineEndCostsNoMemoryAndNoDisk(t *testing.T) {
	t.Parallel()
	const room = 24 << 20 // of the garbage collector, and of the race detector
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, hostileJob(kind, "flood", "E2E_SOCKET="+d.listener.Addr().String()))
			s := start(t, dir, "run", path, "--run-dir", "out")
			before := d.next()
			coordinator, worker := peakRSS(t, s.cmd.Process.Pid), peakRSS(t, before.PPID)
			before.ok()
			after := d.next()
			if after.Index != "1" {
				t.Fatalf("block %s comes, want 1 after its flood", after.Index)
			}
			for name, grown := range map[string]int64{
				"coordinator": peakRSS(t, s.cmd.Process.Pid) - coordinator, "worker": peakRSS(t, after.PPID) - worker,
			} {
				t.Logf("1 GiB of output: the peak memory of the %s grew by %d KiB", name, grown>>10)
				if grown > room {
					t.Errorf("the peak memory of the %s grew by %d MiB", name, grown>>20)
				}
			}
			after.ok()
			d.next().ok()
			wantWeathered(t, s.wait(), dir, allWell)
			logs, err := filepath.Glob(dir + "/out/logs/*.log")
			if err != nil || len(logs) != 1 {
				t.Fatalf("%v, %v", logs, err)
			}
			if text := readFile(t, logs[0]); len(text) > 1<<20 || !strings.Contains(text, "[line cut at 16 KiB]") {
				t.Errorf("one line of 1 GiB made a log of %d bytes, or it does not say that the line is cut", len(text))
			}
		})
	}
}

func TestADaemonWithoutDescriptorsEndsWithTheRun(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, hostileJob(kind, "daemon ask", "E2E_SOCKET="+d.listener.Addr().String()))
			s := start(t, dir, "run", path, "--run-dir", "out")
			v := visitsOf(d, map[string]int{"ask": 1, "sit": 1})
			v["ask"][0].ok()
			wantWeathered(t, s.wait(), dir, allWell)
			v["sit"][0].wantGone(t)
		})
	}
}

func TestABlockMayCloseItsDescriptors(t *testing.T) {
	t.Parallel()
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		weather(t, hostileJob("command", "close"), allWell)
	})
	t.Run("stream", func(t *testing.T) { // cannot answer any more, and hangs
		t.Parallel()
		f, _ := weather(t, hostileJob("stream", "close hang"), oneFailed)
		wantText(t, f.Message, "closed its answers")
	})
}

func TestABlockThatIgnoresSIGTERMEndsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, path := writeJob(t, hostileJob(kind, "deaf hang")+"timeout = \"1s\"\n")
			s := start(t, dir, "run", path, "--run-dir", "out", "--set", "task.work.max_retries=0")
			r := s.wait()
			if r.status != 1 {
				t.Errorf("exit status %d, want 1", r.status)
			}
			stats := statsOf(t, dir+"/out")
			wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 3, Success: 2, Failed: 1, Processed: 2, Reclaimed: 1, TimedOut: 1}})
			wantNoneLeft(t, stats.Run.ID, dir+"/out")
		})
	}
}

func TestABlockThatIgnoresSIGTERMIsItsWorkersUntilItIsKilled(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, strings.Replace(hostileJob("command", "deaf hang"), "grace = \"400ms\"", "", 1)+"timeout = \"1s\"\n")
	wantStatus(t, 1, dir, "run", path, "--run-dir", "out", "--set", "task.work.max_retries=0")
	// One that the coordinator had taken away could have been started again beside the process that is being killed.
	if f := task(t, statsOf(t, dir+"/out"), "work").Failures; len(f) != 1 || f[0].Message != "timed out after 1s" {
		t.Errorf("%+v", f)
	}
}

func TestAStreamThatExitsWellWithoutAnAnswerHasFailedItsBlock(t *testing.T) {
	t.Parallel()
	f, _ := weather(t, hostileJob("stream", "exit"), oneFailed)
	wantText(t, f.Message, "ended without an answer: exit status 0")
}

func TestAStreamThatAnswersTwiceHurtsNoOtherBlock(t *testing.T) {
	t.Parallel()
	weather(t, hostileJob("stream", "answer-twice"), allWell)
}

func TestAStreamThatAnswersForAnotherBlockHasFailedItsOwn(t *testing.T) {
	t.Parallel()
	f, _ := weather(t, hostileJob("stream", "answer-another"), oneFailed)
	wantText(t, f.Message, `answered for lease "1.999999"`)
}

func TestBinaryOutputReachesTheReportAsText(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, path := writeJob(t, hostileJob(kind, "binary"))
			r := run(t, dir, "run", path, "--run-dir", "out")
			f := wantWeathered(t, r, dir, oneFailed)
			control := func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' || c == 0x7f }
			if i := strings.IndexFunc(r.all(), control); i >= 0 {
				t.Errorf("the report has a control character: %q", r.all()[max(i-20, 0):i+4])
			}
			if f.Tail == nil || !strings.Contains(*f.Tail, "the end") || strings.ContainsFunc(*f.Tail, control) {
				t.Errorf("the tail: %v", f.Tail)
			}
		})
	}
}

func TestABlockThatFillsItsScratchDiskHasFailed(t *testing.T) {
	t.Parallel()
	disk, ok := smallDisk(t, "size=1m")
	if !ok {
		return
	}
	for _, kind := range bothKinds {
		scratch := filepath.Join(disk, kind)
		if err := os.Mkdir(scratch, 0o700); err != nil {
			t.Fatal(err)
		}
		dir, path := writeJob(t, hostileJob(kind, "disk", "TMPDIR="+scratch))
		r := run(t, dir, "run", path, "--run-dir", "out")
		wantWeathered(t, r, dir, oneFailed)
		wantText(t, r.stdout, "no space left on device")
	}
}

func TestABlockThatChangesItsWorkingDirectoryMovesNobodyElse(t *testing.T) {
	t.Parallel()
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			// The last block leaves a file where it works: a stream is where it went, a command where the job file is.
			_, dir := weather(t, hostileJob(kind, "chdir", "E2E_DIRECTORY="+t.TempDir()), allWell)
			if got := exists(filepath.Join(dir, "here")); got != (kind == "command") {
				t.Errorf("the file of the last block is in the folder of the job: %v", got)
			}
		})
	}
}

func TestABlockThatEatsAllItsMemoryHasFailed(t *testing.T) {
	t.Parallel()
	// tail keeps a line until its end comes, which never does; ulimit keeps the machine alive.
	const eat = `ulimit -v 300000; tail /dev/zero || exit 1`
	for kind, line := range map[string]string{
		"command": `test {index} != 1 || { ` + eat + `; }`,
		"stream":  `while read -r block; do case $block in *'"index":[1]'*) ` + eat + `;; esac; lease=${block##*'"lease":"'}; echo "{\"lease\":\"${lease%%'"'*}\",\"ok\":true}" >&3; done`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			user := strings.Replace(shell(line), "command", kind, 1)
			f, _ := weather(t, job("resources = { cpu = 1 }", blocks("work", 3)+user+"max_retries = 1\n"), oneFailed)
			if f.Tail == nil || !strings.Contains(strings.ToLower(*f.Tail), "memory") {
				t.Errorf("the failure does not show what the shell said: %+v", f)
			}
		})
	}
}
