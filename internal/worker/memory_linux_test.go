package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

// limited is a task whose memory is enforced.
func limited(bytes int64, runner string, argv ...string) api.TaskSpec {
	task := testTask(runner, argv...)
	task.MemoryBytes, task.EnforceMemory = bytes, true
	return task
}

// noCgroups is a system without any.
func noCgroups(t *testing.T, cfg *Config) { cfg.CgroupRoot = t.TempDir() }

func TestNoProcessOfABlockHasMoreAddressSpaceThanItsTaskRequires(t *testing.T) {
	f := newFifo(t)
	for name, task := range map[string]api.TaskSpec{
		"command": limited(400<<20, "command", "sh", "-c", `[ "$(ulimit -v)" = 409600 ]`),
		"stream":  limited(400<<20, "stream", streamer(f, `[ "$(ulimit -v)" = 409600 ] && answer "{\"lease\":\"$lease\",\"ok\":true}"`)...),
		"not enforced": func() api.TaskSpec {
			task := limited(400<<20, "command", "sh", "-c", `[ "$(ulimit -v)" = unlimited ]`)
			task.EnforceMemory = false
			return task
		}(),
	} {
		c, cfg := overTCP(t, task)
		noCgroups(t, &cfg)
		w := start(t, cfg)
		s := c.next()
		if r := runBlock(s); r.Outcome != wire.Success {
			t.Errorf("%s: got %v %q %q", name, r.Outcome, r.Message, r.Tail)
		}
		s.acquire()
		s.drain()
		w.status()
		if said := strings.Contains(w.log.String(), "(RLIMIT_AS), not for all together: this process is in no cgroup of version 2"); said != task.EnforceMemory {
			t.Errorf("%s: the log is\n%s", name, w.log.String())
		}
	}
}

func TestTheCheckOfABlockIsUnderTheLimitToo(t *testing.T) {
	task := limited(400<<20, "command", "true")
	task.Check = []string{"sh", "-c", `[ "$(ulimit -v)" = 409600 ]`}
	c, cfg := overTCP(t, task)
	noCgroups(t, &cfg)
	w := start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.Skipped {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acquire()
	s.drain()
	w.status()
}

func TestAFailureUnderALimitOfAddressSpaceSaysThatTheLimitMayBeBehindIt(t *testing.T) {
	const limit = "the enforced limit of 300MiB for each process (RLIMIT_AS)"
	for script, want := range map[string]string{
		`echo "MemoryError" >&2; exit 1`:            "exit status 1; it says so itself: it probably reached " + limit,
		`echo "Cannot allocate memory" >&2; exit 1`: "exit status 1; it says so itself: it probably reached " + limit,
		`kill -SEGV $$`:                             "signal 11 (segmentation fault); perhaps it reached " + limit,
		`head -c 285000000 /dev/zero | tail -c 285000000 > /dev/null; exit 3`:               "exit status 3; a process of it had ",
		`head -c 400000000 /dev/zero | tail -c 400000000 > /dev/null && exit 0; exit 3`:     "exit status 3; it says so itself: it probably reached " + limit,
		`echo "ValueError: no signal in the image"; exit 1`:                                 "exit status 1",
		`head -c 100000000 /dev/zero | tail -c 100000000 > /dev/null && exit 4; exit 3`:     "exit status 4",
		`head -c 100000000 /dev/zero | tail -c 100000000 > /dev/null && kill -9 $$; exit 3`: "signal 9 (killed); perhaps it reached " + limit,
	} {
		c, cfg := overTCP(t, limited(300<<20, "command", "sh", "-c", script))
		noCgroups(t, &cfg)
		w := start(t, cfg)
		s := c.next()
		r := runBlock(s)
		if exact := r.Message == want || strings.HasSuffix(want, " had ") && strings.HasPrefix(r.Message, want); r.Outcome != wire.Failed || !exact {
			t.Errorf("%s: got %v %q, want %q", script, r.Outcome, r.Message, want)
		}
		s.acquire()
		s.drain()
		w.status()
	}
}

func TestAPythonFunctionThatGetsNoMemoryFailsAndTheSameProcessGoesOn(t *testing.T) {
	dir := t.TempDir()
	code := "import os\ndef f(block):\n    if block.block == 8:\n        bytearray(2_000_000_000)\n    open(os.path.join(os.path.dirname(__file__), 'pids'), 'a').write('%d\\n' % os.getpid())\n"
	if err := os.WriteFile(filepath.Join(dir, "f.py"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	task := limited(1<<30, "python", "python3")
	task.Python = filepath.Join(dir, "f.py") + ":f"
	c, cfg := overTCP(t, task)
	noCgroups(t, &cfg)
	w := start(t, cfg)
	s := c.next()
	give := func(block uint64) wire.Release {
		s.grant(s.acquire().Request, block)
		r := s.release()
		s.acknowledge(r.Seq)
		return r
	}
	for block, want := range []string{6: "", 7: "", 8: "MemoryError; it says so itself: it probably reached the enforced limit of 1GiB for each process (RLIMIT_AS)", 9: ""} {
		if block < 6 {
			continue
		}
		if r := give(uint64(block)); r.Message != want || (r.Outcome == wire.Failed) != (want != "") {
			t.Errorf("block %d: got %v %q, want %q", block, r.Outcome, r.Message, want)
		}
	}
	s.acquire()
	s.drain()
	w.status()
	pids, err := os.ReadFile(filepath.Join(dir, "pids"))
	if lines := strings.Fields(string(pids)); err != nil || len(lines) != 3 || lines[0] != lines[2] {
		t.Errorf("the processes were %q, %v; want one for all three", pids, err)
	}
}

// aCgroup lays out a system of version 2 where cgroups may be made, for the worker of cfg, and gives the folder of the first one.
func aCgroup(t *testing.T, cfg *Config) (first func() string) {
	t.Helper()
	cfg.CgroupRoot = t.TempDir()
	for path, text := range map[string]string{
		"proc/self/cgroup": "0::/user/app\n", "sys/fs/cgroup/user/app/cgroup.controllers": "memory\n",
		"sys/fs/cgroup/user/cgroup.subtree_control": "memory\n", "sys/fs/cgroup/user/cgroup.procs": "",
	} {
		path = filepath.Join(cfg.CgroupRoot, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func() string {
		found, _ := filepath.Glob(filepath.Join(cfg.CgroupRoot, "sys/fs/cgroup/user", fmt.Sprintf("daisy-%d-*", os.Getpid())))
		if len(found) != 1 {
			t.Fatalf("the cgroups are %v, want one", found)
		}
		return found[0]
	}
}

// inCgroup is shell for a process in a cgroup that was laid out: it finds that, and says there whom the system has killed.
const inCgroup = `for d in "$ROOT"/sys/fs/cgroup/user/daisy-*; do cg=$d; done; oom() { echo "oom_kill $1" > "$cg/memory.events"; }; `

func TestABlockWhoseCgroupRunsOutOfMemoryIsCertainlyOutOfMemory(t *testing.T) {
	for script, want := range map[string]struct {
		outcome wire.Outcome
		message string
	}{
		`oom 1; kill -9 $$`: {wire.OutOfMemory, "signal 9 (killed): out of memory: its processes needed more together than the enforced limit of 300MiB"},
		`oom 1; exit 3`:     {wire.OutOfMemory, "exit status 3: out of memory: its processes needed more together than the enforced limit of 300MiB"}, // an old kernel has killed a child
		`oom 1; exit 0`:     {wire.Success, ""},
		`oom 0; exit 3`:     {wire.Failed, "exit status 3"},
		`[ "$(cat "$cg/memory.max")" = 314572800 ] && [ "$(cat "$cg/cgroup.procs")" = 0 ] && [ "$(ulimit -v)" = unlimited ]`: {wire.Success, ""},
		`echo MemoryError; exit 1`: {wire.Failed, "exit status 1"}, // the cgroup knows better
	} {
		task := limited(300<<20, "command", "sh", "-c", inCgroup+script)
		c, cfg := overTCP(t, task)
		first := aCgroup(t, &cfg)
		c.joined.Task.Env = []string{"ROOT=" + cfg.CgroupRoot}
		w := start(t, cfg)
		s := c.next()
		if r := runBlock(s); r.Outcome != want.outcome || r.Message != want.message {
			t.Errorf("%s: got %v %q, want %v %q", script, r.Outcome, r.Message, want.outcome, want.message)
		}
		first()
		s.acquire()
		s.drain()
		w.status()
		if log := w.log.String(); !strings.Contains(log, "a cgroup is left behind") { // that of a test has files, and cannot be removed
			t.Errorf("it was not tried to remove the cgroup:\n%s", log)
		}
	}
}

func TestAStreamProcessIsOutOfMemoryOnlyForTheBlockAtWhichItWasKilled(t *testing.T) {
	f := newFifo(t)
	// An old kernel kills a child of the process at block 7, which the process survives; at block 8 it ends for another reason.
	task := limited(300<<20, "stream", streamer(f, inCgroup+`case $line in *'"block":7'*) oom 1;; *'"block":8'*) exit 3;; esac
answer "{\"lease\":\"$lease\",\"ok\":true}"`)...)
	c, cfg := overTCP(t, task)
	aCgroup(t, &cfg)
	c.joined.Task.Env = append(c.joined.Task.Env, "ROOT="+cfg.CgroupRoot)
	w := start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.Success {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.grant(s.acquire().Request, 8)
	r := s.release()
	s.acknowledge(r.Seq)
	if r.Outcome != wire.Failed {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acquire()
	s.drain()
	w.status()
}

func TestWithoutItsCgroupNoBlockIsStarted(t *testing.T) {
	task := limited(300<<20, "command", "sh", "-c", `[ {block_id} = 7 ] && rm -r "$ROOT/sys/fs/cgroup/user"`)
	c, cfg := overTCP(t, task)
	aCgroup(t, &cfg)
	c.joined.Task.Env = []string{"ROOT=" + cfg.CgroupRoot}
	w := start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.Success {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.grant(s.acquire().Request, 8)
	r := s.release()
	s.acknowledge(r.Seq)
	if r.Outcome != wire.Failed || !strings.HasPrefix(r.Message, "make a cgroup that limits memory: mkdir ") {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acquire()
	s.drain()
	w.status()
}

func TestALimitOfNothingIsRefused(t *testing.T) {
	if _, err := NewTask(limited(0, "command", "true")); err == nil || err.Error() != `task "predict": memory is to be enforced, and its limit is 0 bytes` {
		t.Errorf("got %v", err)
	}
}
