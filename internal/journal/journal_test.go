package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustCreate(t testing.TB, dir string, epoch uint64, options ...Option) *Journal {
	t.Helper()
	j, err := Create(dir, epoch, options...)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustCommit(t testing.TB, j *Journal, want uint64) {
	t.Helper()
	got, err := j.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("Commit is durable up to record %d, want %d", got, want)
	}
}

// rotate closes the current segment; the next commit begins another.
func rotate(t interface{ Fatal(...any) }, j *Journal) {
	if _, err := j.Commit(); err != nil {
		t.Fatal(err)
	}
	j.commit.Lock()
	defer j.commit.Unlock()
	if j.current != nil {
		j.leave()
	}
	if err := j.begin(nil); err != nil {
		t.Fatal(err)
	}
}

// replay reads dir and gives each record as "epoch/number text", and a snapshot as its text.
func replay(t testing.TB, dir string) ([]string, Report, error) {
	t.Helper()
	var got []string
	snapshot := WithSnapshot(func(state []byte) error {
		if len(got) > 0 {
			t.Errorf("the snapshot comes after %v", got)
		}
		t.Log("snapshot", string(state))
		return nil
	})
	report, err := Read(dir, func(epoch, seq uint64, record []byte) error {
		got = append(got, fmt.Sprintf("%d/%d %s", epoch, seq, record))
		return nil
	}, snapshot)
	if uint64(len(got)) != report.Records {
		t.Errorf("the report counts %d records, %d were given", report.Records, len(got))
	}
	return got, report, err
}

func wantRecords(t testing.TB, dir string, want ...string) Report {
	t.Helper()
	got, report, err := replay(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("records (-want +got):\n%s", diff)
	}
	return report
}

func TestWhatWasCommittedIsReadInOrderOverSegmentsAndEpochs(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1)
	if got, want := j.Append([]byte("a")), uint64(1); got != want {
		t.Errorf("Append gave number %d, want %d", got, want)
	}
	j.Append([]byte("b"))
	mustCommit(t, j, 2)
	rotate(t, j)
	j.Append(nil) // an empty record is a record
	mustCommit(t, j, 3)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = mustCreate(t, dir, 2, After(Position{1, 3}))
	j.Append([]byte("d"))
	if err := j.Close(); err != nil { // Close commits
		t.Fatal(err)
	}
	report := wantRecords(t, dir, "1/1 a", "1/2 b", "1/3 ", "2/1 d")
	want := Report{Records: 4, Segments: 3, Epochs: 2, First: Position{1, 1}, Last: Position{2, 1}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestWhatWasNotCommittedIsNotThere(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1)
	j.Append([]byte("a"))
	mustCommit(t, j, 1)
	j.Append([]byte("b"))
	wantRecords(t, dir, "1/1 a")
}

func TestOneCommitIsOneWriteAndOneSync(t *testing.T) {
	d := newFaultyDisk()
	j := mustCreate(t, t.TempDir(), 1, OnDisk(d))
	d.writes, d.syncs = 0, 0
	for range 1000 {
		j.Append([]byte("record"))
	}
	mustCommit(t, j, 1000)
	if d.writes != 1 || d.syncs != 1 {
		t.Errorf("%d writes and %d syncs, want 1 and 1", d.writes, d.syncs)
	}
	mustCommit(t, j, 1000)
	if d.writes != 1 || d.syncs != 1 {
		t.Errorf("a commit of nothing wrote: %d writes and %d syncs", d.writes, d.syncs)
	}
}

func TestASegmentThatIsFullIsFollowedByAnother(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1, WithSegmentBytes(200))
	var want []string
	for i := range 20 {
		text := fmt.Sprintf("record number %d", i+1)
		j.Append([]byte(text))
		mustCommit(t, j, uint64(i+1))
		want = append(want, fmt.Sprintf("1/%d %s", i+1, text))
	}
	if report := wantRecords(t, dir, want...); report.Segments < 3 {
		t.Errorf("%d segments, want several", report.Segments)
	}
	var total int64
	files, _, _, _ := list(osDisk{}, dir)
	for _, f := range files {
		info, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if got := j.Size(); got != total {
		t.Errorf("Size is %d, the files hold %d bytes", got, total)
	}
}

func TestAppendGoesOnWhileAnotherGoroutineCommits(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1, WithSegmentBytes(1<<12))
	const n = 5000
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range n {
			if got, want := j.Append(fmt.Appendf(nil, "%d", i+1)), uint64(i+1); got != want {
				t.Errorf("record number %d, want %d", got, want)
				return
			}
		}
	})
	wg.Go(func() {
		var last uint64
		for {
			upTo, err := j.Commit()
			if err != nil || upTo < last {
				t.Errorf("Commit: %d after %d, %v", upTo, last, err)
				return
			}
			last = upTo
			select {
			case <-done:
				return
			default:
			}
		}
	})
	wg.Wait()
	mustCommit(t, j, n)
	got, _, err := replay(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range got {
		if want := fmt.Sprintf("1/%d %d", i+1, i+1); g != want {
			t.Fatalf("record %q, want %q", g, want)
		}
	}
	if len(got) != n {
		t.Errorf("%d records, want %d", len(got), n)
	}
}

func TestAnEpochCanBeBegunOnlyOnce(t *testing.T) {
	dir := t.TempDir()
	first := mustCreate(t, dir, 4)
	_, err := Create(dir, 4)
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "another coordinator has begun this epoch already") {
		t.Errorf("second Create: %v", err)
	}
	first.Append([]byte("a")) // it goes on
	mustCommit(t, first, 1)
	wantRecords(t, dir, "4/1 a")
	if _, err := Create(dir, 0); err == nil {
		t.Error("epoch 0 was accepted")
	}
}

func TestWhatWaitsIsWhatTheNextCommitMakesDurable(t *testing.T) {
	var failure error
	j := mustCreate(t, t.TempDir(), 1, WithCheck(func() error { return failure }))
	defer j.Close()
	before := j.Size()
	j.Append([]byte("one"))
	failure = errors.New("not now")
	if _, err := j.Commit(); err == nil {
		t.Fatal("the check was not asked")
	}
	j.Append([]byte("two"))
	waiting := j.Waiting()
	failure = nil
	mustCommit(t, j, 2)
	// A batch has a header besides.
	if grown := j.Size() - before; waiting <= 0 || grown != waiting+batchHeaderSize || j.Waiting() != 0 {
		t.Errorf("%d bytes waited, the journal grew by %d, %d wait still", waiting, grown, j.Waiting())
	}
}

func TestACheckThatFailsStopsTheCommitBeforeAnythingIsWritten(t *testing.T) {
	dir := t.TempDir()
	var taken error
	j := mustCreate(t, dir, 1, WithCheck(func() error { return taken }))
	j.Append([]byte("a"))
	mustCommit(t, j, 1)
	taken = errors.New("taken over by epoch 2")
	j.Append([]byte("b"))
	if upTo, err := j.Commit(); err != taken || upTo != 1 {
		t.Errorf("Commit: %d, %v", upTo, err)
	}
	wantRecords(t, dir, "1/1 a")
}

func TestAWriterThatWasTakenOverAddsNothing(t *testing.T) {
	dir := t.TempDir()
	old := mustCreate(t, dir, 1)
	old.Append([]byte("a"))
	mustCommit(t, old, 1)
	_, report, err := replay(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	old.Append([]byte("too late"))
	mustCommit(t, old, 2)
	next := mustCreate(t, dir, 2, After(report.Last))
	old.Append([]byte("later still"))
	mustCommit(t, old, 3)
	next.Append([]byte("b"))
	mustCommit(t, next, 1)
	report = wantRecords(t, dir, "1/1 a", "2/1 b")
	if len(report.Cut) != 1 || report.Cut[0].Reason != "a later segment continues before it" {
		t.Errorf("cut: %v", report.Cut)
	}
	// An epoch of which the next saw nothing at all is left out as a whole.
	skipped := mustCreate(t, dir, 3)
	skipped.Append([]byte("unseen"))
	last := mustCreate(t, dir, 4, After(Position{2, 1}))
	mustCommit(t, skipped, 1)
	last.Append([]byte("c"))
	mustCommit(t, last, 1)
	wantRecords(t, dir, "1/1 a", "2/1 b", "4/1 c")
}

func TestAReaderBesideALiveWriterGetsAPrefix(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1, WithSegmentBytes(300), OnDisk(newCrashDisk(dir)))
	const n = 400
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			j.Append([]byte("a record of some length"))
			if _, err := j.Commit(); err != nil {
				t.Error(err)
			}
		}
	}()
	for last := uint64(0); last < n; {
		report, err := Read(dir, func(epoch, seq uint64, _ []byte) error { return nil })
		if err != nil || report.Records != report.Last.Record || report.Records < last {
			t.Fatalf("%+v (%v), after %d records", report, err, last)
		}
		last = report.Records
	}
	<-done
}

func TestReadHoldsOneSegmentInMemory(t *testing.T) {
	dir := t.TempDir()
	const segment = 1 << 20
	j := mustCreate(t, dir, 1, WithSegmentBytes(segment))
	for i := range uint64(10) {
		j.Append(make([]byte, segment))
		mustCommit(t, j, i+1)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report, err := Read(dir, func(_, _ uint64, _ []byte) error { return nil })
	runtime.ReadMemStats(&after)
	if err != nil || report.Segments != 10 {
		t.Fatalf("%d segments, %v", report.Segments, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 3*segment { // the race detector makes some twice
		t.Errorf("%d bytes were allocated for 10 segments of %d bytes", got, segment)
	}
}

func TestARecordThatIsTooLargeIsAnErrorOfEveryCommit(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1)
	j.Append([]byte("a"))
	if got := j.Append(make([]byte, MaxRecord+1)); got != 0 {
		t.Errorf("number %d, want 0", got)
	}
	for range 2 {
		upTo, err := j.Commit()
		if upTo != 1 || err == nil || !strings.Contains(err.Error(), "at most 67108864 are allowed") {
			t.Errorf("Commit: %d, %v", upTo, err)
		}
	}
	wantRecords(t, dir, "1/1 a")
}

func TestAnErrorOfTheReaderEndsTheReading(t *testing.T) {
	dir := t.TempDir()
	j := mustCreate(t, dir, 1)
	j.Append([]byte("a"))
	j.Append([]byte("b"))
	mustCommit(t, j, 2)
	stop := errors.New("stop")
	report, err := Read(dir, func(_, seq uint64, _ []byte) error { return stop })
	if err != stop || report.Records != 1 {
		t.Errorf("Read: %+v, %v", report, err)
	}
}

func TestAFullDiskIsNamedAndNothingIsLostWhenSpaceIsBack(t *testing.T) {
	for _, fault := range []struct {
		name string
		set  func(*faultyDisk, error)
		err  error
	}{
		{"write takes nothing", func(d *faultyDisk, err error) { d.write, d.part = err, 0 }, syscall.ENOSPC},
		{"write takes a part", func(d *faultyDisk, err error) { d.write, d.part = err, 17 }, syscall.EDQUOT},
		{"write takes all but says no", func(d *faultyDisk, err error) { d.write, d.part = err, 1<<20 }, syscall.EIO},
		{"sync", func(d *faultyDisk, err error) { d.sync = err }, syscall.EIO},
		{"sync, and the file cannot be cut", func(d *faultyDisk, err error) { d.sync, d.truncate = err, err }, syscall.EIO},
	} {
		t.Run(fault.name, func(t *testing.T) {
			dir := t.TempDir()
			d := newFaultyDisk()
			j := mustCreate(t, dir, 1, OnDisk(d))
			j.Append([]byte("a"))
			mustCommit(t, j, 1)
			fault.set(d, fault.err)
			j.Append([]byte("b"))
			for range 3 { // also the segments that are tried in its place
				upTo, err := j.Commit()
				if upTo != 1 || !errors.Is(err, fault.err) || !strings.Contains(err.Error(), filepath.Join(dir, "journal-000001-")) {
					t.Fatalf("Commit: %d, %v; want 1 and %v with the file's name", upTo, err, fault.err)
				}
				got, _, err := replay(t, dir)
				if err != nil || len(got) == 0 || got[0] != "1/1 a" {
					t.Fatalf("the durable part while the disk is full: %v, %v", got, err)
				}
			}
			j.Append([]byte("c"))
			fault.set(d, nil)
			d.truncate = nil
			mustCommit(t, j, 3)
			j.Append([]byte("d"))
			mustCommit(t, j, 4)
			wantRecords(t, dir, "1/1 a", "1/2 b", "1/3 c", "1/4 d")
		})
	}
}

func TestADirectoryThatCannotBeWrittenIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	if _, err := Create(dir, 1); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Create: %v", err)
	}
	if _, err := Read(dir, nil); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Read: %v", err)
	}
}

// faultyDisk is a real disk whose operations fail when told so.
type faultyDisk struct {
	osDisk
	write, sync, truncate error
	part                  int // bytes that a failing write takes
	writes, syncs         int
}

func newFaultyDisk() *faultyDisk { return &faultyDisk{} }

func (d *faultyDisk) Create(path string) (File, error) {
	f, err := d.osDisk.Create(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{d, f}, nil
}

type faultyFile struct {
	d *faultyDisk
	File
}

func (f *faultyFile) Write(b []byte) (int, error) {
	f.d.writes++
	if f.d.write != nil {
		n, _ := f.File.Write(b[:min(f.d.part, len(b))])
		return n, f.d.write
	}
	return f.File.Write(b)
}

func (f *faultyFile) Sync() error {
	f.d.syncs++
	if f.d.sync != nil {
		return f.d.sync
	}
	return f.File.Sync()
}

func (f *faultyFile) Truncate(n int64) error {
	if f.d.truncate != nil {
		return f.d.truncate
	}
	return f.File.Truncate(n)
}
