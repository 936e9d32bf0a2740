//go:build linux

package e2e

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killKnown kills a coordinator once its journal knows its workers.
func killKnown(t testing.TB, s *submit, dir string) time.Time {
	t.Helper()
	awaitRecords(t, filepath.Join(dir, "out"))
	killed := kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	return killed
}

// inOrder sorts visits by their blocks.
func inOrder(visits []*visit) []*visit {
	slices.SortFunc(visits, func(a, b *visit) int { return cmp.Compare(a.Index, b.Index) })
	return visits
}

// wantRuns checks that each block has run once and no more.
func wantRuns(t testing.TB, path string, blocks int) {
	t.Helper()
	lines := strings.Fields(readFile(t, path))
	slices.Sort(lines)
	var want []string
	for i := range blocks {
		want = append(want, strconv.Itoa(i))
	}
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("the blocks that were started are %v, want %v", lines, want)
	}
}

func TestLiveWorkersGoOnWithTheirBlocksUnderTheNextCoordinator(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"command", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			ran := filepath.Join(t.TempDir(), "ran")
			dir, path := writeJob(t, job("resources = { cpu = 4 }", blocks("work", 8)+d.code(kind, "E2E_RAN="+ran)))
			s := start(t, dir, "run", path, "--run-dir", "out")
			first := inOrder([]*visit{d.next(), d.next(), d.next(), d.next()})
			killKnown(t, s, dir)
			first[0].ok() // one block ends while there is no coordinator
			<-first[0].gone

			again := start(t, dir, "run", "--resume", "out")
			again.stderr.await(t, "took over 4 workers")
			pids := map[string]int{}
			for _, v := range first {
				pids[v.Worker] = v.PPID
			}
			// The worker that had ended its block has the next one, in the same process.
			next := d.next()
			if next.Index != "4" || next.Worker != first[0].Worker || kind == "command" && next.PPID != first[0].PPID {
				t.Errorf("after the resume comes %+v, want block 4 on worker %s", next.question, first[0].Worker)
			}
			for _, v := range first[1:] {
				select {
				case <-v.gone:
					t.Errorf("block %s was ended", v.Index)
				default:
				}
				v.ok()
			}
			next.ok()
			for range 3 {
				v := d.next()
				if pid, known := pids[v.Worker]; !known || kind == "command" && pid != v.PPID {
					t.Errorf("block %s runs on worker %s, process %d; the workers are %v", v.Index, v.Worker, v.PPID, pids)
				}
				v.ok()
			}
			d.none()
			if r := again.wait(); r.status != 0 {
				t.Fatalf("exit status %d", r.status)
			}
			stats := statsOf(t, dir+"/out")
			wantCounts(t, stats, map[string]counts{"work": {State: "done", Blocks: 8, Success: 8, Processed: 8}})
			if len(stats.Workers) != 4 {
				t.Errorf("there were %d workers", len(stats.Workers))
			}
			wantRuns(t, ran, 8)
			for _, w := range stats.Workers {
				wantEnd(t, stats.Workers, w.ID, "left")
			}
			wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
		})
	}
}

func TestWorkersSurviveOneCoordinatorAfterTheOther(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	ran := filepath.Join(t.TempDir(), "ran")
	dir, path := writeJob(t, job("resources = { cpu = 2 }", blocks("work", 2)+d.code("command", "E2E_RAN="+ran)))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := []*visit{d.next(), d.next()}
	for range 3 {
		killKnown(t, s, dir)
		s = start(t, dir, "run", "--resume", "out")
		s.stderr.await(t, "took over 2 workers")
	}
	for _, v := range first {
		v.ok()
	}
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantRuns(t, ran, 2)
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 2}})
}

func TestACoordinatorThatWasStoppedAndTakenOverLeavesItsWorkersAlone(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	ran := filepath.Join(t.TempDir(), "ran")
	dir, path := writeJob(t, job("resources = { cpu = 2 }", blocks("work", 4)+d.code("command", "E2E_RAN="+ran)))
	old := start(t, dir, "run", path, "--run-dir", "out")
	first := inOrder([]*visit{d.next(), d.next()})
	awaitRecords(t, filepath.Join(dir, "out"))
	freeze(t, old.cmd.Process.Pid)
	heir := start(t, dir, "run", "--resume", "out", "--take-over")
	heir.stderr.await(t, "took over 2 workers")
	old.signal(syscall.SIGCONT)
	r := old.wait()
	if r.status != 3 || r.stdout != "" || strings.Contains(r.stderr, "next:") {
		t.Errorf("the old one ended with %d, as if the run had:\n%s%s", r.status, r.stdout, r.stderr)
	}
	wantText(t, r.stderr, "taken over", "daisy-submit status")
	first[0].ok()
	first[1].ok()
	d.next().ok()
	d.next().ok()
	if r := heir.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	wantRuns(t, ran, 4)
	if work := task(t, statsOf(t, dir+"/out"), "work"); work.Success != 4 || work.Processed != 4 || work.Lost != 0 {
		t.Errorf("%+v", countsOf(work))
	}
}

func TestAWorkerThatDiesWithItsCoordinatorIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }", blocks("work", 2)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	dead, alive := d.next(), d.next()
	awaitRecords(t, filepath.Join(dir, "out"))
	freeze(t, s.cmd.Process.Pid) // so that it sees nothing
	kill(t, dead.PPID, syscall.SIGKILL)
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	dead.wantGone(t) // user code ends with its worker, whoever else has died

	again := start(t, dir, "run", "--resume", "out")
	again.stderr.await(t, "took over 1 worker")
	v := d.next() // long before abandon_after, which is two minutes
	if v.Index != dead.Index || v.Worker == dead.Worker || v.Worker == alive.Worker {
		t.Errorf("the block of the dead worker is %s; then came %+v", dead.Index, v.question)
	}
	v.ok()
	alive.ok()
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 2}})
}

func TestTheEndOfAWorkerThatWasTakenOverIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command", "E2E_LEAVE=session")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	visits := visitsOf(d, map[string]int{"ask": 1, "sit": 1})
	victim, left := visits["ask"][0], visits["sit"][0]
	killKnown(t, s, dir)
	again := start(t, dir, "run", "--resume", "out")
	again.stderr.await(t, "took over 1 worker")
	kill(t, victim.PPID, syscall.SIGKILL)
	left.wantGone(t) // what its block had put into a session of its own
	v := visitsOf(d, map[string]int{"ask": 1})["ask"][0]
	if v.Worker == victim.Worker {
		t.Errorf("worker %s was killed and has its block again", v.Worker)
	}
	v.ok()
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	stats := statsOf(t, dir+"/out")
	if work := task(t, stats, "work"); work.Success != 1 || work.Processed != 1 {
		t.Errorf("%+v", countsOf(work))
	}
	wantNoneLeft(t, stats.Run.ID, filepath.Join(dir, "out"))
}

func TestAnInterruptEndsWorkersThatWereTakenOver(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{"as it takes them over": "took over 2 workers", "as they run": "2 running"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job("resources = { cpu = 2 }\ngrace = \"1s\"", blocks("work", 2)+d.code("command", "E2E_DEAF=1")))
			s := start(t, dir, "run", path, "--run-dir", "out")
			held := []*visit{d.next(), d.next()}
			killKnown(t, s, dir)
			again := start(t, dir, "run", "--resume", "out")
			again.stderr.await(t, said)
			again.signal(syscall.SIGINT)
			if r := again.wait(); r.status != 130 {
				t.Errorf("exit status %d", r.status)
			}
			for _, v := range held {
				v.wantGone(t)
				awaitProcessEnd(t, v.PPID)
			}
		})
	}
}

func TestWhereNobodyResumesWorkersEndThemselvesAndKeepTheirResults(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"command", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			whereNobodyResumes(t, kind)
		})
	}
}

func whereNobodyResumes(t *testing.T, kind string) {
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }\nabandon_after = \"3s\"", blocks("work", 2)+d.code(kind, "E2E_DEAF=1", "E2E_LEAVE=session")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	visits := visitsOf(d, map[string]int{"ask": 2, "sit": 2})
	done, held := visits["ask"][0], visits["ask"][1]
	killed := killKnown(t, s, dir)
	done.ok() // nobody can be told
	awaitProcessEnd(t, done.PPID)
	awaitProcessEnd(t, held.PPID)
	if took := time.Since(killed); took < 2*time.Second {
		t.Errorf("the workers ended %v after their coordinator, want nearly abandon_after", took)
	}
	held.wantGone(t)
	for _, v := range visits["sit"] {
		v.wantGone(t)
	}
	if files := first2(filepath.Glob(dir + "/out/outbox/*.json")); len(files) != 1 {
		t.Errorf("the outbox has %v", files)
	}
	var run string
	for _, f := range first2(filepath.Glob(dir + "/out/logs/*")) {
		run += readFile(t, f)
	}
	wantText(t, run, "no contact with the coordinator for 2.7s")

	again := start(t, dir, "run", "--resume", "out")
	v := visitsOf(d, map[string]int{"ask": 1})["ask"][0]
	if v.Index != held.Index {
		t.Errorf("block %s runs again, want %s", v.Index, held.Index)
	}
	v.ok()
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 2, Success: 2, Processed: 2}})
}

func TestASmallerBudgetIsKeptByWorkersThatWereTakenOver(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 3 }", blocks("work", 6)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first := []*visit{d.next(), d.next(), d.next()}
	killKnown(t, s, dir)
	again := start(t, dir, "run", "--resume", "out", "--max-workers", "1")
	again.stderr.await(t, "took over 3 workers")
	for _, v := range first {
		v.ok()
	}
	for range 3 { // one after the other
		v := d.next()
		d.none()
		v.ok()
	}
	if r := again.wait(); r.status != 0 {
		t.Fatalf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 6, Success: 6, Processed: 6}})
}
