package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// forecastOf is a forecast of a run of independent blocks, with room for so many at once.
func forecastOf(blocks int64, workers int, d Distribution) ForecastConfig {
	c := large(blocks, 0)
	c.Job.HeartbeatTimeout = 30 * time.Second
	c.Job.HintAfter, c.Job.AbandonAfter = 5*time.Minute, 0
	return ofJob(c.Job, workers, d)
}

func ofJob(j *job.Job, workers int, times ...Distribution) ForecastConfig {
	c := ForecastConfig{Seed: 1, Job: j, Unlimited: true, MaxSlots: workers, StartTime: 100 * time.Millisecond}
	for _, d := range times {
		c.Code = append(c.Code, ForecastCode{Times: d, Scale: 1})
	}
	return c
}

// chainOf adds a task whose blocks, each as large as n of the first task's, need those.
func chainOf(t testing.TB, blocks int64, n int64, workers int, times ...Distribution) ForecastConfig {
	c := forecastOf(blocks, workers, times[0])
	j := c.Job
	roi := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(n)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(blocks)}, Read: roi, Write: roi})
	if err != nil {
		t.Fatal(err)
	}
	second := j.Tasks[0]
	second.ID, second.Grid, second.After = "u", g, []string{"t"}
	j.Tasks = append(j.Tasks, second)
	return ofJob(j, workers, times...)
}

// predict makes the pipeline of the job, as it is by now, and plays the run through.
func predict(t testing.TB, c ForecastConfig) Forecast {
	t.Helper()
	f, err := attempt(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func attempt(c ForecastConfig) (f Forecast, err error) {
	if c.Pipeline, err = c.Job.Pipeline(); err != nil {
		return f, err
	}
	return Predict(c)
}

// near checks that a time is what it should be, or a little more.
func near(t *testing.T, what string, got, want, more time.Duration) {
	t.Helper()
	if got < want || got > want+more {
		t.Errorf("%s is %v, want %v to %v", what, got, want, want+more)
	}
}

func TestAForecastTakesAsLongAsItsBlocksOnItsWorkers(t *testing.T) {
	f := predict(t, forecastOf(100, 10, Constant(2*time.Second)))
	if f.State != engine.RunDone {
		t.Errorf("the run is %v", f.State)
	}
	near(t, "the wall time", f.Wall, 20*time.Second, 200*time.Millisecond)
	near(t, "the time used", f.Used, 200*time.Second, 500*time.Millisecond)
	near(t, "the idle time", f.Idle, 0, time.Second)
	if f.Workers != 10 || f.MostSlots != 10 || f.Wasted != 0 {
		t.Errorf("%d workers, %d slots at once, %v wasted; want 10, 10 and nothing", f.Workers, f.MostSlots, f.Wasted)
	}
}

func TestWorkersWithoutABlockAreIdle(t *testing.T) {
	f := predict(t, forecastOf(11, 10, Constant(20*time.Second)))
	near(t, "the wall time", f.Wall, 40*time.Second, 500*time.Millisecond)
	// Nine of them leave after 5 seconds without a block: the idle timeout of a launcher on this machine, or at once as nothing is left.
	near(t, "the idle time", f.Idle, 9*5*time.Second, time.Second)
}

func TestTheSameSeedForecastsTheSame(t *testing.T) {
	of := func(seed uint64) []byte {
		c := chainOf(t, 600, 4, 16, LogNormal(10*time.Second, 0.5), Exponential(20*time.Second))
		c.Seed, c.Batch, c.QueueWait, c.TimeLimit, c.WorkerFailures, c.Picture = seed, true, Exponential(5*time.Minute), 20*time.Minute, 1, true
		c.Code[0].Failures = 0.05
		text, err := json.Marshal(predict(t, c))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if !bytes.Equal(of(1), of(1)) {
		t.Error("the same seed gives two forecasts")
	}
	if bytes.Equal(of(1), of(2)) {
		t.Error("two seeds give the same forecast")
	}
}

// TestManyWorldsKeepTheRules has the cheap invariants of a forecast look at runs of all kinds.
func TestManyWorldsKeepTheRules(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		h := func(what, n uint64) uint64 { return mix(seed, what) % n }
		c := chainOf(t, int64(20+h(1, 300)), int64(1+h(2, 5)), int(1+h(3, 40)), LogNormal(time.Duration(h(4, 60_000)+1)*time.Millisecond, 0.7), Exponential(time.Duration(h(5, 60_000)+1)*time.Millisecond))
		c.Seed = seed
		for i := range c.Job.Tasks {
			c.Job.Tasks[i].Slots = 1 + int(h(6, 4))
			c.Job.Tasks[i].MaxRetries, c.Job.Tasks[i].MaxLost, c.Job.Tasks[i].Timeout = 100, 100, 0
			c.Job.Tasks[i].MaxBlocksPerWorker = int64(h(7, 3) * 20)
		}
		c.Code[0].Failures, c.Code[1].Failures = float64(h(8, 10))/100, float64(h(9, 10))/100
		c.WorkerFailures = float64(h(10, 3))
		if h(11, 2) == 0 {
			c.Batch, c.QueueWait = true, Exponential(time.Duration(h(12, 1200))*time.Second)
			c.TimeLimit = time.Duration(h(13, 3)) * 40 * time.Minute
		}
		f, err := attempt(c)
		if err != nil || f.State != engine.RunDone {
			t.Errorf("seed %d: %v %s, %v: %+v", seed, f.State, f.Why, err, f.Tasks)
			continue
		}
		sum := f.Path.Before
		for _, p := range f.Path.Tasks {
			sum += p.Time
		}
		if sum != f.Wall {
			t.Errorf("seed %d: the path lasts %v, and the run %v", seed, sum, f.Wall)
		}
		for _, task := range f.Tasks {
			if task.Tally.Success != task.Tally.Total {
				t.Errorf("seed %d: %+v", seed, task)
			}
		}
	}
}

func TestThePathOfARunWithFewWorkersWaitsForThem(t *testing.T) {
	f := predict(t, forecastOf(100, 10, Constant(2*time.Second)))
	if p := f.Path.Tasks[0]; p.Blocks != 10 || p.Time != 20*time.Second || p.By != [4]int64{ByWorker: 9, ByStart: 1} {
		t.Errorf("the path is %+v, want 10 blocks, of which 9 waited for a worker and one for its start", p)
	}
}

func TestThePathOfAChainWaitsForItsBlocks(t *testing.T) {
	c := chainOf(t, 8, 8, 8, Constant(2*time.Second), Constant(3*time.Second))
	c.Code[0].Times = Uniform(time.Second, 9*time.Second)
	f := predict(t, c)
	p := f.Path.Tasks
	if p[0].Blocks != 1 || p[1].Blocks != 1 || p[1].By != [4]int64{ByNeed: 1} || p[1].Time != 3*time.Second {
		t.Errorf("the path is %+v, want the longest block of the first task, then the one that needs it", p)
	}
	longest := time.Duration(0)
	for b := range int64(8) {
		longest = max(longest, c.Code[0].Times.At(share(mix(c.Seed, 0, uint64(b), 1))))
	}
	if p[0].Time != longest {
		t.Errorf("the first block of the path takes %v, want the longest, %v", p[0].Time, longest)
	}
	if len(f.Path.Latest) != 2 || f.Path.Latest[1].Task != 1 || f.Path.Latest[1].By != ByNeed {
		t.Errorf("its last blocks are %+v", f.Path.Latest)
	}
}

func TestABlockThatFailedIsOnThePathOfItsRetry(t *testing.T) {
	c := forecastOf(1, 1, Constant(10*time.Second))
	c.Code[0].Failures = 0.9
	c.Job.Tasks[0].MaxRetries = 100
	f := predict(t, c)
	if p := f.Path.Tasks[0]; p.Blocks < 2 || p.Blocks != int64(f.Path.Latest[len(f.Path.Latest)-1].Attempt) {
		t.Errorf("the path is %+v, want all attempts", f.Path)
	}
	if f.Wasted == 0 || f.Tasks[0].Tally.Retries == 0 {
		t.Errorf("%v wasted, %+v", f.Wasted, f.Tasks[0].Tally)
	}
}

func TestTheQueueOfABatchSystemIsWaitedFor(t *testing.T) {
	c := forecastOf(100, 10, Constant(20*time.Second))
	c.Batch, c.QueueWait = true, Constant(30*time.Minute)
	f := predict(t, c)
	// A few workers come first, to see whether they work; the others are asked for then, and wait as long.
	near(t, "the wall time", f.Wall, 30*time.Minute, 32*time.Minute)
	if f.Queued < 4*30*time.Minute {
		t.Errorf("workers waited for %v in all", f.Queued)
	}
	if f.Path.Before < 30*time.Minute {
		t.Errorf("the path waits for %v, want the time in the queue at least", f.Path.Before)
	}
}

func TestABrokenRuleOfAForecastIsAFaultOfTheProgram(t *testing.T) {
	c := forecastChecks{f: &forecaster{now: 3 * time.Second}}
	c.fail("block %d is counted twice", 7)
	if !errors.Is(c.err, ErrBroken) || c.err.Error() != "a fault of this program, at 3s: block 7 is counted twice" {
		t.Errorf("%v", c.err)
	}
}

func TestWorkersWithATimeLimitAreReplaced(t *testing.T) {
	c := forecastOf(400, 4, Constant(time.Minute))
	c.Batch, c.TimeLimit = true, 30*time.Minute
	f := predict(t, c)
	if f.State != engine.RunDone || f.Workers < 16 {
		t.Errorf("%v with %d workers; each has room for at most 29 blocks, of 400 on 4 at once", f.State, f.Workers)
	}
	if f.Wasted > 30*time.Minute {
		t.Errorf("%v wasted: blocks that do not fit are not given to a worker", f.Wasted)
	}
}

func TestWorkersThatDieCostTime(t *testing.T) {
	c := forecastOf(1000, 10, Constant(time.Minute))
	well := predict(t, c)
	c.WorkerFailures = 2
	c.Job.Tasks[0].MaxLost = 100
	ill := predict(t, c)
	lost := ill.Tasks[0].Tally.Lost
	if hours := float64(1000) / 60; float64(lost) < hours || float64(lost) > 4*hours {
		t.Errorf("%d blocks were lost with 2 deaths in an hour, in %.0f hours", lost, hours)
	}
	if ill.Wall <= well.Wall || ill.Wasted == 0 || ill.Tasks[0].Tally.Success != 1000 {
		t.Errorf("%v and %v wasted, without deaths %v", ill.Wall, ill.Wasted, well.Wall)
	}
}

func TestABlockThatIsLongerThanItsTimeoutTimesOut(t *testing.T) {
	c := forecastOf(2, 2, Constant(time.Hour))
	f := predict(t, c)
	if f.State != engine.RunFailed || f.Tasks[0].Tally.TimedOut != 6 || f.Tasks[0].Tally.Failed != 2 {
		t.Errorf("%v, %+v; want 2 blocks that timed out 3 times each", f.State, f.Tasks[0].Tally)
	}
	near(t, "the wall time", f.Wall, 30*time.Minute, 10*time.Second)
}

func TestBlocksTakeTimeInTheScaleOfTheirTask(t *testing.T) {
	c := forecastOf(10, 1, Constant(4*time.Second))
	c.Code[0].Scale = 2.5
	near(t, "the wall time", predict(t, c).Wall, 100*time.Second, time.Second)
}

func TestShortBlocksTakeATurnaroundMore(t *testing.T) {
	near(t, "the wall time", predict(t, forecastOf(20_000, 4, Constant(time.Millisecond))).Wall, 10*time.Second, time.Second)
}

func TestABlockThatIsLongerThanTheTimeLimitFails(t *testing.T) {
	c := forecastOf(1, 1, Constant(45*time.Minute))
	c.Batch, c.TimeLimit, c.Job.Tasks[0].Timeout = true, 30*time.Minute, 0
	f := predict(t, c)
	if f.State != engine.RunFailed || f.Tasks[0].Tally.Failed != 1 || f.Workers != 2 {
		t.Errorf("%v, %d workers, %+v; want a block that failed for good when a second worker's time was over", f.State, f.Workers, f.Tasks[0].Tally)
	}
}

func TestWorkersLeaveAfterSoManyBlocks(t *testing.T) {
	c := forecastOf(100, 5, Constant(time.Second))
	c.Job.Tasks[0].MaxBlocksPerWorker = 10
	if f := predict(t, c); f.State != engine.RunDone || f.Workers != 10 {
		t.Errorf("%v with %d workers, want done with 10 that had 10 blocks each", f.State, f.Workers)
	}
}

func TestABlockThatWasReadyWaitedForAWorker(t *testing.T) {
	f := predict(t, chainOf(t, 50, 1, 1, Constant(time.Second), Constant(time.Second)))
	// One slot does all, and a block of the second task is ready while the next one of the first still runs.
	if by := f.Path.By(ByNeed); by != 0 || f.Path.By(ByWorker) != 99 {
		t.Errorf("%d blocks waited for others and %d for a worker, want 0 and 99", by, f.Path.By(ByWorker))
	}
}

func TestSlotsOfAPictureAreUsedAgain(t *testing.T) {
	c := forecastOf(400, 4, Constant(time.Minute))
	c.Batch, c.TimeLimit, c.Picture = true, 30*time.Minute, true
	f := predict(t, c)
	if int64(f.Picture.Lanes) != f.MostSlots {
		t.Errorf("%d slots in the picture, and at most %d at once", f.Picture.Lanes, f.MostSlots)
	}
}

func TestBandsThatAreMergedKeepWhatTheyHold(t *testing.T) {
	p := newPicture(1)
	const lanes = 200
	for lane := range int32(lanes) {
		p.begins(lane, 0)
		p.ran(lane, 0, 0, 10*time.Second)
	}
	p.End = 10 * time.Second
	sum := 0.0
	for band := range p.Bands() {
		for column := range p.Columns() {
			sum += p.Share(column, band, 0) * float64(min(p.Band, lanes-band*p.Band)) * p.Column.Seconds()
		}
	}
	if math.Abs(sum-10*lanes) > 1 {
		t.Errorf("the bands hold %.1f seconds, want %d", sum, 10*lanes)
	}
}

func TestABlockThatCanNeverStartIsAnError(t *testing.T) {
	c := forecastOf(2, 0, Constant(time.Second))
	c.Unlimited, c.Budget = false, scheduler.NewResources(map[string]int64{"cpu": 500})
	if f, err := attempt(c); err == nil || !strings.Contains(err.Error(), `the run does not end, task "t" waits: `) || f.Wall > 48*time.Hour {
		t.Errorf("after %v the error is %v", f.Wall, err)
	}
}

func TestNothingHappensAfterTheEndOfTime(t *testing.T) {
	c := forecastOf(10, 2, Constant(time.Second))
	c.Batch, c.QueueWait = true, Constant(math.MaxInt64-time.Microsecond)
	if f, err := attempt(c); err == nil || !strings.Contains(err.Error(), "the run does not end") || f.Wall > 48*time.Hour {
		t.Errorf("workers that wait for ever end a run after %v: %v", f.Wall, err)
	}
}

func TestDistributionsHaveTheirMeans(t *testing.T) {
	for what, c := range map[string]struct {
		d    Distribution
		mean time.Duration
	}{
		"constant":     {Constant(3 * time.Second), 3 * time.Second},
		"uniform":      {Uniform(time.Second, 5*time.Second), 3 * time.Second},
		"log-normal":   {LogNormal(2*time.Second, 0.5), time.Duration(2e9 * math.Exp(0.125))},
		"exponential":  {Exponential(3 * time.Second), 3 * time.Second},
		"measured":     {Measured([]Quantile{{0, time.Second}, {0.5, 2 * time.Second}, {1, 9 * time.Second}}, 0), 3500 * time.Millisecond},
		"stretched":    {Measured([]Quantile{{0, time.Second}, {0.5, 2 * time.Second}, {1, 9 * time.Second}}, 3*time.Second), 3 * time.Second},
		"one quantile": {Measured([]Quantile{{0.5, 2 * time.Second}}, 0), 2 * time.Second},
	} {
		if got := c.d.Mean(); math.Abs(float64(got-c.mean)) > 0.01*float64(c.mean) {
			t.Errorf("%s: the mean is %v, want %v", what, got, c.mean)
		}
		last := time.Duration(0)
		for i := range 101 {
			d := c.d.At(min(float64(i)/100, 0.9999999))
			if d < last {
				t.Errorf("%s: the quantile %d%% is %v, and the one before %v", what, i, d, last)
			}
			last = d
		}
	}
}

func TestDrawnTimesFollowTheirDistribution(t *testing.T) {
	below := 0
	for i := range uint64(10_000) {
		if LogNormal(2*time.Second, 0.5).At(share(mix(7, i))) < 2*time.Second {
			below++
		}
	}
	if below < 4800 || below > 5200 {
		t.Errorf("%d of 10000 draws are below the median", below)
	}
}

func TestAPictureHasEveryBlockOfAShortRun(t *testing.T) {
	c := forecastOf(100, 10, Constant(2*time.Second))
	c.Picture = true
	p := predict(t, c).Picture
	blocks, lanes := 0, map[int32]bool{}
	for _, s := range p.Spans {
		if s.Task == 0 {
			blocks++
			if s.To-s.From != 2*time.Second {
				t.Errorf("a block is %v long", s.To-s.From)
			}
		} else {
			lanes[s.Lane] = true
		}
	}
	if blocks != 100 || len(lanes) != 10 || p.Lanes != 10 || p.Bands() != 10 {
		t.Errorf("%d blocks, %d workers, %d slots, %d bands; want 100, 10, 10 and 10", blocks, len(lanes), p.Lanes, p.Bands())
	}
}

func TestAPictureOfALongRunHasSharesInBands(t *testing.T) {
	c := forecastOf(50_000, 500, Constant(time.Minute))
	c.Picture = true
	p := predict(t, c).Picture
	if p.Spans != nil || p.Bands() > mostBands || p.Columns() > mostColumns || p.Columns() < mostColumns/3 || p.Band != 8 {
		t.Fatalf("%d spans, %d bands of %d, %d columns", len(p.Spans), p.Bands(), p.Band, p.Columns())
	}
	// From the second minute to the end all are busy; what the cells hold is what ran.
	sum := 0.0
	for column := range p.Columns() {
		for band := range p.Bands() {
			slots := float64(min(p.Band, p.Lanes-band*p.Band))
			length := min(p.Column, p.End-time.Duration(column)*p.Column)
			busy, there := p.Share(column, band, 0), p.Share(column, band, -1)
			if busy > there+1e-9 {
				t.Fatalf("in column %d of band %d a share of %v is busy, and %v are there", column, band, busy, there)
			}
			sum += busy * slots * length.Minutes()
		}
	}
	if math.Abs(sum-50_000) > 5 {
		t.Errorf("the cells hold %.1f minutes of blocks, want 50000", sum)
	}
}

func TestWhatHappensInAForecastComesInItsOrder(t *testing.T) {
	var h forecastHeap
	for i := range uint64(1000) {
		h.push(forecastEvent{at: time.Duration(mix(3, i) % 50), seq: i})
	}
	last := h.pop()
	for len(h) > 0 {
		ev := h.pop()
		if ev.at < last.at || ev.at == last.at && ev.seq < last.seq {
			t.Fatalf("event %d at %d comes after event %d at %d", ev.seq, ev.at, last.seq, last.at)
		}
		last = ev
	}
}

// BenchmarkForecast gives the time of ten million blocks on ten thousand workers; the picture is drawn, too.
func BenchmarkForecast(b *testing.B) {
	for range b.N {
		c := forecastOf(10_000_000, 10_000, Uniform(30*time.Second, 90*time.Second))
		c.Picture = true
		f := predict(b, c)
		if f.State != engine.RunDone {
			b.Fatal(f.State, f.Why)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/1e6, "MB")
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "seconds")
		b.ReportMetric(float64(f.Events)/1e7, "events/block")
		b.ReportMetric(f.Wall.Hours(), "virtual-hours")
	}
}
