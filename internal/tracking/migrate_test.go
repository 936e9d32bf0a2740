package tracking

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/daisy/geom"
	"github.com/google/go-cmp/cmp"
)

func all(int64) bool { return true }

func TestTheArrayOfDaisyBeforeGroupsIsReadAndBecomesAGroup(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	files := goldenGroupsHere(t)[olderArray]
	dir := unpack(t, files)
	want := blocksWith(files["c/0"])
	if len(want) == 0 || len(want) == int(g.Len()) {
		t.Fatalf("the array has the marks %v: nothing is seen with them", want)
	}
	read, err := ReadDone(dir, g)
	if diff := cmp.Diff(want, blocksOf(read)); diff != "" || err != nil {
		t.Errorf("ReadDone: %v, done (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(files, snapshot(t, dir)); diff != "" {
		t.Errorf("ReadDone has changed it (-before +after):\n%s", diff)
	}

	s := mustOpen(t, dir, g)
	if diff := cmp.Diff(want, doneBlocks(t, s)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	s.MarkDone(2)
	s.AddFailure(4)
	mustClose(t, s)
	if diff := cmp.Diff(files, snapshot(t, s.Older())); diff != "" {
		t.Errorf("the array that is kept (-before +after):\n%s", diff)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	f := mustOpen(t, fresh, g)
	for _, b := range append(want, 2) {
		f.MarkDone(b)
	}
	f.AddFailure(4)
	mustClose(t, f)
	if diff := cmp.Diff(snapshot(t, fresh), snapshot(t, dir)); diff != "" {
		t.Errorf("files (-of a group from the beginning +of the one that was an array):\n%s", diff)
	}
}

// blocksWith are the blocks of a task without context whose byte is not 0.
func blocksWith(done []byte) (blocks []int64) {
	for b, v := range done {
		if v != 0 {
			blocks = append(blocks, int64(b))
		}
	}
	return blocks
}

func TestAnOlderArrayThatIsNotCertainIsRefused(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	for name, c := range map[string]struct {
		spoil func(map[string][]byte)
		want  string
	}{
		"other blocks": {func(map[string][]byte) { g = mustGrid(t, lineSpec(50, 25, 0, 0)) }, "was written for another layout of blocks"},
		"the new hash": {func(f map[string][]byte) {
			f["zarr.json"] = bytes.ReplaceAll(f["zarr.json"], []byte(hashOf(arrayPrefix, g)), []byte(Hash(g)))
		}, "was written for another layout of blocks"},
		"another shape": {func(f map[string][]byte) {
			f["zarr.json"] = bytes.Replace(f["zarr.json"], []byte("5\n"), []byte("4\n"), 1)
		}, "DIR/zarr.json: its shape is [4], and the task needs [5]"},
		"a short chunk": {func(f map[string][]byte) { f["c/0"] = f["c/0"][:3] }, "DIR/c/0: it has 3 bytes, and 5 are needed"},
		"compressed": {func(f map[string][]byte) {
			f["zarr.json"] = bytes.Replace(f["zarr.json"], []byte(`"bytes"`), []byte(`"zstd"`), 1)
		}, `DIR/zarr.json: its codec is`},
		"another type": {func(f map[string][]byte) {
			f["zarr.json"] = bytes.Replace(f["zarr.json"], []byte(`"uint8"`), []byte(`"bool"`), 1)
		}, `DIR/zarr.json: its data type is "bool"`},
	} {
		t.Run(name, func(t *testing.T) {
			g = mustGrid(t, lineSpec(50, 10, 0, 0))
			files := goldenGroupsHere(t)[olderArray]
			c.spoil(files)
			dir := unpack(t, files)
			err := readLikeOpen(t, dir, g)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir, "DIR"), c.want) || !strings.Contains(err.Error(), "rm -r '"+dir+"'") {
				t.Errorf("got %v, want %q and the way out", err, c.want)
			}
			if diff := cmp.Diff(files, snapshot(t, dir)); diff != "" {
				t.Errorf("it was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// plane is a task in two dimensions with blocks of 10 by 4 that read 3 and 1 more below, and 2 above on the first axis.
func plane(t *testing.T, total geom.Roi, fit geom.Fit) *geom.Grid {
	t.Helper()
	return mustGrid(t, geom.GridSpec{
		TotalRead: total, Fit: fit,
		Read: geom.Roi{Offset: geom.Coord(-3, -1), Shape: geom.Coord(15, 5)}, Write: geom.Roi{Offset: geom.Coord(0, 0), Shape: geom.Coord(10, 4)},
	})
}

func roi(offset, shape geom.Coordinate) geom.Roi { return geom.Roi{Offset: offset, Shape: shape} }

func TestTheVolumeThatMarksWereWrittenForIsFoundByItsHash(t *testing.T) {
	now := roi(geom.Coord(-3, 7), geom.Coord(83, 61))
	for name, was := range map[string]geom.Roi{
		"the same":                   now,
		"smaller at one end":         roi(geom.Coord(-3, 7), geom.Coord(56, 61)),
		"smaller by less":            roi(geom.Coord(-3, 7), geom.Coord(83, 60)),
		"smaller at both ends":       roi(geom.Coord(-3, 7), geom.Coord(82, 13)),
		"smaller at its begin":       roi(geom.Coord(17, 7), geom.Coord(63, 61)),
		"smaller at begin and ends":  roi(geom.Coord(17, 7), geom.Coord(63, 33)),
		"one block":                  roi(geom.Coord(-3, 7), geom.Coord(15, 5)),
		"smaller at begin, by a bit": roi(geom.Coord(-2, 7), geom.Coord(82, 61)),
		"larger":                     roi(geom.Coord(-3, 7), geom.Coord(84, 61)),
		"elsewhere":                  roi(geom.Coord(-4, 7), geom.Coord(83, 61)),
	} {
		for _, fit := range []geom.Fit{geom.Valid, geom.Overhang, geom.Shrink} {
			t.Run(name+" "+fit.String(), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "group")
				old := plane(t, was, fit)
				mustClose(t, mustOpen(t, dir, old))
				before := snapshot(t, dir)
				found, err := Before(dir, plane(t, now, fit))
				if diff := cmp.Diff(before, snapshot(t, dir)); diff != "" {
					t.Errorf("it was changed (-before +after):\n%s", diff)
				}
				if name == "larger" || name == "elsewhere" || strings.HasSuffix(name, "by a bit") {
					var layout *LayoutError
					if !errors.As(err, &layout) || !strings.Contains(err.Error(), "no smaller volume of the same blocks has that hash") {
						t.Fatalf("got %v, %v", found, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if found.Spec() != old.Spec() {
					t.Errorf("found %v, want %v", found.Spec(), old.Spec())
				}
			})
		}
	}
}

func TestNothingIsFoundWhereTheBlocksAreOthersOrThereAreNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	if found, err := Before(dir, g); found != nil || err != nil {
		t.Errorf("of nothing: %v, %v", found, err)
	}
	mustClose(t, mustOpen(t, dir, g))
	for name, spec := range map[string]geom.GridSpec{
		"block": lineSpec(80, 20, 0, 0), "context": lineSpec(80, 10, 1, 0),
	} {
		if found, err := Before(dir, mustGrid(t, spec)); err == nil {
			t.Errorf("another %s: found %v", name, found.Spec())
		}
	}
	// So many volumes are possible that to try them would take hours.
	huge := mustGrid(t, geom.GridSpec{TotalRead: roi(geom.Fill(3, 1), geom.Fill(3, 3_000_000_001)), Read: roi(geom.Fill(3, 0), geom.Fill(3, 1_000_000_000)), Write: roi(geom.Fill(3, 0), geom.Fill(3, 1_000_000_000))})
	dir = filepath.Join(t.TempDir(), "huge")
	mustClose(t, mustOpen(t, dir, mustGrid(t, geom.GridSpec{TotalRead: roi(geom.Fill(3, 1), geom.Fill(3, 1_234_567_891)), Read: huge.Spec().Read, Write: huge.Spec().Write})))
	if found, err := Before(dir, huge); err == nil || !strings.Contains(err.Error(), "so many smaller volumes") {
		t.Errorf("got %v, %v", found, err)
	}
	// All lengths are now multiples of ten, and were not.
	dir = filepath.Join(t.TempDir(), "odd")
	mustClose(t, mustOpen(t, dir, mustGrid(t, lineSpec(47, 10, 0, 0))))
	if found, err := Before(dir, mustGrid(t, lineSpec(80, 10, 0, 0))); err != nil || found.TotalRead().Shape.At(0) != 47 {
		t.Errorf("got %v, %v", found, err)
	}
	// In units of a voxel there are few.
	unit := func(n int64) geom.Coordinate { return geom.Fill(3, n*10_000_000) }
	task := func(n int64) *geom.Grid {
		return mustGrid(t, geom.GridSpec{TotalRead: roi(unit(0), unit(n)), Read: roi(unit(0), unit(100)), Write: roi(unit(0), unit(100))})
	}
	dir = filepath.Join(t.TempDir(), "units")
	mustClose(t, mustOpen(t, dir, task(123)))
	if found, err := Before(dir, task(301)); err != nil || found.Spec() != task(123).Spec() {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestMigrationCopiesWhatIsKeptToTheSamePlacesOfTheVolume(t *testing.T) {
	for _, fit := range []geom.Fit{geom.Valid, geom.Overhang, geom.Shrink} {
		t.Run(fit.String(), func(t *testing.T) {
			was := plane(t, roi(geom.Coord(17, 7), geom.Coord(63, 33)), fit)
			now := plane(t, roi(geom.Coord(-3, 7), geom.Coord(97, 61)), fit)
			dir := filepath.Join(t.TempDir(), "group")
			s := mustOpen(t, dir, was, WithResources())
			for b := range was.Len() {
				if b%3 != 0 {
					s.MarkDone(b)
					s.SetResources(b, Resources{WallSeconds: float32(b), PeakRSSBytes: uint64(b) << 33})
				}
				for range b % 3 {
					s.AddFailure(b)
				}
			}
			mustClose(t, s)
			before := snapshot(t, dir)

			kept := func(block int64) bool { return block%5 != 0 }
			backup, err := Migrate(dir, was, now, kept)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, snapshot(t, backup)); diff != "" {
				t.Errorf("what was there (-before +backup):\n%s", diff)
			}
			if want := dir + ".before-" + Hash(was)[:8]; backup != want {
				t.Errorf("what was there is in %s, want %s", backup, want)
			}
			s = mustOpen(t, dir, now, WithResources())
			done := doneBlocks(t, s)
			want := map[geom.Coordinate]int64{} // by where the block begins
			for b := range was.Len() {
				want[was.WriteRoi(b).Offset] = b
			}
			for b := range now.Len() {
				old, isOld := want[now.WriteRoi(b).Offset]
				delete(want, now.WriteRoi(b).Offset)
				isKept := isOld && kept(b)
				if got := slices.Contains(done, b); got != (isKept && old%3 != 0) {
					t.Errorf("block %d, which was %d: done %v", b, old, got)
				}
				failures := uint32(0)
				if isKept {
					failures = uint32(old % 3)
				}
				if got, err := s.FailureCount(b); err != nil || got != failures {
					t.Errorf("block %d failed %d times (%v), want %d", b, got, err, failures)
				}
				rss := uint64(0)
				if isKept && old%3 != 0 {
					rss = uint64(old) << 33
				}
				if got := rssOf(t, s, b); got != rss {
					t.Errorf("block %d had %d bytes, want %d", b, got, rss)
				}
			}
			if len(want) != 0 {
				t.Errorf("blocks that are not there any more: %v", want)
			}
		})
	}
}

func rssOf(t *testing.T, s *Store, block int64) uint64 {
	t.Helper()
	var b [8]byte
	if err := s.resources[slices.Index(resourceArrays[:], "peak_rss_bytes")].readAt(b[:], 8*s.cells.cell(block)); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

func TestASecondMigrationKeepsWhatTheFirstHasKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	s := mustOpen(t, dir, mustGrid(t, lineSpec(50, 10, 0, 0)))
	s.MarkDone(1)
	mustClose(t, s)
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	var backups []string
	for range 3 {
		backup, err := Migrate(dir, g, g, all)
		if err != nil {
			t.Fatal(err)
		}
		backups = append(backups, strings.TrimPrefix(backup, dir))
	}
	if diff := cmp.Diff([]string{".before-67701071", ".before-67701071-2", ".before-67701071-3"}, backups); diff != "" {
		t.Errorf("what was there before (-want +got):\n%s", diff)
	}
	if got := doneBlocks(t, mustOpen(t, dir, g)); !slices.Equal(got, []int64{1}) {
		t.Errorf("done %v", got)
	}
}

func TestMarksThatARunIsWritingAreNotMigrated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	mustOpen(t, dir, g)
	_, err := Migrate(dir, g, mustGrid(t, lineSpec(80, 10, 0, 0)), all)
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Errorf("got %v", err)
	}
}

// dyingDisk fails from its n-th change on, as if the program were killed there; if once, only that one.
type dyingDisk struct {
	osDisk
	left *int
	once bool
}

var errKilled = errors.New("killed")

func (d dyingDisk) step() error {
	*d.left--
	if *d.left == -1 || *d.left < 0 && !d.once {
		return errKilled
	}
	return nil
}

func (d dyingDisk) Mkdir(name string, perm fs.FileMode) error {
	return cmpOr(d.step(), func() error { return d.osDisk.Mkdir(name, perm) })
}

func (d dyingDisk) RemoveAll(name string) error {
	return cmpOr(d.step(), func() error { return d.osDisk.RemoveAll(name) })
}

func (d dyingDisk) Rename(from, to string) error {
	return cmpOr(d.step(), func() error { return d.osDisk.Rename(from, to) })
}

func (d dyingDisk) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&os.O_CREATE != 0 {
		if err := d.step(); err != nil {
			return nil, err
		}
	}
	return d.osDisk.OpenFile(name, flag, perm)
}

func cmpOr(err error, do func() error) error {
	if err != nil {
		return err
	}
	return do()
}

func TestAMigrationThatIsKilledAnywhereLosesNoMarkAndIsNeverTakenForABeginning(t *testing.T) {
	was, now := mustGrid(t, lineSpec(50, 10, 0, 0)), mustGrid(t, lineSpec(80, 10, 0, 0))
	found := map[string]int{}
	for steps := 0; found["migrated"] == 0; steps++ {
		dir := filepath.Join(t.TempDir(), "group")
		s := mustOpen(t, dir, was)
		s.MarkDone(1)
		s.MarkDone(3)
		mustClose(t, s)
		left := steps
		m, err := newStore(dyingDisk{osDisk{flock}, &left, false}, dir, now)
		if err != nil {
			t.Fatal(err)
		}
		_, died := m.replace(was, all)

		old, errOld := ReadDone(dir, was)
		grown, errGrown := ReadDone(dir, now)
		var cut *CutShortError
		switch {
		case errOld == nil && old != nil:
			found["before"]++
			if _, err := Migrate(dir, was, now, all); err != nil {
				t.Errorf("after %d steps it cannot be migrated any more: %v", steps, err)
			}
		case errors.As(errGrown, &cut):
			found["cut short"]++
			if _, err := Open(dir, now); !errors.As(err, &cut) {
				t.Errorf("after %d steps Open takes it for a beginning: %v", steps, err)
			}
			if err := os.Rename(cut.Next, cut.Path); err != nil { // as the message says
				t.Error(err)
			}
		case errGrown == nil && grown != nil:
			found["migrated"]++
			if died != nil {
				t.Errorf("it was said to have failed: %v", died)
			}
		default:
			t.Fatalf("after %d steps there is nothing: %v, %v", steps, errOld, errGrown)
		}
		if got, err := ReadDone(dir, now); err != nil || !slices.Equal(blocksOf(got), []int64{1, 3}) {
			t.Errorf("after %d steps, brought to an end: done %v, %v", steps, blocksOf(got), err)
		}
	}
	if found["before"] < 5 || found["cut short"] != 1 {
		t.Errorf("states that were found: %v", found)
	}
}

func TestAMigrationInWhichAnythingFailsLeavesWhatWasThereAndNothingElse(t *testing.T) {
	was, now := mustGrid(t, lineSpec(50, 10, 0, 0)), mustGrid(t, lineSpec(80, 10, 0, 0))
	for steps, done := 0, false; !done; steps++ {
		dir := filepath.Join(t.TempDir(), "group")
		mustClose(t, mustOpen(t, dir, was))
		around := filepath.Dir(dir)
		before := snapshot(t, around)
		left := steps
		m, err := newStore(dyingDisk{osDisk{flock}, &left, true}, dir, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.replace(was, all); err == nil {
			done = true
			continue
		}
		if diff := cmp.Diff(before, snapshot(t, around)); diff != "" {
			t.Errorf("after a failure of change %d (-before +after):\n%s", steps, diff)
		}
	}
}
