//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/api"
)

// A situation is what status --json says, as far as tests need it.
type situation struct {
	Situation   string
	Message     *string
	Coordinator *struct {
		PID   int
		Epoch uint64
	}
	Live  *api.State
	Stats *api.Stats
}

// statusOf asks where a run stands; the command must end so.
func statusOf(t testing.TB, want int, dir, runDir string) (s situation) {
	t.Helper()
	asJSON(t, &s, want, dir, "status", runDir)
	return s
}

// asJSON runs a command with --json.
func asJSON[T any](t testing.TB, into *T, want int, dir string, args ...string) {
	t.Helper()
	r := wantStatus(t, want, dir, append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
		t.Fatalf("%v: %v in %q", args, err, r.stdout)
	}
}

// awaitStatus looks until the run stands as it should.
func awaitStatus(t testing.TB, dir, runDir string, what string, is func(situation) bool) situation {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		s := statusOf(t, 0, dir, runDir)
		if is(s) {
			return s
		}
		if time.Now().After(until) {
			t.Fatalf("%s: it has not come to that within %v: %+v", what, patience, s.Live)
		}
	}
}

func TestTheStatusOfARunIsThatOfTheMoment(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("name = \"brain\"\nresources = { cpu = 1 }", blocks("work", 2)+d.code("command")+"max_workers = 3\ntimeout = \"2h\"",
		blocks("then", 2)+d.code("command")+`after = ["work"]`))
	s := start(t, dir, "run", path)
	v := d.next()

	live := statusOf(t, 0, dir, "latest")
	if live.Situation != "running" || live.Message != nil || live.Coordinator == nil || live.Coordinator.PID != s.cmd.Process.Pid || live.Coordinator.Epoch != 1 || live.Stats != nil {
		t.Errorf("%+v", live)
	}
	work, then := live.Live.Tasks[0], live.Live.Tasks[1]
	if live.Live.Run.Name != "brain" || live.Live.Workers.Busy != 1 || work.Running != 1 || work.Leased != 1 || work.Ready != 1 || *work.MaxWorkers != 3 || *work.TimeoutSeconds != 7200 {
		t.Errorf("%+v", live.Live)
	}
	if cpu := live.Live.Resources[0]; cpu.Name != "cpu" || cpu.Total != 1 || cpu.Used != 1 {
		t.Errorf("%+v", live.Live.Resources)
	}
	const waits = "work is not done (0 of 2)"
	if then.Waits == nil || !strings.Contains(*then.Waits, waits) {
		t.Errorf("then waits for %v", then.Waits)
	}
	for _, args := range [][]string{{"status"}, {"status", "latest"}, {"status", "runs/latest"}} {
		wantText(t, wantStatus(t, 0, dir, args...).stdout, "brain", fmt.Sprintf("by process %d", s.cmd.Process.Pid), "cpu 1 of 1", "1 busy", "then waits: "+waits)
	}

	v.ok()
	for range 3 {
		d.next().ok()
	}
	s.wait()
	ended := statusOf(t, 0, dir, "latest")
	if ended.Situation != "ended" || ended.Live != nil || ended.Coordinator != nil || ended.Stats == nil || ended.Stats.Run.State != "done" {
		t.Errorf("%+v", ended)
	}
	wantText(t, wantStatus(t, 0, dir, "status").stdout, "ended at", "4 blocks: 4 succeeded.")
}

func TestTheStatusSaysWhyNothingRuns(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+shell("echo ouch >&2; false")+"retry_backoff = \"10h\""))
	start(t, dir, "run", path, "--run-dir", "out")
	awaitStart(t, dir, "out")
	s := awaitStatus(t, dir, "out", "the block has failed", func(s situation) bool { return s.Live != nil && s.Live.Tasks[0].Processed == 1 })
	if s.Message == nil || !strings.Contains(*s.Message, "nothing runs: work: ") || !strings.Contains(*s.Message, "retry in") {
		t.Errorf("%+v", s)
	}
	wantText(t, wantStatus(t, 0, dir, "status", "out").stdout, "nothing runs: work: ", "retry in")
	wantText(t, wantStatus(t, 0, dir, "blocks", "out", "--state", "held").stdout, "held", "exit status 1")
	wantStatus(t, 0, dir, "cancel", "out", "--now")
}

// awaitStart waits until a coordinator answers.
func awaitStart(t testing.TB, dir, runDir string) {
	t.Helper()
	for until := time.Now().Add(patience); run(t, dir, "status", runDir).status != 0; {
		if time.Now().After(until) {
			t.Fatalf("no coordinator has answered within %v", patience)
		}
	}
}

func TestTheStatusTellsAKilledRunFromASilentCoordinator(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	d.next()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var found map[string]any
	if err := json.Unmarshal([]byte(readFile(t, dir+"/out/discovery.json")), &found); err != nil {
		t.Fatal(err)
	}
	was := readFile(t, dir+"/out/discovery.json")
	found["addresses"] = []string{nobody.Addr().String()}
	_ = nobody.Close()
	elsewhere, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/out/discovery.json", string(elsewhere))
	silent := statusOf(t, 3, dir, "out")
	if silent.Situation != "silent" || silent.Coordinator.PID != s.cmd.Process.Pid || !strings.Contains(*silent.Message, "does not answer") {
		t.Errorf("%+v", silent)
	}
	wantText(t, wantStatus(t, 3, dir, "drain", "out").stderr, fmt.Sprintf("process %d", s.cmd.Process.Pid), "does not answer")

	writeFile(t, dir+"/out/discovery.json", was)
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wait()
	killed := statusOf(t, 3, dir, "out")
	if killed.Situation != "killed" || killed.Coordinator != nil || !strings.Contains(*killed.Message, "run --resume") {
		t.Errorf("%+v", killed)
	}
	wantText(t, wantStatus(t, 3, dir, "set", "out", "task.work.timeout=1m").stderr, "it was killed", "run --resume")
	wantText(t, wantStatus(t, 3, dir, "workers", "out").stderr, "it was killed")
}

func TestADrainedRunEndsWithItsBlocksAndCanGoOn(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 2 }\ngrace = \"100ms\"", blocks("work", 5)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	first, second := d.next(), d.next()
	var done api.Done
	asJSON(t, &done, 0, dir, "drain", "out")
	if !strings.Contains(done.Message, "2 blocks are running") {
		t.Error(done.Message)
	}
	wantText(t, wantStatus(t, 2, dir, "drain", "out").stderr, "is ending already: drained by ")
	wantText(t, wantStatus(t, 0, dir, "status", "out").stdout, "it ends: drained by ")
	first.ok()
	<-first.gone
	second.ok()
	if r := s.wait(); r.status != 1 {
		t.Errorf("exit status %d, want 1", r.status)
	}
	d.none()
	stats := statsOf(t, dir+"/out")
	wantCounts(t, stats, map[string]counts{"work": {State: "abandoned", Blocks: 5, Success: 2, Processed: 2, Abandoned: 3}})
	if stats.Run.State != "stopped" || stats.Run.Message == nil || !strings.HasPrefix(*stats.Run.Message, "drained by ") {
		t.Errorf("%+v", stats.Run)
	}
	wantText(t, wantStatus(t, 2, dir, "drain", "out").stderr, "has ended (stopped)", "stats")

	again := start(t, dir, "run", "--resume", "out")
	for range 3 {
		d.next().ok()
	}
	if r := again.wait(); r.status != 0 {
		t.Errorf("exit status %d after the resume, want 0", r.status)
	}
}

func TestACancelledRunGivesItsBlocksTheGrace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		success int64
	}{"in order": {nil, 1}, "now": {[]string{"--now"}, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"30s\"", blocks("work", 3)+d.code("command")))
			s := start(t, dir, "run", path, "--run-dir", "out")
			v := d.next()
			wantStatus(t, 0, dir, append([]string{"cancel", "out"}, c.args...)...)
			if c.success == 0 {
				v.wantGone(t)
			} else {
				v.ok()
			}
			if r := s.wait(); r.status != 1 {
				t.Errorf("exit status %d, want 1", r.status)
			}
			d.none()
			stats := statsOf(t, dir+"/out")
			if w := task(t, stats, "work"); w.Success != c.success || w.Abandoned != 3-c.success || !strings.HasPrefix(*stats.Run.Message, "cancelled by ") {
				t.Errorf("%+v, %s", countsOf(w), *stats.Run.Message)
			}
		})
	}
}

func TestTheBlockOfAStoppedWorkerGoesToAnother(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }\ngrace = \"1s\"", blocks("work", 1)+d.code("command")+"max_retries = 0"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	wantText(t, wantStatus(t, 0, dir, "stop", "out", v.Worker).stdout, "told to leave")
	v.wantGone(t)
	again := d.next()
	if again.Worker == v.Worker || again.Attempt != "2" {
		t.Errorf("%+v came after %+v", again.question, v.question)
	}
	var workers api.WorkerPage
	asJSON(t, &workers, 0, dir, "workers", "out", "--ended")
	if w := workers.Workers; len(w) != 1 || w[0].ID != v.Worker || *w[0].End != "stopped" {
		t.Errorf("%+v", w)
	}
	wantText(t, wantStatus(t, 2, dir, "stop", "out", v.Worker).stderr, "has ended")
	wantText(t, wantStatus(t, 2, dir, "stop", "out", "9.9").stderr, `no worker "9.9"`)
	again.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	wantCounts(t, statsOf(t, dir+"/out"), map[string]counts{"work": {State: "done", Blocks: 1, Success: 1, Processed: 1, Returned: 1}})
}

func TestWhereAllWorkersRunOnThisMachineNoNodeCanBeExcluded(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{host, "gpu07"} {
		wantText(t, wantStatus(t, 2, dir, "exclude", "out", node, "--reason", "hot").stderr, "run on this machine", "drain ends the run, stop one worker")
		wantText(t, wantStatus(t, 2, dir, "include", "out", node).stderr, "is not excluded")
	}
	wantText(t, wantStatus(t, 2, dir, "exclude", "out", "gpu[1-7]").stderr, "is not the name of one node")
	v.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	wantText(t, wantStatus(t, 2, dir, "exclude", "out", host).stderr, "has ended")
}

func TestALargerLimitTakesEffectAtOnceAndASmallerOneWithTheBlocksThatRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run, task string
		key       string
	}{
		"resources":   {"resources = { cpu = 1 }", "", "run.resources.cpu"},
		"max_workers": {"resources = { cpu = 8 }", "max_workers = 1", "task.work.max_workers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDirector(t)
			dir, path := writeJob(t, job(c.run+"\nidle_timeout = \"1h\"", blocks("work", 6)+d.code("command")+c.task))
			s := start(t, dir, "run", path, "--run-dir", "out")
			running := []*visit{d.next()}
			var done api.Done
			asJSON(t, &done, 0, dir, "set", "out", c.key+"=3")
			if want := (api.Change{Key: c.key, Was: "1", Now: "3"}); len(done.Changes) != 1 || done.Changes[0] != want {
				t.Errorf("%+v, want %+v", done.Changes, want)
			}
			running = append(running, d.next(), d.next())
			wantStatus(t, 0, dir, "set", "out", c.key+"=1")
			s2 := statusOf(t, 0, dir, "out")
			if live := s2.Live; live.Tasks[0].Running != 3 || live.Workers.Leaving != 2 || live.Workers.Busy != 1 {
				t.Errorf("three blocks run, and one may: %+v, %+v", live.Tasks[0], live.Workers)
			}
			for _, v := range running {
				v.ok()
				<-v.gone
			}
			for range 3 { // one after the other
				v := d.next()
				d.none()
				v.ok()
			}
			if r := s.wait(); r.status != 0 {
				t.Errorf("exit status %d", r.status)
			}
			if w := task(t, statsOf(t, dir+"/out"), "work"); w.Success != 6 || w.MaxConcurrency != 3 || w.Retries+w.Lost+w.Returned != 0 {
				t.Errorf("at most %d at once; %+v", w.MaxConcurrency, countsOf(w))
			}
		})
	}
}

func TestANewTimeoutHoldsForBlocksThatBegin(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+d.code("command")+"timeout = \"2h\"\nmax_retries = 0"))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	wantText(t, wantStatus(t, 2, dir, "set", "out", "task.other.timeout=1s", "task.work.timeout=1").stderr,
		"daisy-submit: task.other.timeout: there is no task", "\n  task.work.timeout: \"1\" has a number without a unit")
	wantStatus(t, 0, dir, "set", "out", "task.work.timeout=1s")
	v.ok() // it may be over before the worker knows, or time out
	d.next().wantGone(t)
	s.wait()
	stats := statsOf(t, dir+"/out")
	if w := task(t, stats, "work"); w.TimedOut < 1 || w.Failed < 1 || len(w.Failures) == 0 || !strings.Contains(w.Failures[len(w.Failures)-1].Message, "timed out after 1s") {
		t.Errorf("%+v %+v", countsOf(w), w.Failures)
	}
}

func TestFailedBlocksAreListedWhileTheRunGoesOnAndAfterwards(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("bad", 3)+shell("test {index} != 1")+"max_retries = 0\npriority = 1", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	check := func(none string) {
		t.Helper()
		var page api.BlockPage
		asJSON(t, &page, 0, dir, "blocks", "out", "--state", "failed")
		if len(page.Blocks) != 1 || page.Next != nil {
			t.Fatalf("%+v", page)
		}
		if b := page.Blocks[0]; b.Task != "bad" || *b.Block != 1 || b.Index[0] != 1 || *b.Attempt != 1 || *b.Worker == "" || *b.Message != "exit status 1" || !exists(*b.Log) {
			t.Errorf("%+v", b)
		}
		wantText(t, wantStatus(t, 0, dir, "blocks", "out", "--task", "bad", "--state", "failed").stdout, "bad", "(1)", "exit status 1")
		wantText(t, wantStatus(t, 0, dir, "blocks", "out", "--task", "work", "--state", "failed").stdout, none)
		wantText(t, wantStatus(t, 2, dir, "blocks", "out", "--task", "wrok").stderr, `no task "wrok"`)
	}
	check("no such block")
	var all, rest api.BlockPage
	asJSON(t, &all, 0, dir, "blocks", "out", "--limit", "3")
	if len(all.Blocks) != 3 || all.Next == nil {
		t.Fatalf("%+v", all)
	}
	asJSON(t, &rest, 0, dir, "blocks", "out", "--from", *all.Next)
	if len(rest.Blocks) != 1 || rest.Blocks[0].State != "leased" || *rest.Blocks[0].Worker != v.Worker || rest.Blocks[0].RunningSeconds == nil || rest.Next != nil {
		t.Errorf("%+v", rest)
	}
	wantText(t, wantStatus(t, 2, dir, "blocks", "out", "--state", "lost").stderr, "waiting, ready, held")
	v.ok()
	s.wait()
	check(`no block of task "work" failed`)
	wantText(t, wantStatus(t, 2, dir, "blocks", "out", "--state", "success").stderr, "has ended", "--state failed")
	wantText(t, wantStatus(t, 0, dir, "workers", "out").stdout, v.Worker, "ended")
}

func TestASerialRunTakesNoCommandsAndSaysSo(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("launcher = \"serial\"", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	if is := statusOf(t, 3, dir, "out"); is.Situation != "silent" || is.Coordinator.PID != s.cmd.Process.Pid || !strings.Contains(*is.Message, "serial") {
		t.Errorf("%+v", is)
	}
	v.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
}

func TestOnlyWhoCanReadTheSecretGivesOrders(t *testing.T) {
	t.Parallel()
	d := newDirector(t)
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 1)+d.code("command")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	v := d.next()
	secret := readFile(t, dir+"/out/secret")
	if err := os.Rename(dir+"/out/secret", dir+"/out/hidden"); err != nil {
		t.Fatal(err)
	}
	wantText(t, wantStatus(t, 3, dir, "drain", "out").stderr, "secret")
	writeFile(t, dir+"/out/secret", strings.Repeat("0", len(secret)-1)+"\n")
	wantText(t, wantStatus(t, 3, dir, "drain", "out").stderr, "does not prove that it is this run's coordinator")
	v.ok()
	if r := s.wait(); r.status != 0 {
		t.Errorf("exit status %d: the run was drained", r.status)
	}
}

func TestAWrongCommandToARunIsAnErrorOfTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "there is no run in " + dir + "/runs: give a run directory."},
		{[]string{"status", "nowhere"}, "nowhere"},
		{[]string{"status", "."}, "is no run directory"},
		{[]string{"status", "a", "b"}, "one argument"},
		{[]string{"workers", ".", "--limit", "0"}, "is no run directory"},
		{[]string{"blocks", "nowhere"}, "nowhere"},
		{[]string{"drain", "nowhere"}, "nowhere"},
		{[]string{"cancel", "nowhere"}, "nowhere"},
		{[]string{"stop"}, "takes a worker"},
		{[]string{"stop", "a", "b", "c"}, "takes a worker"},
		{[]string{"stop", "nowhere", "1.0"}, "nowhere"},
		{[]string{"events", "nowhere", "-f"}, "nowhere"},
		{[]string{"exclude"}, "takes a node"},
		{[]string{"exclude", "nowhere", "n1"}, "nowhere"},
		{[]string{"include", "nowhere", ""}, "takes a node"},
		{[]string{"set"}, "KEY=VALUE"},
		{[]string{"set", "latest"}, "KEY=VALUE"},
		{[]string{"set", "latest", "cpu"}, `no "="`},
		{[]string{"set", "nowhere", "run.resources.cpu=2"}, "nowhere"},
	} {
		wantText(t, wantStatus(t, 2, dir, c.args...).stderr, c.want)
	}
}
