package tracking

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A Disk is where groups are; one that fails can be put in the place of the system's. Its methods are those of package os, and give the
// same errors.
type Disk interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Lstat(name string) (fs.FileInfo, error)
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	Remove(name string) error
	RemoveAll(name string) error
	Rename(from, to string) error
	// Any reports whether there is anything in a directory.
	Any(dir string) (bool, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock keeps others from the group in dir until the lock is released.
	Lock(dir, run string) (Lock, error)
}

// A File is what a group needs of an *os.File.
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	io.WriterAt
	Truncate(int64) error
	Stat() (fs.FileInfo, error)
	Sync() error
	Close() error
}

// A Lock is one that is held, until it is released.
type Lock interface{ Release() error }

// OnDisk has the group on another disk than the system's.
func OnDisk(d Disk) Option { return func(s *settings) { s.disk = d } }

// osDisk is the system's.
type osDisk struct{ flock func(*os.File) error }

func (osDisk) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not f: a nil *os.File in the interface is not nil
	}
	return f, nil
}

func (osDisk) Lstat(name string) (fs.FileInfo, error)       { return os.Lstat(name) }
func (osDisk) Mkdir(name string, perm fs.FileMode) error    { return os.Mkdir(name, perm) }
func (osDisk) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osDisk) Remove(name string) error                     { return os.Remove(name) }
func (osDisk) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osDisk) Rename(from, to string) error                 { return os.Rename(from, to) }

func (osDisk) Any(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

func (osDisk) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (d osDisk) Lock(dir, run string) (Lock, error) {
	l, err := lockGroup(dir, run, d.flock)
	if err != nil {
		return nil, err // not l: a nil *groupLock in the interface is not nil
	}
	return l, nil
}

// realPlace is the place of a folder by whatever link it is reached, so that one group has one lock.
func realPlace(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}
