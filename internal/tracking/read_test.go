package tracking

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"example.org/daisy/geom"
	"github.com/google/go-cmp/cmp"
)

// readLikeOpen checks that ReadDone gives the blocks that Open gives, or the same error, which it returns, and that it
// leaves everything around dir as it is.
func readLikeOpen(t *testing.T, dir string, g *geom.Grid) error {
	t.Helper()
	around := filepath.Dir(filepath.Dir(dir))
	before := listing(t, around)
	read, readErr := ReadDone(dir, g)
	if diff := cmp.Diff(before, listing(t, around)); diff != "" {
		t.Errorf("ReadDone changed files (-before +after):\n%s", diff)
	}
	s, openErr := Open(dir, g)
	if openErr != nil {
		if diff := cmp.Diff(openErr.Error(), fmt.Sprint(readErr)); diff != "" || reflect.TypeOf(openErr) != reflect.TypeOf(readErr) {
			t.Errorf("%T of Open, %T of ReadDone (-Open +ReadDone):\n%s", openErr, readErr, diff)
		}
		return openErr
	}
	defer mustClose(t, s)
	if readErr != nil {
		t.Errorf("Open trusts what ReadDone refuses: %v", readErr)
		return nil
	}
	if diff := cmp.Diff(doneBlocks(t, s), blocksOf(read)); diff != "" {
		t.Errorf("done (-Open +ReadDone):\n%s", diff)
	}
	return nil
}

// listing is every path below a folder with its kind, size and time.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestReadingAloneTrustsAndRefusesWhatOpenDoes(t *testing.T) {
	sound := goldenGroups(t, "markers.tar.gz")
	for _, row := range goldenRows[markerRow](t, "markers.jsonl") {
		t.Run(row.Dir, func(t *testing.T) {
			if err := readLikeOpen(t, unpack(t, sound[row.Dir]), row.Task.grid(t)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	faulty := goldenGroups(t, "marker_faults.tar.gz")
	for _, row := range goldenRows[faultRow](t, "marker_faults.jsonl") {
		t.Run(row.Name, func(t *testing.T) {
			dir, _ := faultyGroup(t, row, faulty[row.Name])
			_ = readLikeOpen(t, dir, row.Task.grid(t))
		})
	}
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.RemoveAll(filepath.Join(dir, name)) }
	}
	resize := func(name string, size int64) func(string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, name), size) }
	}
	file := func(name string) func(string) error {
		return func(dir string) error {
			return errors.Join(remove(name)(dir), os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		}
	}
	directory := func(name string) func(string) error {
		return func(dir string) error {
			return errors.Join(remove(name)(dir), os.Mkdir(filepath.Join(dir, name), 0o777))
		}
	}
	for name, c := range map[string]struct {
		harm func(dir string) error
		want string // in the error; "" if it is read
	}{
		"unharmed":                      {func(string) error { return nil }, ""},
		"no group":                      {remove("."), ""},
		"no folder":                     {remove(".."), ""},
		"an empty directory":            {directory("."), ""},
		"a file for the group":          {file("."), "it is a file, not a directory"},
		"no array done":                 {remove("done"), "done: the array is missing"},
		"no chunk of done":              {remove("done/c/0"), ""},
		"done too long":                 {resize("done/c/0", 6), "done/c/0: it has 6 bytes, and 5 are needed"},
		"a file on the way to done":     {file("done/c"), "done/c/0: it is not a file"},
		"a directory for done":          {directory("done/c/0"), "done/c/0: it is not a file"},
		"no array failures":             {remove("failures"), ""},
		"a file for the array failures": {file("failures"), "failures/zarr.json: the file is missing"},
		"failures not described":        {remove("failures/zarr.json"), "failures/zarr.json: the file is missing"},
		"failures described as done": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "failures/zarr.json"), arrayJSON(geom.Coord(5), "uint8"), 0o666)
		}, `"uint32" is needed`},
		"no chunk of failures":          {remove("failures/c/0"), ""},
		"failures cut short":            {resize("failures/c/0", 19), "failures/c/0: it has 19 bytes, and 20 are needed"},
		"a directory for failures":      {directory("failures/c/0"), "failures/c/0: it is not a file"},
		"a directory for a description": {directory("done/zarr.json"), "done/zarr.json: is a directory"},
		"a description without end":     {resize("zarr.json", maxMetadata+1), "it has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustGrid(t, lineSpec(50, 10, 0, 0))
			dir := filepath.Join(t.TempDir(), "folder", "group")
			s := mustOpen(t, dir, g)
			s.MarkDone(3)
			mustClose(t, s)
			if err := c.harm(dir); err != nil {
				t.Fatal(err)
			}
			err := readLikeOpen(t, dir, g)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestReadingAloneNeedsNoLockAndGivesWhatWasFlushed(t *testing.T) {
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "group")
	s := mustOpen(t, dir, g)
	s.MarkDone(1)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	s.MarkDone(2)
	bits, err := ReadDone(dir, g)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1}, blocksOf(bits)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if _, err := Open(dir, g); !errors.As(err, new(*LockedError)) {
		t.Errorf("the lock was lost: %v", err)
	}
}
