package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/sim"
)

const twoTasks = `
[run]
name = "two"
resources = { cpu = 8 }
[[task]]
id = "predict"
total_write = { offset = [0, 0], shape = [400, 400] }
block = { shape = [20, 20], context = 4 }
read_write_conflict = false
run = { command = ["true"] }
[[task]]
id = "label"
after = ["predict"]
total_write = { offset = [0, 0], shape = [400, 400] }
block = { shape = [40, 40], context = 2 }
run = { command = ["true"] }
`

// simulated is what simulate --json says of a job.
func simulated(t *testing.T, path string, args ...string) simulation {
	t.Helper()
	status, stdout, stderr := call(append([]string{"simulate", path, "--json"}, args...)...)
	if status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var s simulation
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSimulateSaysHowLongARunTakes(t *testing.T) {
	s := simulated(t, writeJob(t, twoTasks), "--block-time", "predict=40s", "--block-time", "5s")
	f := s.Forecasts[0]
	// 400 blocks of 40s and 100 of 5s, on 8 cores.
	if f.State != "done" || f.WallSeconds < 2062 || f.WallSeconds > 2080 || f.MostSlots != 8 {
		t.Errorf("%s after %.1fs with %d slots; want done after 2062.5s or a little more, with 8", f.State, f.WallSeconds, f.MostSlots)
	}
	if h := f.WorkerHours; math.Abs(h.Used-16500.0/3600) > 0.02 || h.Idle > 0.05 || h.Wasted != 0 {
		t.Errorf("worker-hours: %+v", h)
	}
	if s.Version != 1 || s.Name != "two" || s.Seed != 1 || s.Assumed.Batch || s.Assumed.Tasks[0] != (assumedTask{"predict", "40s", 40, 0}) || s.Assumed.Tasks[1].MeanSeconds != 5 {
		t.Errorf("%+v", s)
	}
	if p := f.Path; p.BoundBy != "workers" || p.Tasks[0].Blocks != 50 || p.Tasks[0].ForWorker != 49 || p.Tasks[1].Blocks == 0 || len(p.Last) == 0 {
		t.Errorf("critical path: %+v", p)
	}
	if f.Tasks[0].Success != 400 || f.Tasks[1].Success != 100 || f.Tasks[1].BeganSeconds < 40 {
		t.Errorf("tasks: %+v", f.Tasks)
	}
}

func TestSimulateStartsAndWritesNothing(t *testing.T) {
	path := writeJob(t, strings.Replace(twoTasks, `["true"]`, `["touch", "ran"]`, 2))
	status, stdout, stderr := call("simulate", path, "--block-time", "1s")
	if status != exitOK || stderr != "" || !strings.HasSuffix(stdout, "\nNothing was started.\n") {
		t.Errorf("status %d:\n%s%s", status, stdout, stderr)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("there are %v beside the job file", files)
	}
}

func TestSimulateReportsAllErrorsAtOnce(t *testing.T) {
	path := writeJob(t, twoTasks)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--block-time", "normal:2s,3s", "--workers", "0", "--queue-wait", "soon", "--time-limit", "3s", "--start-time", "x", "--block-failures", "2", "--worker-failures", "-1",
			"--sweep", "cpu=2", "--sweep", "max_workers=0", "--times", "nowhere"},
			[]string{"--block-time normal:2s,3s: \"normal\" is no distribution", "--workers must be from 1", "--queue-wait soon:", "--time-limit 3s: must be a minute or more", "--start-time x:",
				"--block-failures 2: must be a share", "--worker-failures -1: must be a number", "--sweep cpu=2: \"cpu\" is neither", "--sweep max_workers=0: \"0\" is no number", "--times: stat nowhere"}},
		{[]string{"--block-time", "lable=2s"}, []string{`task "predict": nothing says how long its blocks take; give --block-time predict=2s`, `task "label": nothing says`, `--block-time: there is no task "lable"; did you mean "label"?`}},
		{[]string{"--block-time", "1s", "--sweep", "block.shape=[0,4],[8,8],[9]"}, []string{"block.shape=[0,4]: ", "block.shape=[9]: "}},
		{[]string{"--block-time", "1s", "--sweep", "max_workers=2", "--workers", "3"}, []string{"--workers and --sweep max_workers: give one of them"}},
		{[]string{"--block-time", "1s", "--sweep", "max_workers=2", "--svg", "x.svg"}, []string{"--svg draws one run"}},
		{[]string{"--block-time", "1s", "--block-time", "2s", "--block-time", "label=2s", "--block-time", "label=2s"}, []string{"--block-time 2s: given twice", "--block-time label=2s: given twice"}},
		{[]string{"--block-time", "uniform:2s", "--block-time", "label=exponential:2s,3s", "--block-time", "predict=uniform:3s,2s"},
			[]string{"--block-time uniform:2s: wrong number", "--block-time label=exponential:2s,3s: wrong number", "the second time is less"}},
	} {
		status, stdout, stderr := call(append([]string{"simulate", path}, c.args...)...)
		if status != exitUsage || stdout != "" {
			t.Errorf("%v: status %d\n%s", c.args, status, stdout)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%v: there is no %q in\n%s", c.args, want, stderr)
			}
		}
	}
}

func TestASweepSaysHowManyWorkersAreWorthAskingFor(t *testing.T) {
	path := writeJob(t, twoTasks)
	s := simulated(t, path, "--only", "predict", "--block-time", "40s", "--sweep", "max_workers=800,100,200,400")
	if len(s.Worth) != 1 || s.Worth[0].Workers != 400 || len(s.Forecasts) != 4 {
		t.Fatalf("worth: %+v; want 400 workers, one for each block", s.Worth)
	}
	_, stdout, _ := call("simulate", path, "--only", "predict", "--block-time", "40s", "--sweep", "max_workers=800,100,200,400")
	for _, want := range []string{"What is worth asking for\n", "Worth asking for: 400 workers: 4", "; 800, 2 times as many, save "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
	for line := range strings.Lines(stdout) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "800" && f[len(f)-1] != "no" || len(f) > 4 && f[0] == "200" && f[len(f)-1] != "yes" {
			t.Errorf("wrong verdict: %s", line)
		}
	}
}

func TestASweepOfBlockShapesScalesTheTimes(t *testing.T) {
	s := simulated(t, writeJob(t, twoTasks), "--block-time", "10s", "--workers", "4", "--sweep", "block.shape=[20,20],[40,40]", "--set", "task.label.timeout=20m")
	small, large := s.Forecasts[0], s.Forecasts[1]
	if small.Tasks[0].TimesScaled != 1 || large.Tasks[0].TimesScaled != 4 || small.Tasks[1].TimesScaled != 0.25 || large.Tasks[1].TimesScaled != 1 {
		t.Errorf("scales: %+v and %+v", small.Tasks, large.Tasks)
	}
	if small.Tasks[0].Blocks != 400 || large.Tasks[0].Blocks != 100 || small.Tasks[1].Blocks != 400 {
		t.Errorf("blocks: %+v and %+v", small.Tasks, large.Tasks)
	}
	if r := small.WorkerHours.Used / large.WorkerHours.Used; r < 0.99 || r > 1.01 {
		t.Errorf("the same volume takes %.3f times as long", r)
	}
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "in proportion to the volume") {
		t.Errorf("warnings: %q", s.Warnings)
	}
}

func TestSweepsAreCombined(t *testing.T) {
	s := simulated(t, writeJob(t, twoTasks), "--block-time", "10s", "--sweep", "block.shape=[20,20],[40,40]", "--sweep", "max_workers=2,4")
	var got []string
	for _, f := range s.Forecasts {
		got = append(got, sweepText(f.Sweep))
	}
	if want := "block.shape=[20,20] max_workers=2|block.shape=[20,20] max_workers=4|block.shape=[40,40] max_workers=2|block.shape=[40,40] max_workers=4"; strings.Join(got, "|") != want {
		t.Errorf("forecasts for %v", got)
	}
	if len(s.Worth) != 2 || sweepText(s.Worth[1].Sweep) != "block.shape=[40,40]" || s.Worth[1].Workers != 4 {
		t.Errorf("worth: %+v", s.Worth)
	}
}

func TestWorkersTakeThePlaceOfResourcesAndMaxWorkers(t *testing.T) {
	path := writeJob(t, twoTasks)
	for _, c := range []struct {
		args []string
		want int64
	}{
		{nil, 8},
		{[]string{"--set", "run.resources.cpu=3"}, 3},
		{[]string{"--max-workers", "5"}, 5},
		{[]string{"--workers", "50", "--max-workers", "5"}, 50},
		{[]string{"--launcher", "serial"}, 1},
	} {
		if f := simulated(t, path, append(c.args, "--only", "predict", "--block-time", "10s")...).Forecasts[0]; f.MostSlots != c.want || f.Tasks[0].MaxConcurrency != c.want {
			t.Errorf("%v: %d slots and %d blocks at once, want %d", c.args, f.MostSlots, f.Tasks[0].MaxConcurrency, c.want)
		}
	}
}

func TestABatchSystemIsWaitedForInASimulation(t *testing.T) {
	s := simulated(t, writeJob(t, twoTasks), "--block-time", "10s", "--workers", "20", "--queue-wait", "uniform:10m,20m", "--time-limit", "30m")
	f := s.Forecasts[0]
	if f.WallSeconds < 600 || f.QueuedHours < 1 || !s.Assumed.Batch || *s.Assumed.QueueWait != "uniform:10m,20m" || *s.Assumed.TimeLimitSeconds != 1800 || *s.Assumed.Workers != 20 {
		t.Errorf("%+v", s)
	}
	// With the launcher of a job it is one, too. Without resources, max_workers bounds what it takes.
	path := writeJob(t, strings.Replace(twoTasks, "resources = { cpu = 8 }", `launcher = "slurm"`, 1))
	if s = simulated(t, path, "--block-time", "10s", "--max-workers", "30"); !s.Assumed.Batch || s.Forecasts[0].Tasks[0].MaxConcurrency != 30 || len(s.Warnings) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAForecastThatBreaksARuleHasAStatusOfItsOwn(t *testing.T) {
	for err, want := range map[error]int{fmt.Errorf("%w, at 3s: block 7 is counted twice", sim.ErrBroken): exitBroken, errors.New("the run does not end"): exitUsage} {
		var s *statusError
		if got := (&whatIf{seed: 5}).noForecast(&variant{}, err); !errors.As(got, &s) || s.status != want || !strings.Contains(got.Error(), err.Error()) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestASimulationTakesTheTimeThatAJobAsksSlurmFor(t *testing.T) {
	job := strings.Replace(twoTasks, "resources = { cpu = 8 }", "launcher = \"slurm\"", 1)
	job = strings.Replace(job, `id = "predict"`, "id = \"predict\"\nslurm = { time = \"30m\" }", 1)
	job = strings.Replace(job, `id = "label"`, "id = \"label\"\nslurm = { time = \"2:00:00\" }", 1)
	path := writeJob(t, job)
	wall := func(args ...string) (float64, *float64) {
		s := simulated(t, path, append([]string{"--block-time", "10m", "--max-workers", "10", "--only", "predict"}, args...)...)
		return s.Forecasts[0].WallSeconds, s.Assumed.TimeLimitSeconds
	}
	own, limit := wall()
	if limit == nil || *limit != 1800 {
		t.Errorf("the limit is %v, want the 30 min of the job", limit)
	}
	given, limit := wall("--time-limit", "30m")
	if own != given || *limit != 1800 {
		t.Errorf("it takes %vs with the time of the job, and %vs with the same that was given", own, given)
	}
	long, limit := wall("--time-limit", "20h")
	if long >= own || *limit != 20*3600 {
		t.Errorf("it takes %vs with 20 h, and %vs with 30 min", long, own)
	}
	// Blocks of 45 min fit the workers of the other task, and not those of this one.
	for task, want := range map[string]string{"label": "done", "predict": "failed"} {
		if s := simulated(t, path, "--block-time", "45m", "--max-workers", "10", "--only", task, "--set", "task."+task+".timeout=\"2h\""); s.Forecasts[0].State != want {
			t.Errorf("with %s alone the run is %s, want %s", task, s.Forecasts[0].State, want)
		}
	}
}

func TestBlocksThatAreDoneAreLeftOutOfASimulation(t *testing.T) {
	path := writeJob(t, trackedJob)
	if err := mark(t, path, "then", line(t, 3), 0, 2).Close(); err != nil {
		t.Fatal(err)
	}
	s := simulated(t, path, "--block-time", "10s", "--sweep", "task.then.block.shape=[1],[3]")
	if a, b := s.Forecasts[0].Tasks[1], s.Forecasts[1].Tasks[1]; a.ID != "then" || a.Skipped != 2 || a.Success != 1 || b.Skipped != 0 || b.Success != 1 {
		t.Errorf("%+v, %+v; want 2 of 3 blocks skipped, and none of another shape", a, b)
	}
	if want := "are done by the marks in " + filepath.Join(filepath.Dir(path), "tracking"); len(s.Warnings) == 0 || !strings.HasPrefix(s.Warnings[len(s.Warnings)-1], "2 of ") || !strings.Contains(s.Warnings[len(s.Warnings)-1], want) {
		t.Errorf("warnings %q, want %q", s.Warnings, want)
	}
	if s = simulated(t, path, "--block-time", "10s", "--set", "run.tracking=new"); s.Forecasts[0].Tasks[1].Skipped != 0 || len(s.Warnings) != 0 {
		t.Errorf("with another folder %+v, %q", s.Forecasts[0].Tasks, s.Warnings)
	}
}

func TestNothingToDoTakesNoTime(t *testing.T) {
	path := writeJob(t, trackedJob)
	for _, args := range [][]string{nil, {"--sweep", "max_workers=1,2"}, {"--svg", filepath.Join(t.TempDir(), "x.svg")}} {
		if err := mark(t, path, "then", line(t, 3), 0, 1, 2).Close(); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := call(append([]string{"simulate", path, "--only", "then", "--block-time", "10s"}, args...)...)
		if status != exitOK || strings.Contains(stdout, "NaN") || !strings.Contains(stdout, "done") {
			t.Errorf("%v: status %d: %s%s", args, status, stdout, stderr)
		}
	}
}

func TestFailuresWasteTimeInASimulation(t *testing.T) {
	s := simulated(t, writeJob(t, twoTasks), "--block-time", "1m", "--block-failures", "predict=5%", "--worker-failures", "1", "--set", "task.predict.max_retries=9")
	f := s.Forecasts[0]
	if f.WorkerHours.Wasted == 0 || f.Tasks[0].Retries < 8 || f.Tasks[0].Retries > 40 || f.Tasks[1].Retries != 0 || f.Tasks[0].Lost == 0 {
		t.Errorf("%+v", f)
	}
}

// statsWith are the statistics of a run whose blocks took these times.
func statsWith(task string, b api.BlockSeconds) string {
	text, err := json.Marshal(api.Stats{Version: api.StatsVersion, Tasks: []api.TaskStats{{ID: task, BlockSeconds: b}}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func pointerTo(x float64) *float64 { return &x }

func TestTimesComeFromTheStatisticsOfARun(t *testing.T) {
	path := writeJob(t, twoTasks)
	stats := filepath.Join(t.TempDir(), "stats.json")
	b := api.BlockSeconds{Mean: pointerTo(3), P50: pointerTo(2.4), P95: pointerTo(7), Max: pointerTo(8), Histogram: [][2]float64{{2, 40}, {5, 50}, {10, 10}}}
	if err := os.WriteFile(stats, []byte(statsWith("predict", b)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{stats, filepath.Dir(stats)} {
		s := simulated(t, path, "--times", where, "--block-time", "1s")
		if a := s.Assumed.Tasks; math.Abs(a[0].MeanSeconds-3) > 0.02 || a[0].BlockTime != "as in "+where || a[1].MeanSeconds != 1 {
			t.Errorf("supposed: %+v", a)
		}
	}
	status, _, stderr := call("simulate", path, "--times", stats)
	if status != exitUsage || !strings.Contains(stderr, `task "label": nothing says how long its blocks take`) || strings.Contains(stderr, `"predict"`) {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestStatisticsThatNoRunCanHaveAreNoTimes(t *testing.T) {
	path := writeJob(t, twoTasks)
	dir := t.TempDir()
	for name, b := range map[string]api.BlockSeconds{
		"-1 seconds for a block":     {Mean: pointerTo(-1), P50: pointerTo(1), P95: pointerTo(1), Max: pointerTo(1), Histogram: [][2]float64{{1, 5}}},
		"1e+300 seconds for a block": {Mean: pointerTo(1), P50: pointerTo(1), P95: pointerTo(1), Max: pointerTo(1e300), Histogram: [][2]float64{{1, 5}}},
		"1e+200 seconds for a block": {Mean: pointerTo(1), P50: pointerTo(1), P95: pointerTo(1), Max: pointerTo(1), Histogram: [][2]float64{{1e200, 5}}},
		"-3 blocks in a bin":         {Mean: pointerTo(1), P50: pointerTo(1), P95: pointerTo(1), Max: pointerTo(1), Histogram: [][2]float64{{1, -3}, {2, 8}}},
	} {
		file := filepath.Join(dir, "stats.json")
		if err := os.WriteFile(file, []byte(statsWith("predict", b)), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, _, stderr := call("simulate", path, "--block-time", "1s", "--times", file); status != exitUsage || !strings.Contains(stderr, `is damaged: task "predict" has `+name) {
			t.Errorf("%s: status %d: %s", name, status, stderr)
		}
	}
	for _, file := range []string{"/dev/zero", filepath.Join(dir, "fifo"), filepath.Join(dir, "large")} {
		switch filepath.Base(file) {
		case "fifo":
			if err := syscall.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
		case "large":
			if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, mostStats+1)); err != nil {
				t.Fatal(err)
			}
		}
		if status, _, stderr := call("simulate", path, "--block-time", "1s", "--times", file); status != exitUsage || !strings.Contains(stderr, file+" is ") {
			t.Errorf("%s: status %d: %s", file, status, stderr)
		}
	}
}

func TestTimesOfYearsAreRefused(t *testing.T) {
	path := writeJob(t, twoTasks)
	for _, flag := range []string{"--block-time=366d", "--block-time=uniform:1s,2562047h", "--block-time=lognormal:2562047h,1", "--queue-wait=400d", "--time-limit=2562047h", "--start-time=2562047h"} {
		status, _, stderr := call("simulate", path, "--block-time", "predict=1s", "--block-time", "label=1s", flag)
		if status != exitUsage || !strings.Contains(stderr, "is more than a year") {
			t.Errorf("%s: status %d: %s", flag, status, stderr)
		}
	}
}

func TestMoreBlocksThanARunCanHaveAreNotSimulated(t *testing.T) {
	path := writeJob(t, strings.ReplaceAll(twoTasks, "[400, 400]", "[40000000, 40000000]"))
	if status, _, stderr := call("simulate", path, "--block-time", "1s"); status != exitUsage || !strings.Contains(stderr, "make the blocks larger") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestMeasuredTimesFollowTheHistogram(t *testing.T) {
	b := api.BlockSeconds{Mean: pointerTo(2.9), P50: pointerTo(2.1), P95: pointerTo(7), Max: pointerTo(8), Histogram: [][2]float64{{2, 40}, {5, 50}, {10, 10}}}
	d, ok, _ := measured(&b)
	if !ok {
		t.Fatal("no distribution")
	}
	for share, want := range map[float64]float64{0: 1, 0.4: 2, 0.5: 2.1, 0.9: 5, 0.95: 7, 0.999999: 8} {
		if got := d.At(share).Seconds(); math.Abs(got-want) > 0.12*want {
			t.Errorf("the quantile %g is %.2fs, want about %.2fs", share, got, want)
		}
	}
	// All in one bin: percentiles say where.
	b = api.BlockSeconds{Mean: pointerTo(2.003), P50: pointerTo(2.003), P95: pointerTo(2.01), Max: pointerTo(2.02), Histogram: [][2]float64{{5, 100}}}
	if d, _, _ = measured(&b); d.At(0.9) > 2020*time.Millisecond || d.At(0.1) < 1990*time.Millisecond {
		t.Errorf("blocks that all took 2.003s take from %v to %v", d.At(0.1), d.At(0.9))
	}
	if _, ok, err := measured(&api.BlockSeconds{Histogram: [][2]float64{}}); ok || err != nil {
		t.Error("a distribution of no block")
	}
}

func TestThePictureIsWellFormedAndBounded(t *testing.T) {
	for name, c := range map[string]struct {
		blocks, workers int
		most            int
	}{"every block": {400, 8, 200_000}, "bands": {100_000, 2000, 2_000_000}} {
		job := fmt.Sprintf("[[task]]\nid = \"t\"\ntotal_write = { offset = [0], shape = [%d] }\nblock = { shape = [1] }\nrun = { command = [\"true\"] }\n", c.blocks)
		path := writeJob(t, job)
		svg := filepath.Join(t.TempDir(), "run.svg")
		simulated(t, path, "--block-time", "lognormal:30s,0.5", "--workers", fmt.Sprint(c.workers), "--svg", svg)
		text, err := os.ReadFile(svg)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > c.most {
			t.Errorf("%s: %d bytes", name, len(text))
		}
		for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if want := fmt.Sprintf("%d slots", c.workers); !strings.Contains(string(text), want) {
			t.Errorf("%s: there is no %q", name, want)
		}
		if rects := strings.Count(string(text), "<rect"); name == "every block" && rects != c.blocks+c.workers+3 {
			t.Errorf("%s: %d rectangles, want one for each of %d blocks and %d workers, and 3 more", name, rects, c.blocks, c.workers)
		}
	}
}

func TestNamesInAPictureAreEscaped(t *testing.T) {
	var b strings.Builder
	drawPicture(&b, "a<b&c", []string{"x<y"}, &sim.Picture{Shown: 1, Spans: []sim.Span{}, End: time.Second})
	if strings.Contains(b.String(), "a<b") || strings.Contains(b.String(), "x<y") || !strings.Contains(b.String(), "a&lt;b&amp;c") {
		t.Error(b.String())
	}
}

// TestEveryFieldOfASimulationIsDocumented compares the fields with the page.
func TestEveryFieldOfASimulationIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Slice, reflect.Pointer:
			walk(of.Elem())
		case reflect.Struct:
			for f := range of.Fields() {
				name := f.Tag.Get("json")
				if name == "" {
					continue
				}
				if !regexp.MustCompile("[`.]" + name + "(\\[\\])?[`.]").Match(page) {
					t.Errorf("docs/simulation.md does not have %q", name)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[simulation]())
}
