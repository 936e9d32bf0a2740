package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, diff)
	}
}

func p[T any](v T) *T { return &v }

var began = time.Date(2026, 11, 30, 15, 4, 5, 0, time.UTC)

// failedRun has something of everything that can go wrong.
func failedRun() api.Stats {
	ended := began.Add(185 * time.Second)
	return api.Stats{
		Version: api.StatsVersion,
		Run: api.RunStats{
			ID: "k3v9", Name: "segment", State: "failed", ExitStatus: p(1), Started: began, Ended: &ended, WallSeconds: 185,
			Launcher: p("local"), JobFile: p("/data/segment.toml"), Directory: p("/data/runs/segment-2026-11-30T15-04-05"),
			Logs:        p("/data/runs/segment-2026-11-30T15-04-05/logs"),
			Segments:    []api.Segment{{Epoch: 1, Started: began, Ended: &ended, WallSeconds: 185}},
			Changes:     []api.LimitChange{{Key: "task.predict.max_workers", Was: "4", Now: "8", By: "ada on login1"}},
			WorkerHours: api.WorkerHours{Used: 0.09, Idle: 0.004, Wasted: 0.02},
			Resources: []api.AskedUsage{
				{Task: "predict", Resource: "cpu", Asked: p(4.0), Used: p(0.83), Suggested: p(1.0), Suggestion: p("1 core is enough: --set task.predict.requires.cpu=1")},
				{Task: "predict", Resource: "memory", Asked: p(16.0 * (1 << 30)), Used: p(float64(1900 << 20)), Suggested: p(3.0 * (1 << 30)), Suggestion: p("3GiB is enough: --set task.predict.requires.memory=3GiB")},
				{Task: "predict", Resource: "timeout", Asked: p(600.0), AskedAtStart: p(300.0), Used: p(492.0)},
				{Task: "predict", Resource: "max_workers", AskedAtStart: p(8.0), Used: p(2.0)},
				{Task: "agglomerate", Resource: "cpu", Asked: p(1.0)},
				{Task: "agglomerate", Resource: "timeout", Asked: p(60.0), AskedAtStart: p(0.0), Used: p(0.0012)},
			},
		},
		Tasks: []api.TaskStats{{
			ID: "predict", State: "done", Blocks: 1200, UnwrittenAtEnd: []int64{0, 0, 0}, Success: 1077, Skipped: 120, Failed: 3,
			SkippedWhy: api.SkippedWhy{DoneBefore: p(int64(100)), Mask: p(int64(20))},
			Processed:  1083, Retries: 8, Reclaimed: 4, TimedOut: 3, Lost: 1, OutOfMemory: 2, TimedOutWorkers: 3,
			Workers: 3, MaxConcurrency: 2, TimeoutSeconds: p(600.0),
			BlockSeconds: api.BlockSeconds{Mean: p(301.25), P50: p(299.0), P95: p(410.0), Max: p(492.0), Slope: p(0.04),
				Histogram: [][2]float64{{200, 11}, {500, 1066}}},
			CPUBusy: p(0.2075), PeakRSSBytes: p(int64(1900 << 20)), WallSeconds: p(181.5), WastedSeconds: 72, Suggested: p("requires = { cpu = 1, memory = \"3GiB\" }"),
			Failures: []api.BlockFailure{
				{Block: p(uint64(17)), Index: []int64{0, 1, 4}, Attempts: 3, Worker: p("3.0"), Node: p("n1"), Message: "exit status 3",
					Tail: p("loading model\nTraceback (most recent call last):\n  File \"predict.py\", line 7, in <module>\nValueError: shape (3, 4) | expected (4, 3)\n"),
					Log:  p("/data/runs/segment-2026-11-30T15-04-05/logs/3.0.log")},
				{Index: []int64{2, 0, 0}, Attempts: 3, Message: "timed out after 10m"},
			},
		}, {
			ID: "agglomerate", State: "done", Blocks: 128, UnwrittenAtEnd: []int64{0, 1200, 3}, Success: 100, Failed: 1, Orphaned: 27,
			SkippedWhy: api.SkippedWhy{DoneBefore: p(int64(0)), Mask: p(int64(0))}, Processed: 103, Retries: 2, Workers: 1, MaxConcurrency: 1,
			BlockSeconds: api.BlockSeconds{Mean: p(0.0004), P50: p(0.0004), P95: p(0.0005), Max: p(0.0012), Slope: p(-1e-6), Histogram: [][2]float64{{0.0005, 99}, {0.001, 0}, {0.002, 1}}},
			WallSeconds:  p(0.05), Failures: []api.BlockFailure{{Block: p(uint64(3)), Index: []int64{3}, Attempts: 3, Worker: p("4.0"), Message: "panic: nil map"}},
		}},
		Workers: []api.WorkerStats{
			{Task: "predict", ID: "1.0", Node: p("n1"), Slots: 1, Processed: 580, Failed: 2, BusySeconds: 160, IdleSeconds: 7, PeakRSSBytes: p(int64(1900 << 20)), End: p("left")},
			{Task: "predict", ID: "3.0", Node: p("n1"), Slots: 1, Processed: 503, Failed: 4, BusySeconds: 150, IdleSeconds: 7.5, PeakRSSBytes: p(int64(900 << 20)), End: p("signal")},
			{Task: "agglomerate", ID: "4.0", Slots: 2, Processed: 103, Failed: 3, BusySeconds: 0.05},
		},
		Nodes: []api.NodeStats{{Node: "n1", Workers: 2, Processed: 1083, Failed: 6, BusySeconds: 310, IdleSeconds: 14.5, WastedSeconds: 72,
			PeakRSSBytes: p(int64(1900 << 20)), Ends: map[string]int64{"left": 1, "signal": 1}}},
		Coordinator: api.CoordinatorStats{CPUSeconds: 0.42, PeakRSSBytes: p(int64(31 << 20)), BytesIn: 81234, BytesOut: 120345},
	}
}

func TestTheReportOfAFailedRun(t *testing.T) {
	for format, file := range map[Format]string{Table: "failed.txt", Markdown: "failed.md", CSV: "failed.csv", JSON: "failed.json"} {
		var b bytes.Buffer
		if err := Tables(&b, failedRun(), format); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}

// slurmRun is failedRun where a batch system says what it gave to workers.
func slurmRun() api.Stats {
	s := failedRun()
	s.Run.Launcher = p("slurm")
	s.Run.CoreHours = api.CoreHours{Granted: p(1234.5), Used: p(1.25), Idle: p(0.0126)}
	s.Workers[0].Asked = api.Amounts{Cores: p(1.0), MemoryBytes: p(int64(100 << 20))}
	s.Workers[0].Granted = api.Amounts{Cores: p(4.0), MemoryBytes: p(int64(100 << 20)), GPUs: p(int64(2))}
	s.Nodes[0].CoreHours = s.Run.CoreHours
	return s
}

func TestTheReportSaysWhatABatchSystemGaveToWorkers(t *testing.T) {
	for format, file := range map[Format]string{Markdown: "slurm.md", CSV: "slurm.csv"} {
		var b bytes.Buffer
		if err := Tables(&b, slurmRun(), format); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}

func TestTheReportOfARunWithoutBlocksAndWorkers(t *testing.T) {
	s := api.Stats{Version: 1, Run: api.RunStats{ID: "e0", Name: "empty", State: "done", Started: began, Segments: []api.Segment{}, Changes: []api.LimitChange{}, Resources: []api.AskedUsage{}},
		Tasks: []api.TaskStats{{ID: "a", State: "done", BlockSeconds: api.BlockSeconds{Histogram: [][2]float64{}}, Failures: []api.BlockFailure{}}}, Workers: []api.WorkerStats{}, Nodes: []api.NodeStats{}}
	for format, file := range map[Format]string{Table: "empty.txt", Markdown: "empty.md", CSV: "empty.csv", JSON: "empty.json"} {
		var b bytes.Buffer
		if err := Tables(&b, s, format); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
	if err := Tables(&bytes.Buffer{}, api.Stats{}, Table); err != nil {
		t.Errorf("a report of nothing at all: %v", err)
	}
}

// hostileRun has long, foreign and harmful texts wherever texts come from outside.
func hostileRun() api.Stats {
	s := failedRun()
	f := &s.Tasks[0].Failures[0]
	f.Message = "größer als erwartet: 体積が大きすぎる \x1b[31mred\x1b[0m " + strings.Repeat("very long message ", 60) + "\nsecond line"
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, "line %d \a\x1b[2J | `code` ```\r\n", i)
	}
	b.WriteString(strings.Repeat("x", 2000) + "\n\xff\xfe not UTF-8")
	f.Tail = p(b.String())
	s.Tasks[0].ID = "prédire|体積_*"
	s.Tasks[1].ID = strings.Repeat("long", 60)
	s.Workers[0].Task = s.Tasks[0].ID
	s.Workers[0].Node = p("node\nwith\ttabs|pipes")
	s.Run.Message = p("the disk is full:\nno space left on device.")
	return s
}

func TestTextsFromOutsideCannotBreakTheReport(t *testing.T) {
	for format, file := range map[Format]string{Table: "hostile.txt", Markdown: "hostile.md", CSV: "hostile.csv"} {
		var b bytes.Buffer
		if err := Tables(&b, hostileRun(), format); err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexAny(b.Bytes(), "\x1b\a\r\x00"); i >= 0 {
			t.Errorf("%s: a control character at byte %d", format, i)
		}
		golden(t, file, b.Bytes())
	}
}

func TestEveryRowOfAMarkdownTableHasTheColumnsOfItsHead(t *testing.T) {
	var b bytes.Buffer
	if err := Tables(&b, hostileRun(), Markdown); err != nil {
		t.Fatal(err)
	}
	columns := 0
	for line := range strings.Lines(b.String()) {
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		if columns == 0 {
			columns = n
		}
		if n != columns {
			t.Errorf("%d bars, not %d: %s", n, columns, line)
		}
	}
}

func TestLongListsOfWorkersAreCutShortOnlyOnATerminal(t *testing.T) {
	s := failedRun()
	for i := range 100 {
		s.Workers = append(s.Workers, api.WorkerStats{Task: "predict", ID: fmt.Sprintf("7.%d", i), Slots: 1})
	}
	for format, want := range map[Format]bool{Table: false, Markdown: true, CSV: true} {
		var b bytes.Buffer
		if err := Tables(&b, s, format); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "7.99"); got != want {
			t.Errorf("%s lists the last worker: %v, want %v", format, got, want)
		}
		if got := strings.Contains(b.String(), "… and 71 more: "); got == want {
			t.Errorf("%s says that rows are left out: %v", format, got)
		}
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAWriterThatFailsIsAnError(t *testing.T) {
	for _, format := range []Format{Table, Markdown, CSV, JSON} {
		err := Tables(failingWriter{}, failedRun(), format)
		if want := "report: the tables could not be written: no space left on device"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", format, err, want)
		}
	}
	err := Tables(&bytes.Buffer{}, failedRun(), "yaml")
	if want := `report: unknown format "yaml": it is table, markdown, csv or json`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTheJSONFormatIsStatsJSON(t *testing.T) {
	var b bytes.Buffer
	if err := Tables(&b, failedRun(), JSON); err != nil {
		t.Fatal(err)
	}
	var got api.Stats
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(failedRun(), got); diff != "" {
		t.Error(diff)
	}
}

func TestTheHeadlineIsHonest(t *testing.T) {
	selected := func(leftOut int64, t api.TaskStats) api.TaskStats {
		t.Unselected, t.SkippedWhy.NotSelected = leftOut, p(leftOut)
		return t
	}
	why := func(done, mask, check int64) api.SkippedWhy {
		return api.SkippedWhy{DoneBefore: &done, Mask: &mask, Check: check}
	}
	tests := []struct {
		tasks []api.TaskStats
		want  string
	}{
		{nil, "0 blocks: nothing to run."},
		{[]api.TaskStats{{}}, "0 blocks: nothing to run."},
		{[]api.TaskStats{{Blocks: 1, Success: 1}}, "1 block: 1 succeeded."},
		{[]api.TaskStats{{Blocks: 100, Success: 100}, {Blocks: 28, Success: 26, Failed: 1, Orphaned: 1}}, "128 blocks: 126 succeeded, 1 failed, 1 orphaned."},
		{[]api.TaskStats{{Blocks: 259, Skipped: 259, SkippedWhy: why(259, 0, 0)}}, "all 259 blocks were done before: nothing to run."},
		{[]api.TaskStats{{Blocks: 1, Skipped: 1, SkippedWhy: why(1, 0, 0)}}, "the only block was done before: nothing to run."},
		{[]api.TaskStats{{Blocks: 7, Skipped: 7, SkippedWhy: why(0, 7, 0)}}, "all 7 blocks were masked: nothing to run."},
		{[]api.TaskStats{{Blocks: 7, Skipped: 7, SkippedWhy: why(0, 0, 7)}}, "all 7 blocks were found done by their checks: nothing to run."},
		{[]api.TaskStats{{Blocks: 5, Skipped: 5, SkippedWhy: why(3, 2, 0)}, {Blocks: 2, Skipped: 2, SkippedWhy: why(1, 0, 1)}},
			"all 7 blocks were skipped (4 done before, 2 by skip_mask, 1 by check): nothing to run."},
		{[]api.TaskStats{{Blocks: 10, Success: 4, Skipped: 1, Leased: 2, Ready: 1, Waiting: 2}}, "10 blocks: 4 succeeded, 1 skipped, 2 running, 3 left."},
		{[]api.TaskStats{selected(7, api.TaskStats{Blocks: 10, Success: 2, Skipped: 8}), {Blocks: 5, Success: 5}}, "15 blocks: 7 succeeded, 1 skipped, 7 not selected."},
		{[]api.TaskStats{{Blocks: 10, Success: 2, Skipped: 5, Ready: 1, Waiting: 2, Unselected: 7}}, "10 blocks: 2 succeeded, 3 left, 5 not selected."},
		{[]api.TaskStats{selected(7, api.TaskStats{Blocks: 10, Skipped: 10, SkippedWhy: why(3, 0, 0)})}, "all 10 blocks were skipped (7 not selected, 3 done before): nothing to run."},
		{[]api.TaskStats{selected(10, api.TaskStats{Blocks: 10, Skipped: 10, SkippedWhy: why(0, 0, 0)})}, "none of 10 blocks is selected: nothing to run."},
		{[]api.TaskStats{{Blocks: 2000, Success: 1000, Abandoned: 1000}}, "2,000 blocks: 1,000 succeeded, 1,000 abandoned."},
	}
	for _, test := range tests {
		if got := Headline(api.Stats{Tasks: test.tasks}); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestTheVerdictSaysHowTheRunEnded(t *testing.T) {
	for state, want := range map[string]string{
		"done":        "The run took 3m05s: no space left.",
		"failed":      "The run failed after 3m05s: no space left.",
		"killed":      "The run was killed after 3m05s: no space left.",
		"stopped":     "The run was stopped after 3m05s: no space left.",
		"interrupted": "The run was interrupted after 3m05s: no space left.",
		"running":     "The run has been going on for 3m05s: no space left.",
	} {
		if got := verdict(api.Stats{Run: api.RunStats{State: state, WallSeconds: 185, Message: p("no space\nleft.")}}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for message, want := range map[string]string{
		"interrupted by Ctrl-C (SIGINT)": "The run was interrupted by Ctrl-C (SIGINT) after 3m05s.",
		"interrupted: context canceled":  "The run was interrupted after 3m05s: context canceled.",
	} {
		if got := verdict(api.Stats{Run: api.RunStats{State: "interrupted", WallSeconds: 185, Message: &message}}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// manyOfOne finds "1 blocks" and the like.
var manyOfOne = regexp.MustCompile(`\b1 [a-z]+s\b`)

func TestOneIsNotSpokenOfAsMany(t *testing.T) {
	one := p(int64(1))
	s := failedRun()
	s.Run.Segments = append(s.Run.Segments, s.Run.Segments[0])
	s.Tasks = []api.TaskStats{{
		ID: "a", State: "running", Blocks: 1, Waiting: 1, Ready: 1, Leased: 1, Success: 1, Skipped: 1, Failed: 2, Orphaned: 1, Abandoned: 1,
		SkippedWhy: api.SkippedWhy{DoneBefore: one, Mask: one, Check: 1}, Processed: 1, Retries: 1, Reclaimed: 1, TimedOut: 1, Lost: 1,
		Returned: 1, OutOfMemory: 1, TimedOutWorkers: 1, Workers: 1, MaxConcurrency: 1, TimeoutSeconds: p(1.0),
		BlockSeconds: api.BlockSeconds{Mean: p(1.0), P50: p(1.0), P95: p(1.0), Max: p(1.0)},
		Failures:     []api.BlockFailure{{Index: []int64{1}, Attempts: 1, Message: "m"}},
	}}
	s.Workers = make([]api.WorkerStats, mostRows+1)
	s.Nodes[0] = api.NodeStats{Node: "n", Workers: 1, Processed: 1, Failed: 1, Ends: map[string]int64{"left": 1}}
	for _, format := range []Format{Table, Markdown} {
		var b bytes.Buffer
		if err := Tables(&b, s, format); err != nil {
			t.Fatal(err)
		}
		if got := manyOfOne.FindAllString(b.String(), -1); got != nil {
			t.Errorf("%s says %q", format, got)
		}
	}
	for _, mode := range []Mode{Lines, Bars} {
		task := TaskProgress{ID: "a", State: "running", Blocks: 1, Leased: 1, Running: 1, Failed: 1, Orphaned: 1, Abandoned: 1, Slots: 1}
		if got := manyOfOne.FindAllString(string(play(t, mode, []step{{0, []TaskProgress{task}}})), -1); got != nil {
			t.Errorf("progress says %q", got)
		}
	}
	slow := newOutlet(io.Discard)
	slow.dropped = 1
	if err := slow.close(); err == nil || manyOfOne.MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestTimeoutsNameTheKeyToChange(t *testing.T) {
	task := func(timedOut, workers int64, limit, longest *float64) api.TaskStats {
		return api.TaskStats{ID: "predict", Success: 9, TimedOut: timedOut, TimedOutWorkers: workers, TimeoutSeconds: limit,
			BlockSeconds: api.BlockSeconds{Max: longest, P50: p(300.0)}}
	}
	tests := []struct {
		task api.TaskStats
		want string
	}{
		{task(3, 1, p(600.0), p(492.0)), `3 attempts of "predict" timed out after 10m; the longest that finished took 8m12s, half of them at most 5m00s: raise timeout (--set task.predict.timeout=20m)`},
		{task(1, 1, p(600.0), nil), `1 attempt of "predict" timed out after 10m; none finished: raise timeout (--set task.predict.timeout=20m)`},
		{task(3, 3, p(2400.0), p(301.0)), `3 attempts of "predict" timed out after 40m on 3 workers; the longest that finished took 5m01s, half of them at most 5m00s: look for what hangs, or raise timeout (--set task.predict.timeout=1h20m)`},
		{task(2, 0, p(0.25), nil), `2 attempts of "predict" timed out after 250ms; none finished: raise timeout (--set task.predict.timeout=500ms)`},
	}
	for _, test := range tests {
		if got := timeouts(&test.task)[0].head; got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestBlocksThatAreNotSelectedAreNeitherMaskedNorSkippedInTheReport(t *testing.T) {
	s := failedRun()
	s.Tasks[0].Unselected, s.Tasks[0].SkippedWhy = 90, api.SkippedWhy{NotSelected: p(int64(90)), DoneBefore: p(int64(30)), Mask: p(int64(0))}
	table := taskTable(s)
	if got := strings.Join(table.head, ","); !strings.HasSuffix(got, ",not selected") {
		t.Errorf("the columns are %s", got)
	}
	want := [][]string{
		{"predict", "done", "1,200", "1,077", "30", "3", "0", "0", "90"}, {"agglomerate", "done", "128", "100", "0", "1", "27", "0", "0"}, {"all", "", "1,328", "1,177", "30", "4", "27", "0", "90"},
	}
	if diff := cmp.Diff(want, append(table.rows, table.foot)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := skips(&s.Tasks[0])[0].head; got != `"predict" skipped 30 of 1,110 blocks: 30 done before` {
		t.Errorf("got %s", got)
	}
	s.Tasks[0].Skipped = 90
	s.Tasks[0].SkippedWhy.DoneBefore = p(int64(0))
	if got := skips(&s.Tasks[0]); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestProgressIsOfTheBlocksThatAreSelected(t *testing.T) {
	for want, task := range map[string]TaskProgress{
		"1 of 4 selected done (25%)":            {State: "running", Blocks: 100, Unselected: 96, Success: 1, Skipped: 90, Waiting: 6, Ready: 3},
		"2 of 4 selected done (50%)":            {State: "running", Blocks: 100, Unselected: 96, Success: 1, Skipped: 97, Ready: 2},
		"1 of 100 done (1%)":                    {State: "running", Blocks: 100, Success: 1, Ready: 99},
		"no block of it is selected":            {State: "done", Blocks: 100, Unselected: 100, Skipped: 100},
		"4 of 4 selected done (100%), finished": {State: "done", Blocks: 100, Unselected: 96, Success: 4, Skipped: 96},
	} {
		if got := describe(&task, &pace{}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	left := TaskProgress{Blocks: 100, Unselected: 96, Success: 1, Skipped: 90, Waiting: 6, Ready: 2, Failed: 1}
	if got := left.left(); got != 2 {
		t.Errorf("%d blocks are left, want 2", got)
	}
}
