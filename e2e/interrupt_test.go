//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// interruptedJob has four blocks that run, and more that wait. What runs ignores SIGTERM and has left a process in a session
// of its own and one that nothing but its parenthood connects with the run.
func interruptedJob(d *director, grace string) string {
	return job("resources = { cpu = 2 }\ngrace = "+quote(grace),
		blocks("work", 20)+d.code("command", "E2E_DEAF=1", "E2E_LEAVE=session orphan"),
		blocks("after", 20)+d.code("command")+`after = ["work"]`)
}

func TestCtrlCEndsARunInOrder(t *testing.T) {
	t.Parallel()
	for signal, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			withinBudget(t, "signal to what is said of it", 100*time.Millisecond, func() time.Duration { return interruptInOrder(t, signal, status) })
		})
	}
}

// interruptInOrder interrupts a run and gives the time until it says so.
func interruptInOrder(t *testing.T, signal syscall.Signal, status int) time.Duration {
	d := newDirector(t)
	dir, path := writeJob(t, interruptedJob(d, "2s"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	visits := visitsOf(d, map[string]int{"ask": 2, "sit": 4})

	interrupted := time.Now()
	s.signal(signal)
	s.stderr.await(t, "no new blocks")
	said := time.Since(interrupted)
	asked := visits["ask"]
	asked[0].ok() // it uses its grace; the other one ignores what it is told
	r := s.wait()
	if r.status != status {
		t.Errorf("exit status %d, want %d", r.status, status)
	}
	if took := time.Since(interrupted); took > 30*time.Second {
		t.Errorf("the run took %v to end with a grace of 2 s", took)
	}
	d.none()
	for _, role := range []string{"ask", "sit"} {
		for _, v := range visits[role] {
			v.wantGone(t)
		}
	}
	stats := statsOf(t, filepath.Join(dir, "out"))
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
	if stats.Run.State != "interrupted" || *stats.Run.ExitStatus != status {
		t.Errorf("the state is %q, the exit status %d", stats.Run.State, *stats.Run.ExitStatus)
	}
	work := task(t, stats, "work")
	if work.Success != 1 || work.Processed != 1 || work.Abandoned != 19 || work.State != "abandoned" {
		t.Errorf("one block used its grace, 19 had none; the counts are %+v", countsOf(work))
	}
	if after := task(t, stats, "after"); after.Success != 0 || after.Abandoned+after.Orphaned != 20 {
		t.Errorf("nothing of the second task ran; the counts are %+v", countsOf(after))
	}
	wantText(t, r.stdout, "interrupted")
	return said
}

func TestASecondCtrlCEndsARunAtOnce(t *testing.T) {
	t.Parallel()
	withinBudget(t, "second Ctrl-C to the end", time.Second, func() time.Duration { return interruptTwice(t) })
}

// interruptTwice interrupts a run in order and then at once, and gives the time that this takes.
func interruptTwice(t *testing.T) time.Duration {
	d := newDirector(t)
	dir, path := writeJob(t, interruptedJob(d, "10m"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	visits := visitsOf(d, map[string]int{"ask": 2, "sit": 4})
	s.signal(syscall.SIGINT)
	s.stderr.await(t, "no new blocks")
	again := time.Now()
	s.signal(syscall.SIGINT)
	r := s.wait()
	took := time.Since(again)
	if r.status != 130 {
		t.Errorf("exit status %d, want 130", r.status)
	}
	for _, role := range []string{"ask", "sit"} {
		for _, v := range visits[role] {
			v.wantGone(t)
		}
	}
	stats := statsOf(t, filepath.Join(dir, "out"))
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
	if work := task(t, stats, "work"); work.Abandoned != 20 {
		t.Errorf("no block had ended; the counts are %+v", countsOf(work))
	}
	return took
}

func TestASerialRunIsInterruptedToo(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, interruptedJob(d, "1s"))
	s := start(t, dir, "run", path, "--run-dir", "out", "--launcher", "serial")
	visits := visitsOf(d, map[string]int{"ask": 1, "sit": 2})
	s.signal(syscall.SIGINT)
	if r := s.wait(); r.status != 130 {
		t.Errorf("exit status %d, want 130", r.status)
	}
	visits["ask"][0].wantGone(t)
	for _, v := range visits["sit"] {
		v.wantGone(t)
	}
	stats := statsOf(t, filepath.Join(dir, "out"))
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
}

func TestARunGoesOnWithoutItsTerminal(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command")))
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	terminal := openTerminal(t, s)
	s.begin()
	first := d.next()
	terminal.close() // the kernel sends SIGHUP; writing fails from now on
	first.ok()
	d.next().ok()
	s.wait()
	stats := statsOf(t, filepath.Join(dir, "out"))
	if stats.Run.State != "done" {
		t.Errorf("the run is %q", stats.Run.State)
	}
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
}

func TestARunGoesOnWhenNobodyReadsItsOutput(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }",
		blocks("work", 1)+d.code("command"),
		blocks("after", 1)+shell("sleep 1.5")+`after = ["work"]`)) // progress is written meanwhile
	s := prepare(t, dir, "run", path, "--run-dir", "out", "--json")
	hangUp := pipeOutput(t, s)
	s.begin()
	first := d.next()
	s.signal(syscall.SIGHUP)
	hangUp()
	first.ok()
	s.wait()
	if stats := statsOf(t, filepath.Join(dir, "out")); stats.Run.State != "done" {
		t.Errorf("the run is %q", stats.Run.State)
	}
}

func TestCtrlCOnATerminalShowsAndEndsTheRun(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"500ms\"", blocks("work", 2)+d.code("command")))
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	terminal := openTerminal(t, s)
	s.begin()
	v := d.next()
	terminal.screen.await(t, "0/2") // a progress bar
	terminal.write("\x03")          // what Ctrl-C is
	terminal.screen.await(t, "no new blocks")
	if r := s.wait(); r.status != 130 {
		t.Errorf("exit status %d, want 130", r.status)
	}
	v.wantGone(t)
	if stats := statsOf(t, filepath.Join(dir, "out")); stats.Run.State != "interrupted" {
		t.Errorf("the run is %q", stats.Run.State)
	}
}

func TestCtrlCEndsWhatHasNotBegunWhileABatchSystemHangs(t *testing.T) {
	tools, dir := t.TempDir(), t.TempDir()
	asked := filepath.Join(tools, "asked")
	if err := syscall.Mkfifo(asked, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"sbatch": "", "squeue": "", "scancel": "", "scontrol": "echo >'" + asked + "'; exec sleep 600"} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	path := filepath.Join(dir, "job.toml")
	text := job("launcher = 'slurm'", blocks("work", 4)+"run = { command = ['true'] }\nmax_workers = 2\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, "run", path)
	_, _ = os.ReadFile(asked) // scontrol has been started
	interrupted := time.Now()
	s.signal(syscall.SIGINT)
	r := s.wait()
	if took := time.Since(interrupted); r.status != 130 || took > 10*time.Second {
		t.Errorf("exit status %d after %v\n%s", r.status, took, r.stderr)
	}
}
