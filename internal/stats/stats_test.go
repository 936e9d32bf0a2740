package stats

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.org/daisy/internal/api"
	"example.org/daisy/scheduler"
)

var began = time.Date(2026, 11, 30, 16, 4, 5, 0, time.FixedZone("CET", 3600))

func TestCountsComeFromTheTalliesAlone(t *testing.T) {
	y := scheduler.Tally{Total: 128, Waiting: 1, Ready: 2, Leased: 3, Success: 90, Skipped: 10, Failed: 5, Orphaned: 7, Abandoned: 10,
		Processed: 100, Retries: 9, TimedOut: 3, Lost: 4, Returned: 5, OutOfMemory: 6}
	r := one()
	for range 1000 { // far more than the tally says
		r.Ended(Attempt{Outcome: scheduler.Failed, Verdict: scheduler.FailedForGood})
	}
	got := r.Stats(Input{Tasks: []Task{{State: scheduler.Abandoned, Tally: y, Workers: 4, MaxConcurrency: 3}}}).Tasks[0]
	zero := 0.0
	ten, none := int64(10), int64(0)
	want := api.TaskStats{
		ID: "a", State: "abandoned", Blocks: 128, UnwrittenAtEnd: []int64{}, Waiting: 1, Ready: 2, Leased: 3, Success: 90, Skipped: 10, Failed: 5, Orphaned: 7, Abandoned: 10,
		Processed: 100, Retries: 9, Reclaimed: 7, TimedOut: 3, Lost: 4, Returned: 5, OutOfMemory: 6, Workers: 4, MaxConcurrency: 3,
		SkippedWhy: api.SkippedWhy{NotSelected: &none, DoneBefore: &ten, Mask: &none}, WallSeconds: &zero,
		BlockSeconds: api.BlockSeconds{Histogram: [][2]float64{}}, Failures: []api.BlockFailure{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSkippedBlocksAreDividedAsFarAsIsCertain(t *testing.T) {
	text := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	tests := []struct {
		skipped, checks, unselected, done, mask int64
		want                                    string
	}{
		{0, 0, 0, 0, 0, "0 0 0 0"},
		{100, 0, 0, 100, 0, "0 100 0 0"},
		{60, 0, 0, 100, 0, "0 60 0 0"}, // ended early
		{20, 0, 0, 0, 20, "0 0 20 0"},
		{125, 5, 0, 100, 20, "0 100 20 5"},
		{70, 5, 0, 100, 20, "? ? ? 5"}, // ended early, of two kinds
		{3, 3, 0, 0, 0, "0 0 0 3"},
		{133, 5, 8, 100, 20, "8 100 20 5"},
		{7, 0, 8, 0, 0, "7 0 0 0"}, // one was orphaned
		{7, 0, 8, 0, 1, "? ? ? 0"},
	}
	for _, test := range tests {
		r := one()
		for range test.checks {
			r.Ended(Attempt{Outcome: scheduler.Skipped, Verdict: scheduler.WasSkipped})
		}
		why := r.Stats(Input{Tasks: []Task{{Tally: scheduler.Tally{Skipped: test.skipped}, UnselectedBits: test.unselected, DoneBits: test.done, MaskBits: test.mask}}}).Tasks[0].SkippedWhy
		if got := fmt.Sprintf("%s %s %s %d", text(why.NotSelected), text(why.DoneBefore), text(why.Mask), why.Check); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}

func TestWorkerRowsAddUpToNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New([]TaskInfo{{ID: "a"}, {ID: "b"}})
		in := Input{Tasks: make([]Task, 2)}
		seen := map[string]map[string]bool{}
		var processed, failed int64
		var busy, idle time.Duration
		for i := range rapid.IntRange(0, 30).Draw(t, "workers") {
			id := fmt.Sprintf("%d.%d", i/4, i%4)
			node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
			end := rapid.SampledFrom([]string{"", "left", "signal"}).Draw(t, "end")
			for _, task := range rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(t, "tasks") {
				w := Worker{Task: task, ID: id, Node: node, Slots: 1, End: end,
					Processed:    rapid.Int64Range(0, 100).Draw(t, "processed"),
					Failed:       rapid.Int64Range(0, 9).Draw(t, "failed"),
					Busy:         time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "busy")),
					Idle:         time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "idle")),
					PeakRSSBytes: rapid.Int64Range(0, 1e9).Draw(t, "rss")}
				in.Workers = append(in.Workers, w)
				processed, failed, busy, idle = processed+w.Processed, failed+w.Failed, busy+w.Busy, idle+w.Idle
			}
			if seen[node] == nil {
				seen[node] = map[string]bool{}
			}
			seen[node][id] = true
		}
		s := r.Stats(in)
		var gotBusy, gotIdle float64
		for _, n := range s.Nodes {
			processed, failed = processed-n.Processed, failed-n.Failed
			gotBusy, gotIdle = gotBusy+n.BusySeconds, gotIdle+n.IdleSeconds
			if want := int64(len(seen[n.Node])); n.Workers != want {
				t.Errorf("node %s has %d workers, want %d", n.Node, n.Workers, want)
			}
			var ends int64
			for _, count := range n.Ends {
				ends += count
			}
			if ends > n.Workers {
				t.Errorf("node %s: %d ends of %d workers", n.Node, ends, n.Workers)
			}
		}
		if processed != 0 || failed != 0 || !near(&gotBusy, busy.Seconds(), 1e-9) || !near(&gotIdle, idle.Seconds(), 1e-9) {
			t.Errorf("left over: %d processed, %d failed; busy %v of %v, idle %v of %v", processed, failed, gotBusy, busy, gotIdle, idle)
		}
		if len(s.Nodes) != len(seen) {
			t.Errorf("%d nodes, want %d", len(s.Nodes), len(seen))
		}
		if hours := s.Run.WorkerHours.Idle * 3600; !near(&hours, idle.Seconds(), 1e-9) {
			t.Errorf("idle %v s, want %v", hours, idle)
		}
	})
}

func TestCoreHoursAreThoseOfWhatWasGivenToWorkers(t *testing.T) {
	cores := func(n float64) api.Amounts { return api.Amounts{Cores: &n} }
	r := New([]TaskInfo{{ID: "a", Requires: scheduler.NewResources(map[string]int64{"cpu": 1000})}, {ID: "b", Requires: scheduler.NewResources(map[string]int64{"cpu": 2000})}})
	s := r.Stats(Input{Tasks: make([]Task, 2), Workers: []Worker{
		{Task: "a", ID: "1.0", Node: "n1", Slots: 2, Busy: 3 * time.Hour, Idle: time.Hour, Granted: cores(4)}, // 2 hours
		{Task: "b", ID: "1.0", Node: "n1", Slots: 2, Busy: time.Hour, Idle: time.Hour, Granted: cores(4)},     // 1 hour
		{Task: "b", ID: "1.1", Node: "n2", Slots: 1, Busy: time.Hour, Granted: cores(2)},
		{Task: "a", ID: "mine", Node: "n3", Slots: 1, Busy: time.Hour}, // of which nothing is known
	}})
	text := func(h api.CoreHours) string {
		if h.Granted == nil {
			return "nothing"
		}
		return fmt.Sprintf("%v = %v + %v", *h.Granted, *h.Used, *h.Idle)
	}
	got := []string{text(s.Run.CoreHours)}
	for _, n := range s.Nodes {
		got = append(got, n.Node+": "+text(n.CoreHours))
	}
	if diff := cmp.Diff([]string{"14 = 7 + 7", "n1: 12 = 5 + 7", "n2: 2 = 2 + 0", "n3: nothing"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWorkersStandInTheOrderOfTheirSubmissions(t *testing.T) {
	r := New([]TaskInfo{{ID: "z"}, {ID: "a"}})
	var in Input
	in.Tasks = make([]Task, 2)
	for _, row := range []string{"10.0 z", "2.1 a", "2.1 z", "mine a", "2.0 a", "10.0.1 z", "me z"} {
		id, task, _ := strings.Cut(row, " ")
		in.Workers = append(in.Workers, Worker{ID: id, Task: task})
	}
	var got []string
	for _, w := range r.Stats(in).Workers {
		got = append(got, w.ID+" "+w.Task)
	}
	want := []string{"2.0 a", "2.1 z", "2.1 a", "10.0 z", "10.0.1 z", "me z", "mine a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheRunHasUTCTimesAndOneSegmentForEachEpoch(t *testing.T) {
	firstEnd := began.Add(time.Minute)
	s := one().Stats(Input{Tasks: make([]Task, 1), Run: Run{ID: "k3", Name: "segment", State: "broken", Message: "the journal cannot be written", ExitStatus: 3,
		Started: began, Began: began.Add(54 * time.Minute), Ended: began.Add(time.Hour), Wall: 10 * time.Minute, Launcher: "local", Epoch: 2,
		Earlier: []api.Segment{{Epoch: 1, Started: began, Ended: &firstEnd, WallSeconds: 60}}}})
	b, err := json.Marshal(s.Run)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"k3","name":"segment","state":"failed","message":"the journal cannot be written","exit_status":3,"started":"2026-11-30T15:04:05Z","ended":"2026-11-30T16:04:05Z","wall_seconds":600,` +
		`"launcher":"local","job_file":null,"directory":null,"logs":null,` +
		`"segments":[{"epoch":1,"started":"2026-11-30T15:04:05Z","ended":"2026-11-30T15:05:05Z","wall_seconds":60},{"epoch":2,"started":"2026-11-30T15:58:05Z","ended":"2026-11-30T16:04:05Z","wall_seconds":540}],` +
		`"changes":[],"worker_hours":{"used":0,"idle":0,"wasted":0},"core_hours":{"granted":null,"used":null,"idle":null},"resources":[{"task":"a","resource":"cpu","asked":1,"asked_at_start":null,"used":null,"suggested":null,"suggestion":null}]}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatHasNoValueIsNullAndListsAreNever(t *testing.T) {
	r := New([]TaskInfo{{ID: "a"}})
	b, err := json.Marshal(r.Stats(Input{
		Run:     Run{State: "running", Started: began},
		Tasks:   []Task{{Failures: []Failure{{Attempts: 3, Message: "exit status 3"}}}},
		Workers: []Worker{{Task: "a", ID: "1.0"}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"ended":null`, `"exit_status":null`, `"message":null`, `"launcher":null`, `"resources":[]`, `"nodes":[]`,
		`"block_seconds":{"mean":null,"p50":null,"p95":null,"max":null,"slope":null,"histogram":[]}`, `"cpu_busy":null`, `"timeout_seconds":null`,
		`"failures":[{"block":null,"index":[],"attempts":3,"worker":null,"node":null,"message":"exit status 3","tail":null,"log":null}]`,
		`"node":null`, `"peak_rss_bytes":null,"end":null,"log":null`, `"coordinator":{"cpu_seconds":0,"peak_rss_bytes":null,"bytes_in":0,"bytes_out":0}`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
}

func TestWhatWorkersSendIsMadeHarmless(t *testing.T) {
	const bad = "\x1b[2J\u202e\xff"
	r := one()
	r.Ended(Attempt{Outcome: scheduler.Failed, Verdict: scheduler.Retry, Node: "n" + bad, Held: time.Second})
	s := r.Stats(Input{
		Run:     Run{State: "failed", Message: "worker says:\n" + bad},
		Tasks:   []Task{{Failures: []Failure{{Worker: "w" + bad, Node: "n" + bad, Message: "two\r\nlines" + bad, Tail: "two\r\nlines\t" + bad}}}},
		Workers: []Worker{{Task: "a", ID: "w" + bad, Node: "n" + bad}},
	})
	const good = "�[2J��"
	f := s.Tasks[0].Failures[0]
	for got, want := range map[string]string{
		*s.Run.Message: "worker says: " + good, *f.Worker: "w" + good, *f.Node: "n" + good, f.Message: "two lines" + good, *f.Tail: "two\nlines\t" + good,
		s.Workers[0].ID: "w" + good, *s.Workers[0].Node: "n" + good, s.Nodes[0].Node: "n" + good,
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := s.Nodes[0].WastedSeconds; got != 1 {
		t.Errorf("the node of the wasted second was not recognised: %v", got)
	}
}
