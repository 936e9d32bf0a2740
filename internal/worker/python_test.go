package worker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/testenv"
	"example.org/daisy/internal/wire"
)

// interpreter is that behind python3, which may be a slow script of a version manager.
var interpreter = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// python3 is the interpreter; without one the test says so in the list of what was skipped, and fails where CI=true.
func python3(t testing.TB) string {
	t.Helper()
	path, err := interpreter()
	if err != nil {
		testenv.Unavailable(t, err.Error())
	}
	return path
}

// pythonTask is a task whose function is in files of a new folder, by their names.
func pythonTask(t testing.TB, reference string, files map[string]string) api.TaskSpec {
	t.Helper()
	task := testTask("python", python3(t))
	task.Dir, task.Python = t.TempDir(), reference
	for name, text := range files {
		path := filepath.Join(task.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(reference, ".py:") {
		task.Python = filepath.Join(task.Dir, reference)
	}
	task.Env = []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=", "PYTHONIOENCODING=utf-8:strict"}
	return task
}

func TestThePythonProgramHasTheModuleThatIsInstalled(t *testing.T) {
	installed, err := os.ReadFile(filepath.Join("..", "..", "sdk", "python", "daisy_worker.py"))
	if err != nil {
		t.Fatal(err)
	}
	if string(installed) != pythonSDK {
		t.Error("internal/worker/daisy_worker.py differs from sdk/python/daisy_worker.py; copy the latter")
	}
}

func TestAPythonFunctionIsImportedOnceAndCalledWithEachBlock(t *testing.T) {
	for reference, file := range map[string]string{
		"predict:work":              "predict.py",
		"package.steps:Steps.work":  "package/steps.py",
		"01-predict.py:work":        "01-predict.py",
		"steps/predict.py:work":     "steps/predict.py",
		"steps/predict.v2.py:work":  "steps/predict.v2.py",
		"package.json:work":         "package/json.py",
		"daisy_worker_user.py:work": "daisy_worker_user.py",
	} {
		t.Run(reference, func(t *testing.T) {
			body := "import os\nprint('imported')\ncount = 0\n" + `
def work(block):
    global count
    count += 1
    print(count, block.task, block.block, block.index, block.read, block.read.end, block.write.slices, block.attempt, block.lease)
    print(os.getcwd(), os.environ["MINE"], __name__)
    if block.block == 8:
        raise ValueError("no good: ä")
class Steps:
    work = staticmethod(work)
`
			task := pythonTask(t, reference, map[string]string{file: body})
			task.Env = append(task.Env, "MINE=yes")
			task.ResourceTracking = true
			c, cfg := overTCP(t, task)
			w := start(t, cfg)
			s := c.next()
			if r := runBlock(s); r.Outcome != wire.Success || r.CPUNanos <= 0 || r.PeakRSSBytes <= 0 || runtime.GOOS == "linux" && (r.ReadBytes <= 0 || r.WrittenBytes <= 0) {
				t.Errorf("got %v %q %q", r.Outcome, r.Message, r.Tail)
			}
			s.grant(s.acquire().Request, 8)
			r := s.release()
			s.acknowledge(r.Seq)
			if r.Outcome != wire.Failed || r.Message != "ValueError: no good: ä" || !strings.Contains(r.Tail, "Traceback") || strings.Contains(r.Tail, "<daisy>") || strings.Contains(r.Tail, "daisy_worker.py") {
				t.Errorf("got %v %q\n%s", r.Outcome, r.Message, r.Tail)
			}
			s.grant(s.acquire().Request, 9)
			if r := s.release(); r.Outcome != wire.Success {
				t.Errorf("got %v %q %q", r.Outcome, r.Message, r.Tail)
			}
			s.acknowledge(3)
			s.acquire()
			s.drain()
			if got := w.status(); got != 0 {
				t.Errorf("status: got %d, want 0", got)
			}
			log := w.log.String()
			if n := strings.Count(log, "] imported\n"); n != 1 {
				t.Errorf("imported %d times, want once", n)
			}
			for _, line := range []string{
				"[predict 7 #1] 1 predict 7 (7,) Roi(offset=(69,), shape=(12,)) (81,) (slice(70, 80, None),) 1 2.7\n",
				"[predict 9 #1] 3 predict 9 (9,) Roi(offset=(89,), shape=(12,)) (101,) (slice(90, 100, None),) 1 2.9\n",
				"[predict 7 #1] " + task.Dir + " yes ",
			} {
				if !strings.Contains(log, line) {
					t.Errorf("the log has no line %q", line)
				}
			}
		})
	}
}

func TestWhatAPythonFunctionCanDoToItsBlock(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		outcome wire.Outcome
		message string // a pattern
		tail    string // a part
	}{
		"returns":                {"return False", wire.Success, ``, ""},
		"says that it is done":   {"block.done()", wire.Success, ``, ""},
		"says that it failed":    {"block.fail('no data')", wire.Failed, `no data`, ""},
		"says it twice":          {"block.fail('no data'); block.done()", wire.Failed, `no data`, ""},
		"exits":                  {"import sys; sys.exit(3)", wire.Failed, `SystemExit: 3: it called sys.exit\(\) instead of returning`, ""},
		"exits well":             {"import sys; sys.exit()", wire.Failed, `SystemExit: None: it called sys.exit\(\) instead of returning`, ""},
		"ends its process":       {"import os; os._exit(3)", wire.Failed, `the Python process ended without an answer: exit status 3; its output may say why it ended`, ""},
		"crashes":                {"import os, signal; print('last'); os.kill(os.getpid(), signal.SIGABRT)", wire.Failed, `the Python process ended without an answer: signal 6 \(aborted\); its output may say why it ended`, "last"},
		"is a coroutine":         {"async def f(): pass\n    return f()", wire.Failed, `TypeError: the function returned a coroutine: nothing of it has run`, ""},
		"reads standard input":   {"import sys, subprocess\n    assert sys.stdin.read() == ''\n    assert subprocess.run(['cat'], stdout=subprocess.PIPE).stdout == b''", wire.Success, ``, ""},
		"leaves a fork in it":    {"import os\n    if pid := os.fork(): os.waitpid(pid, 0); block.fail('the parent says so')", wire.Failed, `the parent says so`, ""},
		"answers in a child":     {"import subprocess, sys\n    code = subprocess.run([sys.executable, '-c', 'import os; os.write(3, b\"x\")'], stderr=subprocess.DEVNULL, close_fds=False).returncode\n    assert code == 1, code", wire.Success, ``, ""},
		"has a message of lines": {"raise ValueError('one\\ntwo')", wire.Failed, "ValueError: one\ntwo", "Traceback"},
		"raises a SyntaxError":   {"compile('a b', 'x', 'exec')", wire.Failed, `SyntaxError: invalid syntax.*`, "Traceback"},
		"raises a KeyboardInt..": {"raise KeyboardInterrupt", wire.Failed, `KeyboardInterrupt`, "Traceback"},
		"says very much":         {"raise ValueError('x' * 100000)", wire.Failed, `ValueError: x+…`, "xxx"},
		"prints what is no text": {"import sys; print('\\udcff'); sys.stdout.buffer.write(b'\\xff\\n')", wire.Success, ``, ""},
		"closes its output":      {"import sys; sys.stdout.close()", wire.Success, ``, ""},
		"uses a pool":            {"import multiprocessing\n    with multiprocessing.get_context('spawn').Pool(1) as pool: assert pool.map(abs, [-1]) == [1]", wire.Success, ``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, cfg := overTCP(t, pythonTask(t, "m:work", map[string]string{"m.py": "def work(block):\n    " + tc.body + "\n"}))
			w := start(t, cfg)
			s := c.next()
			for _, flat := range []uint64{7, 8} { // and the next one is not harmed
				s.grant(s.acquire().Request, flat)
				r := s.release()
				s.acknowledge(r.Seq)
				if r.Outcome != tc.outcome || !regexp.MustCompile(`^(?s:`+tc.message+`)$`).MatchString(r.Message) || !strings.Contains(r.Tail, tc.tail) {
					t.Errorf("block %d: got %v %.300q, want %v %q; tail\n%.3000s", flat, r.Outcome, r.Message, tc.outcome, tc.message, r.Tail)
				}
			}
			if log := w.log.String(); strings.Contains(log, "replaced") {
				t.Errorf("an answer came that belongs to no block:\n%s", log)
			}
		})
	}
}

func TestTheLinesBeforeAPythonBlockIsKilledAreKept(t *testing.T) {
	task := pythonTask(t, "m:work", map[string]string{"m.py": "import time\ndef work(block):\n    print('began')\n    time.sleep(1000)\n"})
	task.TimeoutSeconds = 3
	c, cfg := overTCP(t, task)
	start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.TimedOut || r.Tail != "began" {
		t.Errorf("got %v %q %q", r.Outcome, r.Message, r.Tail)
	}
}

func TestAWorkerThatCannotImportTheFunctionLeavesAndBlamesNoBlock(t *testing.T) {
	task := pythonTask(t, "m:work", map[string]string{"m.py": "import nowhere_to_be_found\n"})
	c, cfg := overTCP(t, task)
	w := start(t, cfg)
	s := c.next()
	s.grant(s.acquire().Request, 7)
	want := regexp.MustCompile(`^importing m failed at ` + regexp.QuoteMeta(task.Dir) + `/m.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'; install it \(\S+ -m pip install ...\)`)
	if m := s.leaving(); m.Reason != wire.LeaveBroken || !want.MatchString(m.Message) {
		t.Errorf("got %v %q", m.Reason, m.Message)
	}
	if r := s.release(); r.Outcome != wire.Returned {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acknowledge(1)
	if got := w.status(); got != StatusCannotStart {
		t.Errorf("status: got %d, want %d", got, StatusCannotStart)
	}
	if !strings.Contains(w.log.String(), "Traceback") {
		t.Error("the log has no traceback")
	}
}

func TestBeforeTheRunAPythonFunctionIsImportedAndTheErrorSaysWhatToChange(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", "")
	t.Setenv("CONDA_PREFIX", "")
	const good = "def work(block): pass\n"
	for name, tc := range map[string]struct {
		reference string
		files     map[string]string
		want      string // a pattern; $DIR is the folder; "" = it can be imported
	}{
		"a module":                 {"predict:work", map[string]string{"predict.py": good}, ``},
		"a file":                   {"steps/predict.py:work", map[string]string{"steps/predict.py": "import beside\n" + good, "steps/beside.py": ""}, ``},
		"one that prints and ends": {"m:work", map[string]string{"m.py": "import atexit, sys\nprint('x' * 100000)\natexit.register(lambda: sys.stdin.read())\n" + good}, ``},
		"a built-in":               {"math:sqrt", nil, ``},
		"missing module": {"predct:work", map[string]string{"predict.py": good},
			`\S+ \(Python 3\.\S+\) finds no module "predct"; searched were $DIR, \S+.*; did you mean "predict"\?`},
		"missing in a package": {"package.predct:work", map[string]string{"package/__init__.py": "", "package/predict.py": good},
			`the package "package" has no module "predct"; searched were $DIR/package; did you mean "predict"\?`},
		"no package": {"predict.steps:work", map[string]string{"predict.py": good},
			`"predict" \($DIR/predict.py\) is no package, so there is no module "predict.steps"`},
		"missing function": {"predict:wrok", map[string]string{"predict.py": good},
			`$DIR/predict.py has no wrok; did you mean "work"\?`},
		"missing method": {"predict:Steps.one", map[string]string{"predict.py": "class Steps:\n  def first(block): pass\n  def second(block): pass\n"},
			`Steps of $DIR/predict.py has no one; there are first, second`},
		"of a folder": {"folder:work", map[string]string{"folder/x": ""},
			`the package in .*folder.* has no work`},
		"no function":         {"m:work", map[string]string{"m.py": "work = {}\n"}, `work of $DIR/m.py is a dict, not a function`},
		"two arguments":       {"m:work", map[string]string{"m.py": "def work(read, write): pass\n"}, `work\(read, write\) of $DIR/m.py cannot be called with the block as its only argument: missing a required argument: 'write'`},
		"no arguments":        {"m:work", map[string]string{"m.py": "def work(): pass\n"}, `work\(\) of $DIR/m.py cannot be called with the block as its only argument: too many positional arguments`},
		"a generator":         {"m:work", map[string]string{"m.py": "def work(block): yield\n"}, `work of $DIR/m.py is a generator .*`},
		"async":               {"m:work", map[string]string{"m.py": "async def work(block): pass\n"}, `work of $DIR/m.py is an async function: .*`},
		"import raises":       {"m:work", map[string]string{"m.py": "import other\n", "other.py": "\n1/0\n"}, `importing m failed at $DIR/other.py:2: ZeroDivisionError: division by zero`},
		"import exits":        {"m.py:work", map[string]string{"m.py": "import sys\nsys.exit(2)\n"}, `importing $DIR/m.py failed at $DIR/m.py:2: SystemExit: 2; what is to happen only when the file is run as a script belongs below if __name__ == "__main__":`},
		"syntax error deeper": {"m:work", map[string]string{"m.py": "import other\n", "other.py": "\n\ndef x() pass\n"}, `importing m failed at $DIR/other.py:3: SyntaxError: .*`},
		"syntax error":        {"m:work", map[string]string{"m.py": "def work(block) pass\n"}, `importing m failed at $DIR/m.py:1: SyntaxError: .*`},
		"missing library": {"m:work", map[string]string{"m.py": "import nowhere_to_be_found\n"},
			`importing m failed at $DIR/m.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'; install it \(\S+ -m pip install \.\.\.\), or use an interpreter that has it`},
		"a name that is taken": {"json.py:work", map[string]string{"json.py": good},
			`$DIR/json.py has the name of a module of the standard library, or of one that is loaded already; give the file another name`},
		"a file that is gone": {"gone.py:work", nil, `importing $DIR/gone.py failed: FileNotFoundError: .*`},
		"a process that ends": {"m:work", map[string]string{"m.py": "import os\nprint('bye')\nimport sys\nsys.stdout.flush()\nos._exit(4)\n"},
			`\S+ ended while it imported it: exit status 4; is it no Python interpreter, or does what it imports end it\?; its last words: "bye"`},
		"a virtual environment beside it": {"m:work", map[string]string{"m.py": "import nowhere_to_be_found\n", ".venv/bin/python": "#!"},
			`importing m failed .*; there is a virtual environment beside the job file: write interpreter = ".venv/bin/python"`},
		"an editable install that was moved": {"m:work", map[string]string{"m.py": "import nowhere_to_be_found\n",
			"nowhere_to_be_found-1.0.dist-info/direct_url.json": `{"url":"file:///nowhere/at/all","dir_info":{"editable":true}}`},
			`importing m failed .*; it is an editable install of /nowhere/at/all, which is not there: put the code back, or install it without -e`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := pythonTask(t, tc.reference, tc.files)
			if err := os.Chmod(filepath.Join(task.Dir, ".venv/bin/python"), 0o755); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			warning, err := CheckPython(t.Context(), task, os.Environ())
			got := ""
			if err != nil {
				got = err.Error()
			}
			want := strings.ReplaceAll(tc.want, "$DIR", regexp.QuoteMeta(task.Dir))
			if !regexp.MustCompile(`^` + want + `$`).MatchString(got) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if warning != "" {
				t.Errorf("warning: %s", warning)
			}
		})
	}
}

func TestAnActiveVirtualEnvironmentThatIsNotUsedIsSaid(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", "/home/ada/venv")
	warning, err := CheckPython(t.Context(), pythonTask(t, "m:work", map[string]string{"m.py": "def work(block): pass\n"}), os.Environ())
	if want := regexp.MustCompile(`^VIRTUAL_ENV says that /home/ada/venv is active, but \S+ \(Python 3\.\S+\) is not its$`); err != nil || !want.MatchString(warning) {
		t.Errorf("got %q, %v", warning, err)
	}
	_, err = CheckPython(t.Context(), pythonTask(t, "predict:work", nil), os.Environ())
	if want := `; VIRTUAL_ENV says that /home/ada/venv is active, but this interpreter is not its: write interpreter = "/home/ada/venv/bin/python"`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestAnImportThatDoesNotEndIsEndedWithAllThatItStarted(t *testing.T) {
	f := newFifo(t)
	task := pythonTask(t, "m:work", map[string]string{"m.py": fmt.Sprintf(`import subprocess, time
print("loading")
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open(%q, "w").write(f"{child.pid}\n")
time.sleep(1000)
`, f.path)})
	_, err := checkPython(t.Context(), task, os.Environ(), 2*time.Second)
	want := regexp.MustCompile(`^importing it with \S+ takes more than 2s: what takes long, or waits for something, belongs into the function, or below if __name__ == "__main__":; its last words: "loading"$`)
	if err == nil || !want.MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
	if child := f.readPID(); alive(child) {
		t.Errorf("process %d is left behind", child)
	}
}

func TestAnInterpreterThatIsNoneOrTooOldIsSaid(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct{ script, want string }{
		"none":    {"#!/bin/sh\necho hello\n", dir + `/python ended while it imported it: exit status 0; is it no Python interpreter, or does what it imports end it?; its last words: "hello"`},
		"too old": {"#!/bin/sh\necho 'Python 3.8 or later is needed; /x is Python 2.7.18' >&2\nexit 1\n", dir + `/python ended while it imported it: exit status 1; is it no Python interpreter, or does what it imports end it?; its last words: "Python 3.8 or later is needed; /x is Python 2.7.18"`},
		"missing": {"", `cannot run "./python": ` + dir + `/python does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "python")
			if err := os.WriteFile(path, []byte(tc.script), 0o755); err != nil {
				t.Fatal(err)
			}
			if tc.script == "" {
				os.Remove(path)
			}
			task := testTask("python", "./python")
			task.Dir, task.Python = dir, "m:work"
			_, err := CheckPython(t.Context(), task, os.Environ())
			if err == nil || err.Error() != tc.want {
				t.Errorf("got\n%v\nwant\n%s", err, tc.want)
			}
		})
	}
}

// theirs is a package with blocks as daisy 2 has them.
const theirs = `
class BlockStatus:
    PROCESSING, SUCCESS, FAILED = 1, 2, 3
class Roi:
    def __init__(self, offset, shape): self.offset, self.shape = list(offset), list(shape)
class Block:
    def __init__(self, total_roi, read_roi, write_roi, task_id=None, block_id=None):
        self.read_roi, self.write_roi, self.block_id, self.status = read_roi, write_roi, (task_id, block_id), 0
`

func TestAPythonFunctionGetsTheBlocksOfAPackage(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		outcome wire.Outcome
		message string
	}{
		"its block": {"assert type(block) is theirs.Block and block.status == 1, block.status\n    print(block.block_id, block.read_roi.offset, block.write_roi.shape)", wire.Success, ""},
		"succeeds":  {"block.status = theirs.BlockStatus.SUCCESS", wire.Success, ""},
		"fails":     {"block.status = theirs.BlockStatus.FAILED", wire.Failed, "RuntimeError: the function has set block.status to FAILED"},
		"raises":    {"raise ValueError('no')", wire.Failed, "ValueError: no"},
	} {
		t.Run(name, func(t *testing.T) {
			task := pythonTask(t, "m:work", map[string]string{"m.py": "import theirs\ndef work(block):\n    " + tc.body + "\n", "theirs.py": theirs})
			task.PythonBlock = "theirs"
			c, cfg := overTCP(t, task)
			w := start(t, cfg)
			s := c.next()
			r := runBlock(s)
			if r.Outcome != tc.outcome || r.Message != tc.message || strings.Contains(r.Tail, "<daisy>") {
				t.Errorf("got %v %q\n%s", r.Outcome, r.Message, r.Tail)
			}
			if log := w.log.String(); name == "its block" && !strings.Contains(log, "('predict', 7) [69] [10]\n") {
				t.Errorf("log\n%s", log)
			}
		})
	}
}

func TestAPackageWithoutBlocksIsRefusedBeforeTheRun(t *testing.T) {
	for name, tc := range map[string]struct{ pkg, text, want string }{
		"is not there": {"theirs_not", "", `finds no module theirs_not, whose Block the function is to get \(the key block\); install it \(\S+ -m pip install theirs_not\)`},
		"has none":     {"theirs", "Roi = 1\n", `theirs, whose Block the function is to get \(the key block\), is no package for that: module 'theirs' has no attribute 'Block'`},
		"fails":        {"theirs", "1 / 0\n", `importing theirs failed at \S+theirs.py:1: ZeroDivisionError`},
		"needs more":   {"theirs", "import theirs_not\n", `importing theirs failed at .*No module named 'theirs_not'`},
	} {
		t.Run(name, func(t *testing.T) {
			task := pythonTask(t, "m:work", map[string]string{"m.py": "def work(block): pass\n", "theirs.py": tc.text})
			task.PythonBlock = tc.pkg
			if _, err := CheckPython(t.Context(), task, os.Environ()); err == nil || !regexp.MustCompile(tc.want).MatchString(err.Error()) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
