package daisy_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"example.org/daisy"
	"example.org/daisy/internal/api"
)

// statsOf reads the stats.json of a run.
func statsOf(t *testing.T, runDirectory string) api.Stats {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runDirectory, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s api.Stats
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestARunIsCalledByItsName(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string][]daisy.Option{"run": nil, "segment-7": {daisy.Name("segment-7")}} {
		result, err := daisy.Run(t.Context(), line("work", 1, nothing), append(opts, daisy.Directory(t.TempDir()))...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(filepath.Base(result.Directory), want+"-") {
			t.Errorf("the run %q has the directory %s", want, result.Directory)
		}
		if got := statsOf(t, result.Directory).Run.Name; got != want {
			t.Errorf("the reports call the run %q, not %q", got, want)
		}
	}
}

func TestANameThatIsNoneOfAFileIsRefused(t *testing.T) {
	t.Parallel()
	if result, err := daisy.Run(t.Context(), line("work", 1, nothing), daisy.Name("a/b")); result != nil || err == nil || !strings.Contains(err.Error(), `"a/b"`) {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestRunningBlocksShareTheResourcesOfTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		budget, requires map[string]float64
		workers          int
		want             int64 // blocks that run at once
	}{
		"cores":              {budget: map[string]float64{"cpu": 3}, want: 3},
		"cores of a block":   {budget: map[string]float64{"cpu": 5}, requires: map[string]float64{"cpu": 2}, want: 2},
		"memory":             {budget: map[string]float64{"cpu": 9, "memory": 1 << 30}, requires: map[string]float64{"memory": 1 << 28}, want: 4},
		"something else":     {budget: map[string]float64{"cpu": 9, "licence": 2}, requires: map[string]float64{"licence": 1}, want: 2},
		"parts of a core":    {budget: map[string]float64{"cpu": 1}, requires: map[string]float64{"cpu": 0.25}, want: 4},
		"workers bound more": {budget: map[string]float64{"cpu": 9}, workers: 2, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int64
				next := make(chan struct{})
				work := line("work", 10, func(context.Context, daisy.Block) error {
					running.Add(1)
					<-next
					running.Add(-1)
					return nil
				})
				work.Requires = c.requires
				ended := make(chan error)
				go func() {
					_, err := daisy.Run(t.Context(), work, daisy.Resources(c.budget), daisy.Workers(c.workers))
					ended <- err
				}()
				for left := int64(10); left > 0; left-- {
					synctest.Wait()
					if got, want := running.Load(), min(c.want, left); got != want {
						t.Errorf("%d blocks run at once, want %d", got, want)
					}
					next <- struct{}{}
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAResourceThatTheRunDoesNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	work := line("work", 1, nothing)
	work.Requires = map[string]float64{"licence": 1}
	result, err := daisy.Run(t.Context(), work, daisy.Resources(map[string]float64{"cpu": 1}))
	if result != nil || err == nil || !strings.Contains(err.Error(), "licence") {
		t.Errorf("%+v, %v", result, err)
	}
}
