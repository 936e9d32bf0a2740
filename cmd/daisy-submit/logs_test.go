package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/rundir"
)

// wantHelp checks the help of a command: its example, and the exit statuses that it lists.
func wantHelp(t *testing.T, command string, statuses ...string) {
	t.Helper()
	status, help, _ := call(command, "--help")
	head, list, found := strings.Cut(help, "\nEXIT STATUS\n")
	if status != exitOK || !found || !strings.Contains(head, "\nEXAMPLE\n   daisy-submit "+command) {
		t.Errorf("%s --help: status %d\n%s", command, status, help)
	}
	var got []string
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 0 {
			got = append(got, fields[0])
		}
	}
	if d := cmp.Diff(statuses, got); d != "" {
		t.Errorf("%s --help lists other statuses: -want +got\n%s", command, d)
	}
}

// A runFolder is a run directory made by hand.
type runFolder struct {
	*rundir.Dir
	t *testing.T
}

func newRun(t *testing.T) runFolder {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "made", "")
	if err != nil {
		t.Fatal(err)
	}
	return runFolder{d, t}
}

func (r runFolder) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.Path(), name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func TestALineOfALogIsTakenApart(t *testing.T) {
	for raw, want := range map[string]logLine{
		"[predict 17 #2] it works":                     {task: "predict", block: "17", attempt: "2", text: "it works"},
		"[predict (0, 1, 4) #1] ":                      {task: "predict", block: "(0, 1, 4)", attempt: "1"},
		"[worker] block predict 17 #2: failed: status": {task: "predict", block: "17", attempt: "2", text: "block predict 17 #2: failed: status"},
		"[worker] told to stop":                        {text: "told to stop"},
		"panic: no mark":                               {text: "panic: no mark"},
		"[x] [predict 17 #2] a mark in a text":         {text: "[x] [predict 17 #2] a mark in a text"},
	} {
		got := parseLine("", []byte(raw))
		got.raw = ""
		if got != want {
			t.Errorf("%q: got %+v, want %+v", raw, got, want)
		}
	}
}

func TestLogsAreInTheOrderOfTheirWorkers(t *testing.T) {
	names := []string{"10.0.log", "2.10.log", "host-7.log", "2.9.log"}
	slices.SortFunc(names, byNumbers)
	if d := cmp.Diff([]string{"2.9.log", "2.10.log", "10.0.log", "host-7.log"}, names); d != "" {
		t.Error(d)
	}
}

const someLog = "[worker] worker 1.0 serves task \"work\"\n[work 3 #1] one\n[other 3 #1] not this\n[work 4 #1] two\x1b[31m\n" +
	"[worker] block work 3 #1: failed: exit status 1\n[work 3 #2] three\n"

func TestLogsOfOneBlockAreOfAllItsAttempts(t *testing.T) {
	r := newRun(t)
	r.write("logs/1.0.log", someLog)
	_, all, _ := call("logs", r.Path())
	if want := "==> worker 1.0 <==\n" + strings.ReplaceAll(someLog, "\x1b", "\uFFFD"); all != want {
		t.Errorf("got\n%s\nwant\n%s", all, want)
	}
	_, got, _ := call("logs", r.Path(), "--block", "3", "--task", "work", "--worker", "1.0")
	if want := "[work 3 #1] one\n[worker] block work 3 #1: failed: exit status 1\n[work 3 #2] three\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, got, said := call("logs", r.Path(), "--block", "5"); got != "" || !strings.Contains(said, "no such line in 1 log") {
		t.Errorf("got %q, %q", got, said)
	}
}

func TestLogsAsJSONNameTheBlockOfEachLine(t *testing.T) {
	r := newRun(t)
	r.write("logs/1.0.log", "[worker] hello\n[work (0, 4) #2] words\n[work 17 #1] more")
	_, got, _ := call("logs", r.Path(), "--json")
	want := `{"worker":"1.0","task":null,"block":null,"index":null,"attempt":null,"text":"hello"}
{"worker":"1.0","task":"work","block":null,"index":[0,4],"attempt":2,"text":"words"}
{"worker":"1.0","task":"work","block":17,"index":null,"attempt":1,"text":"more"}
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFailedAttemptsAreFoundInTheLogsWhileThereAreNoStatistics(t *testing.T) {
	r := newRun(t)
	r.write("logs/1.0.log", someLog+"[worker] block work 4 #1: timed out: timed out after 1s\n[worker] block work 5 #1 ended (success), but it had been taken away\n")
	status, got, said := call("logs", r.Path(), "--failed")
	want := "task work, block 3: attempt 1 on worker 1.0: failed: exit status 1\n  | one\n  log: " + r.LogPath("1.0") +
		"\n\ntask work, block 4: attempt 1 on worker 1.0: timed out: timed out after 1s\n  | two\uFFFD[31m\n  log: " + r.LogPath("1.0") + "\n"
	if d := cmp.Diff(want, got); status != exitOK || d != "" || !strings.Contains(said, "may be tried again") {
		t.Errorf("status %d, %q, -want +got\n%s", status, said, d)
	}
	if _, got, _ := call("logs", r.Path(), "--failed", "--block", "4"); strings.Contains(got, "block 3") || !strings.Contains(got, "block 4") {
		t.Errorf("got %s", got)
	}
}

func TestALogWithoutLinesIsBounded(t *testing.T) {
	r := newRun(t)
	r.write("logs/1.0.log", strings.Repeat("x", 5<<20)+"\n[work 1 #1] end\n")
	for _, args := range [][]string{nil, {"--failed"}} {
		if status, got, said := call(append([]string{"logs", r.Path()}, args...)...); status != exitOK || len(got) > longestLine+100 {
			t.Errorf("%v: status %d, %d bytes, %s", args, status, len(got), said)
		}
	}
}

func TestWhatALineHasNoEndOfIsKeptUntilItCame(t *testing.T) {
	r := newRun(t)
	r.write("logs/1.0.log", "[work 1 #1] be")
	file, err := os.OpenFile(r.LogPath("1.0"), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out bytes.Buffer
	l := &logView{dir: r.Dir, file: "1.0.log", out: bufio.NewWriter(&out)}
	read, err := os.Open(r.LogPath("1.0"))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	o := &openLog{file: read}
	if n, err := l.printNew("1.0", o, false); n != 0 || err != nil {
		t.Errorf("%d lines, %v", n, err)
	}
	if _, err := file.WriteString("gin\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.printNew("1.0", o, false); n != 1 || err != nil {
		t.Errorf("%d lines, %v", n, err)
	}
	_ = l.out.Flush()
	if out.String() != "[work 1 #1] begin\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestTasksAndBlocksThatTheRunDoesNotHaveAreRefused(t *testing.T) {
	t.Chdir(filepath.Dir(writeJob(t, oneBlock+`
[[task]]
id = "wide"
total = { offset = [0], shape = [3] }
block = { shape = [1] }
run = { command = ["true"] }
`)))
	if status, _, said := call("run", "job.toml"); status != exitOK {
		t.Fatal(said)
	}
	for args, want := range map[string]string{
		"logs --block 99":                 `task "wide": there is no block 99; the grid has 3 blocks`,
		"logs --task nope":                `there is no task "nope" in this run; it has "work", "wide"`,
		"logs --task work --block 2":      `task "work": there is no block 2`,
		"logs --task work --block (2)":    `task "work": there is no block at (2)`,
		"logs --failed --task nope":       `there is no task "nope" in this run`,
		"blocks --task nope":              `there is no task "nope" in this run; it has "work", "wide"`,
		"blocks latest --state abandoned": "only those that failed are known",
	} {
		if status, _, said := call(strings.Split(args, " ")...); status != exitUsage || !strings.Contains(said, want) {
			t.Errorf("%s: status %d, want %q in %s", args, status, want, said)
		}
	}
	for args, want := range map[string]string{
		"logs --block 2":             "",
		"logs --block 02":            "",
		"logs --task wide --block 2": "",
		"blocks":                     "no block failed; of an ended run only failed blocks are known\n",
		"blocks --task wide":         "no block of task \"wide\" failed; of an ended run only failed blocks are known\n",
	} {
		if status, got, said := call(strings.Split(args, " ")...); status != exitOK || got != want {
			t.Errorf("%s: status %d, %q, want %q; %s", args, status, got, want, said)
		}
	}
}

func TestARunThatFoundAllDoneHasNoWorkers(t *testing.T) {
	t.Chdir(filepath.Dir(writeJob(t, oneBlock)))
	for range 2 {
		if status, _, said := call("run", "job.toml", "--set", "run.tracking=tracking"); status != exitOK {
			t.Fatal(said)
		}
	}
	if status, out, said := call("workers"); status != exitOK || out != "no workers\n" {
		t.Errorf("status %d: %q; %s", status, out, said)
	}
}

func TestEveryCommandTakesTheSameWordsForARun(t *testing.T) {
	t.Chdir(filepath.Dir(writeJob(t, oneBlock)))
	if status, _, said := call("stats"); status != exitUsage || !strings.Contains(said, "there is no run in ") {
		t.Errorf("status %d: %s", status, said)
	}
	if status, _, said := call("run", "job.toml"); status != exitOK {
		t.Fatal(said)
	}
	name, err := os.Readlink("runs/latest")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"stats", "status", "logs", "blocks", "workers"} {
		for _, run := range [][]string{nil, {"latest"}, {name}, {"runs/" + name}} {
			if status, _, said := call(append([]string{command}, run...)...); status != exitOK {
				t.Errorf("%s %v: status %d: %s", command, run, status, said)
			}
		}
	}
	for name, c := range map[string]struct {
		run  string
		want string
	}{
		"no text":           {"", "is given as \"\", which names none"},
		"no run":            {"old", "there is no run directory old, neither here nor in "},
		"a file":            {"job.toml", "job.toml is a file, not a run directory. A run says at its start where its directory is"},
		"a folder":          {"runs", "runs is no run directory but holds some: give runs/latest for the newest; \"daisy-submit runs runs\" lists them"},
		"no folder of runs": {".", "is no run directory: it has no run.json"},
		"elsewhere":         {"/nothing/there", "there is no run directory /nothing/there"},
	} {
		for _, args := range [][]string{{"stats"}, {"status"}, {"logs"}, {"blocks"}, {"workers"}, {"events"}, {"cancel"}, {"drain"}, {"stop", "1.0"}, {"exclude", "n1"}, {"include", "n1"}, {"set", "run.resources.cpu=1"}} {
			args = append([]string{args[0], c.run}, args[1:]...)
			if status, _, said := call(args...); status != exitUsage || !strings.Contains(said, c.want) {
				t.Errorf("%s: %q: status %d, want %q in %s", name, args, status, c.want, said)
			}
		}
	}
}

func TestLogsThatAreNotThereAreSaid(t *testing.T) {
	wantHelp(t, "logs", "0", "2", "3")
	r := newRun(t)
	r.write("logs/1.0.log", "")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no run":      {[]string{filepath.Join(r.Path(), "nothing")}, "there is no run directory "},
		"no latest":   {nil, "there is no run in "},
		"a worker":    {[]string{r.Path(), "--worker", "7.0"}, "no log of a worker \"7.0\"; there are: 1.0"},
		"a block":     {[]string{r.Path(), "--block", "x"}, "\"x\" is no block"},
		"no job":      {[]string{r.Path(), "--block", "0,1"}, "give the id of the block instead"},
		"two ways":    {[]string{r.Path(), "--failed", "-f"}, "cannot be given together"},
		"two folders": {[]string{r.Path(), r.Path()}, "takes one argument"},
	} {
		if status, _, said := call(append([]string{"logs"}, c.args...)...); status != exitUsage || !strings.Contains(said, c.want) {
			t.Errorf("%s: status %d, want %q in %s", name, status, c.want, said)
		}
	}
}
