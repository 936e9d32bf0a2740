//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTheDemoThatIsKilledAgainAndAgainEndsWithTheReferenceBytes runs examples/nuclei, kills random parties at random moments,
// and resumes until it has ended. `make soak` does it 200 times: DAISY_SOAK sets how many runs, each with a seed of its own; one failing
// seed is run alone with DAISY_SOAK_SEED.
func TestTheDemoThatIsKilledAgainAndAgainEndsWithTheReferenceBytes(t *testing.T) {
	t.Parallel()
	runs, first := 1, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("DAISY_SOAK")); err == nil {
		runs = n
	}
	if n, err := strconv.ParseUint(os.Getenv("DAISY_SOAK_SEED"), 10, 64); err == nil {
		runs, first = 1, n
	}
	nuclei := filepath.Join(t.TempDir(), "nuclei")
	if out, err := exec.Command("go", "build", "-o", nuclei, "example.org/daisy/examples/nuclei").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	began := time.Now()
	var sum havoc
	end := "every run ended with the reference bytes, and its counts add up"
	for i := range runs {
		seed := first + uint64(i)
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { sum.add(killTheDemo(t, nuclei, seed)) }) {
			end = fmt.Sprintf("seed %d and maybe others FAILED: DAISY_SOAK_SEED=%d runs it alone", seed, seed)
		}
	}
	t.Logf("soak: %d runs in %v: killed %d coordinators, %d workers and %d user processes, resumed %d times; %s",
		runs, time.Since(began).Round(time.Second), sum.coordinators, sum.workers, sum.users, sum.lives-runs, end)
}

// havoc is what was killed, and how many lives the coordinators had.
type havoc struct{ coordinators, workers, users, lives int }

func (h *havoc) add(o havoc) {
	h.coordinators += o.coordinators
	h.workers += o.workers
	h.users += o.users
	h.lives += o.lives
}

func killTheDemo(t *testing.T, nuclei string, seed uint64) (h havoc) {
	top := t.TempDir()
	dir := filepath.Join(top, "examples", "nuclei")
	if err := os.CopyFS(dir, os.DirFS("../examples/nuclei")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(top, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(nuclei, filepath.Join(top, "bin", "nuclei")); err != nil {
		t.Fatal(err)
	}
	inDemo := func(command string) string {
		t.Helper()
		cmd := exec.Command(nuclei, command)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("nuclei %s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	inDemo("prepare")
	begin := []string{"run", "nuclei.toml", "--run-dir", "out/run"}
	for _, task := range []string{"smooth", "label", "stitch", "relabel"} {
		for _, limit := range []string{"max_retries=50", "max_lost=50", "max_worker_restarts=1000"} {
			begin = append(begin, "--set", "task."+task+"."+limit)
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	const manyKills = 40 // then it may end
	kills := 0
	for args := begin; ; {
		if h.lives++; h.lives > manyKills+5 {
			t.Fatalf("it has not ended after %d lives", h.lives)
		}
		s := start(t, dir, args...)
		for alive := true; alive && kills < manyKills; {
			select {
			case <-s.over:
				alive = false
				continue
			case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
			}
			workers, users := parties(s.cmd.Process.Pid, top)
			switch party := random.IntN(3); {
			case party == 0:
				_ = s.cmd.Process.Kill()
				h.coordinators, kills, alive = h.coordinators+1, kills+1, false
			case party == 1 && len(workers) > 0:
				_ = syscall.Kill(workers[random.IntN(len(workers))], syscall.SIGKILL)
				h.workers, kills = h.workers+1, kills+1
			case party == 2 && len(users) > 0:
				_ = syscall.Kill(users[random.IntN(len(users))], syscall.SIGKILL)
				h.users, kills = h.users+1, kills+1
			}
		}
		r := s.wait()
		if r.status == 0 {
			break
		}
		if r.status != -1 { // not killed
			t.Fatalf("exit status %d", r.status)
		}
		args = []string{"run", "--resume", "out/run"}
		if len(first2(filepath.Glob(dir+"/out/run/journal/*"))) == 0 { // nothing had begun
			if err := os.RemoveAll(dir + "/out/run"); err != nil {
				t.Fatal(err)
			}
			args = begin
		}
	}
	stats := statsOf(t, dir+"/out/run")
	for _, ts := range stats.Tasks {
		if ts.Blocks == 0 || ts.Success != ts.Blocks || ts.Skipped+ts.Failed+ts.Orphaned+ts.Abandoned != 0 {
			t.Errorf("%s: %+v", ts.ID, countsOf(ts))
		}
		processed := int64(0)
		for _, w := range stats.Workers {
			if w.Task == ts.ID {
				processed += w.Processed
			}
		}
		if processed != ts.Processed {
			t.Errorf("the workers of %s have processed %d blocks, the task %d", ts.ID, processed, ts.Processed)
		}
		marks, err := os.ReadFile(filepath.Join(dir, "out", "tracking", ts.ID, "done", "c", "0", "0", "0"))
		if err != nil {
			t.Fatal(err)
		}
		if n := int64(bytes.Count(marks, []byte{1})); n != ts.Blocks {
			t.Errorf("%d of %d blocks of %s are marked as done", n, ts.Blocks, ts.ID)
		}
	}
	inDemo("verify")
	wantNoneLeft(t, stats.Run.ID, dir+"/out/run")
	return h
}

// parties finds the workers and the user processes below a directory.
func parties(coordinator int, top string) (workers, users []int) {
	for _, path := range first2(filepath.Glob("/proc/[0-9]*")) {
		pid, _ := strconv.Atoi(filepath.Base(path))
		env, _ := os.ReadFile(path + "/environ")
		cwd, _ := os.Readlink(path + "/cwd")
		line, _ := os.ReadFile(path + "/cmdline")
		switch {
		case pid == coordinator || !strings.HasPrefix(cwd, top) || !bytes.Contains(env, []byte("DAISY_LAUNCHED_FOR=")):
		case bytes.Contains(line, []byte("daisy-worker")):
			workers = append(workers, pid)
		default:
			users = append(users, pid)
		}
	}
	return workers, users
}
