package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAWrongCommandLineOrJobFileStartsNothing(t *testing.T) {
	t.Parallel()
	good := job("", blocks("work", 1)+shell("true"))
	cases := map[string]struct {
		text string   // of job.toml
		args []string // JOB stands for its path
		want []string // in what is said
	}{
		"no command of that name":    {good, []string{"rum", "JOB"}, []string{`there is no command "rum"`}},
		"no job file":                {good, []string{"run"}, []string{"run needs a job file"}},
		"two job files":              {good, []string{"run", "JOB", "JOB"}, []string{"one argument"}},
		"a missing job file":         {good, []string{"run", "none.toml"}, []string{"none.toml", "no such file"}},
		"a folder as job file":       {good, []string{"run", "."}, []string{"a folder, not a job file"}},
		"an unknown flag":            {good, []string{"run", "JOB", "--jason"}, []string{"jason", "daisy-submit run --help"}},
		"a flag without value":       {good, []string{"run", "JOB", "--run-dir"}, []string{"needs a value behind it", "run-dir"}},
		"too few workers":            {good, []string{"run", "JOB", "--max-workers", "0"}, []string{"--max-workers must be at least 1"}},
		"workers that are no number": {good, []string{"run", "JOB", "--max-workers", "many"}, []string{"max-workers"}},
		"an unknown launcher":        {good, []string{"run", "JOB", "--launcher", "lokal"}, []string{`"lokal"`, `"local"`}},
		"Slurm without any limit":    {good, []string{"run", "JOB", "--launcher", "slurm"}, []string{"max_workers", "nothing else bounds the number of workers"}},
		"a set without value":        {good, []string{"run", "JOB", "--set", "run.name"}, []string{"--set run.name"}},
		"a set of no such task":      {good, []string{"run", "JOB", "--set", "task.wrok.timeout=1m"}, []string{`"wrok"`, `"work"`}},
		"an empty file":              {"", []string{"run", "JOB"}, []string{"job.toml"}},
		"no TOML":                    {"[run\n", []string{"run", "JOB"}, []string{"job.toml:", "end table name"}},
		"an unknown key and a bare number": {
			strings.Replace(good, "[[task]]", "[[task]]\ntimeot = \"1m\"\ntimeout = 5", 1), []string{"run", "JOB"},
			[]string{`unknown key "timeot"`, "timeout", "has no unit"}, // all errors at once
		},
		"a plan of a bad file": {"", []string{"plan", "JOB"}, []string{"job.toml"}},
		"a plan of no file":    {good, []string{"plan"}, []string{"plan needs a job file"}},
		"an unknown format":    {good, []string{"stats", ".", "--format", "xml"}, []string{"xml", "markdown"}},
		"stats of no run":      {good, []string{"stats", "."}, []string{"is no run directory"}},
		"stats of nothing":     {good, []string{"stats", "nowhere"}, []string{"nowhere"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path := writeJob(t, c.text)
			args := make([]string, len(c.args))
			for i, a := range c.args {
				args[i] = strings.ReplaceAll(a, "JOB", path)
			}
			r := wantStatus(t, 2, dir, args...)
			wantText(t, r.stderr, c.want...)
			if strings.Contains(r.all(), "goroutine ") {
				t.Error("it crashed")
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 {
				t.Errorf("something was made: %v, %v", entries, err)
			}
		})
	}
}

func TestTheExitStatusSaysWhetherEveryBlockEndedWell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line   string
		status int
		want   string
	}{
		"all succeed":        {"true", 0, "3 blocks: 3 succeeded."},
		"one fails":          {"test {index} != 1", 1, "3 blocks: 2 succeeded, 1 failed."},
		"one fails at first": {"test {index} != 1 || test {attempt} = 3", 0, "3 blocks: 3 succeeded."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := runJob(t, c.status, job("", blocks("work", 3)+shell(c.line)))
			wantText(t, r.stdout, c.want)
		})
	}
}

func TestNothingDownstreamOfAFailedBlockRuns(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("",
		blocks("first", 2)+shell("test {index} = 0")+"max_retries = 0",
		blocks("then", 2)+shell("touch ran-{index}")+`after = ["first"]`))
	wantText(t, r.stdout, "1 failed, 1 orphaned")
	if at := filepath.Dir(dir); !exists(at+"/ran-0") || exists(at+"/ran-1") {
		t.Errorf("ran-0: %v, ran-1: %v", exists(at+"/ran-0"), exists(at+"/ran-1"))
	}
}

func TestARunDirectoryThatCannotBeMadeIsAnInfrastructureFault(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 1)+shell("touch ran")))
	writeFile(t, dir+"/file", "")
	for name, c := range map[string]struct{ at, want string }{
		"below a file": {"file/out", "file/out"},
		"in /proc":     {"/proc/out", "/proc/out"},
	} {
		t.Run(name, func(t *testing.T) {
			r := wantStatus(t, 3, dir, "run", path, "--run-dir", c.at)
			wantText(t, r.stderr, c.want)
			if exists(dir + "/ran") {
				t.Error("a block ran")
			}
		})
	}
}

// alone puts daisy-submit into a folder of its own, with a worker of this text if there is one.
func alone(t testing.TB, s *submit, workerText string) {
	t.Helper()
	dir := t.TempDir()
	from, err := os.Open(s.cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(dir+"/daisy-submit", os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	}
	if err == nil && workerText != "" {
		err = os.WriteFile(dir+"/daisy-worker", []byte(workerText), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Path = dir + "/daisy-submit"
	s.cmd.Env = append(os.Environ(), "PATH=/usr/bin:/bin")
}

func TestAMissingWorkerProgramIsFoundBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 1)+shell("true")))
	s := prepare(t, dir, "run", path)
	alone(t, s, "")
	s.begin()
	r := s.wait()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.stderr, "daisy-worker is missing", "looked for", "make build")
	if exists(dir + "/runs") {
		t.Error("a run directory was made")
	}
}

func TestWorkersThatNeverJoinTripTheBrake(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 2 }", blocks("work", 4)+shell("true")+"max_worker_restarts = 3"))
	s := prepare(t, dir, "run", path, "--run-dir", "out")
	alone(t, s, "#!/bin/sh\necho these are its last words\nexit 9\n")
	s.begin()
	r := s.wait()
	if r.status != 3 {
		t.Errorf("exit status %d, want 3", r.status)
	}
	wantText(t, r.all(), "before they returned anything", "exit status 9", "logs")
	stats := statsOf(t, dir+"/out")
	if w := task(t, stats, "work"); w.State != "abandoned" || w.Abandoned != 4 {
		t.Errorf("the counts are %+v", countsOf(w))
	}
	logs, err := filepath.Glob(dir + "/out/logs/*.log")
	if err != nil || len(logs) < 3 || len(logs) > 5 {
		t.Errorf("with max_worker_restarts = 3 and room for 2 there are logs %v, %v", logs, err)
	}
	said := 0
	for _, log := range logs {
		said += strings.Count(readFile(t, log), "these are its last words")
	}
	if said < 3 { // one more may have been started, and ended by us
		t.Errorf("%d of the logs %v have the last words", said, logs)
	}
}

func TestUserCodeThatCannotBeStartedAbandonsItsTask(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("resources = { cpu = 1 }", blocks("work", 2)+"run = { command = [\"./broken\"] }\nmax_worker_restarts = 2"))
	if err := os.WriteFile(dir+"/broken", []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := wantStatus(t, 1, dir, "run", path, "--run-dir", "out")
	wantText(t, r.all(), "broken", "cannot start")
	if w := task(t, statsOf(t, dir+"/out"), "work"); w.State != "abandoned" || w.Processed != 0 {
		t.Errorf("the counts are %+v", countsOf(w))
	}
}

func TestTooManyFailuresStopTheRun(t *testing.T) {
	t.Parallel()
	r, dir := runJob(t, 1, job("resources = { cpu = 1 }\nmax_failures = 2\ngrace = \"1s\"", blocks("work", 20)+shell("false")+"max_retries = 0"))
	wantText(t, r.stdout, "max_failures")
	stats := statsOf(t, dir)
	if w := task(t, stats, "work"); stats.Run.State != "stopped" || w.Failed != 2 || w.Abandoned != 18 {
		t.Errorf("the run is %q; the counts are %+v", stats.Run.State, countsOf(w))
	}
}
