package sim

import (
	"testing"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// large is a run of many blocks on many workers in which nothing goes wrong: what somebody asks who wants to know how long it takes.
func large(blocks, workers int64) Config {
	roi := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(1)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(blocks)}, Read: roi, Write: roi})
	if err != nil {
		panic(err) // these numbers are ours
	}
	j := &job.Job{Name: "large", Grace: 10 * time.Second, ReconnectGrace: 5 * time.Second, HeartbeatTimeout: time.Hour, HintAfter: 2 * time.Hour, AbandonAfter: 4 * time.Hour, IdleTimeout: -1}
	j.Tasks = []job.Task{{ID: "t", Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10, MaxWorkers: workers, Grid: g, Timeout: 10 * time.Minute,
		Runner: job.Runner{Kind: job.RunnerCommand}, Requires: scheduler.NewResources(map[string]int64{"cpu": 1000})}}
	return Config{Seed: 1, Job: j, Unlimited: true, Code: []Code{{Times: []TimeCount{{30 * time.Second, 1}, {90 * time.Second, 1}}}},
		Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond, StartTime: time.Second, NoJournal: true}
}

// BenchmarkLarge gives the time of a million blocks on ten thousand workers.
func BenchmarkLarge(b *testing.B) {
	for range b.N {
		result, err := New(large(1_000_000, 10_000)).Run()
		if err != nil || result.State != engine.RunDone {
			b.Fatal(result.State, err)
		}
		b.ReportMetric(float64(result.Events)/1e6, "events/block")
		b.ReportMetric(result.Time.Hours(), "virtual-hours")
	}
}
