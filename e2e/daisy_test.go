//go:build linux

package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/slurmlab"
	"example.org/daisy/internal/testenv"
)

// realDaisy is a Python that has the released daisy.
func realDaisy(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it installs daisy")
	}
	return testenv.Python(t, testenv.Daisy)
}

// ways are the tasks of testdata/behave.py.
var ways = []string{"raises", "catches", "nested", "says", "dies", "exits", "hangs", "kills", "stops", "prints"}

// behave runs all of them with the runner, one worker each, and gives the run directory.
func behave(t testing.TB, python, runner string) string {
	t.Helper()
	var tasks, env []string
	if runner == "stream" { // a worker script's lines come at once by themselves
		env = []string{"PYTHONUNBUFFERED=1"}
	}
	for _, way := range ways {
		how := runner
		if way == "nested" && runner == "daisy" {
			how = way
		}
		timeout := "10m"
		if way == "hangs" {
			timeout = "6s" // time to import daisy while all others do
		}
		tasks = append(tasks, blocks(way, 3)+fmt.Sprintf("run = { %s = [%q, \"behave.py\", %q] }\n", runner, python, how)+
			environment(append(env, "WAY="+way)...)+fmt.Sprintf("max_workers = 1\nmax_retries = 1\ntimeout = %q\n", timeout))
	}
	dir, path := writeJob(t, job("resources = { cpu = 10 }", tasks...))
	script, err := os.ReadFile(filepath.Join("testdata", "behave.py"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "behave.py"), string(script))
	wantStatus(t, 1, dir, "run", path, "--run-dir", "out")
	logs, err := filepath.Glob(filepath.Join(dir, "out", "logs", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	for _, log := range logs {
		printed.WriteString(readFile(t, log))
	}
	for b := range 3 { // each line is marked with its block
		if n := strings.Count(printed.String(), fmt.Sprintf("[prints %d #1] prints %d xxx", b, b)); n != 2000 {
			t.Errorf("of block %d the log has %d lines", b, n)
		}
	}
	return dir + "/out"
}

// rows are the workers of a run as far as they do not depend on who was first.
func rows(s api.Stats) []string {
	var list []string
	for _, w := range s.Workers {
		list = append(list, fmt.Sprintf("%s: %d processed, %d failed, %s", w.Task, w.Processed, w.Failed, *w.End))
	}
	slices.Sort(list)
	return list
}

func TestWorkerScriptsOfDaisyCountLikeStreamPrograms(t *testing.T) {
	t.Parallel()
	python := realDaisy(t)
	var theirs, ours api.Stats
	t.Run("runs", func(t *testing.T) { // ends when both have
		for runner, stats := range map[string]*api.Stats{"daisy": &theirs, "stream": &ours} {
			t.Run(runner, func(t *testing.T) {
				t.Parallel()
				*stats = statsOf(t, behave(t, python, runner))
			})
		}
	})
	want := map[string]counts{}
	for _, ts := range ours.Tasks {
		want[ts.ID] = countsOf(ts)
	}
	wantCounts(t, theirs, want)
	if d := cmp.Diff(rows(ours), rows(theirs)); d != "" {
		t.Errorf("workers (-stream +daisy):\n%s", d)
	}
	// That they are right too: the stream programs are not the only word.
	failing := counts{State: "done", Blocks: 3, Success: 2, Failed: 1, Processed: 5, Retries: 2}
	again := counts{State: "done", Blocks: 3, Success: 3, Processed: 4, Retries: 1}
	wantCounts(t, theirs, map[string]counts{
		"raises": failing, "catches": failing, "nested": failing,
		"says":  {State: "done", Blocks: 3, Success: 2, Failed: 1, Processed: 4, Retries: 1},
		"dies":  again,
		"exits": again,
		"hangs": {State: "done", Blocks: 3, Success: 3, Processed: 3, Retries: 1, Reclaimed: 1, TimedOut: 1},
		"kills": {State: "done", Blocks: 3, Success: 3, Processed: 3, Reclaimed: 1, Lost: 1},
		"stops": {State: "done", Blocks: 3, Success: 3, Processed: 3}, "prints": {State: "done", Blocks: 3, Success: 3, Processed: 3},
	})
	for _, way := range []string{"raises", "catches", "nested"} {
		f := task(t, theirs, way).Failures
		if len(f) != 1 || f[0].Message != "ValueError: größer: 失敗 und noch eine Zeile" || f[0].Tail == nil || !strings.Contains(*f[0].Tail, "in work\n") {
			t.Errorf("%s: the failures are %+v", way, f)
		}
	}
	wantNoneLeft(t, theirs.Run.ID, "behave.py daisy")
}

func TestWhatAClientOfDaisyMeasuresIsKept(t *testing.T) {
	t.Parallel()
	python := realDaisy(t)
	dir, path := writeJob(t, job(tracked, blocks("work", 2)+fmt.Sprintf("run = { daisy = [%q, \"worker.py\"] }\nresource_tracking = true\nmax_workers = 1\n", python)))
	// Its child writes too, which its client does not see.
	writeFile(t, filepath.Join(dir, "worker.py"), `
import daisy, subprocess
client = daisy.Client()
assert client.resource_tracking
while True:
    with client.acquire_block() as block:
        if block is None:
            break
        with open("out", "wb") as f:
            f.write(bytes(1000000))
        subprocess.run(["head", "-c", "5000000", "/dev/zero"], stdout=open("more", "wb"), check=True)
        sum(range(1000000))
`)
	wantStatus(t, 0, dir, "run", path, "--run-dir", "out.run")
	group := dir + "/tracking/work"
	wall, cpu, gpu := cells[float32](t, group, "wall_seconds", 2), cells[float32](t, group, "cpu_seconds", 2), cells[float32](t, group, "gpu_util_pct", 2)
	rss, written := cells[uint64](t, group, "peak_rss_bytes", 2), cells[uint64](t, group, "io_write_bytes", 2)
	for b := range 2 {
		if wall[b] <= 0 || cpu[b] <= 0 || cpu[b] > 10 || !math.IsNaN(float64(gpu[b])) || rss[b] < 1<<20 || written[b] < 1_000_000 || written[b] > 1_100_000 {
			t.Errorf("block %d used %v %v %v %v %v", b, wall[b], cpu[b], gpu[b], rss[b], written[b])
		}
	}
}

// The client itself has no GPU here, so that a script of its own says what one would.
func TestWhatAClientOfDaisySaysOfGPUsIsKept(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		testenv.Unavailable(t, "it runs a script in Python: "+err.Error())
	}
	dir, path := writeJob(t, job(tracked, blocks("work", 2)+fmt.Sprintf("run = { daisy = [%q, \"worker.py\"] }\nresource_tracking = true\nmax_workers = 1\n", python)))
	writeFile(t, filepath.Join(dir, "worker.py"), `
import os, socket, struct
context = dict(entry.split("=") for entry in os.environ["DAISY_CONTEXT"].split(":"))
server = socket.create_connection((context["hostname"], int(context["port"])))
stream = server.makefile("rwb")
def send(message):
    stream.write(struct.pack(">IB", len(message) + 1, 2) + message)
    stream.flush()
while True:
    send(b"\x00\x04work\x00")
    got = stream.read(struct.unpack(">I", stream.read(4))[0])
    if got[1] != 1:
        break
    # What was sent is the block, created, without statistics and timeout; it goes back as done, with statistics.
    send(b"\x02" + got[2:-3] + b"\x02\x01" + struct.pack("<dd", 0.001, 0.25) + b"\x01\x02\x03" + struct.pack("<f", 12.5) + b"\xfb" + struct.pack("<H", 4096))
`)
	wantStatus(t, 0, dir, "run", path, "--run-dir", "out.run")
	group := dir + "/tracking/work"
	if util, memory := cells[float32](t, group, "gpu_util_pct", 2), cells[uint64](t, group, "gpu_mem_bytes", 2); !slices.Equal(util, []float32{12.5, 12.5}) || !slices.Equal(memory, []uint64{4096, 4096}) {
		t.Errorf("the blocks used %v %% of GPUs and %v bytes", util, memory)
	}
	if work := task(t, statsOf(t, dir+"/out.run"), "work"); work.GPUUtilPercent == nil || *work.GPUUtilPercent != 12.5 || work.PeakGPUMemBytes == nil || *work.PeakGPUMemBytes != 4096 {
		t.Errorf("the statistics have %v %% and %v bytes", work.GPUUtilPercent, work.PeakGPUMemBytes)
	}
}

func TestOneBlockOfAWorkerScriptOfDaisyRunsAlone(t *testing.T) {
	t.Parallel()
	python := realDaisy(t)
	dir, path := writeJob(t, job("", blocks("work", 3)+fmt.Sprintf("run = { daisy = [%q, \"worker.py\"] }\n", python)))
	writeFile(t, filepath.Join(dir, "worker.py"), `
import daisy
client = daisy.Client()
while True:
    with client.acquire_block() as block:
        if block is None:
            break
        print("at", block.write_roi.offset[0])
        assert block.write_roi.offset[0] != 2, "not this one"
`)
	if r := wantStatus(t, 0, dir, "run-block", path, "work", "1"); r.stdout != "at 1\n" {
		t.Errorf("got %q", r.stdout)
	}
	if r := wantStatus(t, 1, dir, "run-block", path, "work", "2"); !strings.Contains(r.stderr, `block (2) of task "work": AssertionError: not this one`) {
		t.Errorf("got %q", r.stderr)
	}
}

// A task whose script cannot even import daisy ends soon, and says why.
func TestAWorkerScriptThatCannotBeStartedEndsTheTask(t *testing.T) {
	t.Parallel()
	dir, path := writeJob(t, job("", blocks("work", 3)+"run = { daisy = [\"sh\", \"-c\", \"echo no module named daisy >&2; exit 1\"] }\nmax_worker_restarts = 2\n"))
	r := wantStatus(t, 1, dir, "run", path, "--run-dir", "out")
	const want = `the daisy worker ended without asking for a block: exit status 1; its last words: "no module named daisy"`
	if !strings.Contains(r.all(), want) {
		t.Errorf("it does not say %s:\n%s", want, r.all())
	}
}

func TestOnSlurmWorkerScriptsOfDaisyGiveWhatTheyGiveHere(t *testing.T) {
	t.Parallel()
	python := realDaisy(t)
	lab := slurmlab.Start(t, slurmlab.Options{NoAccounting: true})
	task := func(way, keys string) string {
		return blocks(way, 3) + fmt.Sprintf("run = { daisy = [%q, \"behave.py\", \"daisy\"] }\n%s\n", python, keys)
	}
	tasks := []string{"id = \"both\"\ntotal_write = { offset = [0], shape = [12] }\nblock = { shape = [2], context = 1 }\n" +
		fmt.Sprintf("run = { daisy = [%q, \"behave.py\", \"daisy\"] }\nmax_workers = 2\nafter = [\"prints\"]\n", python)}
	for _, way := range []string{"raises", "catches", "dies", "exits", "hangs", "kills", "stops", "prints"} {
		tasks = append(tasks, task(way, "max_workers = 1\nmax_retries = 1\ntimeout = \""+map[bool]string{true: "10s", false: "10m"}[way == "hangs"]+"\""))
	}
	dir, program := aliceHome(t, lab, job("resources = { cpu = 10 }\n[slurm]\ntime = \"10m\"", tasks...))
	script, err := os.ReadFile(filepath.Join("testdata", "behave.py"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "behave.py"), string(script))
	run := func(launcher string) []string {
		t.Helper()
		path := filepath.Join(lab.Home("alice"), "run-"+launcher)
		cmd := lab.Command("root", program, "run", "job.toml", "--launcher", launcher, "--run-dir", path) // whose Python alice may not see
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("%s: %v\n%s", launcher, err, text)
		}
		wantNoneLeft(t, statsOf(t, path).Run.ID, path)
		for _, once := range first2(filepath.Glob(filepath.Join(dir, "*.once"))) {
			if err := os.Remove(once); err != nil {
				t.Fatal(err)
			}
		}
		return counted(t, path)
	}
	if d := cmp.Diff(run("local"), run("slurm")); d != "" {
		t.Errorf("counts (-local +slurm):\n%s", d)
	}
	if left := lab.Run("root", "squeue", "-h"); left != "" {
		t.Errorf("jobs are left:\n%s", left)
	}
}
