package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// write durably replaces a file of the directory, mode 0600.
func (d *Dir) write(name string, data []byte) error {
	path := d.join(name)
	f, err := newReplacement(path, 0o600)
	if err != nil {
		return err
	}
	defer f.discard()
	if _, err := f.Write(data); err != nil {
		return explain("write", path, err)
	}
	return f.replace()
}

// replacement is a new version of a file, under a temporary name beside it.
type replacement struct {
	*os.File
	path string
	done bool
}

// newReplacement has its mode from the start: there is no moment at which others could open a secret.
func newReplacement(path string, mode fs.FileMode) (*replacement, error) {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+newRunID())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, explain("write", path, err)
	}
	return &replacement{File: f, path: path}, nil
}

// replace syncs the new version, puts it in the place of the old, and syncs the directory.
func (r *replacement) replace() error {
	if err := r.Sync(); err != nil {
		return explain("write", r.path, err)
	}
	if err := r.Close(); err != nil { // NFS may report a full disk only here
		return explain("write", r.path, err)
	}
	if err := os.Rename(r.Name(), r.path); err != nil {
		return explain("write", r.path, err)
	}
	r.done = true
	return syncDir(filepath.Dir(r.path))
}

// discard removes the new version if it was not put in place.
func (r *replacement) discard() {
	if !r.done {
		_ = r.Close()
		_ = os.Remove(r.Name())
	}
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return explain("sync the directory", path, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return explain("sync the directory", path, err)
	}
	return nil
}

// explain gives an error the path that the user knows and the next step. It
// can be tested with errors.Is for the cause.
func explain(doing, path string, err error) error {
	cause := err
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		cause = pe.Err
	case errors.As(err, &le):
		cause = le.Err
	}
	next := ""
	switch {
	case errors.Is(cause, syscall.ENOSPC):
		next = "; free space (or inodes) there, or give another directory"
	case errors.Is(cause, syscall.EDQUOT):
		next = "; your quota there is used up: remove files, or give another directory"
	case errors.Is(cause, syscall.EROFS):
		next = "; the file system is read-only: give another directory"
	case errors.Is(cause, fs.ErrPermission):
		next = "; you may not do that there: change the permissions, or give another directory"
	case errors.Is(cause, syscall.ENAMETOOLONG):
		next = "; use a shorter name or another directory"
	}
	return fmt.Errorf("%s %s: %w%s", doing, path, cause, next)
}

func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
