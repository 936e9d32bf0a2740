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
	ID string
	// State is "running", "done" or "abandoned".
	State                  string
	Blocks                 int64
	Waiting, Ready, Leased int64
	// Running is how many of the leased blocks run; the others wait on their worker for their turn.
	Running                                       int64
	Success, Skipped, Failed, Orphaned, Abandoned int64
	// Retries is how many attempts were begun because the one before failed.
	Retries int64
	// Slots is how many slots work for the task or are coming up.
	Slots int64
	// Waits says what the task waits for: "" if it does not.
	Waits string
}

// Done is how many blocks have ended well.
func (t *TaskProgress) Done() int64 { return t.Success + t.Skipped }

// left is how many blocks may still run.
func (t *TaskProgress) left() int64 { return t.Waiting + t.Ready + t.Leased }
