package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"example.org/daisy/internal/api"
)

// napTimes were recorded: block times of a program that segments cells, in milliseconds, each for a twentieth of the blocks.
var napTimes = []int{212, 231, 247, 259, 268, 280, 291, 303, 314, 330, 341, 358, 377, 402, 431, 476, 541, 668, 922, 1874}

// nap sleeps for as long as a block of the recorded run took.
func nap(b block) error {
	slower, err := strconv.Atoi(os.Getenv("E2E_SLOWER")) // in percent
	if err != nil {
		return err
	}
	h := uint64(b.index+1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h ^= h >> 27
	time.Sleep(time.Duration(napTimes[h%uint64(len(napTimes))]*slower) * 10 * time.Microsecond)
	return nil
}

// TestSimulatePredictsARealRun feeds simulate with the statistics of a real run of two tasks, of which the second one's blocks wait for
// the first's and for each other, and compares the wall times. `make sim-accuracy` does it five times with runs of a minute; without
// it the run is short, and its start and end weigh more.
func TestSimulatePredictsARealRun(t *testing.T) {
	t.Parallel()
	runs, blocks, slower, bound := 1, 60, 40, 0.35
	if n, err := strconv.Atoi(os.Getenv("DAISY_SIMULATE")); err == nil {
		runs, blocks, slower, bound = n, 800, 100, 0.15
	}
	var errors []float64
	for range runs {
		errors = append(errors, predictionError(t, blocks, slower))
	}
	slices.SortFunc(errors, func(a, b float64) int { return int(math.Copysign(1, math.Abs(a)-math.Abs(b))) })
	t.Logf("errors: %+.3f", errors)
	if median := math.Abs(errors[len(errors)/2]); median > bound {
		t.Errorf("the prediction is wrong by %.1f%%, want at most %.0f%%", 100*median, 100*bound)
	}
}

// predictionError runs a job, and says by which share the prediction of its wall time is too long.
func predictionError(t *testing.T, blocks, slower int) float64 {
	t.Helper()
	task := func(id string, size, context int, more string) string {
		return fmt.Sprintf("id = %q\ntotal_write = { offset = [0], shape = [%d] }\nblock = { shape = [%d], context = %d }\n%s", id, blocks, size, context, more) +
			code("stream", "nap", fmt.Sprint("E2E_SLOWER=", slower))
	}
	dir, path := writeJob(t, job(`resources = { cpu = 8 }`, task("first", 1, 0, "read_write_conflict = false\n"), task("second", 2, 1, "after = [\"first\"]\n")))
	s := start(t, dir, "run", path, "--run-dir", "out")
	select {
	case <-s.over:
	case <-time.After(10 * time.Minute):
		t.Fatal("the run has not ended within 10 minutes")
	}
	if r := s.wait(); r.status != 0 {
		t.Fatalf("exit status %d: %s", r.status, r.stderr)
	}
	var real api.Stats
	data, err := os.ReadFile(filepath.Join(dir, "out", "stats.json"))
	if err == nil {
		err = json.Unmarshal(data, &real)
	}
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Forecasts []struct {
			WallSeconds float64 `json:"wall_seconds"`
		} `json:"forecasts"`
	}
	r := wantStatus(t, 0, dir, "simulate", path, "--times", "out", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil {
		t.Fatal(err)
	}
	predicted := said.Forecasts[0].WallSeconds
	t.Logf("a run of %.2fs, predicted %.2fs", real.Run.WallSeconds, predicted)
	return predicted/real.Run.WallSeconds - 1
}
