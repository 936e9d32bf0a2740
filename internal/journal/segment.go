package journal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// segmentName is the file name of a segment, padded so that names sort.
func segmentName(epoch uint64, segment uint32) string {
	return fmt.Sprintf("journal-%06d-%06d.log", epoch, segment)
}

type segmentFile struct {
	path    string
	epoch   uint64
	segment uint32
}

// listSegments gives the segments in dir in the order in which they were written.
func listSegments(d Disk, dir string) ([]segmentFile, error) {
	names, err := d.List(dir)
	if err != nil {
		return nil, fmt.Errorf("read the journal directory: %w", err)
	}
	var found []segmentFile
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, "journal-")
		if !ok {
			continue
		}
		rest, ok = strings.CutSuffix(rest, ".log")
		if !ok {
			continue
		}
		first, second, _ := strings.Cut(rest, "-")
		epoch, err1 := strconv.ParseUint(first, 10, 64)
		segment, err2 := strconv.ParseUint(second, 10, 32)
		// Only names that we would write: "journal-1-1.log" beside "journal-000001-000001.log" would be read twice.
		if err1 != nil || err2 != nil || segmentName(epoch, uint32(segment)) != name {
			return nil, fmt.Errorf("%s: this is not the name of a journal segment; move the file away", filepath.Join(dir, name))
		}
		found = append(found, segmentFile{filepath.Join(dir, name), epoch, uint32(segment)})
	}
	slices.SortFunc(found, func(a, b segmentFile) int {
		if a.epoch != b.epoch {
			return compare(a.epoch, b.epoch)
		}
		return compare(uint64(a.segment), uint64(b.segment))
	})
	return found, nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// A File is what the journal needs of an *os.File.
type File interface {
	Write([]byte) (int, error)
	Sync() error
	Truncate(int64) error
	Close() error
}

// A Disk is where segments are made and read; one that fails can be put in its place.
type Disk interface {
	Create(path string) (File, error) // fails if the file exists
	Remove(path string) error
	Sync(path string) error // of a file's bytes or a directory's entries
	// List gives the names in a directory, in any order.
	List(dir string) ([]string, error)
	// Read reads a file, at most the given number of its bytes, and takes the room of b where it can.
	Read(path string, b []byte, most int64) ([]byte, error)
}

type osDisk struct{}

func (osDisk) Create(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err // not f: a nil *os.File in the interface is not nil
	}
	return f, nil
}

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (osDisk) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (osDisk) Read(path string, b []byte, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := int(min(info.Size(), most))
	b = slices.Grow(b[:0], size)[:size]
	n, err := io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF { // its writer cut it meanwhile, after a failed commit
		err = nil
	}
	return b[:n], err
}
