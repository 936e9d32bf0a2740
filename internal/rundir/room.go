package rundir

import (
	"errors"
	"fmt"
	"syscall"

	"example.org/daisy/internal/units"
)

// leastRoom is what a disk must have free for a run to go on: some commits of the journal, or the first lines of logs.
const leastRoom = 1 << 20

// A disk is what is free for this user where a path is.
type disk struct {
	bytes, files int64
	limited      bool // some file systems have no end, or do not tell it
}

func diskOf(path string) (disk, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return disk{}, err
	}
	return disk{bytes: int64(s.Bavail) * int64(s.Bsize), files: int64(s.Ffree), limited: s.Blocks > 0}, nil
}

// Shortage says in words what is free on the disk of a path and what is needed, to stand behind err. It is empty if err is
// nothing that more room would mend, or if the system does not tell.
func Shortage(err error, path string, needed int64) string {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return ""
	}
	d, statErr := diskOf(path)
	switch {
	case statErr != nil:
		return ""
	case errors.Is(err, syscall.ENOSPC) && d.limited && d.files == 0 && d.bytes >= needed:
		return " (its disk has no inodes left for more files)"
	default: // a quota may leave less than the disk has
		return fmt.Sprintf(" (%s are needed, its disk has %s free)", units.Size(needed), units.Size(d.bytes))
	}
}

// CheckWritable says that nothing more can be written where a path is, which exists: it is read-only, or its disk is full.
func CheckWritable(path string) error {
	const writable = 2
	if err := syscall.Access(path, writable); errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) {
		return explain("write into", path, err)
	}
	d, err := diskOf(path)
	switch {
	case err != nil:
		return explain("look how much room there is for", path, err)
	case d.limited && d.bytes < leastRoom:
		return fmt.Errorf("%s: %w (%s are needed, its disk has %s free); free at least %s there",
			path, syscall.ENOSPC, units.Size(leastRoom), units.Size(d.bytes), units.Size(leastRoom-d.bytes))
	default:
		return nil
	}
}

// CheckWritable says that the run cannot write down any more what becomes of its blocks. Each folder may have a disk of its own.
func (d *Dir) CheckWritable() error {
	for _, path := range []string{d.path, d.JournalDir(), d.LogsDir()} {
		if err := CheckWritable(path); err != nil {
			return err
		}
	}
	return nil
}
