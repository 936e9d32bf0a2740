package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
)

// statsOf reads the statistics of a run that has ended, and checks what always holds for them and for its workers.
func statsOf(t testing.TB, runDir string) api.Stats {
	t.Helper()
	var s api.Stats
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(runDir, "stats.json"))), &s); err != nil {
		t.Fatal(err)
	}
	wantHonest(t, s)
	logs, err := filepath.Glob(filepath.Join(runDir, "logs", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		if raceDetector && strings.Contains(readFile(t, log), "DATA RACE") {
			t.Errorf("a worker has a data race: see\n%s", readFile(t, log))
		}
	}
	return s
}

// wantHonest checks what holds for the statistics of every run that has ended: each block is counted once, and rows add up.
func wantHonest(t testing.TB, s api.Stats) {
	t.Helper()
	for _, ts := range s.Tasks {
		if sum := ts.Success + ts.Skipped + ts.Failed + ts.Orphaned + ts.Abandoned; sum != ts.Blocks {
			t.Errorf("task %s: its blocks are %d, those that ended %d: %+v", ts.ID, ts.Blocks, sum, ts)
		}
		if ts.Waiting+ts.Ready+ts.Leased != 0 {
			t.Errorf("task %s: the run has ended with %d waiting, %d ready, %d leased blocks", ts.ID, ts.Waiting, ts.Ready, ts.Leased)
		}
		if ts.State == "running" {
			t.Errorf("task %s is still running", ts.ID)
		}
		if ts.Reclaimed != ts.TimedOut+ts.Lost {
			t.Errorf("task %s: reclaimed %d, timed out %d, lost %d", ts.ID, ts.Reclaimed, ts.TimedOut, ts.Lost)
		}
		var processed, failed, workers int64
		for _, w := range s.Workers {
			if w.Task == ts.ID {
				workers++
				processed += w.Processed
				failed += w.Failed
			}
		}
		if processed != ts.Processed {
			t.Errorf("task %s: its workers processed %d blocks, it says %d", ts.ID, processed, ts.Processed)
		}
		if want := ts.Processed - ts.Success; failed != want {
			t.Errorf("task %s: its workers returned %d failures, want %d", ts.ID, failed, want)
		}
		if workers != ts.Workers {
			t.Errorf("task %s: %d rows of workers, it says %d", ts.ID, workers, ts.Workers)
		}
	}
	for _, w := range s.Workers {
		if w.End == nil {
			t.Errorf("worker %s: the run is over and nothing says how it ended", w.ID)
		}
	}
	if s.Run.Ended == nil || s.Run.State == "running" {
		t.Errorf("the run has ended; its statistics say %q, ended %v", s.Run.State, s.Run.Ended)
	}
}

// task finds the statistics of a task.
func task(t testing.TB, s api.Stats, id string) api.TaskStats {
	t.Helper()
	for _, ts := range s.Tasks {
		if ts.ID == id {
			return ts
		}
	}
	t.Fatalf("the statistics have no task %q", id)
	return api.TaskStats{}
}

// counts is what a run says of a task in numbers that do not depend on time.
type counts struct {
	State                                                                string
	Blocks, Success, Skipped, Failed, Orphaned, Abandoned                int64
	Processed, Retries, Reclaimed, TimedOut, Lost, Returned, OutOfMemory int64
}

func countsOf(t api.TaskStats) counts {
	return counts{
		t.State, t.Blocks, t.Success, t.Skipped, t.Failed, t.Orphaned, t.Abandoned,
		t.Processed, t.Retries, t.Reclaimed, t.TimedOut, t.Lost, t.Returned, t.OutOfMemory,
	}
}
