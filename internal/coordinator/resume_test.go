package coordinator

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/scheduler"
)

// A pastRun is a run of one task "a" with n blocks and tracking, as a coordinator has left it that is dead.
type pastRun struct {
	t   *testing.T
	job *job.Job
	dir *rundir.Dir
}

// newPastRun writes down what happened in the first life. before are the blocks that had been done before the run.
func newPastRun(t *testing.T, n int64, before []int64, records ...engine.Record) *pastRun {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	r := &pastRun{t, &job.Job{Name: "line", Tasks: []job.Task{lineTask(t, "a", n, 1)}, Tracking: t.TempDir()}, dir}
	s := r.group()
	for _, b := range before {
		s.MarkDone(b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	epoch, err := dir.NextEpoch()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Create(dir.JournalDir(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.job.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	records = append([]engine.Record{{Kind: engine.RecordStart, Epoch: epoch, Tasks: []engine.TaskRecord{engine.TaskRecordOf(&p.Tasks()[0])}}}, records...)
	for _, r := range records {
		j.Append(r.Append(nil))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *pastRun) group() *tracking.Store {
	r.t.Helper()
	s, err := tracking.Open(filepath.Join(r.job.Tracking, "a"), r.job.Tasks[0].Grid)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// wantMarks checks whether block 2, and no other, is marked as done.
func (r *pastRun) wantMarks(marked bool, when string) {
	r.t.Helper()
	done, err := tracking.ReadDone(filepath.Join(r.job.Tracking, "a"), r.job.Tasks[0].Grid)
	if err != nil {
		r.t.Fatal(err)
	}
	want := uint64(0)
	if marked {
		want = 1 << 2
	}
	if len(done) != 1 || done[0] != want {
		r.t.Errorf("the marks %s are %b, want %b", when, done, want)
	}
}

// resume makes the next coordinator, which the end of the test ends.
func (r *pastRun) resume() (*Coordinator, error) {
	r.t.Helper()
	c, err := New(Config{Job: r.job, RunDir: r.dir, Resume: true, Unlimited: true, Notice: func(line string) { r.t.Log(line) }})
	if err == nil {
		r.t.Cleanup(func() {
			c.Stop(engine.StopNow, "the test is over")
			if _, err := c.Run(r.t.Context()); err != nil {
				r.t.Error(err)
			}
		})
	}
	return c, err
}

func ended(block int64, o scheduler.Outcome) engine.Record {
	return engine.Record{Kind: engine.RecordEnd, Block: block, Outcome: uint8(o), Worker: 1}
}

var joined = engine.Record{Kind: engine.RecordJoin, Worker: 1, ID: "1.0", Nonce: 7, Count: 1, Text: "here", Launched: true}

func TestTrackingThatIsBehindTheJournalIsBroughtUpToIt(t *testing.T) {
	r := newPastRun(t, 6, []int64{5}, joined,
		ended(0, scheduler.Success), ended(1, scheduler.Failed), ended(1, scheduler.TimedOut), ended(1, scheduler.Success),
		ended(2, scheduler.Skipped), ended(3, scheduler.OutOfMemory), ended(4, scheduler.Lost))
	c, err := r.resume()
	if err != nil {
		t.Fatal(err)
	}
	s := c.flusher.stores[0]
	done, err := s.Done()
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint64{0b100111}; !cmp.Equal(done, want) {
		t.Errorf("the marks are %b, want %b", done, want)
	}
	var failures []uint32
	for b := range int64(6) {
		n, err := s.FailureCount(b)
		if err != nil {
			t.Fatal(err)
		}
		failures = append(failures, n)
	}
	if diff := cmp.Diff([]uint32{0, 2, 0, 1, 0, 0}, failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	// What succeeded in this run is no skip of it; what was done before it is.
	if before := c.pipeline.Tasks()[0].Done; before.Count() != 1 || !before.Get(5) {
		t.Errorf("done before the run: %b", before)
	}
}

func TestFailuresThatAreInTrackingAreNotCountedAgain(t *testing.T) {
	r := newPastRun(t, 2, nil, joined, ended(0, scheduler.Failed), ended(1, scheduler.Failed))
	s := r.group()
	s.AddFailure(0)
	s.SetFailures(1, 9) // most of them by other runs
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := r.resume()
	if err != nil {
		t.Fatal(err)
	}
	for block, want := range []uint32{1, 9} {
		if n, err := c.flusher.stores[0].FailureCount(int64(block)); n != want || err != nil {
			t.Errorf("block %d has failed %d times (%v), want %d", block, n, err, want)
		}
	}
}

func TestTrackingThatIsNotWhatTheRunHadIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(group string) error
		want string
	}{
		"gone": {os.RemoveAll, "is gone"},
		"empty": {func(group string) error {
			if err := os.RemoveAll(group); err != nil {
				return err
			}
			return os.Mkdir(group, 0o700)
		}, "is gone"},
		"cut short": {func(group string) error { return os.Truncate(filepath.Join(group, "done", "c", "0"), 1) }, "it has 1 bytes"},
		"another layout": {func(group string) error {
			path := filepath.Join(group, "zarr.json")
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var meta struct {
				Attributes struct {
					Hash string `json:"daisy_task_hash"`
				}
			}
			if err := json.Unmarshal(data, &meta); err != nil {
				return err
			}
			return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), meta.Attributes.Hash, strings.Repeat("0", len(meta.Attributes.Hash)))), 0o600)
		}, "another layout of blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPastRun(t, 3, nil, joined, ended(0, scheduler.Success))
			group := filepath.Join(r.job.Tracking, "a")
			if err := os.CopyFS(group+"-kept", os.DirFS(group)); err != nil {
				t.Fatal(err)
			}
			if err := c.harm(group); err != nil {
				t.Fatal(err)
			}
			_, err := r.resume()
			if err == nil {
				t.Fatal("it goes on")
			}
			for _, want := range []string{`task "a"`, group, c.want, "back, or start a new run"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: there is no %q", err, want)
				}
			}
			// The way out that it names is one.
			if err := os.RemoveAll(group); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(group+"-kept", group); err != nil {
				t.Fatal(err)
			}
			if _, err := r.resume(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTrackingIsMadeIfTheRunHadNotBegunYet(t *testing.T) {
	r := newPastRun(t, 3, nil)
	if err := os.RemoveAll(r.job.Tracking); err != nil {
		t.Fatal(err)
	}
	// The journal of the life that died has no record.
	files, err := filepath.Glob(filepath.Join(r.dir.JournalDir(), "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.resume(); err != nil {
		t.Error(err)
	}
}

func TestAResultInTheOutboxCountsForItsWorkerEvenIfNobodyWroteDownThatItHadJoined(t *testing.T) {
	for name, records := range map[string][]engine.Record{"known": {joined}, "unknown": nil} {
		t.Run(name, func(t *testing.T) {
			r := newPastRun(t, 3, nil, records...)
			data, err := json.Marshal(api.Undelivered{
				Version: api.UndeliveredVersion, RunID: r.dir.RunID(), Worker: "1.0", Nonce: 7, Seq: 1, Epoch: 1, Lease: 3, Task: "a", Block: 2, Attempt: 1,
				Outcome: "success", WallNanos: 5e9,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(r.dir.OutboxDir(), "1.0-7-1.json"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			for life := range 2 { // it counts once
				c, err := New(Config{Job: r.job, RunDir: r.dir, Resume: true, Unlimited: true})
				if err != nil {
					t.Fatal(err)
				}
				r.wantMarks(life > 0, "before the result is in the journal")
				c.Stop(engine.StopNow, "enough")
				result, err := c.Run(t.Context())
				r.wantMarks(true, "afterwards")
				if err != nil {
					t.Fatal(err)
				}
				task, workers := result.Stats.Tasks[0], result.Stats.Workers
				if task.Success != 1 || task.Processed != 1 {
					t.Errorf("life %d: success %d, processed %d", life, task.Success, task.Processed)
				}
				if len(workers) != 1 || workers[0].ID != "1.0" || workers[0].Processed != 1 || workers[0].IdleSeconds > 1 {
					t.Errorf("life %d: the workers are %+v", life, workers)
				}
			}
		})
	}
}

// It counts at the begin of the life that finds it, however many there were before.
func TestAResultInTheOutboxDoesNotMakeItsTaskLonger(t *testing.T) {
	at := func(block int64, at time.Duration) engine.Record {
		r := ended(block, scheduler.Success)
		r.At = at.Microseconds()
		return r
	}
	r := newPastRun(t, 3, nil, joined, at(0, time.Hour))
	p, err := r.job.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	again := engine.Record{Kind: engine.RecordStart, Epoch: 2, Tasks: []engine.TaskRecord{engine.TaskRecordOf(&p.Tasks()[0])}}
	epoch, err := r.dir.NextEpoch()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Create(r.dir.JournalDir(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []engine.Record{again, at(1, time.Minute)} {
		j.Append(record.Append(nil))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(api.Undelivered{
		Version: api.UndeliveredVersion, RunID: r.dir.RunID(), Worker: "1.0", Nonce: 7, Seq: 1, Epoch: 2, Lease: 3, Task: "a", Block: 2, Attempt: 1,
		Outcome: "success", WallNanos: 5e9,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir.OutboxDir(), "1.0-7-1.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		c, err := New(Config{Job: r.job, RunDir: r.dir, Resume: true, Unlimited: true})
		if err != nil {
			t.Fatal(err)
		}
		c.Stop(engine.StopNow, "enough")
		result, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if wall := *result.Stats.Tasks[0].WallSeconds; wall < 60 || wall > 120 {
			t.Errorf("life %d: from the end of the first block to that of the last it took %g s, want a minute", life, wall)
		}
	}
}

func TestWhatBlocksHaveUsedIsBroughtUpToTheJournalAndTheOutbox(t *testing.T) {
	second := func(block int64, o scheduler.Outcome, read int64) engine.Record {
		r := ended(block, o)
		r.Use = engine.Use{WallNanos: 1e9, CPUNanos: 5e8, PeakRSSBytes: 4096, ReadBytes: read, WrittenBytes: 1}
		r.Use.GPU = engine.GPU{Measured: block == 3, MemBytes: 7 * block, Percent: 5 * float32(block)}
		return r
	}
	r := newPastRun(t, 5, nil, joined,
		second(0, scheduler.Failed, 9), second(0, scheduler.Success, 10), second(0, scheduler.Success, 11), // two lives have known of it
		second(1, scheduler.Skipped, 12), second(3, scheduler.Success, 13), second(4, scheduler.Lost, 14))
	r.job.Tasks[0].ResourceTracking = true
	percent, memory := float32(75), int64(1000)
	data, err := json.Marshal(api.Undelivered{
		GPUPercent: &percent, GPUMemBytes: &memory,
		Version: api.UndeliveredVersion, RunID: r.dir.RunID(), Worker: "1.0", Nonce: 7, Seq: 1, Epoch: 1, Lease: 3, Task: "a", Block: 2, Attempt: 1,
		Outcome: "success", WallNanos: 5e9, PeakRSSBytes: 8192, CPUNanos: 1e9, ReadBytes: 15, WrittenBytes: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir.OutboxDir(), "1.0-7-1.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Job: r.job, RunDir: r.dir, Resume: true, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	r.wantCells("io_read_bytes", []uint64{10, 0, 15, 13, 0})
	r.wantCells("wall_seconds", []float32{1, 0, 5, 1, 0})
	r.wantCells("gpu_mem_bytes", []uint64{0, 0, 1000, 21, 0})
	c.Stop(engine.StopNow, "enough")
	result, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := result.Stats.Tasks[0]
	if a.IOReadBytes == nil || a.IOWriteBytes == nil || *a.IOReadBytes != 9+10+12+13+14+15 || *a.IOWriteBytes != 5+2 {
		t.Errorf("the statistics have %v bytes read, %v written", a.IOReadBytes, a.IOWriteBytes)
	}
	if a.GPUUtilPercent == nil || a.PeakGPUMemBytes == nil || *a.GPUUtilPercent != (5*75+1*15)/6. || *a.PeakGPUMemBytes != 1000 {
		t.Errorf("the statistics have %v %% of GPUs, %v bytes", a.GPUUtilPercent, a.PeakGPUMemBytes)
	}
}

// wantCells checks an array of the group; want is a slice of its type.
func (r *pastRun) wantCells(array string, want any) {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.job.Tracking, "a", array, "c", "0"))
	if err != nil {
		r.t.Fatal(err)
	}
	bytes, err := binary.Append(nil, binary.LittleEndian, want)
	if err != nil {
		r.t.Fatal(err)
	}
	if !cmp.Equal(bytes, data) {
		r.t.Errorf("%s: got %x, want %v = %x", array, data, want, bytes)
	}
}

// TestTheLockIsRenewedWhileAResumeTakesItsTime: others shall see that somebody is at it.
func TestTheLockIsRenewedWhileAResumeTakesItsTime(t *testing.T) {
	r := newPastRun(t, 5, nil, joined)
	held := r.group() // so that the resume waits for it, for as long as one that was taken over may need to let go
	defer held.Close()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := New(Config{Job: r.job, RunDir: r.dir, Resume: true, Unlimited: true})
		var locked *tracking.LockedError
		if took := time.Since(began); !errors.As(err, &locked) || took < lettingGo {
			t.Fatalf("after %v: %v", took, err)
		}
	})
	text, err := os.ReadFile(filepath.Join(r.dir.Path(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	var owner rundir.Owner
	if err := json.Unmarshal(text, &owner); err != nil || owner.Counter < 2 || owner.Epoch != 2 {
		t.Errorf("the lock says %s (%v)", text, err)
	}
}

// TestWhatWasSetIsInForceAfterAResumeAndInItsReport over three lives: one in which it is set, one that goes on with it, and one that is given
// another value, which holds from then on.
func TestWhatWasSetIsInForceAfterAResumeAndInItsReport(t *testing.T) {
	set := func(key engine.SettingKey, n int64) engine.Record {
		return engine.Record{Kind: engine.RecordSet, State: uint8(key), Count: n, Text: "ada"}
	}
	r := newPastRun(t, 5, nil, set(engine.SetTimeout, int64(time.Hour)), set(engine.SetMaxWorkers, 7))
	r.job.Tracking = ""
	r.job.Tasks[0].Timeout, r.job.Tasks[0].MaxWorkers = time.Minute, 2
	live := func(given ...string) (limits engine.TaskLimits, s api.Stats) {
		t.Helper()
		c, err := New(Config{Job: r.job, RunDir: r.dir, Resume: true, Unlimited: true, Set: given, Notice: func(line string) { t.Log(line) }})
		if err != nil {
			t.Fatal(err)
		}
		limits = c.engine.Limits().Tasks[0]
		if told := c.spec(0).TimeoutSeconds; told != limits.Timeout.Seconds() {
			t.Errorf("workers are told of a timeout of %v s, and %v is in force", told, limits.Timeout)
		}
		c.Stop(engine.StopNow, "enough")
		result, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return limits, result.Stats
	}
	limits, s := live()
	if limits != (engine.TaskLimits{MaxWorkers: 7, Timeout: time.Hour}) {
		t.Errorf("after the resume the limits are %+v", limits)
	}
	want := []api.LimitChange{{Key: "task.a.timeout", Was: "1m", Now: "1h", By: "ada"}, {Key: "task.a.max_workers", Was: "2", Now: "7", By: "ada"}}
	if d := cmp.Diff(want, s.Run.Changes); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if x := s.Tasks[0].TimeoutSeconds; x == nil || *x != 3600 {
		t.Errorf("the report has the timeout %v, want 3600 s", x)
	}
	for _, x := range s.Run.Resources {
		if x.Resource == "max_workers" && (x.Asked == nil || *x.Asked != 7) {
			t.Errorf("the report has %v workers, want 7", x.Asked)
		}
	}

	r.job.Tasks[0].Timeout = 2 * time.Minute // by --set
	if limits, s = live("task.a.timeout", "task.a.max_retries", "run.resources"); limits != (engine.TaskLimits{MaxWorkers: 7, Timeout: 2 * time.Minute}) || len(s.Run.Changes) != 1 {
		t.Errorf("with another timeout the limits are %+v, and changes %+v", limits, s.Run.Changes)
	}
	r.job.Tasks[0].Timeout = time.Minute // the job as it was
	if limits, _ = live(); limits != (engine.TaskLimits{MaxWorkers: 7, Timeout: 2 * time.Minute}) {
		t.Errorf("in the life after that the limits are %+v", limits)
	}
}
