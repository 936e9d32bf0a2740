package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

var errKilled = errors.New("the writer was killed")

// crashDisk is a directory that knows what of it would be left by a power
// failure. Changes of the directory reach the disk in their order, as every
// journaling file system has it. What an fsync that failed was asked for is
// still seen by readers, but no later fsync brings it to the disk.
type crashDisk struct {
	osDisk
	dir     string
	fault   func(op string) error // gives the error of the next operation; nil: it works
	keep    func(n int) int       // of n bytes or changes that nobody synced, how many reach the disk all the same
	killed  bool                  // no operation has an effect any more
	seen    map[string]*crashFile
	synced  map[string]*crashFile
	changes []change // from synced to seen
	open    []File
}

const sector = 512 // bytes that a disk writes as a whole

type change struct {
	path string
	file *crashFile // nil: removed
}

type crashFile struct {
	File
	d      *crashDisk
	seen   []byte
	synced []byte
	dirty  int // from this byte on, what is seen is not synced
}

func newCrashDisk(dir string) *crashDisk {
	return &crashDisk{
		dir: dir, seen: map[string]*crashFile{}, synced: map[string]*crashFile{},
		fault: func(string) error { return nil }, keep: func(int) int { return 0 },
	}
}

func (d *crashDisk) fail(op string) error {
	if d.killed {
		return errKilled
	}
	err := d.fault(op)
	d.killed = err == errKilled
	return err
}

func (d *crashDisk) Create(path string) (File, error) {
	if err := d.fail("create"); err != nil {
		return nil, err
	}
	f, err := osDisk{}.Create(path)
	if err != nil {
		return nil, err
	}
	d.open = append(d.open, f)
	c := &crashFile{File: f, d: d}
	d.change(path, c)
	return c, nil
}

func (d *crashDisk) Remove(path string) error {
	if err := d.fail("remove"); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	d.change(path, nil)
	return nil
}

// Rename: after a power failure both names may be there, but never none.
func (d *crashDisk) Rename(from, to string) error {
	if err := d.fail("rename"); err != nil {
		return err
	}
	f := d.seen[from]
	d.change(to, f)
	d.change(from, nil)
	return os.Rename(from, to)
}

func (d *crashDisk) change(path string, f *crashFile) {
	d.changes = append(d.changes, change{path, f})
	d.seen[path] = f
}

func (d *crashDisk) Sync(string) error {
	if err := d.fail("sync directory"); err != nil {
		return err
	}
	d.apply(len(d.changes))
	return nil
}

// apply brings the first n changes of the directory to the disk.
func (d *crashDisk) apply(n int) {
	for _, c := range d.changes[:n] {
		d.synced[c.path] = c.file
	}
	d.changes = d.changes[n:]
}

func (f *crashFile) Write(b []byte) (int, error) {
	dead := f.d.killed
	err := f.d.fail("write")
	switch {
	case dead:
		return 0, err
	case err != nil:
		b = b[:f.d.keep(len(b))]
	}
	f.seen = append(f.seen, b...)
	n, werr := f.File.Write(b)
	return n, errors.Join(err, werr)
}

func (f *crashFile) Sync() error {
	err := f.d.fail("sync")
	switch err {
	case nil:
		f.arrive(len(f.seen))
	case errKilled:
	default:
		f.arrive(f.dirty + f.d.keep(len(f.seen)-f.dirty))
		f.dirty = len(f.seen)
	}
	return err
}

// arrive brings what is dirty up to byte n to the disk.
func (f *crashFile) arrive(n int) {
	f.synced = f.synced[:min(len(f.synced), f.dirty)]
	f.synced = append(f.synced, make([]byte, f.dirty-len(f.synced))...)
	f.synced = append(f.synced, f.seen[f.dirty:n]...)
	f.dirty = n
}

func (f *crashFile) Truncate(n int64) error {
	if err := f.d.fail("truncate"); err != nil {
		return err
	}
	f.seen = f.seen[:n]
	f.dirty = min(f.dirty, int(n))
	return f.File.Truncate(n)
}

// kill ends the writer; what it wrote is seen by others.
func (d *crashDisk) kill() {
	for _, f := range d.open {
		_ = f.Close()
	}
	d.open, d.killed = nil, false
}

// powerFailure leaves in the directory what was on the disk.
func (d *crashDisk) powerFailure(t interface{ Fatal(...any) }) {
	d.kill()
	d.apply(d.keep(len(d.changes)))
	if err := os.RemoveAll(d.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	left := map[string]*crashFile{}
	for _, path := range slices.Sorted(maps.Keys(d.synced)) { // keep must be asked in one order
		f := d.synced[path]
		if f == nil {
			continue
		}
		rest := f.seen[f.dirty:]
		if len(f.synced) <= f.dirty || d.keep(1) == 1 { // else it was truncated, and the disk does not know
			f.arrive(f.dirty + d.keep(len(rest)))
			switch rest := slices.Clone(f.seen[f.dirty:]); d.keep(2) {
			case 1: // the file has its length, and no data yet
				f.synced = append(f.synced, make([]byte, len(rest))...)
			case 2: // sectors came before those ahead of them
				clear(rest[:max(0, min(len(rest), (f.dirty/sector+d.keep(len(rest)/sector))*sector-f.dirty))])
				f.synced = append(f.synced, rest...)
			}
		}
		if err := os.WriteFile(path, f.synced, 0o600); err != nil {
			t.Fatal(err)
		}
		left[path] = &crashFile{d: d, seen: f.synced, synced: slices.Clone(f.synced), dirty: len(f.synced)}
	}
	d.seen, d.synced, d.changes = left, map[string]*crashFile{}, nil
	for path, f := range left {
		d.synced[path] = f
	}
}

func TestASegmentThatWasCommittedToIsThereAfterAPowerFailure(t *testing.T) {
	dir := t.TempDir()
	d := newCrashDisk(dir)
	j := mustCreate(t, dir, 1, OnDisk(d), WithSegmentBytes(100))
	var want []string
	for i := range uint64(6) {
		if i == 3 {
			rotate(t, j)
		}
		j.Append([]byte("record"))
		mustCommit(t, j, i+1)
		want = append(want, fmt.Sprintf("1/%d record", i+1))
	}
	d.powerFailure(t)
	if report := wantRecords(t, dir, want...); report.Segments < 3 {
		t.Errorf("%d segments, want some that were full and one that was closed early", report.Segments)
	}
}

func TestWhatACommitCouldNotSyncIsNotBuiltOn(t *testing.T) {
	dir := t.TempDir()
	d := newCrashDisk(dir)
	j := mustCreate(t, dir, 1, OnDisk(d))
	j.Append([]byte("a"))
	mustCommit(t, j, 1)
	j.Append([]byte("b"))
	d.fault = func(op string) error {
		if op == "sync" {
			return syscall.EIO
		}
		return nil
	}
	if _, err := j.Commit(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Commit: %v", err)
	}
	d.kill()
	d.fault = func(string) error { return nil }
	report := wantRecords(t, dir, "1/1 a")
	mustCreate(t, dir, 2, OnDisk(d), After(report.Last))
	d.powerFailure(t)
	wantRecords(t, dir, "1/1 a")
}

func TestWhatAKilledWriterDidNotSyncIsOnTheDiskBeforeItIsBuiltOn(t *testing.T) {
	for _, killedAt := range []string{"sync", "sync directory"} { // of a batch; of a new segment
		t.Run(killedAt, func(t *testing.T) {
			dir := t.TempDir()
			d := newCrashDisk(dir)
			j := mustCreate(t, dir, 1, OnDisk(d), WithSegmentBytes(map[string]int64{"sync": 1 << 20, "sync directory": 1}[killedAt]))
			j.Append([]byte("a"))
			d.fault = func(op string) error {
				if op == killedAt {
					return errKilled
				}
				return nil
			}
			if _, err := j.Commit(); !errors.Is(err, errKilled) {
				t.Fatalf("Commit: %v", err)
			}
			d.kill()
			d.fault = func(string) error { return nil }
			report := wantRecords(t, dir, "1/1 a")
			next := mustCreate(t, dir, 2, OnDisk(d), After(report.Last))
			next.Append([]byte("b"))
			mustCommit(t, next, 1)
			d.powerFailure(t)
			wantRecords(t, dir, "1/1 a", "2/1 b")
		})
	}
}

// lostSync is a disk that shows a record b, the sync of which has failed: its writer was killed before it could cut it off.
func lostSync(t *testing.T, dir string) *crashDisk {
	d := newCrashDisk(dir)
	j := mustCreate(t, dir, 1, OnDisk(d))
	j.Append([]byte("a"))
	mustCommit(t, j, 1)
	j.Append([]byte("b"))
	d.fault = func(op string) error {
		switch op {
		case "sync":
			return syscall.EIO
		case "truncate":
			return errKilled
		}
		return nil
	}
	if _, err := j.Commit(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Commit: %v", err)
	}
	d.kill()
	d.fault = func(string) error { return nil }
	return d
}

func TestWhatAFailedSyncHasLostIsWrittenAnewBeforeItIsBuiltOn(t *testing.T) {
	dir := t.TempDir()
	d := lostSync(t, dir)
	report := wantRecords(t, dir, "1/1 a", "1/2 b")
	next := mustCreate(t, dir, 2, OnDisk(d), After(report.Last))
	next.Append([]byte("c"))
	mustCommit(t, next, 1)
	d.powerFailure(t)
	wantRecords(t, dir, "1/1 a", "1/2 b", "2/1 c")
}

func TestAResumeWhoseSyncFailsLeavesNothingThatTheNextOneCouldNotBuildOn(t *testing.T) {
	for _, failing := range []string{"create", "write", "sync", "rename"} {
		t.Run(failing, func(t *testing.T) {
			dir := t.TempDir()
			d := lostSync(t, dir)
			report := wantRecords(t, dir, "1/1 a", "1/2 b")
			d.fault = func(op string) error {
				if op == failing {
					return syscall.EIO
				}
				return nil
			}
			if _, err := Create(dir, 2, OnDisk(d), After(report.Last)); !errors.Is(err, syscall.EIO) {
				t.Fatalf("Create: %v", err)
			}
			d.fault = func(string) error { return nil }
			report = wantRecords(t, dir, "1/1 a", "1/2 b")
			mustCreate(t, dir, 3, OnDisk(d), After(report.Last))
			d.powerFailure(t)
			wantRecords(t, dir, "1/1 a", "1/2 b")
			if left, err := filepath.Glob(filepath.Join(dir, "*"+unfinishedEnd)); len(left) > 0 || err != nil {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}

// TestWhatIsNotThereAnyMoreIsNotBuiltOn: between the reading and the next epoch the kernel needed the memory of bytes that it had not written.
func TestWhatIsNotThereAnyMoreIsNotBuiltOn(t *testing.T) {
	for name, segment := range map[string]int64{"in one segment": 1 << 20, "in the next segment": 1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := mustCreate(t, dir, 1)
			j.Append([]byte("a"))
			mustCommit(t, j, 1)
			path, size := filepath.Join(dir, segmentName(1, 1)), j.Size()
			if j.maxBytes = segment; segment == 1 {
				path, size = filepath.Join(dir, segmentName(1, 2)), 0
			}
			j.Append([]byte("b"))
			mustCommit(t, j, 2)
			report := wantRecords(t, dir, "1/1 a", "1/2 b")
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			if _, err := Create(dir, 2, After(report.Last)); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "Resume again") {
				t.Fatalf("Create: %v", err)
			}
			report = wantRecords(t, dir, "1/1 a")
			mustCreate(t, dir, 3, After(report.Last))
			wantRecords(t, dir, "1/1 a")
		})
	}
}

// TestWhatCommitReportedOutlivesAnyCrash runs a journal over several epochs
// on a disk that fails now and then, and has it compacted; each epoch ends in a crash at any
// operation. No record goes, and behind the last that was reported some of those that were appended may come.
func TestWhatCommitReportedOutlivesAnyCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inTemp(t, func(temp string) {
			dir := filepath.Join(temp, "journal")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			d := newCrashDisk(dir)
			defer d.kill()
			d.keep = func(n int) int { return rapid.IntRange(0, n).Draw(t, "of what was not synced, kept") }
			var all []Position // that were appended and not left behind by an epoch that builds on less
			var last Position  // that the last Read gave
			must := 0          // of all, those that were reported or built on
			for epoch := uint64(1); epoch <= 4; epoch++ {
				life := rapid.IntRange(0, 60).Draw(t, "operations until the crash")
				trouble := rapid.IntRange(0, 3).Draw(t, "trouble")
				d.fault = func(op string) error {
					if life--; life < 0 {
						return errKilled
					}
					if rapid.IntRange(0, 9).Draw(t, op) < trouble {
						return syscall.EIO
					}
					return nil
				}
				created, durable, appended := liveUntilKilled(t, dir, d, epoch, last)
				if rapid.Bool().Draw(t, "power failure") { // else readers see also what no sync will bring to the disk
					d.powerFailure(t)
				}
				d.kill()
				if created {
					all = all[:slices.Index(all, last)+1]
					must = len(all) + int(durable)
				}
				for seq := uint64(1); seq <= appended; seq++ {
					all = append(all, Position{epoch, seq})
				}
				got, _ := readPositions(t, dir)
				last = Position{}
				if len(got) > 0 {
					last = got[len(got)-1]
				}
				if len(got) < must || !slices.Equal(got, all[:min(len(got), len(all))]) {
					t.Fatalf("epoch %d: read %v\nof %v, of which the first %d must be there", epoch, got, all, must)
				}
			}
		})
	})
}

// liveUntilKilled is the life of one writer.
func liveUntilKilled(t *rapid.T, dir string, d *crashDisk, epoch uint64, last Position) (created bool, durable, appended uint64) {
	j, err := Create(dir, epoch, OnDisk(d), After(last), WithSegmentBytes(rapid.Int64Range(1, 3000).Draw(t, "segment bytes")))
	if err != nil {
		return false, 0, 0
	}
	for !d.killed {
		for range rapid.IntRange(0, 4).Draw(t, "records") {
			long := strings.Repeat(".", rapid.SampledFrom([]int{0, sector, 2 * sector}).Draw(t, "length"))
			appended = j.Append(fmt.Append(nil, Position{epoch, appended + 1}, long))
		}
		upTo, err := j.Commit()
		if upTo < durable || upTo > appended || err == nil && upTo != appended {
			t.Fatalf("Commit is durable up to record %d (%v), after %d; %d were appended", upTo, err, durable, appended)
		}
		durable = upTo
		if at := j.Closed(); at.Last.Record > 0 && !d.killed && rapid.IntRange(0, 5).Draw(t, "compact") == 0 {
			_, state := readPositions(t, dir, Until(at))
			_ = j.Compact(at, state)
		}
	}
	return true, durable, appended
}

// readPositions reads the journal, and makes the state that stands for all that it read.
func readPositions(t *rapid.T, dir string, options ...ReadOption) (got []Position, state []byte) {
	options = append(options, WithSnapshot(func(state []byte) error {
		for line := range strings.Lines(string(state)) {
			var p Position
			if _, err := fmt.Sscanf(line, "%d %d", &p.Epoch, &p.Record); err != nil {
				return err
			}
			got = append(got, p)
		}
		return nil
	}))
	_, err := Read(dir, func(epoch, seq uint64, record []byte) error {
		p := Position{epoch, seq}
		if strings.TrimRight(string(record), ".") != p.String() {
			return fmt.Errorf("%v holds %q", p, record)
		}
		got = append(got, p)
		return nil
	}, options...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range got {
		state = fmt.Appendf(state, "%d %d\n", p.Epoch, p.Record)
	}
	return got, state
}
