package tracking

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"
)

// LayoutError says that a group was written for other blocks.
type LayoutError struct {
	Path         string // of the group
	Stored, Want string // hashes
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("tracking %s was written for another layout of blocks (total, read or write region or fit differ): "+
		"stored hash %s, this task's %s. Its marks say nothing about this task's blocks. "+
		"If the volume has only grown, daisy-submit migrate keeps those that still hold. %s", e.Path, e.Stored, e.Want, wayOut(e.Path))
}

// UnreadableError says that a group cannot be read with certainty.
type UnreadableError struct {
	Path   string // of the group
	File   string // of the file that is wrong
	Reason string
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("tracking %s cannot be trusted: %s: %s. %s", e.Path, e.File, e.Reason, wayOut(e.Path))
}

// CutShortError says that a group is not in its place, because whoever replaced it was killed before the last step.
type CutShortError struct {
	Path string // of the group
	Next string // what was to take its place, whole
}

func (e *CutShortError) Error() string {
	return fmt.Sprintf("tracking %s is missing, because a move of its marks to another layout was cut short; they are in %s. Finish it: mv %s %s; or start fresh: rm -r %s",
		e.Path, e.Next, quote(e.Next), quote(e.Path), quote(e.Next))
}

func wayOut(path string) string {
	return "Give another tracking folder, or forget the marks and start fresh: rm -r " + quote(path)
}

// quote makes one word of the shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// LockedError says that another run writes the group.
type LockedError struct {
	Path  string // of the group
	File  string // the lock file
	Host  string // "" if not known
	PID   int
	Since time.Time
	held  bool // by flock, not by the file's being there
	own   bool // the other is a coordinator of the same run, of an earlier epoch
}

func (e *LockedError) Error() string {
	if e.own && e.held {
		return fmt.Sprintf("tracking %s is still being written by the coordinator before of this same run (pid %d on %s, since %s), which has not ended, or is stopped: end it there (kill -9 %d), then resume again",
			e.Path, e.PID, e.Host, e.Since.Format(time.RFC3339), e.PID)
	}
	who := "another run"
	if e.Host != "" {
		who = fmt.Sprintf("another run (pid %d on %s, since %s)", e.PID, e.Host, e.Since.Format(time.RFC3339))
	}
	if e.held {
		return fmt.Sprintf("tracking %s is being written by %s: wait for it, stop it, or give another tracking folder", e.Path, who)
	}
	return fmt.Sprintf("tracking %s is being written by %s: wait for it, stop it, or give another tracking folder; if it is gone: rm %s", e.Path, who, quote(e.File))
}

// explain names what was done to which file, why it failed, and the next step.
func explain(doing, path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	next := ""
	switch {
	case errors.Is(err, syscall.ENOSPC):
		next = "; free space there, or give another tracking folder"
	case errors.Is(err, syscall.EDQUOT):
		next = "; your quota there is used up: remove files, or give another tracking folder"
	case errors.Is(err, syscall.EROFS):
		next = "; the file system is read-only: give another tracking folder"
	case errors.Is(err, fs.ErrPermission):
		next = "; you may not do that there: change the permissions, or give another tracking folder"
	}
	return fmt.Errorf("tracking: %s %s: %w%s", doing, path, err, next)
}
