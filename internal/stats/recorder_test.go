package stats

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/daisy/internal/api"
	"example.org/daisy/scheduler"
)

func success(task int, wall time.Duration) Attempt {
	return Attempt{Task: task, Outcome: scheduler.Success, Verdict: scheduler.Succeeded, Worker: "1.0", Node: "n1",
		At: time.Hour, Held: wall + time.Millisecond, WallNanos: int64(wall)}
}

// one is a recorder of one task of one core.
func one() *Recorder { return New([]TaskInfo{{ID: "a", Blocks: 100, Requires: cores(1)}}) }

// cores is what a slot requires that needs cores alone.
func cores(n int64) scheduler.Resources {
	return scheduler.NewResources(map[string]int64{"cpu": 1000 * n})
}

func statsOf(r *Recorder, y scheduler.Tally) api.TaskStats {
	return r.Stats(Input{Tasks: []Task{{Tally: y}}}).Tasks[0]
}

func near(got *float64, want, relative float64) bool {
	return got != nil && math.Abs(*got-want) <= relative*math.Abs(want)+1e-12
}

func TestBlockTimesEqualTheTextbookFormulas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		walls := rapid.SliceOfN(rapid.Int64Range(1000, int64(48*time.Hour)), 1, 300).Draw(t, "walls")
		if rapid.Bool().Draw(t, "small") {
			for i := range walls {
				walls[i] = 1000 + walls[i]%int64(time.Second)
			}
		}
		r := one()
		n := float64(len(walls))
		var sumX, sumY, sumXY, sumXX float64
		for x, w := range walls {
			r.Ended(success(0, time.Duration(w)))
			fx, fy := float64(x), time.Duration(w).Seconds()
			sumX, sumY, sumXY, sumXX = sumX+fx, sumY+fy, sumXY+fx*fy, sumXX+fx*fx
		}
		b := statsOf(r, scheduler.Tally{}).BlockSeconds

		if !near(b.Mean, sumY/n, 1e-9) {
			t.Errorf("mean %v, want %v", *b.Mean, sumY/n)
		}
		sorted := slices.Sorted(slices.Values(walls))
		for _, q := range []struct {
			percent float64
			got     *float64
		}{{50, b.P50}, {95, b.P95}} {
			rank := int(math.Ceil(q.percent / 100 * n))
			if want := time.Duration(sorted[rank-1]).Seconds(); !near(q.got, want, 0.01) {
				t.Errorf("p%v %v, want %v", q.percent, *q.got, want)
			}
		}
		if longest := time.Duration(sorted[len(sorted)-1]).Seconds(); !near(b.Max, longest, 0) {
			t.Errorf("max %v, want %v", *b.Max, longest)
		}
		switch {
		case len(walls) < 2:
			if b.Slope != nil {
				t.Errorf("a slope of one block: %v", *b.Slope)
			}
		default:
			want := (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
			if b.Slope == nil || math.Abs(*b.Slope-want) > 1e-7*(math.Abs(want)+*b.Max) {
				t.Errorf("slope %v, want %v", b.Slope, want)
			}
		}

		lower, total := 0.0, 0.0
		for i, pair := range b.Histogram {
			want := 0.0
			for _, w := range walls {
				if s := time.Duration(w).Seconds(); s <= pair[0] && (i == 0 || s > lower) {
					want++
				}
			}
			if pair[1] != want || pair[0] <= lower {
				t.Errorf("histogram %v: pair %d, want %v", b.Histogram, i, want)
			}
			lower, total = pair[0], total+pair[1]
		}
		if total != n || b.Histogram[0][1] == 0 || b.Histogram[len(b.Histogram)-1][1] == 0 {
			t.Errorf("histogram %v of %v blocks", b.Histogram, n)
		}
	})
}

func TestASlopeIsFoundInManyBlocks(t *testing.T) {
	r := one()
	for i := range 100000 {
		r.Ended(success(0, time.Second+time.Duration(i)*10*time.Microsecond))
	}
	if b := statsOf(r, scheduler.Tally{}).BlockSeconds; !near(b.Slope, 1e-5, 1e-9) {
		t.Errorf("slope %v, want 1e-5", *b.Slope)
	}
}

func TestTimesOutOfRangeAreTheNearestThatIsNot(t *testing.T) {
	r := one()
	r.Ended(success(0, 0))
	r.Ended(success(0, -time.Second))
	r.Ended(success(0, 1000*24*time.Hour))
	b := statsOf(r, scheduler.Tally{}).BlockSeconds
	if want := longest.Seconds(); !near(b.Max, want, 0) || !near(b.P95, want, 0) {
		t.Errorf("max %v, p95 %v, want %v", *b.Max, *b.P95, want)
	}
	if first, last := b.Histogram[0], b.Histogram[len(b.Histogram)-1]; first != [2]float64{1e-6, 2} || last != [2]float64{5e6, 1} {
		t.Errorf("histogram from %v to %v", first, last)
	}
}

func TestWithoutABlockThereAreNoTimes(t *testing.T) {
	r := one()
	r.Ended(Attempt{Outcome: scheduler.Failed, Verdict: scheduler.Retry, At: 5 * time.Second, Held: 2 * time.Second, WallNanos: 1e9, CPUNanos: 1e9, PeakRSSBytes: 77})
	s := statsOf(r, scheduler.Tally{})
	b := s.BlockSeconds
	if b.Mean != nil || b.P50 != nil || b.P95 != nil || b.Max != nil || b.Slope != nil || b.Histogram == nil || len(b.Histogram) != 0 {
		t.Errorf("times of no block: %+v", b)
	}
	if s.CPUBusy != nil {
		t.Errorf("CPU busy %v of no successful attempt", *s.CPUBusy)
	}
	if s.PeakRSSBytes == nil || *s.PeakRSSBytes != 77 {
		t.Errorf("peak memory %v, want that of the failed attempt", s.PeakRSSBytes)
	}
	if !near(s.WallSeconds, 2, 0) || s.WastedSeconds != 2 {
		t.Errorf("wall %v, wasted %v, want 2 and 2", *s.WallSeconds, s.WastedSeconds)
	}
	if s := statsOf(one(), scheduler.Tally{}); s.WallSeconds != nil || s.PeakRSSBytes != nil {
		t.Errorf("wall time or memory of nothing: %+v", s)
	}
}

func TestCPUBusyCountsBlocksTooShortForATickAndIsNothingWhereNoneWasMeasured(t *testing.T) {
	r := New([]TaskInfo{{ID: "a", Requires: cores(4)}, {ID: "b"}, {ID: "functions", Requires: cores(1)}})
	a := success(0, 10*time.Second)
	a.CPUNanos = int64(20 * time.Second)
	r.Ended(a)
	r.Ended(success(0, 10*time.Second)) // its reading was 0
	r.Ended(success(2, 10*time.Second)) // never measured
	b := a
	b.Task = 1
	r.Ended(b)
	s := r.Stats(Input{Tasks: make([]Task, 3)})
	if !near(s.Tasks[0].CPUBusy, 0.25, 1e-12) {
		t.Errorf("CPU busy %v, want 0.25", *s.Tasks[0].CPUBusy)
	}
	if s.Tasks[2].CPUBusy != nil {
		t.Errorf("CPU busy %v of functions, which nobody measures", *s.Tasks[2].CPUBusy)
	}
	if s.Tasks[1].CPUBusy != nil {
		t.Errorf("CPU busy %v of a task that asked for none", *s.Tasks[1].CPUBusy)
	}
}

func TestTimeOfAttemptsThatDidNotCountIsWasted(t *testing.T) {
	tests := []struct {
		outcome scheduler.Outcome
		verdict scheduler.Verdict
		wasted  bool
	}{
		{scheduler.Success, scheduler.Succeeded, false},
		{scheduler.Skipped, scheduler.WasSkipped, false},
		{scheduler.Success, scheduler.Stale, true},
		{scheduler.Failed, scheduler.Retry, true},
		{scheduler.Failed, scheduler.FailedForGood, true},
		{scheduler.TimedOut, scheduler.Held, true},
		{scheduler.OutOfMemory, scheduler.Retry, true},
		{scheduler.Lost, scheduler.Retry, true},
		{scheduler.Returned, scheduler.Retry, true},
	}
	for _, test := range tests {
		r := one()
		r.Ended(Attempt{Outcome: test.outcome, Verdict: test.verdict, Worker: "1.0", Node: "n1", At: time.Hour, Held: time.Hour, WallNanos: 1})
		s := r.Stats(Input{Tasks: make([]Task, 1), Workers: []Worker{{Task: "a", ID: "1.0", Node: "n1", Busy: time.Hour, Idle: 2 * time.Hour}}})
		want := api.WorkerHours{Used: 1, Idle: 2}
		if test.wasted {
			want = api.WorkerHours{Wasted: 1, Idle: 2}
		}
		if s.Run.WorkerHours != want {
			t.Errorf("%v, %v: %+v, want %+v", test.outcome, test.verdict, s.Run.WorkerHours, want)
		}
		if got := s.Nodes[0].WastedSeconds; got != 3600*want.Wasted {
			t.Errorf("%v, %v: node wasted %v s, want %v h", test.outcome, test.verdict, got, want.Wasted)
		}
	}
}

func TestALeaseThatWasRecalledIsNoAttempt(t *testing.T) {
	r := one()
	r.Ended(Attempt{Outcome: scheduler.Recalled, At: time.Hour, Held: time.Hour})
	r.Ended(Attempt{Task: 9, Outcome: scheduler.Failed, At: time.Hour, Held: time.Hour})
	if s := statsOf(r, scheduler.Tally{}); s.WallSeconds != nil || s.WastedSeconds != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTheWorkersOfTimeoutsAreCountedOnce(t *testing.T) {
	r := one()
	for _, w := range []string{"1.0", "1.1", "1.0", ""} {
		r.Ended(Attempt{Outcome: scheduler.TimedOut, Verdict: scheduler.Retry, Worker: w})
	}
	if got := statsOf(r, scheduler.Tally{}).TimedOutWorkers; got != 2 {
		t.Errorf("%d workers, want 2", got)
	}
}

func TestTakingInAnAttemptAllocatesNothing(t *testing.T) {
	r := one()
	a := success(0, time.Second)
	a.CPUNanos, a.PeakRSSBytes = 1e9, 1<<20
	r.Ended(a)
	if n := testing.AllocsPerRun(1000, func() { r.Ended(a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	a.Outcome, a.Verdict = scheduler.Failed, scheduler.Retry
	r.Ended(a)
	if n := testing.AllocsPerRun(1000, func() { r.Ended(a) }); n != 0 {
		t.Errorf("%v allocations for a failure", n)
	}
}

func BenchmarkEnded(b *testing.B) {
	r := one()
	a := success(0, time.Second)
	a.CPUNanos, a.PeakRSSBytes = 1e9, 1<<20
	b.ReportAllocs()
	for b.Loop() {
		a.WallNanos += 12345
		r.Ended(a)
	}
}

func TestWhatAllAttemptsReadAndWroteIsAddedUp(t *testing.T) {
	r := one()
	r.Ended(success(0, time.Second))
	if s := statsOf(r, scheduler.Tally{}); s.IOReadBytes != nil || s.IOWriteBytes != nil {
		t.Errorf("not measured, and there are %v and %v bytes", s.IOReadBytes, s.IOWriteBytes)
	}
	a := success(0, time.Second)
	a.ReadBytes = 3
	r.Ended(a)
	r.Ended(Attempt{Outcome: scheduler.TimedOut, Verdict: scheduler.Retry, ReadBytes: 4, WrittenBytes: -1})
	if s := statsOf(r, scheduler.Tally{}); s.IOReadBytes == nil || *s.IOReadBytes != 7 || s.IOWriteBytes == nil || *s.IOWriteBytes != 0 {
		t.Errorf("%v and %v bytes, want 7 and 0", s.IOReadBytes, s.IOWriteBytes)
	}
}

func TestWhatGPUsDidIsAMeanOverTheTimeThatWasMeasured(t *testing.T) {
	r := one()
	r.Ended(success(0, time.Second))
	if s := statsOf(r, scheduler.Tally{}); s.GPUUtilPercent != nil || s.PeakGPUMemBytes != nil {
		t.Errorf("not measured, and there are %v %% and %v bytes", s.GPUUtilPercent, s.PeakGPUMemBytes)
	}
	a := success(0, time.Second)
	a.WallNanos, a.GPU = 3e9, GPU{Measured: true, Percent: 10, MemBytes: 5}
	r.Ended(a)
	r.Ended(Attempt{Outcome: scheduler.Failed, Verdict: scheduler.Retry, WallNanos: 1e9, GPU: GPU{Measured: true, Percent: 90, MemBytes: 4}})
	if s := statsOf(r, scheduler.Tally{}); s.GPUUtilPercent == nil || *s.GPUUtilPercent != 30 || s.PeakGPUMemBytes == nil || *s.PeakGPUMemBytes != 5 {
		t.Errorf("%v %% and %v bytes, want 30 and 5", s.GPUUtilPercent, s.PeakGPUMemBytes)
	}
}
