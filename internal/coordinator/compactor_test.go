package coordinator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/scheduler"
)

// A longRun is a coordinator of which there is but the journal: its records are made up.
type longRun struct {
	*Coordinator
	t   testing.TB
	all *fold // of every record
	n   int64 // attempts
}

func newLongRun(t testing.TB, blocks, segment int64, resourceTracking bool) *longRun {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "long", "")
	if err != nil {
		t.Fatal(err)
	}
	task := lineTask(t, "a", blocks, 1)
	task.ResourceTracking = resourceTracking
	j := &job.Job{Name: "long", Tasks: []job.Task{task}}
	if resourceTracking {
		j.Tracking = t.TempDir()
	}
	c := &Coordinator{cfg: Config{Job: j, RunDir: dir, Notice: func(string) {}}, epoch: 1}
	if c.pipeline, err = j.Pipeline(); err != nil {
		t.Fatal(err)
	}
	if c.epoch, err = dir.NextEpoch(); err != nil {
		t.Fatal(err)
	}
	if c.journal, err = journal.Create(dir.JournalDir(), c.epoch, journal.WithCheck(c.mine), journal.WithSegmentBytes(segment)); err != nil {
		t.Fatal(err)
	}
	stores, err := c.openTracking()
	if err != nil {
		t.Fatal(err)
	}
	c.flusher = newFlusher(c.journal, stores, newInbox())
	r := &longRun{c, t, newFold(j, c.pipeline), 0}
	r.add(engine.Record{Kind: engine.RecordStart, Epoch: c.epoch, Tasks: []engine.TaskRecord{engine.TaskRecordOf(&c.pipeline.Tasks()[0])}})
	r.add(joined)
	return r
}

func (r *longRun) add(record engine.Record) {
	r.t.Helper()
	r.journal.Append(record.Append(nil))
	if err := r.all.add(&record, nil); err != nil {
		r.t.Fatal(err)
	}
}

// work ends attempts: of sixteen, one fails, one is lost, and the others succeed, of blocks all over the task.
func (r *longRun) work(attempts int64) {
	r.t.Helper()
	blocks := r.pipeline.Tasks()[0].Grid.Len()
	for range attempts {
		r.n++
		o := scheduler.Success
		switch r.n % 16 {
		case 3:
			o = scheduler.Failed
		case 9:
			o = scheduler.Lost
		}
		end := ended(r.n*7919%blocks, o)
		end.Lease, end.Attempt, end.At, end.Held = uint64(r.n), 1, r.n*100, 90
		end.Use = engine.Use{WallNanos: 1000 * (r.n % 1000), CPUNanos: 500 * (r.n % 1000), PeakRSSBytes: 1 << 20}
		r.add(end)
	}
	if _, err := r.journal.Commit(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *longRun) size() (bytes int64, snapshots int) {
	r.t.Helper()
	entries, err := os.ReadDir(r.cfg.RunDir.JournalDir())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			r.t.Fatal(err)
		}
		bytes += info.Size()
		if strings.HasPrefix(e.Name(), "snapshot-") {
			snapshots++
		}
	}
	return bytes, snapshots
}

// wantAll checks that what a resume would read is what all records say.
func (r *longRun) wantAll() {
	r.t.Helper()
	f := newFold(r.cfg.Job, r.pipeline)
	if _, err := f.read(r.cfg.RunDir.JournalDir(), nil); err != nil {
		r.t.Fatal(err)
	}
	if !reflect.DeepEqual(f.past, r.all.past) {
		r.t.Error("what became of the blocks is not what all records say")
	}
	got, err1 := f.recorder.State()
	want, err2 := r.all.recorder.State()
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		r.t.Errorf("the statistics are %s (%v), want %s (%v)", got, err1, want, err2)
	}
	if !reflect.DeepEqual(f.mishaps.state(), r.all.mishaps.state()) {
		r.t.Error("the latest bad ends are not what all records say")
	}
}

// noRest is for a test: it has nothing else to do.
func noRest(time.Duration) time.Duration { return 0 }

func TestACompactionTakesLittleOfACoreUntilTheJournalIsLarge(t *testing.T) {
	const segment = 16 << 20
	for _, c := range []struct {
		closed, segment int64
		want            float64
	}{
		{0, segment, 1.0 / 64},
		{segment, segment, 1.0 / 64},
		{1 << 30, segment, 1.0 / 64},
		{5 << 29, segment, (1 + 1.0/64) / 2},
		{4 << 30, segment, 1},
		{100 << 30, segment, 1},
		{64 << 20, 1 << 20, 1.0 / 64}, // smaller segments, a smaller journal
		{256 << 20, 1 << 20, 1},
	} {
		if got := share(c.closed, c.segment); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("with %d MiB in closed segments of %d MiB: %v of a core, want %v", c.closed>>20, c.segment>>20, got, c.want)
		}
	}
	for closed, before := int64(0), 0.0; closed <= 5<<30; closed += 1 << 24 {
		now := share(closed, segment)
		if now < before {
			t.Fatalf("with %d MiB it takes %v of a core, with less it took %v", closed>>20, now, before)
		}
		before = now
	}
}

func TestACompactionRestsByWhatTheJournalHasNow(t *testing.T) {
	const segment = 1 << 10
	r := newLongRun(t, 100, segment, false)
	if got := r.restAfter(time.Millisecond); got != 63*time.Millisecond {
		t.Errorf("with a small journal it rests for %v after a millisecond, want 63ms", got)
	}
	for r.journal.Closed().Bytes() < 300*segment {
		r.work(100)
	}
	if got := r.restAfter(time.Millisecond); got != 0 {
		t.Errorf("with a large journal it rests for %v after a millisecond, want none", got)
	}
}

func TestAJournalOfMillionsOfAttemptsStaysSmallAndSaysAll(t *testing.T) {
	attempts := int64(1_000_000)
	if testing.Short() {
		attempts /= 5
	}
	const segment = 1 << 20
	r := newLongRun(t, attempts/2, segment, false)
	var most int64
	for r.n < attempts {
		r.work(10_000)
		if r.journal.Overgrown() {
			if err := r.compact(t.Context(), noRest); err != nil {
				t.Fatal(err)
			}
		}
		size, _ := r.size()
		most = max(most, size)
	}
	size, snapshots := r.size()
	if snapshots != 1 || most > 24*segment || r.journal.Size() < 4*most && !testing.Short() {
		t.Errorf("of a journal of %d bytes, %d are there, and at most %d were; with %d snapshots", r.journal.Size(), size, most, snapshots)
	}
	r.wantAll()
}

func TestACompactionThatIsEndedChangesNothing(t *testing.T) {
	r := newLongRun(t, 100, 1<<10, false)
	r.work(foldAtOnce + 100)
	before, _ := r.size()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.compact(ctx, noRest); !errors.Is(err, context.Canceled) {
		t.Errorf("compact: %v", err)
	}
	if size, snapshots := r.size(); size != before || snapshots != 0 {
		t.Errorf("%d bytes and %d snapshots, want %d and none", size, snapshots, before)
	}
	r.wantAll()
}

// TestWhatBlocksHaveUsedIsInTrackingBeforeItsRecordsGo: marks come late, and after a crash nothing but tracking would know.
func TestWhatBlocksHaveUsedIsInTrackingBeforeItsRecordsGo(t *testing.T) {
	r := newLongRun(t, 10, 100, true)
	end := ended(3, scheduler.Success)
	end.Use = engine.Use{WallNanos: 5e9, CPUNanos: 1, PeakRSSBytes: 77}
	r.add(end)
	for range 3 { // full segments
		r.work(1)
	}
	if err := r.compact(t.Context(), noRest); err != nil {
		t.Fatal(err)
	}
	if _, snapshots := r.size(); snapshots != 1 {
		t.Fatalf("%d snapshots", snapshots)
	}
	chunk, err := os.ReadFile(filepath.Join(r.cfg.Job.Tracking, "a", "wall_seconds", "c", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(chunk[4*3:])); got != 5 {
		t.Errorf("tracking says that block 3 took %v s, want 5", got)
	}
}

// TestARunCompactsItsJournalAndIsResumedFromIt runs blocks that take no time over TCP, cuts the run off, and goes on.
func TestARunCompactsItsJournalAndIsResumedFromIt(t *testing.T) {
	const blocks = 300_000
	dir, err := rundir.Create(t.TempDir(), "long", "")
	if err != nil {
		t.Fatal(err)
	}
	j := benchJob(t, blocks, "")
	j.Listen = "127.0.0.1"
	serve := func(epoch uint64) Result {
		c, err := New(Config{Job: j, RunDir: dir, Listen: true, Unlimited: true, Resume: epoch > 1, SegmentBytes: 64 << 10, Notice: func(line string) { t.Log(line) }})
		if err != nil {
			t.Fatal(err)
		}
		start := make(chan struct{})
		close(start)
		left := make(chan struct{})
		go func() {
			defer close(left)
			_ = dispatchAnd(dir.Path(), int(epoch), 64, start, func(n uint64) { // ends with the run
				if epoch > 1 || n < blocks/2 {
					return
				}
				for found := []string(nil); len(found) == 0 && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
					found, _ = filepath.Glob(filepath.Join(dir.JournalDir(), "snapshot-*.snap")) // comes as slowly as the compactor works
				}
				c.Stop(engine.StopCancel, "cut off")
			})
		}()
		r, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-left
		return r
	}
	cut := serve(1).Stats.Tasks[0]
	if found, _ := filepath.Glob(filepath.Join(dir.JournalDir(), "snapshot-*.snap")); len(found) != 1 {
		t.Fatalf("snapshots %v after %d blocks", found, cut.Success)
	}
	if _, err := os.Stat(filepath.Join(dir.JournalDir(), "journal-000001-000001.log")); err == nil {
		t.Error("the first segment is there beside the snapshot")
	}
	last := serve(2)
	task := last.Stats.Tasks[0]
	if task.Success != blocks || task.Processed != blocks || task.State != "done" || cut.Success < 1000 {
		t.Errorf("%d of %d blocks succeeded, with %d valid returns; %d before the cut; %s", task.Success, blocks, task.Processed, cut.Success, last.Reason)
	}
	n := 0.0
	for _, bin := range task.BlockSeconds.Histogram {
		n += bin[1]
	}
	if n != blocks {
		t.Errorf("the statistics know %v blocks", n)
	}
}

// BenchmarkFold reads the journal of a million attempts, as a resume and a compaction do.
func BenchmarkFold(b *testing.B) {
	r := newLongRun(b, 500_000, 1<<20, false)
	const attempts = 1_000_000
	r.work(attempts)
	for b.Loop() {
		f := newFold(r.cfg.Job, r.pipeline)
		if _, err := f.read(r.cfg.RunDir.JournalDir(), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/attempts, "ns/attempt")
}
