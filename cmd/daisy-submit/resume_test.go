package main

import (
	"slices"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

func TestLimitsThatAResumeIsGiven(t *testing.T) {
	of := func(workers int64, timeout time.Duration, milli int64) *job.Job {
		j := &job.Job{Tasks: []job.Task{{ID: "a"}, {ID: "b", MaxWorkers: workers, Timeout: timeout}}}
		if milli > 0 {
			j.HasResources, j.Resources = true, scheduler.NewResources(map[string]int64{"cpu": milli})
		}
		return j
	}
	was := of(2, time.Minute, 4000)
	for name, c := range map[string]struct {
		now        *job.Job
		sets       []string
		maxWorkers bool
		want       []string
	}{
		"nothing":               {now: of(2, time.Minute, 4000)},
		"what it had":           {now: was, sets: []string{"task.b.timeout = \"1m\""}, want: []string{"task.b.timeout"}},
		"--max-workers":         {now: was, maxWorkers: true, want: []string{"task.a.max_workers", "task.b.max_workers"}},
		"a job with others":     {now: of(3, time.Hour, 8000), want: []string{"run.resources", "task.b.max_workers", "task.b.timeout"}},
		"a job without a limit": {now: of(0, 0, 0), want: []string{"run.resources", "task.b.max_workers", "task.b.timeout"}},
	} {
		if got := limitsGiven(was, c.now, c.sets, c.maxWorkers); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
