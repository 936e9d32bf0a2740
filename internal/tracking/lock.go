package tracking

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// groupLock keeps two runs from writing one group. Its file stands beside the
// group, not in it: readers of Zarr complain about files that they do not know.
type groupLock struct {
	path string
	file *os.File
	held bool // by flock; else by the file's being there
}

// lockContent is for people, and tells whether a file that was left by a crash can be taken over.
type lockContent struct {
	Run   string    `json:"run,omitempty"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

func lockPath(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".lock")
}

func lockGroup(dir, run string, flock func(*os.File) error) (*groupLock, error) {
	path := lockPath(dir)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, explain("lock with", path, err)
	}
	err = flock(f)
	switch {
	case err == nil:
		l := &groupLock{path, f, true}
		return l, l.write(run)
	case errors.Is(err, syscall.EWOULDBLOCK):
		defer f.Close()
		locked, owner := lockedError(dir, path, f, true)
		locked.own = run != "" && owner.Run == run
		return nil, locked
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.EOPNOTSUPP):
		_ = f.Close()
		return lockByFile(dir, path+".held", run)
	default:
		_ = f.Close()
		return nil, explain("lock with", path, err)
	}
}

// lockByFile is for file systems without flock: whoever makes the file has the
// lock. A file that an earlier life of the same run or a process of this host
// that is gone has left is taken over.
func lockByFile(dir, path, run string) (*groupLock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			l := &groupLock{path, f, false}
			return l, l.write(run)
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, explain("lock with", path, err)
		}
		old, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // its owner has given it back just then
		}
		if err != nil {
			return nil, explain("lock with", path, err)
		}
		locked, owner := lockedError(dir, path, bytes.NewReader(old), false)
		host, _ := os.Hostname()
		isGone := owner.Host == host && owner.PID > 0 && errors.Is(syscall.Kill(owner.PID, 0), syscall.ESRCH)
		if !isGone && (run == "" || owner.Run != run) {
			return nil, locked
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, explain("lock with", path, err)
		}
	}
}

func lockedError(dir, path string, f io.Reader, held bool) (*LockedError, lockContent) {
	var c lockContent
	if json.NewDecoder(io.LimitReader(f, 4096)).Decode(&c) != nil {
		c = lockContent{}
	}
	return &LockedError{Path: dir, File: path, Host: c.Host, PID: c.PID, Since: c.Since, held: held}, c
}

// write puts the owner's name into the file.
func (l *groupLock) write(run string) error {
	host, _ := os.Hostname()
	data, err := json.Marshal(lockContent{run, host, os.Getpid(), time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return fmt.Errorf("tracking: lock with %s: %w", l.path, err)
	}
	if err = l.file.Truncate(0); err == nil {
		_, err = l.file.WriteAt(append(data, '\n'), 0)
	}
	if err != nil {
		_ = l.Release()
		return explain("lock with", l.path, err)
	}
	return nil
}

// Release gives the lock back. With flock the file stays: removing it would
// race with others that have opened it.
func (l *groupLock) Release() error {
	var err error
	if !l.held {
		err = os.Remove(l.path)
	}
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return explain("unlock", l.path, err)
	}
	return nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
