//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// tries is how often a time is measured; the best counts.
	tries = 5
	// busy is how many times longer than a bare restart of a process a time may be where it exceeds its budget: the machine
	// is so busy with other things then that the budget says nothing.
	busy = 2
)

// withinBudget measures a time until it is within its budget, or no longer than what a bare restart takes just then allows.
func withinBudget(t testing.TB, what string, budget time.Duration, measure func() time.Duration) {
	t.Helper()
	var tried, restarts []time.Duration
	for range tries {
		got := measure()
		if got <= budget {
			t.Logf("%s: %v (budget %v)", what, got.Round(10*time.Microsecond), budget)
			return
		}
		bare := bareRestart(t)
		if got <= busy*bare {
			t.Logf("%s: %v (budget %v); the machine is busy: a bare restart of a process takes %v", what, got, budget, bare)
			return
		}
		tried, restarts = append(tried, got), append(restarts, bare)
	}
	t.Errorf("%s: the budget is %v, the best of %d tries took %v (all: %v), and the machine is not so busy that this is to be expected: "+
		"to kill a process, reap it and start another took %v after each", what, budget, tries, slices.Min(tried), tried, restarts)
}

// bareRestart is how long it takes from kill -9 of a process until another, started once it is reaped, has come to us: what a
// coordinator cannot do without, and nothing else.
func bareRestart(t testing.TB) time.Duration {
	t.Helper()
	d := newDirector(t)
	begin := func() *exec.Cmd {
		cmd := exec.Command(self())
		cmd.Env = append(os.Environ(), "E2E_ROLE=ask", "E2E_SOCKET="+d.listener.Addr().String())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	cmd := begin()
	d.next()
	killed := kill(t, cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	cmd = begin()
	v := d.next()
	v.ok()
	_ = cmd.Wait()
	return v.at.Sub(killed)
}

func TestTheBlockOfAKilledWorkerGoesToAWaitingOne(t *testing.T) {
	t.Parallel()
	withinBudget(t, "kill -9 of a worker to its block on a waiting one", 50*time.Millisecond, func() time.Duration { return fromDeathToAWaitingWorker(t) })
}

func fromDeathToAWaitingWorker(t testing.TB) time.Duration {
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }\nidle_timeout = \"1m\"",
		blocks("work", 2)+d.code("stream"),
		// The worker that has nothing to do is kept for this one.
		"id = \"after\"\nafter = [\"work\"]\ntotal = { offset = [0], shape = [2] }\nblock = { shape = [2] }\n"+d.code("stream")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	victim, other := d.next(), d.next()
	other.ok()
	<-other.gone

	killed := kill(t, victim.PPID, syscall.SIGKILL)
	victim.wantGone(t)
	again := d.next()
	if again.Index != victim.Index || again.Worker != other.Worker || again.Attempt != "2" {
		t.Errorf("block %s was killed on worker %s; then came %+v", victim.Index, victim.Worker, again.question)
	}
	again.ok()
	d.next().ok()
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{
		"work":  {State: "done", Blocks: 2, Success: 2, Processed: 2, Reclaimed: 1, Lost: 1},
		"after": {State: "done", Blocks: 1, Success: 1, Processed: 1},
	})
	return again.at.Sub(killed)
}

func TestTheBlockOfAKilledWorkerGoesToANewOne(t *testing.T) {
	t.Parallel()
	withinBudget(t, "kill -9 of a worker to its block on a new one", 500*time.Millisecond, func() time.Duration { return fromDeathToANewWorker(t) })
}

// BenchmarkKilledWorker measures from kill -9 of a local worker to the start of its block elsewhere, the best of three.
func BenchmarkKilledWorker(b *testing.B) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.Run("waiting", func(b *testing.B) {
		best := time.Hour
		for range 3 {
			best = min(best, fromDeathToAWaitingWorker(b))
		}
		b.ReportMetric(ms(best), "ms")
	})
	b.Run("new", func(b *testing.B) { b.ReportMetric(ms(fromDeathToANewWorker(b)), "ms") })
}

// fromDeathToANewWorker is the best of three.
func fromDeathToANewWorker(t testing.TB) time.Duration {
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	best := time.Hour
	victim := d.next()
	for range 3 {
		killed := kill(t, victim.PPID, syscall.SIGKILL)
		victim.wantGone(t)
		next := d.next()
		if next.Worker == victim.Worker {
			t.Errorf("worker %s was killed and has its block again", next.Worker)
		}
		best = min(best, next.at.Sub(killed))
		victim = next
	}
	victim.ok()
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 1, Success: 1, Processed: 1, Reclaimed: 3, Lost: 3}})
	var ends []string
	for _, w := range stats.Workers {
		ends = append(ends, *w.End)
	}
	if got := strings.Join(ends, " "); strings.Count(got, "signal") != 3 {
		t.Errorf("three workers were killed by a signal; their ends are: %s", got)
	}
	return best
}

func TestABlockThatKillsItsWorkerFiveTimesHasFailed(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("resources = { cpu = 1 }", blocks("work", 1)+shell("echo about to kill; kill -9 $PPID; sleep 60")))
	wantText(t, r.stdout, "killed its worker 5 times")
	wantCounts(t, statsOf(t, dir), map[string]counts{"work": {State: "done", Blocks: 1, Failed: 1, Reclaimed: 5, Lost: 5}})
}

func TestAStoppedWorkerLosesItsBlockAndIsKilled(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }", blocks("work", 2)+d.code("command")+`timeout = "1s"`))
	s := start(t, dir, "run", path, "--run-dir", "out")
	stopped, other := d.next(), d.next()
	freeze(t, stopped.PPID)
	other.ok()

	again := d.next()
	if again.Index != stopped.Index || again.Worker == stopped.Worker {
		t.Errorf("worker %s was stopped with block %s; then came %+v", stopped.Worker, stopped.Index, again.question)
	}
	again.ok()
	stopped.wantGone(t) // killed with its worker, although nobody told it
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	if err := syscall.Kill(stopped.PPID, 0); err == nil {
		t.Errorf("the stopped worker, process %d, is still there", stopped.PPID)
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{
		"work": {State: "done", Blocks: 2, Success: 2, Processed: 2, Retries: 1, Reclaimed: 1, TimedOut: 1},
	})
	wantEnd(t, stats.Workers, stopped.Worker, "killed_by_us")
}

func TestAWorkerThatGoesOnAfterItsLossIsRefused(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	task := func(id string, offset, shape, block int, more string) string {
		return fmt.Sprintf("id = %q\ntotal = { offset = [%d], shape = [%d] }\nblock = { shape = [%d] }\n%s", id, offset, shape, block, d.code("command")+more)
	}
	// Both blocks of "then" need block 2 of "work", both of "last" need block 1 of "then".
	dir, path := writeJob(t, job("resources = { cpu = 3 }\nidle_timeout = \"1m\"",
		task("work", 0, 12, 4, `timeout = "1s"`), task("then", 8, 4, 2, `after = ["work"]`), task("last", 10, 2, 1, `after = ["then"]`)))
	s := start(t, dir, "run", path, "--run-dir", "out")
	work := map[string]*visit{}
	for range 3 {
		v := d.next()
		work[v.Index] = v
	}
	stopped := work["0"]
	freeze(t, stopped.PPID)
	stopped.ok() // the block is done; its worker cannot say so
	stopped.wantGone(t)
	work["1"].ok()
	work["2"].ok()
	then := map[string]*visit{} // on the other two workers
	for range 2 {
		v := d.next()
		then[v.Index] = v
	}
	then["0"].ok()
	look := time.NewTicker(300 * time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(patience); !strings.Contains(run(t, dir, "blocks", "out", "--state", "held", "--json").stdout, `"task"`); <-look.C { // until it is taken away
		if time.Now().After(until) {
			t.Fatal("the block of a stopped worker is not taken away")
		}
	}
	kill(t, stopped.PPID, syscall.SIGCONT) // before it is killed as one that does not answer
	again := d.next()
	if again.Task != "work" || again.Index != "0" || again.Attempt != "2" {
		t.Errorf("worker %s was stopped with block 0; then came %+v", stopped.Worker, again.question)
	}
	then["1"].ok()
	last := []*visit{d.next(), d.next()} // three blocks on three workers, with the one that goes on: it has been refused before it asked
	if again.Worker != stopped.Worker && last[0].Worker != stopped.Worker && last[1].Worker != stopped.Worker {
		t.Errorf("worker %s has no block again; %s, %s and %s have", stopped.Worker, again.Worker, last[0].Worker, last[1].Worker)
	}
	for _, v := range append(last, again) {
		v.ok()
	}
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{
		"work": {State: "done", Blocks: 3, Success: 3, Processed: 3, Retries: 1, Reclaimed: 1, TimedOut: 1},
		"then": {State: "done", Blocks: 2, Success: 2, Processed: 2},
		"last": {State: "done", Blocks: 2, Success: 2, Processed: 2},
	})
	for _, w := range stats.Workers {
		own := int64(0)
		if again.Worker == stopped.Worker {
			own = 1
		}
		if w.ID == stopped.Worker && w.Task == "work" && w.Processed != own {
			t.Errorf("worker %s was refused and is said to have processed %d blocks of its first task, want %d", w.ID, w.Processed, own)
		}
	}
	wantEnd(t, stats.Workers, stopped.Worker, "left")
}

func TestACoordinatorThatWasStoppedGoesOnWithAllItsWorkers(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 3 }\nheartbeat_timeout = \"300ms\"\nreconnect_grace = \"300ms\"\nhint_after = \"8s\"\nabandon_after = \"10s\"",
		blocks("work", 4)+d.code("command")+"timeout = \"1m\"\n"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := []*visit{d.next(), d.next(), d.next()}
	freeze(t, s.cmd.Process.Pid)
	first[0].ok()                         // its worker cannot say so yet
	<-time.After(1500 * time.Millisecond) // of silence, which is the matter of this test
	kill(t, s.cmd.Process.Pid, syscall.SIGCONT)
	last := d.next()
	if last.Index != "3" || last.Worker != first[0].Worker {
		t.Errorf("block %s comes to worker %s; want the fourth block for worker %s", last.Index, last.Worker, first[0].Worker)
	}
	for _, v := range []*visit{first[1], first[2], last} {
		select {
		case <-v.gone:
			t.Errorf("block %s was killed", v.Index)
		default:
		}
		v.ok()
	}
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 4, Success: 4, Processed: 4}})
	if len(stats.Workers) != 3 {
		t.Errorf("there were %d workers, want the three of the beginning", len(stats.Workers))
	}
}

func TestMarksOutliveAKilledRun(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ntracking = \"tracking\"", blocks("count", 3)+d.code("command")))
	s := start(t, dir, "run", path)
	d.next().ok()
	held := d.next()
	awaitFile(t, dir+"/tracking/count/done/c/0", "\x01") // marks are written soon after
	killAll(t, s, dir)
	held.wantGone(t)

	again := start(t, dir, "run", path)
	if v := d.next(); v.Index != "1" {
		t.Errorf("block %s runs first, want 1", v.Index)
	} else {
		v.ok()
	}
	d.next().ok()
	r := again.wait()
	if r.status != 0 {
		t.Errorf("exit status %d, want 0", r.status)
	}
	wantText(t, r.stderr, "an earlier run of this job did not end")
	wantText(t, r.stdout, "2 succeeded, 1 skipped")
}

func TestAStreamThatEndsWithoutAnAnswerHasFailed(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("resources = { cpu = 1 }", blocks("work", 1)+code("stream", "mute")))
	wantText(t, r.stdout, "answer")
	wantCounts(t, statsOf(t, dir), map[string]counts{"work": {State: "done", Blocks: 1, Failed: 1, Processed: 3, Retries: 2}})
}
