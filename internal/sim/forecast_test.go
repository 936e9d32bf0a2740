package sim

import (
	"testing"
	"time"

	"example.org/daisy/internal/engine"
)

// forecastOf is a forecast of a run of independent blocks.
func forecastOf(t testing.TB, blocks int64, workers int, d Distribution) ForecastConfig {
	c := large(blocks, 0)
	c.Job.HeartbeatTimeout = 30 * time.Second
	c.Job.HintAfter, c.Job.AbandonAfter = 5*time.Minute, 0
	p, err := c.Job.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	return ForecastConfig{Seed: 1, Job: c.Job, Pipeline: p, Unlimited: true, MaxSlots: workers, StartTime: 100 * time.Millisecond, Code: []ForecastCode{{Times: d, Scale: 1}}}
}

func predict(t testing.TB, c ForecastConfig) Forecast {
	t.Helper()
	f, err := Predict(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAForecastTakesAsLongAsItsBlocksOnItsWorkers(t *testing.T) {
	f := predict(t, forecastOf(t, 100, 10, Constant(2*time.Second)))
	if f.State != engine.RunDone || f.Wall < 20*time.Second || f.Wall > 20500*time.Millisecond {
		t.Errorf("the run is %v after %v, want done after a little more than 20s", f.State, f.Wall)
	}
	t.Logf("%+v", f)
}

// BenchmarkForecast gives the time of ten million blocks on ten thousand workers.
func BenchmarkForecast(b *testing.B) {
	for range b.N {
		c := forecastOf(b, 1_000_000, 10_000, Uniform(30*time.Second, 90*time.Second))
		c.Picture = true
		f := predict(b, c)
		b.ReportMetric(float64(f.Events)/1e6, "events/block")
		b.ReportMetric(f.Wall.Hours(), "virtual-hours")
	}
}
