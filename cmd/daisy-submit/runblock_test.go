package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/daisy/internal/testenv"
)

// lineJob is a job of one task "work" with 3 blocks that runs a line of sh, as a command or a stream.
func lineJob(kind, line string) string {
	return fmt.Sprintf(`
[[task]]
id = "work"
total = { offset = [0, 0], shape = [2, 3] }
block = { shape = [1, 1] }
requires = { cpu = 2 }
env = { WORD = "own" }
run = { %s = ["sh", "-c", '''%s'''] }
`, kind, line)
}

func TestOneBlockRunsAsAWorkerWouldRunIt(t *testing.T) {
	t.Setenv("DAISY_LEASE", "of a run further up")
	t.Setenv("SLURM_JOB_ID", "7")
	path := writeJob(t, lineJob("command", `cat; echo {index} $DAISY_BLOCK_INDEX $DAISY_TASK_ID $DAISY_LEASE $DAISY_CPUS $OMP_NUM_THREADS $WORD "[$SLURM_JOB_ID]"; test -d "$DAISY_RUN_DIR" && pwd; echo to stderr >&2`))
	for _, block := range []string{"1,2", "(1, 2)"} {
		status, out, said := call("run-block", path, "work", block)
		want := `{"task":"work","block":7,"index":[1,2],"read":{"offset":[1,2],"shape":[1,1]},"write":{"offset":[1,2],"shape":[1,1]},"attempt":1,"lease":"1.1"}` +
			"\n1,2 1,2 work 1.1 2 2 own []\n" + path[:strings.LastIndex(path, "/")] + "\n"
		if status != exitOK || out != want || !regexp.MustCompile("^to stderr\nblock \\(1, 2\\) of task \"work\": done after [0-9.]+m?s\n$").MatchString(said) {
			t.Errorf("status %d, %q\n%s\nwant\n%s", status, said, out, want)
		}
	}
	if status, out, _ := call("run-block", path, "work", "7"); status != exitOK || !strings.Contains(out, `"index":[1,2]`) {
		t.Errorf("by id: status %d\n%s", status, out)
	}
}

func TestTheFolderOfABlockThatRunsAloneIsRemoved(t *testing.T) {
	path := writeJob(t, lineJob("command", `touch "$DAISY_RUN_DIR/scratch" && echo $DAISY_RUN_DIR {run_dir}; exit 1`))
	_, out, _ := call("run-block", path, "work", "0,0")
	dirs := strings.Fields(out)
	if len(dirs) != 2 || dirs[0] != dirs[1] {
		t.Fatalf("got %q", out)
	}
	if _, err := os.Stat(dirs[0]); err == nil {
		t.Errorf("%s is left", dirs[0])
	}
}

func TestTheStatusIsThatOfTheBlock(t *testing.T) {
	wantHelp(t, "run-block", "0", "2", "3", "N")
	for name, c := range map[string]struct {
		kind, line string
		status     int
		want       string
	}{
		"well":          {"command", "true", 0, "block (0, 1) of task \"work\": done after "},
		"a number":      {"command", "exit 17", 17, "block (0, 1) of task \"work\": exit status 17"},
		"a signal":      {"command", "kill -9 $$", 137, "ended by signal 9 (killed)"},
		"stream, well":  {"stream", `read b; echo '{"lease":"1.1","ok":true}' >&3; read b || exit 4`, 0, "done after "},
		"stream, not":   {"stream", `read b; echo '{"lease":"1.1","ok":false,"error":"no good"}' >&$DAISY_ANSWER_FD`, 1, "no good"},
		"no answer":     {"stream", `read b; exit 5`, 5, "ended without an answer: exit status 5"},
		"only the end":  {"stream", `exit 0`, 1, "ended without an answer: exit status 0"},
		"another lease": {"stream", `read b; echo '{"lease":"9.9","ok":true}' >&3; exec sleep 600`, 1, "a wrong answer"},
		"daisy, badly":  {"daisy", `exit 5`, 5, "the daisy worker ended without asking for a block: exit status 5"},
		"daisy, not":    {"daisy", `exit 0`, 1, "the daisy worker ended without asking for a block"},
		"no JSON":       {"stream", `echo fine >&3`, 1, "a wrong answer"},
	} {
		path := writeJob(t, lineJob(c.kind, c.line))
		status, _, said := call("run-block", path, "work", "0,1")
		if status != c.status || !strings.Contains(said, c.want) || strings.Contains(said, "done after") != (status == 0) {
			t.Errorf("%s: status %d, want %d with %q:\n%s", name, status, c.status, c.want, said)
		}
	}
}

func TestABlockThatIsNotThereIsNotRun(t *testing.T) {
	path := writeJob(t, lineJob("command", "echo ran"))
	stream := writeJob(t, lineJob("stream", "echo ran"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"task":         {[]string{path, "wrok", "0,0"}, `did you mean "work"?`},
		"position":     {[]string{path, "work", "2,0"}, "there is no block at (2, 0); the grid is 2 x 3 blocks"},
		"axes":         {[]string{path, "work", "0,0,0"}, "there is no block at (0, 0, 0)"},
		"many axes":    {[]string{path, "work", "0,0,0,0,0,0,0,0,0"}, "there is no block at"},
		"id":           {[]string{path, "work", "99"}, "there is no block 99"},
		"words":        {[]string{path, "work", "first"}, `"first" is no block`},
		"too few":      {[]string{path, "work"}, "needs a job file, a task and a block"},
		"job":          {[]string{path + "x", "work", "0,0"}, "there is no such file"},
		"stdin of one": {[]string{stream, "work", "0,0", "-i"}, "is for a command"},
	} {
		status, out, said := call(append([]string{"run-block"}, c.args...)...)
		if status != exitUsage || out != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s: status %d, want %q:\n%s%s", name, status, c.want, out, said)
		}
	}
}

func TestOneBlockOfAPythonFunctionRunsAlone(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		testenv.Unavailable(t, err.Error())
	}
	path := writeJob(t, strings.Replace(lineJob("command", ""), `command = ["sh", "-c", '''''']`, `python = "own.py:work"`, 1))
	code := "import os\ndef work(block):\n    if block.index[1] == 1: os._exit(5)\n    print('at', list(block.index), flush=True)\n    assert block.index[0] == 0, 'not this one'\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "own.py"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, said := call("run-block", path, "work", "0,2"); status != exitOK || out != "at [0, 2]\n" {
		t.Errorf("status %d, %q\n%s", status, out, said)
	}
	if status, _, said := call("run-block", path, "work", "0,1"); status != 5 || !strings.HasSuffix(said, "the Python process ended without an answer: exit status 5\n") {
		t.Errorf("status %d\n%s", status, said)
	}
	if status, _, said := call("run-block", path, "work", "1,2"); status != 1 || !strings.Contains(said, "not this one") {
		t.Errorf("status %d\n%s", status, said)
	}
}
