package stats

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/scheduler"
)

// requires has thousandths of cores, and bytes.
func requires(cpuMilli, memory int64) scheduler.Resources {
	return scheduler.NewResources(map[string]int64{"cpu": cpuMilli, "memory": memory})
}

// said is the suggestion for a resource of task "a", "" if there is none.
func said(t *testing.T, s api.Stats, resource string) string {
	t.Helper()
	for _, r := range s.Run.Resources {
		switch {
		case r.Task != "a" || r.Resource != resource:
		case (r.Suggestion == nil) != (r.Suggested == nil):
			t.Errorf("%s: suggested is %v, and the suggestion %v", resource, r.Suggested, r.Suggestion)
		case r.Suggestion != nil:
			return *r.Suggestion
		}
	}
	return ""
}

func TestCoresAndMemoryAreSuggestedByWhatBlocksUsed(t *testing.T) {
	tests := []struct {
		cpuMilli, memory int64
		busy             float64 // cores
		peak             int64
		blocks           int
		cpu, mem         string
	}{
		{4000, 16 * gib, 0.9, 3 * gib, 5, "1 core is enough: --set task.a.requires.cpu=1", "4GiB is enough: --set task.a.requires.memory=4GiB"},
		{4000, 16 * gib, 0.9, 3 * gib, 4, "", ""}, // too few to say
		{8000, 2 * gib, 3.1, 100 << 20, 9, "4 cores are enough: --set task.a.requires.cpu=4", "128MiB is enough: --set task.a.requires.memory=128MiB"},
		{4000, 4 * gib, 3.5, 3 * gib, 9, "", ""},
		{1000, gib, 0.01, gib / 4 * 3, 9, "", ""},
		{1000, gib, 3.6, 2 * gib, 9, "blocks keep more cores busy than they ask for: --set task.a.requires.cpu=4", "a block used more than it asked for: --set task.a.requires.memory=3GiB"},
		{1000, 0, 1, 2 * gib, 9, "", "blocks ask for no memory, so that nothing keeps more of them from running at once than fit: --set task.a.requires.memory=3GiB"},
		{1000, 0, 1, gib - 1, 9, "", ""},
	}
	for _, test := range tests {
		r := New([]TaskInfo{{ID: "a", Requires: requires(test.cpuMilli, test.memory)}})
		for range test.blocks {
			a := success(0, 10*time.Second)
			a.CPUNanos, a.PeakRSSBytes = int64(test.busy*10e9), test.peak
			r.Ended(a)
		}
		s := r.Stats(Input{Tasks: []Task{{MaxConcurrency: 3}}})
		if got := said(t, s, "cpu"); got != test.cpu {
			t.Errorf("%+v: got %q, want %q", test, got, test.cpu)
		}
		if got := said(t, s, "memory"); got != test.mem {
			t.Errorf("%+v: got %q, want %q", test, got, test.mem)
		}
	}
}

func TestMemoryThatIsEnforcedOrRanOutIsNeverSuggestedToBeLess(t *testing.T) {
	for _, test := range []struct {
		enforced    bool
		outOfMemory int64
		peak        int64
		want        string
	}{
		{false, 0, 1 * gib, "2GiB is enough: --set task.a.requires.memory=2GiB"},
		{true, 0, 1 * gib, ""},
		{true, 0, 9 * gib, "a block used more than it asked for: --set task.a.requires.memory=12GiB"},
		{false, 1, 1 * gib, "1 attempt ran out of memory: --set task.a.requires.memory=16GiB"},
		{true, 2, 1 * gib, "2 attempts ran out of memory: --set task.a.requires.memory=16GiB"},
	} {
		r := New([]TaskInfo{{ID: "a", Requires: requires(1000, 8*gib), MemoryEnforced: test.enforced}})
		for range 5 {
			a := success(0, time.Second)
			a.PeakRSSBytes = test.peak
			r.Ended(a)
		}
		if got := said(t, r.Stats(Input{Tasks: []Task{{Tally: scheduler.Tally{OutOfMemory: test.outOfMemory}}}}), "memory"); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}

func TestATimeoutIsSuggestedByTheLongestBlock(t *testing.T) {
	for _, test := range []struct {
		limit, longest time.Duration
		timedOut       int64
		blocks         int
		want           string
	}{
		{10 * time.Minute, time.Second, 0, 5, ""}, // 2 minutes are the least, and not much less
		{time.Hour, time.Second, 0, 5, "2m is enough, and finds a block that hangs sooner: --set task.a.timeout=2m"},
		{time.Hour, time.Second, 0, 4, ""},
		{12 * time.Hour, 10 * time.Minute, 0, 5, "50m is enough, and finds a block that hangs sooner: --set task.a.timeout=50m"},
		{12 * time.Hour, 10 * time.Minute, 1, 5, ""}, // nobody knows yet whether it hung
		{10 * time.Minute, 481 * time.Second, 0, 5, "the longest block came close to it: --set task.a.timeout=20m"},
		{10 * time.Minute, 480 * time.Second, 0, 5, ""},
		{10 * time.Minute, 200 * time.Second, 2, 5, "2 attempts timed out, and others were not much faster: --set task.a.timeout=20m"},
		{10 * time.Minute, 100 * time.Second, 2, 5, ""},
		{0, time.Hour, 0, 5, ""},
	} {
		r := New([]TaskInfo{{ID: "a", Requires: cores(1), Timeout: test.limit}})
		for range test.blocks {
			r.Ended(success(0, test.longest))
		}
		if got := said(t, r.Stats(Input{Tasks: []Task{{Timeout: test.limit, Tally: scheduler.Tally{TimedOut: test.timedOut}}}}), "timeout"); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}

func TestFewerWorkersAreSuggestedWhereSlotsWereIdleForMostOfTheTime(t *testing.T) {
	for _, test := range []struct {
		busy, idle time.Duration // of all slots of the task
		want       string
	}{
		// The task took 100 s.
		{250 * time.Second, 750 * time.Second, "slots were idle for 75% of their time: --set task.a.max_workers=4"}, // 2.5 on average, and a quarter
		{499 * time.Second, 501 * time.Second, "slots were idle for 50% of their time: --set task.a.max_workers=7"},
		{501 * time.Second, 499 * time.Second, ""},
		{20 * time.Second, 39 * time.Second, ""}, // too short to say
		{20 * time.Second, 41 * time.Second, "slots were idle for 67% of their time: --set task.a.max_workers=1"},
		{760 * time.Second, 900 * time.Second, ""}, // no fewer than there were
	} {
		r := New([]TaskInfo{{ID: "b"}, {ID: "a", Requires: cores(1), MaxWorkers: 10}})
		for i := range 5 {
			a := success(1, 20*time.Second)
			a.Held, a.At = 20*time.Second, time.Duration(i+1)*20*time.Second
			r.Ended(a)
		}
		workers := []Worker{{Task: "a", ID: "1.0", Busy: test.busy, Idle: test.idle - time.Second}, {Task: "b", ID: "1.0", Idle: time.Hour}, {Task: "a", ID: "1.1", Idle: time.Second}}
		s := r.Stats(Input{Tasks: []Task{{}, {MaxWorkers: 10, MaxConcurrency: 10}}, Workers: workers})
		if got := said(t, s, "max_workers"); got != test.want {
			t.Errorf("%v busy, %v idle: got %q", test.busy, test.idle, got)
		}
	}
}

// p is a pointer to a value.
func p[T any](v T) *T { return &v }

func TestEachTaskHasARowForWhatItAskedForOrUsed(t *testing.T) {
	r := New([]TaskInfo{
		{ID: "a", Requires: requires(4000, 16*gib), Timeout: time.Hour, MaxWorkers: 8},
		{ID: "b", Requires: cores(1)}, // asks for little, and has used nothing
		{ID: "c", Requires: scheduler.NewResources(nil), Timeout: time.Minute},
	})
	for range 4 {
		x := success(0, 10*time.Second)
		x.CPUNanos, x.PeakRSSBytes = int64(9*time.Second), 3*gib
		r.Ended(x)
		y := success(2, 2*time.Second)
		y.PeakRSSBytes = 1 * mib
		r.Ended(y)
	}
	got := r.Stats(Input{Tasks: []Task{
		{Timeout: 2 * time.Hour, MaxWorkers: 4, MaxConcurrency: 3}, // both were changed
		{},
		{Timeout: 0, MaxConcurrency: 2},
	}}).Run.Resources
	want := []api.AskedUsage{
		{Task: "a", Resource: "cpu", Asked: p(4.0), Used: p(0.9)},
		{Task: "a", Resource: "memory", Asked: p(16.0 * gib), Used: p(3.0 * gib)},
		{Task: "a", Resource: "timeout", Asked: p(7200.0), AskedAtStart: p(3600.0), Used: p(10.0)},
		{Task: "a", Resource: "max_workers", Asked: p(4.0), AskedAtStart: p(8.0), Used: p(3.0)},
		{Task: "b", Resource: "cpu", Asked: p(1.0)},
		{Task: "c", Resource: "memory", Used: p(1.0 * mib)},
		{Task: "c", Resource: "timeout", AskedAtStart: p(60.0), Used: p(2.0)},
		{Task: "c", Resource: "max_workers", Used: p(2.0)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestSuggestionsStandAsTheJobFileHasThem(t *testing.T) {
	const none = "none"
	for i, test := range []struct {
		requires map[string]int64
		busy     float64
		limit    time.Duration
		want     string
	}{
		{map[string]int64{"cpu": 4000, "memory": 16 * gib, "gpu": 1000, "a.b": 500}, 0.9, time.Hour,
			"requires = { \"a.b\" = 0.5, cpu = 1, gpu = 1, memory = \"4GiB\" }\ntimeout = \"2m\"\nmax_workers = 1"},
		{map[string]int64{"cpu": 1500, "memory": 16 * gib}, 1.5, time.Minute, "requires = { cpu = 1.5, memory = \"4GiB\" }\nmax_workers = 1"},
		{map[string]int64{"cpu": 1000, "memory": 4 * gib}, 1, time.Minute, "max_workers = 1"},
	} {
		for idle, want := range map[time.Duration]string{time.Hour: test.want, 0: none} {
			r := New([]TaskInfo{{ID: "a", Requires: scheduler.NewResources(test.requires), Timeout: test.limit}})
			for range map[bool]int{true: 5, false: 4}[idle > 0] {
				a := success(0, 10*time.Second)
				a.CPUNanos, a.PeakRSSBytes = int64(test.busy*10e9), 3*gib
				r.Ended(a)
			}
			s := r.Stats(Input{Tasks: []Task{{Timeout: test.limit, MaxConcurrency: 2}}, Workers: []Worker{{Task: "a", ID: "1.0", Busy: time.Second, Idle: idle}}})
			got := none
			if s.Tasks[0].Suggested != nil {
				got = *s.Tasks[0].Suggested
			}
			if got != want {
				t.Errorf("%d: got\n%s\nwant\n%s", i, got, want)
			}
		}
	}
}

func TestWorkerHoursAreUsedIdleAndWasted(t *testing.T) {
	r := New([]TaskInfo{{ID: "a"}, {ID: "b"}})
	for i, outcome := range []scheduler.Outcome{scheduler.Success, scheduler.Skipped, scheduler.Failed, scheduler.TimedOut, scheduler.Lost, scheduler.Returned, scheduler.OutOfMemory, scheduler.Recalled} {
		verdict := map[scheduler.Outcome]scheduler.Verdict{scheduler.Success: scheduler.Succeeded, scheduler.Skipped: scheduler.WasSkipped}[outcome]
		if verdict == 0 {
			verdict = scheduler.Retry
		}
		r.Ended(Attempt{Task: i % 2, Outcome: outcome, Verdict: verdict, Held: time.Hour << i})
	}
	r.Ended(Attempt{Outcome: scheduler.Success, Verdict: scheduler.Stale, Held: 256 * time.Hour}) // refused
	h := r.Stats(Input{Tasks: make([]Task, 2), Workers: []Worker{{Task: "a", Idle: 3 * time.Hour}, {Task: "b", Idle: 4 * time.Hour}}}).Run.WorkerHours
	if want := (api.WorkerHours{Used: 1 + 2, Idle: 7, Wasted: 4 + 8 + 16 + 32 + 64 + 256}); h != want {
		t.Errorf("got %s, want %s", fmt.Sprint(h), fmt.Sprint(want))
	}
}
