//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAKilledRunGoesOnWhereItsJournalEnds(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ntracking = \"tracking\"", blocks("count", 4)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	d.next().ok()
	held := d.next()
	awaitFile(t, dir+"/tracking/count/done/c/0", "\x01") // marks follow the commit
	killAll(t, s, dir)
	held.wantGone(t)

	again := start(t, dir, "run", "--resume", "out")
	for want := 1; want < 4; want++ {
		v := d.next()
		if v.Index != strconv.Itoa(want) || v.Attempt != "1" {
			t.Errorf("block %s, attempt %s runs, want block %d for the first time", v.Index, v.Attempt, want)
		}
		v.ok()
	}
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{"count": {State: "done", Blocks: 4, Success: 4, Processed: 4}})
	if n := len(stats.Run.Segments); n != 2 || stats.Run.Segments[0].Epoch != 1 || stats.Run.Segments[1].Epoch != 2 {
		t.Errorf("the segments are %+v", stats.Run.Segments)
	}
	if len(stats.Workers) != 2 || stats.Workers[0].ID == stats.Workers[1].ID || stats.Workers[0].Processed != 1 || stats.Workers[1].Processed != 3 {
		t.Errorf("the workers are %+v", stats.Workers)
	}
	wantEnd(t, stats.Workers, stats.Workers[0].ID, "lost")
	if mode := stats.Tasks[0].MaxConcurrency; mode != 1 {
		t.Errorf("max_concurrency %d", mode)
	}
}

func TestFailuresSoFarCountAfterAResume(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+
		shell("echo $DAISY_ATTEMPT >> attempts; if [ -e second ]; then sleep 1000; fi; touch second; exit 3")+"max_retries = 1"))
	writeFile(t, filepath.Join(dir, "attempts"), "")
	s := start(t, dir, "run", path, "--run-dir", "out")
	awaitFile(t, filepath.Join(dir, "attempts"), "1\n2\n") // so the end of the first is in the journal, or will be in a moment
	awaitRecords(t, filepath.Join(dir, "out"))
	killAll(t, s, dir)
	if err := os.Remove(filepath.Join(dir, "second")); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, 1, dir, "run", "--resume", "out")
	if got := readFile(t, filepath.Join(dir, "attempts")); got != "1\n2\n2\n" {
		t.Errorf("the attempts were %q", got)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 1, Failed: 1, Processed: 2, Retries: 1}})
}

// awaitRecords waits longer than results may wait for each other before they are written down. Nothing announces it.
func awaitRecords(t testing.TB, runDir string) {
	t.Helper()
	size := func() (n int64) {
		files, _ := filepath.Glob(filepath.Join(runDir, "journal", "*"))
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	look := time.NewTicker(100 * time.Millisecond) // five times what a commit waits for others
	defer look.Stop()
	for last, same := size(), 0; same < 3; {
		<-look.C
		if now := size(); now == last {
			same++
		} else {
			last, same = now, 0
		}
	}
}

func TestASecondCoordinatorRefusesAndNamesTheFirst(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	r := wantStatus(t, 2, dir, "run", "--resume", "out")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, r.stderr, fmt.Sprintf("pid %d on %s, since 2", s.cmd.Process.Pid, host))
	d.none()
	v.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("the first one ended with %d", r.status)
	}
}

func TestACoordinatorThatWasTakenOverLeavesTheRunToItsSuccessor(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ntracking = \"tracking\"", blocks("work", 2)+d.code("command")))
	old := start(t, dir, "run", path, "--run-dir", "out")
	first := d.next()
	heir := start(t, dir, "run", "--resume", "out", "--take-over")
	heir.stderr.await(t, "took over 1 worker")
	first.ok()
	d.next().ok()
	if r := heir.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	r := old.wait()
	if r.status != 3 {
		t.Errorf("the old one ended with %d", r.status)
	}
	wantText(t, r.stderr, "taken over")
	stats := statsOf(t, dir+"/out")
	if work := task(t, stats, "work"); stats.Run.State != "done" || work.Success != 2 {
		t.Errorf("%s: %+v", stats.Run.State, countsOf(work))
	}
}

func TestResumingARunThatHasEndedPrintsItsReportAndStartsNothing(t *testing.T) {
	t.Parallel()
	for want, line := range map[int]string{0: "echo x >> ran", 1: "echo x >> ran; exit 1"} {
		dir, path := writeJob(t, job("", blocks("work", 1)+shell(line)+"max_retries = 0"))
		first := wantStatus(t, want, dir, "run", path, "--run-dir", "out")
		before := readFile(t, dir+"/out/stats.json")
		again := wantStatus(t, want, dir, "run", "--resume", "out")
		wantText(t, again.stderr, "has ended")
		if again.stdout != first.stdout {
			t.Errorf("the report was\n%s\nand is\n%s", first.stdout, again.stdout)
		}
		if got := readFile(t, dir+"/ran"); got != "x\n" || readFile(t, dir+"/out/stats.json") != before {
			t.Errorf("something ran or was written: %q", got)
		}
	}
}

func TestAnInterruptedRunCanBeResumedByName(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"", blocks("work", 3)+d.code("command")))
	s := start(t, dir, "run", path)
	d.next().ok()
	held := d.next()
	s.signal(syscall.SIGINT)
	if r := s.wait(); r.status != 130 {
		t.Fatalf("exit status %d", r.status)
	}
	held.wantGone(t)
	again := start(t, dir, "run", path, "--resume", "latest", "--set", "task.work.max_retries=7")
	d.next().ok()
	d.next().ok()
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, filepath.Join(dir, "runs", "latest"))
	if work := task(t, stats, "work"); work.Success != 3 || work.Abandoned != 0 || stats.Run.State != "done" {
		t.Errorf("%s: %+v", stats.Run.State, countsOf(work))
	}
	wantText(t, readFile(t, filepath.Join(dir, "runs", "latest", "job.toml")), "max_retries=7")
	wantStatus(t, 0, dir, "run", "--resume", "latest")
}

func TestOnlyLimitsMayChangeWithAResume(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	text := job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command"))
	dir, path := writeJob(t, text)
	s := start(t, dir, "run", path, "--run-dir", "out")
	held := d.next()
	killAll(t, s, dir)
	held.wantGone(t)
	for name, c := range map[string]struct {
		args []string
		text string
		want string
	}{
		"a set":      {[]string{"--set", "task.work.requires.cpu=0.5"}, "", `task "work": requires was { cpu = 1 }, and is { cpu = 0.5 } now`},
		"a job file": {[]string{path}, job("resources = { cpu = 1 }", blocks("work", 3)+d.code("command")), `task "work": the total write region was { offset = [0], shape = [2] }, and is { offset = [0], shape = [3] } now`},
		"a task":     {[]string{path}, job("", blocks("other", 2)+d.code("command")), `the list of tasks was ["work"], and is ["other"] now`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.text != "" {
				writeFile(t, path, c.text)
			}
			r := wantStatus(t, 2, dir, append([]string{"run", "--resume", "out"}, c.args...)...)
			wantText(t, r.stderr, c.want)
			d.none()
		})
	}
	wantText(t, wantStatus(t, 2, dir, "run", "--resume", "out", "--limit", "1").stderr, "--limit is for a new run")
	again := start(t, dir, "run", "--resume", "out", "--max-workers", "1", "--set", "task.work.timeout=1h")
	again.stderr.await(t, "has changed since the run began")
	d.next().ok()
	d.next().ok()
	if r := again.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
}

func TestWhatADeadCoordinatorLeftBehindEndsWithTheResume(t *testing.T) {
	t.Parallel()
	// The block puts a process into a session of its own that survives everything but a search for it, and stays the first time.
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"", blocks("work", 1)+
		shell("if [ -s pid ]; then exit 0; fi; setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1000; done' & sleep 1000")))
	writeFile(t, filepath.Join(dir, "pid"), "")
	s := start(t, dir, "run", path, "--run-dir", "out")
	text := strings.TrimSpace(awaitFile(t, filepath.Join(dir, "pid"), "\n"))
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	workers, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	// Nobody has a chance to clean up: the coordinator cannot when the worker dies, and dies then.
	freeze(t, s.cmd.Process.Pid)
	for _, w := range workers {
		if line, _ := os.ReadFile(w); bytes.Contains(line, []byte(dir+"/out/bin/daisy-worker")) {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(w)))
			kill(t, n, syscall.SIGKILL)
		}
	}
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	r := wantStatus(t, 0, dir, "run", "--resume", "out")
	wantText(t, r.stderr, "ended processes of the coordinator before")
	awaitProcessEnd(t, pid)
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 1, Success: 1, Processed: 1}})
}

func TestATornJournalIsCutAndADamagedOneIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm   func(data []byte) []byte
		status int
		want   string
	}{
		"torn":    {func(data []byte) []byte { return data[:len(data)-3] }, 0, "do not count"},
		"flipped": {func(data []byte) []byte { data[len(data)/3] ^= 0x10; return data }, 3, "damaged at byte"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 6)+shell("echo $DAISY_BLOCK_INDEX >> ran; if [ {index} = 5 ] && [ ! -e again ]; then touch again; sleep 1000; fi")))
			writeFile(t, filepath.Join(dir, "ran"), "")
			s := start(t, dir, "run", path, "--run-dir", "out")
			awaitFile(t, filepath.Join(dir, "ran"), "5\n")
			awaitRecords(t, filepath.Join(dir, "out"))
			killAll(t, s, dir)
			files, err := filepath.Glob(filepath.Join(dir, "out", "journal", "*"))
			if err != nil || len(files) != 1 {
				t.Fatalf("the journal is %v (%v)", files, err)
			}
			data, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(files[0], c.harm(data), 0o600); err != nil {
				t.Fatal(err)
			}
			r := wantStatus(t, c.status, dir, "run", "--resume", "out")
			wantText(t, r.stderr, c.want)
			if c.status == 0 {
				wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 6, Success: 6, Processed: 6}})
			} else if strings.Count(readFile(t, filepath.Join(dir, "ran")), "\n") != 6 {
				t.Error("a block ran")
			}
		})
	}
}

func TestASerialRunCanBeResumed(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("launcher = \"serial\"", blocks("work", 3)+shell("echo {index} >> ran; test {index} != 1 || test -e mended || sleep 1000")))
	writeFile(t, filepath.Join(dir, "ran"), "")
	s := start(t, dir, "run", path, "--run-dir", "out")
	awaitFile(t, filepath.Join(dir, "ran"), "1\n")
	awaitRecords(t, filepath.Join(dir, "out"))
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	writeFile(t, dir+"/mended", "")
	wantStatus(t, 0, dir, "run", "--resume", "out")
	if got := readFile(t, dir+"/ran"); got != "0\n1\n1\n2\n" {
		t.Errorf("what ran is %q", got)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 3, Success: 3, Processed: 3}})
}

func TestAResultThatCouldNotBeDeliveredIsTakenFromTheOutbox(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, jobOfTwo(d, "abandon_after = \"3s\""))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := d.next()
	helper := aHelper(t, dir)
	_, helped := helper.share(t, d, first)
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	helped.ok()
	err := helper.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Fatalf("the helper ended with %v: %s", err, helper.said)
	}
	if files := first2(filepath.Glob(dir + "/out/outbox/*.json")); len(files) != 1 {
		t.Fatalf("the outbox has %v: %s", files, helper.said)
	}
	again := start(t, dir, "run", "--resume", "out")
	v := d.next()
	if v.Index == helped.Index {
		t.Errorf("block %s runs again, and its result was in the outbox", v.Index)
	}
	v.ok()
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	if work := task(t, stats, "work"); work.Success != 2 || work.Processed != 2 {
		t.Errorf("%+v", countsOf(work))
	}
	processed := int64(0)
	for _, w := range stats.Workers {
		if w.ID == "helper" {
			processed += w.Processed
		}
	}
	if processed != 1 {
		t.Errorf("the helper processed %d", processed)
	}
}

// TestARunThatIsKilledAgainAndAgainEndsRight kills random parties at random moments, and resumes until the run has ended.
// DAISY_SOAK sets how many such runs, each with a seed of its own; one failing seed is run alone with DAISY_SOAK_SEED.
func TestARunThatIsKilledAgainAndAgainEndsRight(t *testing.T) {
	t.Parallel()
	runs, first := 3, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("DAISY_SOAK")); err == nil {
		runs = n
	}
	if n, err := strconv.ParseUint(os.Getenv("DAISY_SOAK_SEED"), 10, 64); err == nil {
		runs, first = 1, n
	}
	kills, lives := 0, 0
	for i := range runs {
		k, l := killAgainAndAgain(t, first+uint64(i))
		kills, lives = kills+k, lives+l
	}
	t.Logf("%d runs, %d kills, %d lives of coordinators: every run ended with all blocks, and its counts add up", runs, kills, lives)
}

func killAgainAndAgain(t *testing.T, seed uint64) (kills, lives int) {
	t.Helper()
	const n = 24
	random := rand.New(rand.NewPCG(seed, 0))
	limits := "max_retries = 50\nmax_lost = 50\nmax_worker_restarts = 1000\n"
	// Each block leaves a file by renaming it into place, as blocks should; the second task reads what the first one left.
	dir, path := writeJob(t, job("resources = { cpu = 3 }\ntracking = \"tracking\"",
		blocks("one", n)+shell("sleep 0.03; echo {index} > one-{index}.$$ && mv one-{index}.$$ one-{index}")+limits,
		blocks("two", n)+shell("sleep 0.02; cat one-{index} > two-{index}.$$ && mv two-{index}.$$ two-{index}")+limits+"after = [\"one\"]\n"))
	args := []string{"run", path, "--run-dir", "out"}
	for lives = 1; ; lives++ {
		if lives > 60 {
			t.Fatalf("seed %d: it has not ended after %d lives", seed, lives)
		}
		s := start(t, dir, args...)
		alive := true
		for alive && lives < 12 {
			select {
			case <-s.over:
				alive = false
				continue
			case <-time.After(time.Duration(random.IntN(250)) * time.Millisecond):
			}
			switch party := random.IntN(4); party {
			case 0, 1: // the coordinator
				_ = s.cmd.Process.Kill()
				kills++
				alive = false
			default: // one of its workers, or of their blocks
				var found []int
				for _, stat := range first2(filepath.Glob("/proc/[0-9]*/environ")) {
					pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
					env, _ := os.ReadFile(stat)
					cwd, _ := os.Readlink(filepath.Join(filepath.Dir(stat), "cwd"))
					if pid != s.cmd.Process.Pid && cwd == dir && bytes.Contains(env, []byte("DAISY_LAUNCHED_FOR=")) {
						found = append(found, pid)
					}
				}
				slices.Sort(found)
				if len(found) > 0 {
					_ = syscall.Kill(found[random.IntN(len(found))], syscall.SIGKILL)
					kills++
				}
			}
		}
		r := s.wait()
		if r.status == 0 {
			break
		}
		if r.status != -1 { // not killed
			t.Fatalf("seed %d: exit status %d", seed, r.status)
		}
		if len(first2(filepath.Glob(dir+"/out/journal/*"))) == 0 {
			if err := os.RemoveAll(dir + "/out"); err != nil { // nothing had begun
				t.Fatal(err)
			}
			continue
		}
		args = []string{"run", "--resume", "out"}
	}
	stats := statsOf(t, dir+"/out")
	for _, id := range []string{"one", "two"} {
		ts := task(t, stats, id)
		if ts.Success != n || ts.Skipped+ts.Failed+ts.Orphaned+ts.Abandoned != 0 || ts.Processed < n {
			t.Errorf("seed %d: %+v", seed, countsOf(ts))
		}
		processed := int64(0)
		for _, w := range stats.Workers {
			if w.Task == id {
				processed += w.Processed
			}
		}
		if processed != ts.Processed {
			t.Errorf("seed %d: the workers of %s have processed %d, the task %d", seed, id, processed, ts.Processed)
		}
		for i := range n {
			if got := readFile(t, fmt.Sprintf("%s/%s-%d", dir, id, i)); got != fmt.Sprintf("%d\n", i) {
				t.Errorf("seed %d: %s-%d is %q", seed, id, i, got)
			}
		}
	}
	if got := readFile(t, dir+"/tracking/two/done/c/0"); got != strings.Repeat("\x01", n) {
		t.Errorf("seed %d: the marks are %q", seed, got)
	}
	if n := len(stats.Run.Segments); n < 1 || n > lives { // a life that ended before its first commit left none
		t.Errorf("seed %d: %d lives, %d segments", seed, lives, n)
	}
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
	return kills, lives
}

func first2[A any](a A, _ error) A { return a }
