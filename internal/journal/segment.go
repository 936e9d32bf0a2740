package journal

import (
	"fmt"
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
func listSegments(dir string) ([]segmentFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the journal directory: %w", err)
	}
	var found []segmentFile
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "journal-")
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
		if err1 != nil || err2 != nil || segmentName(epoch, uint32(segment)) != e.Name() {
			return nil, fmt.Errorf("%s: this is not the name of a journal segment; move the file away", filepath.Join(dir, e.Name()))
		}
		found = append(found, segmentFile{filepath.Join(dir, e.Name()), epoch, uint32(segment)})
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

// file is what the journal needs of an *os.File.
type file interface {
	Write([]byte) (int, error)
	Sync() error
	Truncate(int64) error
	Close() error
}

// disk is where segments are made; tests put one that fails in its place.
type disk interface {
	Create(path string) (file, error) // fails if the file exists
	Remove(path string) error
	Sync(path string) error // of a file's bytes or a directory's entries
}

type osDisk struct{}

func (osDisk) Create(path string) (file, error) {
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
