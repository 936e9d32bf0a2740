//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A script is one that was started by hand: testdata/client.py with a DAISY_CONTEXT.
type script struct {
	*exec.Cmd
	said bytes.Buffer
}

func aScript(t testing.TB, python, context, how string) *script {
	t.Helper()
	s := &script{Cmd: exec.CommandContext(t.Context(), python, filepath.Join("testdata", "client.py"), how)}
	s.Env = append(os.Environ(), "DAISY_CONTEXT="+context)
	s.Stderr = &s.said
	return s
}

// ends runs it to its end, which must have an exit status; it gives what it said.
func (s *script) ends(t testing.TB, status int) string {
	t.Helper()
	s.Stdout = &s.said
	_ = s.Run()
	if got := s.ProcessState.ExitCode(); got != status {
		t.Errorf("%v: exit status %d, want %d: %s", s.Args, got, status, &s.said)
	}
	return s.said.String()
}

// hold starts it and waits until it has a block.
func (s *script) hold(t testing.TB) {
	t.Helper()
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "holds ") {
		t.Fatalf("%v: %q, %v: %s", s.Args, line, err, &s.said)
	}
}

func TestScriptsWithTheirOwnClientOfDaisyGetBlocksAndCount(t *testing.T) {
	t.Parallel()
	python := realDaisy(t)
	const clients = "run = { clients = \"daisy\" }\nrequires = { cpu = 0.1 }\nresource_tracking = true\n"
	dir, path := writeJob(t, job("tracking = \"tracking\"",
		blocks("a", 12)+clients, blocks("slow", 1)+clients+"timeout = \"1s\"\n", blocks("b", 4)+clients+"after = [\"a\", \"slow\"]\n"))
	s := start(t, dir, "run", path)
	awaitStart(t, dir, "latest")
	live := awaitStatus(t, dir, "latest", "clients are told where to go", func(s situation) bool { return s.Live != nil && s.Live.Tasks[0].DaisyContext != nil })
	of := func(task string, id int) string {
		for _, t := range live.Live.Tasks {
			if t.ID == task {
				return strings.Replace(*t.DaisyContext, "worker_id=0", fmt.Sprint("worker_id=", id), 1)
			}
		}
		return ""
	}

	if said := aScript(t, python, strings.Replace(of("a", 0), "task_id=a", "task_id=c", 1), "works").ends(t, 1); !strings.Contains(said, `there is no task \"c\" in this run; it has \"a\", \"slow\", \"b\"`) {
		t.Errorf("a script for a task that there is not: %s", said)
	}
	killed := aScript(t, python, of("a", 1), "is killed")
	killed.hold(t)
	kill(t, killed.Process.Pid, syscall.SIGKILL)
	_ = killed.Wait() // by SIGKILL
	if said := aScript(t, python, of("a", 2), "raises").ends(t, 1); !strings.Contains(said, "ValueError: größer: 失敗") {
		t.Errorf("the script that raises: %s", said)
	}
	var two sync.WaitGroup
	for id := range 2 {
		two.Go(func() { aScript(t, python, of("a", 3+id), "works").ends(t, 0) })
	}
	hangs := aScript(t, python, of("slow", 5), "hangs")
	two.Go(func() { hangs.ends(t, 87) }) // daisy's client ends its own process at the timeout
	two.Wait()
	aScript(t, python, of("slow", 5), "works").ends(t, 0)

	// The next coordinator is found where this one was.
	killAll(t, s, dir)
	s = start(t, dir, "run", "--resume", "latest")
	awaitStart(t, dir, "latest")
	if said := aScript(t, python, of("b", 6), "works").ends(t, 0); said != "done 4\n" {
		t.Errorf("the last script: %s", said)
	}
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}

	stats := statsOf(t, filepath.Join(dir, "runs", "latest"))
	wantCounts(t, stats, map[string]counts{
		"a":    {State: "done", Blocks: 12, Success: 12, Processed: 13, Retries: 1, Reclaimed: 1, Lost: 1},
		"slow": {State: "done", Blocks: 1, Success: 1, Processed: 1, Retries: 1, Reclaimed: 1, TimedOut: 1},
		"b":    {State: "done", Blocks: 4, Success: 4, Processed: 4},
	})
	ends, both := map[string]string{}, int64(0)
	for _, w := range stats.Workers {
		switch w.ID {
		case "client-3", "client-4":
			both += w.Processed
			if w.Processed == 0 {
				t.Errorf("worker %s got no block", w.ID)
			}
		default:
			ends[w.ID] += fmt.Sprintf("%s %d/%d ", *w.End, w.Processed, w.Failed)
		}
	}
	if both != 12 {
		t.Errorf("the two scripts did %d blocks", both)
	}
	for id, want := range map[string]string{"client-1": "lost 0/0 ", "client-2": "left 1/1 ", "client-5": "lost 0/0 left 1/0 ", "client-6": "left 4/0 "} {
		if id == "client-5" { // its coordinator was killed before or after its end was written down
			ends[id] = strings.Replace(ends[id], "lost 1/0", "left 1/0", 1)
		}
		if ends[id] != want {
			t.Errorf("worker %s: %q, want %q", id, ends[id], want)
		}
	}
	if f := stats.Tasks[0]; f.PeakRSSBytes == nil || *f.PeakRSSBytes < 1<<20 {
		t.Errorf("the memory of blocks of a is %v", f.PeakRSSBytes)
	}
	walls := make([]float32, 12)
	if err := binary.Read(strings.NewReader(readFile(t, filepath.Join(dir, "tracking", "a", "wall_seconds", "c", "0"))), binary.LittleEndian, walls); err != nil {
		t.Fatal(err)
	}
	for b, wall := range walls {
		if math.IsNaN(float64(wall)) || wall < 0.02 || wall > 60 {
			t.Errorf("block %d took %v s by its tracking", b, wall)
		}
	}
}
