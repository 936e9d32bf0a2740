package tracking

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/geom"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// lineSpec is a task in one dimension: total read [0, total), blocks of size, reading low before and high after.
func lineSpec(total, size, low, high int64) geom.GridSpec {
	return geom.GridSpec{
		TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(total)},
		Read:      geom.Roi{Offset: geom.Coord(-low), Shape: geom.Coord(low + size + high)},
		Write:     geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(size)},
	}
}

func doneBlocks(t testing.TB, s *Store) []int64 {
	t.Helper()
	bits, err := s.Done()
	if err != nil {
		t.Fatal(err)
	}
	return blocksOf(bits)
}

func blocksOf(bits []uint64) []int64 {
	var blocks []int64
	for b := range int64(64 * len(bits)) {
		if bits[b/64]>>(b%64)&1 == 1 {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func TestMarksOutliveTheStore(t *testing.T) {
	g := mustGrid(t, lineSpec(1000, 10, 15, 3))
	dir := filepath.Join(t.TempDir(), "folder", "predict")
	s := mustOpen(t, dir, g)
	for _, b := range []int64{5, 3, 4, 90, 5} {
		s.MarkDone(b)
	}
	s.AddFailure(7)
	s.AddFailure(7)
	s.SetFailures(8, 9)
	s.AddFailure(8)
	mustClose(t, s)
	s = mustOpen(t, dir, g)
	if diff := cmp.Diff([]int64{3, 4, 5, 90}, doneBlocks(t, s)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	for block, want := range map[int64]uint32{6: 0, 7: 2, 8: 10} {
		if got, err := s.FailureCount(block); err != nil || got != want {
			t.Errorf("block %d failed %d times (%v), want %d", block, got, err, want)
		}
	}
}

func TestAnEmptyGroupHasItsRoomOnTheDiskStillToTake(t *testing.T) {
	const blocks = 1 << 20
	s := mustOpen(t, filepath.Join(t.TempDir(), "f"), mustGrid(t, lineSpec(blocks, 1, 0, 0)))
	defer mustClose(t, s)
	if got := s.Unwritten(); got != 5*blocks {
		t.Errorf("unwritten are %d bytes, want one for done and four for failures of each of %d blocks", got, blocks)
	}
	for b := range int64(blocks) {
		s.MarkDone(b)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := s.Unwritten(); got < 4*blocks || got >= 5*blocks { // some file systems compress
		t.Errorf("unwritten are %d bytes after all blocks are done, want those of failures", got)
	}
}

func TestFailuresStayAtTheLargestNumber(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	s := mustOpen(t, filepath.Join(t.TempDir(), "f"), g)
	s.SetFailures(2, math.MaxUint32-1)
	for range 3 {
		s.AddFailure(2)
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.FailureCount(2); err != nil || got != math.MaxUint32 {
		t.Errorf("%d (%v), want %d", got, err, uint32(math.MaxUint32))
	}
}

func TestAnArrayOfFailuresThatIsMissingIsMade(t *testing.T) {
	files := goldenGroupsHere(t)["as_written"]
	for name := range files {
		if strings.HasPrefix(name, "failures/") {
			delete(files, name)
		}
	}
	dir := unpack(t, files)
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	s := mustOpen(t, dir, g)
	s.AddFailure(4)
	mustClose(t, s)
	if diff := cmp.Diff(failureBytes(0, 0, 0, 0, 1), snapshot(t, dir)["failures/c/0"]); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestAChunkThatIsNotThereIsAllZerosAndMadeWhenNeeded(t *testing.T) {
	files := goldenGroupsHere(t)["as_written"]
	delete(files, "done/c/0")
	delete(files, "failures/c/0")
	dir := unpack(t, files)
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	s := mustOpen(t, dir, g)
	if got := doneBlocks(t, s); got != nil {
		t.Errorf("done: %v, want none", got)
	}
	if n, err := s.FailureCount(1); n != 0 || err != nil {
		t.Errorf("failures: %d, %v", n, err)
	}
	s.MarkDone(1)
	s.AddFailure(2)
	mustClose(t, s)
	after := snapshot(t, dir)
	if diff := cmp.Diff([]byte{0, 1, 0, 0, 0}, after["done/c/0"]); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(failureBytes(0, 0, 1, 0, 0), after["failures/c/0"]); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestAGridWithoutABlockHasAGroupWithoutAMark(t *testing.T) {
	g := mustGrid(t, lineSpec(5, 10, 0, 0))
	if g.Len() != 0 {
		t.Fatalf("%d blocks", g.Len())
	}
	s := mustOpen(t, filepath.Join(t.TempDir(), "f"), g)
	if got := doneBlocks(t, s); got != nil {
		t.Errorf("done: %v", got)
	}
	mustClose(t, s)
}

func TestAGroupIsMadeWholeOrNotAtAll(t *testing.T) {
	folder := t.TempDir()
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	// What a crash in the middle of making it leaves.
	if err := os.MkdirAll(filepath.Join(folder, ".f.new", "done"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "f"), 0o777); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, filepath.Join(folder, "f"), g))
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{".f.lock", "f"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestTwoRunsDoNotWriteOneGroup(t *testing.T) {
	unsupported := func(err error) func(*os.File) error { return func(*os.File) error { return err } }
	for name, lock := range map[string]func(*os.File) error{"flock": flock, "ENOSYS": unsupported(syscall.ENOSYS), "ENOLCK": unsupported(syscall.ENOLCK), "EOPNOTSUPP": unsupported(syscall.EOPNOTSUPP)} {
		t.Run(name, func(t *testing.T) {
			g := mustGrid(t, lineSpec(50, 10, 0, 0))
			dir := filepath.Join(t.TempDir(), "f")
			s, err := open(dir, g, settings{}, lock)
			if err != nil {
				t.Fatal(err)
			}
			_, err = open(dir, g, settings{}, lock)
			var locked *LockedError
			host, _ := os.Hostname()
			if !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Host != host {
				t.Fatalf("second open: %v", err)
			}
			want := fmt.Sprintf("tracking %s is being written by another run (pid %d on %s, since ", dir, os.Getpid(), host)
			if !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "wait for it, stop it, or give another tracking folder") {
				t.Errorf("message: %v", err)
			}
			mustClose(t, s)
			if s, err = open(dir, g, settings{}, lock); err != nil {
				t.Fatalf("after Close: %v", err)
			}
			mustClose(t, s)
		})
	}
}

func TestTheFormerCoordinatorOfARunThatStillWritesIsNotCalledAnotherRun(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "f")
	mustOpen(t, dir, g, ForRun("r1"))
	for run, want := range map[string]string{"r1": fmt.Sprintf("end it there (kill -9 %d), then resume again", os.Getpid()), "r2": "another run"} {
		if _, err := Open(dir, g, ForRun(run)); !errors.As(err, new(*LockedError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("run %s: %v", run, err)
		}
	}
}

func TestWithoutFlockALockThatACrashLeftIsTakenOver(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	noFlock := func(*os.File) error { return syscall.ENOLCK }
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, left, run string
		free            bool
	}{
		{"of this run, on another host", `{"run":"r1","host":"elsewhere","pid":1}`, "r1", true},
		{"of another run, on another host", `{"run":"r2","host":"elsewhere","pid":1}`, "r1", false},
		{"of no run, on another host", `{"host":"elsewhere","pid":1}`, "", false},
		{"of a process of this host that is gone", fmt.Sprintf(`{"run":"r2","host":%q,"pid":%d}`, host, gone.Process.Pid), "r1", true},
		{"of a process of this host that lives", fmt.Sprintf(`{"run":"r2","host":%q,"pid":%d}`, host, os.Getpid()), "r1", false},
		{"of nobody who can be read", "{", "r1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(lockPath(dir)+".held", []byte(c.left), 0o666); err != nil {
				t.Fatal(err)
			}
			s, err := open(dir, g, settings{run: c.run}, noFlock)
			var locked *LockedError
			switch {
			case c.free && err != nil:
				t.Fatal(err)
			case c.free:
				mustClose(t, s)
			case !errors.As(err, &locked) || !strings.HasSuffix(err.Error(), "if it is gone: rm '"+lockPath(dir)+".held'"):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAGroupReachedByALinkHasTheSameLock(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	folder := t.TempDir()
	mustOpen(t, filepath.Join(folder, "f"), g)
	link := filepath.Join(folder, "link")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := Open(link, g); !errors.As(err, &locked) {
		t.Errorf("got %v", err)
	}
}

func TestAnOpenThatFailsGivesTheLockBack(t *testing.T) {
	dir := unpack(t, goldenGroupsHere(t)["hash_missing"])
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	for range 2 {
		var unreadable *UnreadableError
		if _, err := Open(dir, g); !errors.As(err, &unreadable) {
			t.Fatalf("got %v", err)
		}
	}
}

func TestAFlushThatFailsLosesNoMarkAndCountsNoFailureTwice(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "f")
	s := mustOpen(t, dir, g)
	failToFlush := func(a *arrayFile) {
		t.Helper()
		if err := s.Flush(); err == nil || !strings.Contains(err.Error(), a.path) {
			t.Fatalf("Flush of %s: %v", a.path, err)
		}
	}
	cannotBeWritten := func(a *arrayFile) {
		t.Helper()
		readOnly, err := os.Open(a.path)
		if err != nil {
			t.Fatal(err)
		}
		defer readOnly.Close()
		good := a.file
		a.file = readOnly
		failToFlush(a)
		a.file = good
	}
	for _, b := range []int64{3, 3, 1} {
		s.MarkDone(b)
	}
	s.AddFailure(0)
	s.AddFailure(4)
	cannotBeWritten(&s.failures)
	s.MarkDone(2)
	cannotBeWritten(&s.done)
	// Now cell 0 can be written, and cell 4, a run of its own, cannot be read.
	if err := os.Truncate(s.failures.path, 4); err != nil {
		t.Fatal(err)
	}
	failToFlush(&s.failures)
	if err := os.Truncate(s.failures.path, s.failures.size); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	after := snapshot(t, dir)
	if diff := cmp.Diff([]byte{0, 1, 1, 1, 0}, after["done/c/0"]); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(failureBytes(1, 0, 0, 0, 1), after["failures/c/0"]); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestMarksThatComeDuringAFlushThatFailsFollowThoseOfTheFlush(t *testing.T) {
	g := mustGrid(t, lineSpec(60, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "f")
	s := mustOpen(t, dir, g)
	add := func(b int64) { s.AddFailure(b) }
	set := func(n uint32) func(int64) { return func(b int64) { s.SetFailures(b, n) } }
	none := func(int64) {}
	changes := []struct{ first, later func(block int64) }{{add, none}, {none, add}, {add, add}, {set(5), add}, {add, set(7)}, {set(5), set(7)}}
	for b, c := range changes {
		c.first(int64(b))
	}
	s.MarkDone(0)
	done, failures := s.pendingDone, s.pendingFailures // as Flush takes them
	s.pendingDone, s.pendingFailures = nil, map[int64]failureChange{}
	for b, c := range changes {
		c.later(int64(b))
	}
	s.MarkDone(1)
	s.putBack(done, failures, nil)
	mustClose(t, s)
	after := snapshot(t, dir)
	if diff := cmp.Diff([]byte{1, 1, 0, 0, 0, 0}, after["done/c/0"]); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(failureBytes(1, 1, 2, 6, 7, 7), after["failures/c/0"]); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestMarksMayComeFromManyGoroutinesWhileAnotherFlushes(t *testing.T) {
	g := mustGrid(t, lineSpec(4000, 1, 0, 0))
	s := mustOpen(t, filepath.Join(t.TempDir(), "f"), g)
	var wg sync.WaitGroup
	for k := range int64(4) {
		wg.Go(func() {
			for b := k; b < 4000; b += 4 {
				s.MarkDone(b)
				s.AddFailure(b)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			if err := s.Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := len(doneBlocks(t, s)); got != 4000 {
		t.Errorf("%d blocks are done, want 4000", got)
	}
	for b := range int64(4000) {
		if n, err := s.FailureCount(b); n != 1 || err != nil {
			t.Fatalf("block %d failed %d times (%v), want 1", b, n, err)
		}
	}
}

func TestErrorsOfTheFileSystemNamePathAndNextStep(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "f"), g); !errors.Is(err, syscall.ENOTDIR) || !strings.Contains(err.Error(), file) {
		t.Errorf("parent is a file: %v", err)
	}
	for cause, want := range map[error]string{
		syscall.ENOSPC: "tracking: write /x: no space left on device; free space there, or give another tracking folder",
		syscall.EDQUOT: "tracking: write /x: disk quota exceeded; your quota there is used up: remove files, or give another tracking folder",
		syscall.EACCES: "tracking: write /x: permission denied; you may not do that there: change the permissions, or give another tracking folder",
		syscall.EROFS:  "tracking: write /x: read-only file system; the file system is read-only: give another tracking folder",
	} {
		err := explain("write", "/x", &fs.PathError{Op: "write", Path: "/x", Err: cause})
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestAnArrayTooLargeForAFileIsRefused(t *testing.T) {
	side := int64(1) << 31
	g := mustGrid(t, geom.GridSpec{
		TotalRead: geom.Roi{Offset: geom.Coord(0, 0), Shape: geom.Coord(side, side-1)},
		Read:      geom.Roi{Offset: geom.Coord(0, 0), Shape: geom.Coord(1, 1)},
		Write:     geom.Roi{Offset: geom.Coord(0, 0), Shape: geom.Coord(1, 1)},
	})
	err := readLikeOpen(t, filepath.Join(t.TempDir(), "f"), g)
	if err == nil || !strings.Contains(err.Error(), "cells is too large for a file: make the blocks larger, or leave tracking out") {
		t.Errorf("got %v", err)
	}
}

func TestEveryBlockHasTheCellOfItsIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.IntRange(1, 4).Draw(t, "dims")
		number := func(label string, low, high int) []int64 {
			v := make([]int64, dims)
			for i := range v {
				v[i] = int64(rapid.IntRange(low, high).Draw(t, label))
			}
			return v
		}
		low, high, size, blocks, rest, at := number("low", 0, 9), number("high", 0, 5), number("size", 1, 4), number("blocks", 1, 9), number("rest", 0, 3), number("at", -20, 20)
		total, read := make([]int64, dims), make([]int64, dims)
		for i := range dims {
			total[i] = low[i] + blocks[i]*size[i] + rest[i] + high[i]
			read[i] = low[i] + size[i] + high[i]
		}
		g, err := geom.NewGrid(geom.GridSpec{
			TotalRead: geom.Roi{Offset: geom.Coord(at...), Shape: geom.Coord(total...)},
			Read:      geom.Roi{Offset: geom.Fill(dims, 0), Shape: geom.Coord(read...)},
			Write:     geom.Roi{Offset: geom.Coord(low...), Shape: geom.Coord(size...)},
			Fit:       rapid.SampledFrom([]geom.Fit{geom.Valid, geom.Overhang, geom.Shrink}).Draw(t, "fit"),
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := newCells(g)
		if err != nil {
			t.Fatal(err)
		}
		var inRuns []int64
		if err := c.runs(func(cell, n int64) error {
			for i := range n {
				inRuns = append(inRuns, cell+i)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		values := make([]byte, c.count)
		for i := range values {
			values[i] = byte(i * 7 % 3 * 128) // 0, 128 or 0: only the top bit is set in some
		}
		bits := bitWriter{words: make([]uint64, (g.Len()+63)/64)}
		for _, cell := range inRuns {
			bits.appendNonzero(values[cell : cell+1])
		}
		whole := bitWriter{words: make([]uint64, (g.Len()+63)/64)}
		_ = c.runs(func(cell, n int64) error { whole.appendNonzero(values[cell : cell+n]); return nil })
		if !slices.Equal(bits.words, whole.words) {
			t.Fatal("bits differ byte by byte and in runs")
		}
		for b := range g.Len() {
			index, flat := g.CellIndex(b), int64(0)
			for axis := range dims {
				flat = flat*g.TrackingShape().At(axis) + index.At(axis)
			}
			if got := c.cell(b); got != flat || inRuns[b] != flat {
				t.Fatalf("block %d: cell %d, in runs %d, want %d", b, got, inRuns[b], flat)
			}
			if got := whole.words[b/64]>>(b%64)&1 == 1; got != (values[flat] != 0) {
				t.Fatalf("block %d: bit %v for the byte %d", b, got, values[flat])
			}
		}
	})
}

func FuzzMetadataOfAnyBytesIsReadOrRefused(f *testing.F) {
	f.Add(groupJSON(strings.Repeat("0", 64)))
	f.Add(arrayJSON(geom.Coord(5), "uint8"))
	f.Add(arrayJSON(geom.Coord(5, 2), "uint32"))
	f.Add([]byte(`{"zarr_format":3,"node_type":"group","attributes":{"daisy_task_hash":"x"},"consolidated_metadata":{"must_understand":false}}`))
	f.Add([]byte(`{"zarr_format":3,"zarr_format":2}`))
	f.Add([]byte("{oops"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parseRoot(data); err == nil && r.hash == "" {
			t.Error("a group without a hash was accepted")
		}
		for _, dataType := range []string{"uint8", "uint32"} {
			if checkArray(data, geom.Coord(5), dataType) == nil && !strings.Contains(string(data), "zarr_format") {
				t.Error("an array without zarr_format was accepted")
			}
		}
	})
}

func TestMetadataThatReadersCouldTakeInTwoWaysIsRefused(t *testing.T) {
	array := string(arrayJSON(geom.Coord(5), "uint8"))
	group := string(groupJSON("abc"))
	for _, c := range []struct{ name, from, to, want string }{
		{"key twice", `"zarr_format": 3`, `"zarr_format": 3, "shape": [5]`, `it has the key "shape" twice`},
		{"other letters", `"fill_value"`, `"Fill_Value"`, `it has the key "fill_value" in other letters`},
		{"unknown key", `"zarr_format": 3`, `"zarr_format": 3, "filters": []`, `it has the unknown key "filters"`},
		{"unknown key that need not be understood", `"zarr_format": 3`, `"zarr_format": 3, "note": {"must_understand": false}`, ""},
		{"fill value 1", `"fill_value": 0`, `"fill_value": 1`, "its fill value is 1, and 0 is needed"},
		{"fill value false", `"fill_value": 0`, `"fill_value": false`, "its fill value is false, and 0 is needed"},
		{"big endian", `"little"`, `"big"`, `is read`},
		{"keys with dots", `"separator": "/"`, `"separator": "."`, "its chunk keys are not of the form c/0/0"},
		{"keys of version 2", `"name": "default"`, `"name": "v2"`, "its chunk keys are not of the form c/0/0"},
		{"transformers", `"storage_transformers": []`, `"storage_transformers": [{}]`, "it has storage transformers"},
		{"another rank", `"shape": [`, `"shape": [1,`, "its shape is [1 5], and the task needs [5]"},
		{"a text for a shape", `"shape": [
    5
  ]`, `"shape": "5"`, "it has a value of the wrong kind"},
		{"something behind", `"zarr_format": 3
}`, `"zarr_format": 3
} {}`, "it is not a JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := strings.Replace(array, c.from, c.to, 1)
			if data == array {
				t.Fatal("nothing was replaced")
			}
			err := checkArray([]byte(data), geom.Coord(5), "uint8")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := parseRoot([]byte(strings.Replace(group, `"zarr_format": 3`, `"zarr_format": 3, "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {}}`, 1))); err != nil {
		t.Errorf("consolidated metadata, as zarr-python writes it: %v", err)
	}
	if err := checkArray([]byte(strings.Replace(array, `{
      "configuration": {
        "endian": "little"
      },
      "name": "bytes"
    }`, `"bytes"`, 1)), geom.Coord(5), "uint8"); err != nil {
		t.Errorf("a codec as a bare name: %v", err)
	}
}

// BenchmarkDone reads the bitmap of 10^8 blocks, without and with context (rows with gaps), and the bare file beside it.
func BenchmarkDone(b *testing.B) {
	for _, c := range []struct {
		name    string
		side, z int64
		context int64
	}{{"10^8 blocks", 1000, 100, 0}, {"10^8 blocks with context", 1000, 100, 1}, {"10^8 blocks in rows of 2", 7072, 2, 1}} {
		b.Run(c.name, func(b *testing.B) {
			total := geom.Coord(c.side+2*c.context, c.side+2*c.context, c.z+2*c.context)
			g := mustGrid(b, geom.GridSpec{
				TotalRead: geom.Roi{Offset: geom.Fill(3, 0), Shape: total},
				Read:      geom.Roi{Offset: geom.Fill(3, 0), Shape: geom.Fill(3, 1+2*c.context)},
				Write:     geom.Roi{Offset: geom.Fill(3, c.context), Shape: geom.Fill(3, 1)},
			})
			s := mustOpen(b, filepath.Join(b.TempDir(), "f"), g)
			b.Run("bitmap", func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Done(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("bare read", func(b *testing.B) {
				buffer := make([]byte, 1<<20)
				for b.Loop() {
					for at := int64(0); at < s.cells.count; at += int64(len(buffer)) {
						if err := s.done.readAt(buffer[:min(int64(len(buffer)), s.cells.count-at)], at); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}

// BenchmarkFlush writes the marks of blocks that ended in almost ascending order.
func BenchmarkFlush(b *testing.B) {
	g := mustGrid(b, lineSpec(100_000_000, 1, 0, 0))
	s := mustOpen(b, filepath.Join(b.TempDir(), "f"), g)
	next := int64(0)
	for b.Loop() {
		for i := range int64(10_000) {
			s.MarkDone((next + (i ^ 7)) % g.Len())
		}
		next = (next + 10_000) % (g.Len() - 20_000)
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "marks/s")
}

// A syncedFile has its bytes made durable by a function.
type syncedFile struct {
	File
	sync func(f File) error
}

func (f syncedFile) Sync() error { return f.sync(f.File) }

// syncedBy has a function make the bytes of both arrays of a store durable.
func syncedBy(s *Store, sync func(f File) error) {
	for _, a := range s.all() {
		a.file = syncedFile{a.file, sync}
	}
}

// A disk may take long to make durable what was written, and whoever writes marks also writes the journal.
func TestAFlushDoesNotWaitForASync(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, mustGrid(t, lineSpec(100, 10, 0, 0)))
	defer s.Close()
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	syncedBy(s, func(f File) error {
		select {
		case began <- struct{}{}:
		default:
		}
		<-goOn
		return f.Sync()
	})
	s.MarkDone(1)
	synced, flushed := make(chan error, 1), make(chan error, 1)
	go func() { synced <- s.Sync() }()
	<-began
	s.MarkDone(2)
	go func() { flushed <- s.Flush() }()
	select {
	case err := <-flushed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the flush waits for the disk")
	}
	close(goOn)
	if err := <-synced; err != nil {
		t.Error(err)
	}
	if got := doneBlocks(t, s); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("done are %v", got)
	}
}

func TestWhatCouldNotBeMadeDurableIsTriedAgain(t *testing.T) {
	s := mustOpen(t, t.TempDir(), mustGrid(t, lineSpec(100, 10, 0, 0)))
	defer s.Close()
	var syncs int
	fault := errors.New("no")
	syncedBy(s, func(File) error { syncs++; return fault })
	s.MarkDone(1)
	if err := s.Sync(); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
	fault = nil
	for range 2 {
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	}
	if syncs != 3 { // one that fails, and one of each array that there is
		t.Errorf("%d syncs, want 3", syncs)
	}
}

func TestWithoutFlockALockThatIsGivenBackJustThenIsTaken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "f")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for range 1500 {
				l, err := lockByFile(dir, lockPath(dir)+".held", "")
				var locked *LockedError
				switch {
				case err == nil:
					if err := l.Release(); err != nil {
						t.Error(err)
					}
				case !errors.As(err, &locked):
					t.Error(err)
					return
				}
			}
		})
	}
	both.Wait()
}
