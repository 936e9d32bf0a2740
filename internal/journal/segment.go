package journal

import (
	"fmt"
	"io"
	"os"
	"slices"
)

// segmentName is the file name of a segment, padded so that names sort.
func segmentName(epoch uint64, segment uint32) string {
	return fmt.Sprintf("journal-%06d-%06d%s", epoch, segment, segmentEnd)
}

type segmentFile struct {
	path    string
	epoch   uint64
	segment uint32
}

// A File is what the journal needs of an *os.File.
type File interface {
	Write([]byte) (int, error)
	Sync() error
	Truncate(int64) error
	Close() error
}

// A Disk is where segments and snapshots are made and read; one that fails can be put in its place.
type Disk interface {
	Create(path string) (File, error) // fails if the file exists
	Remove(path string) error
	Rename(from, to string) error
	Sync(dir string) error // makes the names in a directory durable
	// List gives the names in a directory, in any order.
	List(dir string) ([]string, error)
	// Size is the length of a file in bytes.
	Size(path string) (int64, error)
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

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Sync(dir string) error {
	f, err := os.Open(dir)
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

func (osDisk) Size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
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
