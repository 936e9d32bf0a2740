package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// compact makes a snapshot of the closed segments that says what their records said.
func compact(t testing.TB, j *Journal) error {
	t.Helper()
	at := j.Closed()
	state, err := readState(j.dir, Until(at))
	if err != nil {
		t.Fatal(err)
	}
	return j.Compact(at, state)
}

// readState is all records of a journal, those of its snapshot too, as text.
func readState(dir string, options ...ReadOption) (state []byte, err error) {
	options = append(options, WithSnapshot(func(s []byte) error { state = bytes.Clone(s); return nil }))
	_, err = Read(dir, func(epoch, seq uint64, record []byte) error {
		state = fmt.Appendf(state, "%d/%d %s\n", epoch, seq, record)
		return nil
	}, options...)
	return state, err
}

func wantState(t testing.TB, dir, want string) {
	t.Helper()
	if got, err := readState(dir); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func names(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// diskUse is how many bytes a journal has.
func diskUse(t testing.TB, dir string) (total int64) {
	t.Helper()
	for _, name := range names(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	return total
}

// twoEpochs is a journal of two epochs, of which the second has closed a segment.
func twoEpochs(t testing.TB, dir string, options ...Option) *Journal {
	t.Helper()
	old := mustCreate(t, dir, 1, options...)
	old.Append([]byte("a"))
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	j := mustCreate(t, dir, 2, append(options, After(Position{1, 1}))...)
	j.Append([]byte("b"))
	rotate(t, j)
	j.Append([]byte("c"))
	mustCommit(t, j, 2)
	return j
}

func TestASnapshotStandsForTheSegmentsBeforeIt(t *testing.T) {
	dir := t.TempDir()
	j := twoEpochs(t, dir)
	if err := compact(t, j); err != nil {
		t.Fatal(err)
	}
	want := []string{"journal-000002-000002.log", "snapshot-000002-000002.snap"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	wantState(t, dir, "1/1 a\n2/1 b\n2/2 c\n")

	// The next epoch builds on it, also where nothing follows, and so does the next snapshot.
	rotate(t, j)
	if err := compact(t, j); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, report, err := replay(t, dir)
	if err != nil || report.Last != (Position{2, 2}) || report.Snapshot != report.Last || report.Records != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	next := mustCreate(t, dir, 3, After(report.Last))
	next.Append([]byte("d"))
	mustCommit(t, next, 1)
	wantState(t, dir, "1/1 a\n2/1 b\n2/2 c\n3/1 d\n")
	if next.Overgrown() {
		t.Error("an epoch that has closed no segment would make a snapshot")
	}
}

func TestWhoCannotReadASnapshotIsToldSo(t *testing.T) {
	dir := t.TempDir()
	if err := compact(t, twoEpochs(t, dir)); err != nil {
		t.Fatal(err)
	}
	_, err := Read(dir, func(_, _ uint64, _ []byte) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "stands for the first records of the journal, which are gone") {
		t.Errorf("got %v", err)
	}
}

// TestACompactionThatIsCutOffAnywhereLosesNothing ends the writer, or has the disk refuse, at each operation in turn.
func TestACompactionThatIsCutOffAnywhereLosesNothing(t *testing.T) {
	for _, fault := range []error{errKilled, syscall.EIO} {
		for _, power := range []bool{false, true} {
			for at := 0; ; at++ {
				dir := filepath.Join(t.TempDir(), "journal")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				d := newCrashDisk(dir)
				j := twoEpochs(t, dir, OnDisk(d))
				n, where := 0, ""
				d.fault = func(op string) error {
					if n++; n == at+1 {
						where = op
						return fault
					}
					return nil
				}
				err := compact(t, j)
				if where == "" {
					if at < 8 || err != nil { // create, writes, sync, rename, sync of the directory, removals
						t.Fatalf("a compaction has %d operations, and ends with %v", n, err)
					}
					d.kill()
					break
				}
				if err == nil && where != "remove" {
					t.Errorf("%v at %s: no error", fault, where)
				}
				if power {
					d.powerFailure(t)
				}
				d.kill()
				state, rerr := readState(dir)
				if want := "1/1 a\n2/1 b\n2/2 c\n"; rerr != nil || string(state) != want {
					t.Fatalf("%v at operation %d (%s), power failure %v: got %q, %v, want %q", fault, at, where, power, state, rerr, want)
				}
				// The next epoch goes on, and compacts what was left.
				d.fault = func(string) error { return nil }
				next := mustCreate(t, dir, 3, After(Position{2, 2}), OnDisk(d))
				next.Append([]byte("d"))
				rotate(t, next)
				if err := compact(t, next); err != nil {
					t.Fatal(err)
				}
				if got, want := names(t, dir), []string{"journal-000003-000002.log", "snapshot-000003-000002.snap"}; !slices.Equal(got, want) {
					t.Fatalf("%v at operation %d (%s): files %v, want %v", fault, at, where, got, want)
				}
				wantState(t, dir, "1/1 a\n2/1 b\n2/2 c\n3/1 d\n")
				d.kill()
			}
		}
	}
}

func TestAWriterThatWasTakenOverCompactsNothing(t *testing.T) {
	dir := t.TempDir()
	var taken error
	old := mustCreate(t, dir, 1, WithCheck(func() error { return taken }))
	old.Append([]byte("a"))
	rotate(t, old)
	_, report, err := replay(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	next := mustCreate(t, dir, 2, After(report.Last))
	next.Append([]byte("b"))
	mustCommit(t, next, 1)
	taken = errors.New("taken over by epoch 2")
	before := names(t, dir)
	if err := old.Compact(old.Closed(), []byte("not true any more")); !errors.Is(err, taken) {
		t.Errorf("Compact: %v", err)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("files %v, before %v", after, before)
	}
	wantRecords(t, dir, "1/1 a", "2/1 b")
}

// TestTheNewestSnapshotCounts: one of an epoch that was taken over may get its name late.
func TestTheNewestSnapshotCounts(t *testing.T) {
	dir := t.TempDir()
	old := mustCreate(t, dir, 1)
	old.Append([]byte("a"))
	rotate(t, old)
	late, err := readState(dir, Until(old.Closed()))
	if err != nil {
		t.Fatal(err)
	}
	next := mustCreate(t, dir, 2, After(Position{1, 1}))
	next.Append([]byte("b"))
	rotate(t, next)
	if err := compact(t, next); err != nil {
		t.Fatal(err)
	}
	if err := old.Compact(old.Closed(), late); err != nil {
		t.Fatal(err)
	}
	wantState(t, dir, "1/1 a\n2/1 b\n")
}

func TestDamageToASnapshotIsFoundAndSaid(t *testing.T) {
	dir := t.TempDir()
	j := twoEpochs(t, dir)
	if err := compact(t, j); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snapshot-000002-000002.snap")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readState(dir)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for bit := range len(whole) * 8 {
		data := bytes.Clone(whole)
		data[bit/8] ^= 1 << (bit % 8)
		refused(fmt.Sprintf("bit %d", bit), data)
	}
	for n := range whole {
		refused(fmt.Sprintf("the first %d bytes", n), whole[:n])
	}
	refused("a byte too many", append(bytes.Clone(whole), 0))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(dir); err == nil || !strings.Contains(err.Error(), "what is before it is missing") {
		t.Errorf("without the snapshot: got %v", err)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "journal-000002-000002.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(dir); err == nil || !strings.Contains(err.Error(), "the snapshot before it goes on with segment 2 of epoch 2, which is missing") {
		t.Errorf("without the segment behind it: got %v", err)
	}
}

func TestGoldenBytesOfASnapshot(t *testing.T) {
	got := slices.Concat(func() [][]byte {
		p := appendSnapshot(Closed{Last: Position{2, 9}, segment: 3}, []byte("ab"))
		return p[:]
	}()...)
	want := "4441495359534e50" + "01000000" + "03000000" + "0200000000000000" + "0900000000000000" + "0200000000000000" + "6162" + "4d890e4e"
	if hex.EncodeToString(got) != want {
		t.Errorf("got  %x\nwant %s", got, want)
	}
}

func TestTheDiskUseOfALongRunIsBounded(t *testing.T) {
	const segment = 2000
	for _, size := range []int{0, segment / 2, 10 * segment} { // of a snapshot
		dir := t.TempDir()
		j := mustCreate(t, dir, 1, WithSegmentBytes(segment))
		made := 0
		for i := range uint64(1500) {
			j.Append(make([]byte, 100))
			mustCommit(t, j, i+1)
			if j.Overgrown() {
				made++
				if err := j.Compact(j.Closed(), make([]byte, size)); err != nil {
					t.Fatal(err)
				}
			}
			total := diskUse(t, dir)
			if most := int64((snapshotsOf+2)*size + 3*segment); total > most {
				t.Fatalf("%d bytes on the disk with snapshots of %d; at most %d are expected", total, size, most)
			}
		}
		// For snapshots much less is written than for records, but for the first one.
		if written := int64(made * size); made == 0 || written > j.Size()/snapshotsOf+int64(size) {
			t.Errorf("%d snapshots of %d bytes for a journal of %d", made, size, j.Size())
		}
	}
}

func TestManyShortLivesLeaveNoMoreThanOneLongOne(t *testing.T) {
	const lives, segment = 60, 4 << 10
	dir := t.TempDir()
	var last Position
	most := int64(0)
	for epoch := range uint64(lives) {
		j := mustCreate(t, dir, epoch+1, After(last), WithSegmentBytes(segment))
		for n := range uint64(3) {
			j.Append(make([]byte, 100))
			mustCommit(t, j, n+1)
			if j.Overgrown() {
				if err := j.Compact(j.Closed(), []byte("all of it")); err != nil {
					t.Fatal(err)
				}
			}
		}
		last = Position{epoch + 1, 3} // the process dies
		most = max(most, diskUse(t, dir))
	}
	if most > 2*segment {
		t.Errorf("%d lives of three small records have at times %d bytes on the disk", lives, most)
	}
}

// A disk that has lost the first bytes of a segment may show there what was in another file before. That was never durable as a part of this one.
func TestWhatAFileHadBeforeASnapshotIsNoDamageOfALaterSegment(t *testing.T) {
	for name, c := range map[string]struct {
		own, damaged bool
	}{
		"of a segment that a snapshot replaced": {false, false},
		"its own, but for the header":           {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := mustCreate(t, dir, 1)
			j.Append([]byte("a"))
			rotate(t, j)
			j.Append([]byte("b"))
			rotate(t, j)
			j.Append([]byte("c"))
			mustCommit(t, j, 3)
			shown, err := os.ReadFile(filepath.Join(dir, "journal-000001-000001.log"))
			if err != nil {
				t.Fatal(err)
			}
			if err := compact(t, j); err != nil {
				t.Fatal(err)
			}
			rotate(t, j)
			j.Append([]byte("d"))
			mustCommit(t, j, 4)
			last := filepath.Join(dir, "journal-000001-000004.log")
			if c.own {
				if shown, err = os.ReadFile(last); err != nil {
					t.Fatal(err)
				}
			}
			copy(shown, "lost sector")
			if err := os.WriteFile(last, shown, 0o600); err != nil {
				t.Fatal(err)
			}
			state, err := readState(dir)
			if damage := (*DamageError)(nil); errors.As(err, &damage) != c.damaged {
				t.Fatalf("read %q, %v", state, err)
			}
		})
	}
}

func FuzzASnapshotOfAnyBytesIsReadOrRefused(f *testing.F) {
	whole := func(state string) []byte {
		p := appendSnapshot(Closed{Last: Position{2, 9}, segment: 3}, []byte(state))
		return slices.Concat(p[:]...)
	}
	f.Add(whole(""))
	f.Add(whole("state"))
	f.Add(whole("state")[:30])
	f.Add([]byte("DAISYSNP"))
	f.Fuzz(func(t *testing.T, data []byte) {
		at, state, err := parseSnapshot(data)
		if err != nil {
			return
		}
		if p := appendSnapshot(at, state); !bytes.Equal(slices.Concat(p[:]...), data) {
			t.Fatal("what was read would be written otherwise")
		}
	})
}

// TestASnapshotHasTheDocumentedBytes: the table of docs/journal.md has the sizes and the order of the fields.
func TestASnapshotHasTheDocumentedBytes(t *testing.T) {
	text, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	state := []byte("the state")
	want := map[string][]byte{
		"`DAISYSNP`": []byte("DAISYSNP"), "version": {1, 0, 0, 0}, "segment": {3, 0, 0, 0}, "epoch": {2, 0, 0, 0, 0, 0, 0, 0}, "record": {9, 0, 0, 0, 0, 0, 0, 0},
		"size": {byte(len(state)), 0, 0, 0, 0, 0, 0, 0}, "state": state,
	}
	parts := appendSnapshot(Closed{Last: Position{2, 9}, segment: 3}, state)
	rest := slices.Concat(parts[:]...)
	rows := regexp.MustCompile("(?m)^\\| (\\d+|size) \\| (`?\\w+`?)").FindAllStringSubmatch(string(text), -1)
	fields := 0
	for _, row := range rows {
		n, err := strconv.Atoi(row[1])
		if err != nil {
			n = len(state)
		}
		// Other rows are of the table of records.
		if b, known := want[row[2]]; (known || row[2] == "checksum") && n <= len(rest) {
			fields++
			if known && !bytes.Equal(rest[:n], b) || !known && n != len(rest) {
				t.Errorf("%s: %d bytes from % x, want % x", row[2], n, rest, b)
			}
			rest = rest[n:]
		}
	}
	if fields != len(want)+1 || len(rest) > 0 {
		t.Errorf("%d fields are documented, and %d bytes are not", fields, len(rest))
	}
}

// A writer that was taken over may still be at it to drop what its snapshot stands for while the next epoch makes durable what there is.
func TestSegmentsThatGoWhileTheNextEpochBeginsAreNotMissed(t *testing.T) {
	dir := t.TempDir()
	old, err := Create(dir, 1, WithSegmentBytes(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		old.Append([]byte("record"))
		if _, err := old.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	disk := &interruptedDisk{before: func() {
		if err := old.Compact(old.Closed(), []byte("state")); err != nil {
			t.Error(err)
		}
	}}
	next, err := Create(dir, 2, OnDisk(disk), After(Position{1, 3}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, segmentName(1, 1))); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the first segment did not go (%v), and this test shows nothing", err)
	}
	next.Append([]byte("of the next epoch"))
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	report, err := Read(dir, func(_, _ uint64, r []byte) error { got = append(got, string(r)); return nil },
		WithSnapshot(func(state []byte) error { got = append(got, string(state)); return nil }))
	if err != nil || got[0] != "state" || got[len(got)-1] != "of the next epoch" {
		t.Errorf("read %q, %+v, %v", got, report, err)
	}
}

// An interruptedDisk has something happen before its first sync.
type interruptedDisk struct {
	osDisk
	before func()
}

func (d *interruptedDisk) Sync(path string) error {
	if f := d.before; f != nil {
		d.before = nil
		f()
	}
	return d.osDisk.Sync(path)
}
