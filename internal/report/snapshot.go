// Package report is what people see of a run: progress while it goes on, tables when it is over.
package report

import "time"

// A Snapshot is where a run stands.
type Snapshot struct {
	// State is the run's: "running", "done", …
	State string
	// Elapsed is the time since the run began.
	Elapsed time.Duration
	// Tasks are in the order of the pipeline, which is the same in every snapshot of a run.
	Tasks []TaskProgress
}

// TaskProgress is where one task stands. Blocks = Waiting + Ready + Leased + Success + Skipped + Failed + Orphaned +
// Abandoned.
type TaskProgress struct {
	ID string `json:"id"`
	// State is "running", "done" or "abandoned".
	State     string `json:"state"`
	Blocks    int64  `json:"blocks"`
	Waiting   int64  `json:"waiting"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Success   int64  `json:"success"`
	Skipped   int64  `json:"skipped"`
	Failed    int64  `json:"failed"`
	Orphaned  int64  `json:"orphaned"`
	Abandoned int64  `json:"abandoned"`
	// Unselected is how many blocks are left out of this run; they are skipped in time.
	Unselected int64 `json:"unselected"`
	// Retries is how many attempts were begun because the one before failed.
	Retries int64 `json:"retries"`
	// Slots is how many slots work for the task or are coming up.
	Slots int64 `json:"slots"`
	// Running is how many of the leased blocks run; the others wait on their worker for their turn.
	Running int64 `json:"-"`
	// Waits says what the task waits for: "" if it does not.
	Waits string `json:"-"`
}

// selected is how many blocks are of this run.
func (t *TaskProgress) selected() int64 { return t.Blocks - t.Unselected }

// Done is how many of them have ended well. As long as blocks that are not selected may not have been skipped, those that have been are
// taken for such.
func (t *TaskProgress) Done() int64 { return t.Success + max(t.Skipped-t.Unselected, 0) }

// left is how many of them may still run.
func (t *TaskProgress) left() int64 {
	return max(t.selected()-t.Done()-t.Failed-t.Orphaned-t.Abandoned, 0)
}
