package tracking

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"example.org/daisy/geom"
)

const (
	metadataFile  = "zarr.json"
	doneArray     = "done"
	failuresArray = "failures"
)

// resourceArrays are those of a group with resource tracking, in the order of the values of Resources.
var resourceArrays = [...]string{"wall_seconds", "cpu_seconds", "peak_rss_bytes", "io_read_bytes", "io_write_bytes", "gpu_util_pct", "gpu_mem_bytes"}

// arrays gives the data type and the bytes of a cell of each array.
var arrays = map[string]struct {
	dataType string
	cell     int64
}{
	doneArray: {"uint8", 1}, failuresArray: {"uint32", 4},
	"wall_seconds": {"float32", 4}, "cpu_seconds": {"float32", 4}, "gpu_util_pct": {"float32", 4},
	"peak_rss_bytes": {"uint64", 8}, "io_read_bytes": {"uint64", 8}, "io_write_bytes": {"uint64", 8}, "gpu_mem_bytes": {"uint64", 8},
}

// isFresh reports whether dir does not exist or is an empty directory. A dir that went missing in a replacement is an error.
func isFresh(d Disk, dir string) (bool, error) {
	some, err := d.Any(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // perhaps removed meanwhile: a run that begins replaces an empty directory
		if next := beside(dir, next); isThere(d, next) {
			return false, &CutShortError{dir, next}
		}
		return true, nil
	case errors.Is(err, syscall.ENOTDIR):
		return false, &UnreadableError{dir, dir, "it is a file, not a directory"}
	case err != nil:
		return false, explain("list", dir, err)
	}
	return !some, nil
}

// beside is a folder next to a group that holds what is to become the group. Whoever makes one has the group's lock.
func beside(dir, what string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"."+what)
}

// makeGroup makes a group without a mark. It is built beside its place and
// renamed, so that a crash leaves no group that lacks a file.
func makeGroup(d Disk, dir, hash string, c cells, names []string) (err error) {
	temp := beside(dir, "new")
	defer func() {
		if err != nil {
			_ = d.RemoveAll(temp)
		}
	}()
	if err := buildGroup(d, temp, hash, c, names); err != nil {
		return err
	}
	if err := d.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // removes an empty directory only
		return explain("make", dir, err)
	}
	if err := d.Rename(temp, dir); err != nil {
		return explain("make", dir, err)
	}
	return syncDir(d, filepath.Dir(dir))
}

// buildGroup makes the files of a group without a mark in place of whatever a crash left there.
func buildGroup(d Disk, dir, hash string, c cells, names []string) error {
	if err := d.RemoveAll(dir); err != nil {
		return explain("make", dir, err)
	}
	if err := d.Mkdir(dir, 0o777); err != nil {
		return explain("make", dir, err)
	}
	for _, name := range names {
		if err := makeArray(d, dir, name, c); err != nil {
			return err
		}
	}
	if err := writeSynced(d, filepath.Join(dir, metadataFile), groupJSON(hash)); err != nil {
		return err
	}
	return syncDir(d, dir)
}

func makeArray(d Disk, group, name string, c cells) error {
	dir := filepath.Join(group, name)
	if err := d.Mkdir(dir, 0o777); err != nil {
		return explain("make", dir, err)
	}
	kind := arrays[name]
	if err := writeSynced(d, filepath.Join(dir, metadataFile), arrayJSON(c.array, kind.dataType)); err != nil {
		return err
	}
	if err := makeChunk(d, chunkPath(dir, c), kind.cell*c.count); err != nil {
		return err
	}
	return syncDir(d, dir)
}

func chunkPath(array string, c cells) string {
	return filepath.Join(array, "c"+strings.Repeat("/0", c.array.Dims()))
}

// makeChunk makes a chunk of zeros. It is sparse: it takes no room until it is written to.
func makeChunk(d Disk, path string, size int64) error {
	if err := d.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return explain("make", path, err)
	}
	f, err := d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return explain("make", path, err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return explain("make", path, err)
	}
	if err := f.Sync(); err != nil {
		return explain("make", path, err)
	}
	return syncDir(d, filepath.Dir(path))
}

func writeSynced(d Disk, path string, data []byte) error {
	f, err := d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return explain("make", path, err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return explain("write", path, err)
	}
	if err := f.Sync(); err != nil {
		return explain("write", path, err)
	}
	return nil
}

func syncDir(d Disk, path string) error {
	if err := d.SyncDir(path); err != nil {
		return explain("sync", path, err)
	}
	return nil
}

// readRoot reads the file that says for which blocks the marks in a folder are, and whether they are in a group.
func readRoot(d Disk, dir string) (root, error) {
	file := filepath.Join(dir, metadataFile)
	data, err := readMetadata(d, file)
	if errors.Is(err, fs.ErrNotExist) {
		return root{}, &UnreadableError{dir, file, "the file is missing, so nobody knows for which blocks the marks in the folder are"}
	}
	if err != nil {
		return root{}, explain("read", file, err)
	}
	r, err := parseRoot(data)
	if err != nil {
		return root{}, &UnreadableError{dir, file, err.Error()}
	}
	return r, nil
}

// checkRoot is readRoot that refuses marks of other blocks than those of g.
func checkRoot(d Disk, dir string, g *geom.Grid) (root, error) {
	r, err := readRoot(d, dir)
	if err != nil {
		return root{}, err
	}
	prefix := groupPrefix
	if r.isArray {
		prefix = arrayPrefix
	}
	if want := hashOf(prefix, g); r.hash != want {
		return root{}, &LayoutError{dir, r.hash, want}
	}
	return r, nil
}

// maxMetadata is far above any zarr.json that can pass the checks.
const maxMetadata = 16 << 20

func readMetadata(d Disk, path string) ([]byte, error) {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMetadata+1))
	if err == nil && len(data) > maxMetadata {
		err = fmt.Errorf("it has more than %d bytes", maxMetadata)
	}
	return data, err
}

// open checks an array and opens its chunk. An array other than done that is not there at all has no history: it is made,
// unless the group is only read. An array done that is not there is refused: every group has one.
func (a *arrayFile) open(d Disk, group, name string, c cells) error {
	dir := filepath.Join(group, name)
	if _, err := d.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if name == doneArray {
			return &UnreadableError{group, dir, "the array is missing"}
		}
		if a.readOnly {
			return nil
		}
		if err := makeArray(d, group, name, c); err != nil {
			return err
		}
		if err := syncDir(d, group); err != nil {
			return err
		}
	}
	return a.openIn(d, group, dir, name, c)
}

// openIn is open of an array that is there, in a folder of any name.
func (a *arrayFile) openIn(d Disk, group, dir, name string, c cells) error {
	kind := arrays[name]
	a.disk, a.group, a.path, a.size = d, group, chunkPath(dir, c), kind.cell*c.count
	file := filepath.Join(dir, metadataFile)
	data, err := readMetadata(d, file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &UnreadableError{group, file, "the file is missing"}
	}
	if err != nil {
		return explain("read", file, err)
	}
	if err := checkArray(data, c.array, kind.dataType); err != nil {
		return &UnreadableError{group, file, err.Error()}
	}
	return a.openChunk()
}
