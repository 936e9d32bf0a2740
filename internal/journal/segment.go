package journal

import (
	"fmt"
	"os"
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
	Rename(from, to string) error
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

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
