package tracking

import (
	"errors"
	"io/fs"
	"math/bits"
	"path/filepath"

	"example.org/daisy/geom"
)

// Forget clears the done marks of a group, and returns how many there were. Failures, which are a history, stay. It takes the lock of
// the group, and refuses what Open refuses; where there is no group there is nothing to forget.
func Forget(dir string, g *geom.Grid, options ...Option) (marks int64, err error) {
	s, err := newStore(osDisk{flock}, dir, g)
	if err != nil {
		return 0, err
	}
	if fresh, err := isFresh(s.disk, s.dir); fresh || err != nil {
		return 0, err
	}
	if s, err = Open(dir, g, options...); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	done, err := s.Done()
	if err != nil {
		return 0, err
	}
	for _, word := range done {
		marks += int64(bits.OnesCount64(word))
	}
	if marks == 0 {
		return 0, nil
	}
	// A chunk that is not there is one of zeros: nobody ever sees a part of the marks.
	path := chunkPath(filepath.Join(s.dir, doneArray), s.cells)
	if err := s.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, explain("remove", path, err)
	}
	return marks, syncDir(s.disk, filepath.Dir(path))
}
