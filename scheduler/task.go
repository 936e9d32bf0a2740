package scheduler

import (
	"errors"
	"fmt"
	"math"

	"example.org/daisy/geom"
)

// Task is one step over a volume.
type Task struct {
	ID   string     // unique in its pipeline
	Grid *geom.Grid // its blocks

	// MaxRetries is the number of failed, timed out or out-of-memory ends that a block survives: one more and it has
	// failed. 0 means no retry; below 0 is invalid.
	MaxRetries int

	// MaxLost is the number of lost attempts (worker gone, on a node that stayed up) at which a block has failed. 0 means
	// DefaultMaxLost, and more than 65535 means 65535.
	MaxLost int

	// Done marks blocks that an earlier run has done, Mask those that this run leaves out. Both are skipped once what they
	// need has ended well. One bit per block by flat index; nil means none. They are read, never written, and must not
	// change while a scheduler uses them.
	Done, Mask Bitmap
}

// DefaultMaxLost is the MaxLost of a task that sets none.
const DefaultMaxLost = 5

// check returns what is wrong with a task, all at once.
func (t Task) check() error {
	var errs []error
	if t.ID == "" {
		errs = append(errs, errors.New("its id is empty"))
	}
	if t.Grid == nil {
		errs = append(errs, errors.New("it has no grid"))
	}
	if t.MaxRetries < 0 || t.MaxRetries > math.MaxInt32-1 {
		errs = append(errs, fmt.Errorf("max_retries %d: must be from 0 to 2^31-2", t.MaxRetries))
	}
	if t.MaxLost < 0 || t.MaxLost > math.MaxInt32-1 {
		errs = append(errs, fmt.Errorf("max_lost %d: must be from 1 to 2^31-2", t.MaxLost))
	}
	if t.Grid != nil {
		want := (t.Grid.Len() + 63) / 64
		for _, b := range []struct {
			name string
			bits Bitmap
		}{{"done", t.Done}, {"mask", t.Mask}} {
			if b.bits != nil && int64(len(b.bits)) != want {
				errs = append(errs, fmt.Errorf("the %s bitmap has %d words: %d blocks need %d", b.name, len(b.bits), t.Grid.Len(), want))
			}
		}
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("scheduler: task %q: %w", t.ID, errors.Join(errs...))
}
