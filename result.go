package daisy

import (
	"errors"
	"fmt"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
)

// State is where a task or a run is.
type State string

// The states of a run; a task is Running, Done or Abandoned.
const (
	Running     State = "running"
	Done        State = "done"        // run: every block succeeded or was skipped; task: nothing of it is left to do
	Failed      State = "failed"      // some did not
	Stopped     State = "stopped"     // ended early by MaxFailures
	Interrupted State = "interrupted" // ended early by its context
	Abandoned   State = "abandoned"   // given up
)

// Counts says where the blocks of a task are. Total is the sum of the other eight of the first group.
type Counts struct {
	Total, Waiting, Ready, Leased, Success, Skipped, Failed, Orphaned, Abandoned int64
	// Processed counts attempts that returned, as success or failure; Retries those that were tries after a bad end.
	Processed, Retries int64
	// Ends of attempts that did not return.
	TimedOut, Lost, Returned, OutOfMemory int64
}

// A TaskResult is what became of a task.
type TaskResult struct {
	ID    string
	State State
	Counts
	// Failures are the first blocks that failed for good, at most 100.
	Failures []BlockFailure
}

// A BlockFailure is a block that failed for good.
type BlockFailure struct {
	Block    Block // without regions
	Attempts int
	// Message and Tail are of the last attempt: what went wrong, and the end of its output.
	Message, Tail string
}

// A Result is what became of a run.
type Result struct {
	State State
	// Reason says why it ended as it did, where the counts alone do not.
	Reason string
	// Tasks are in topological order.
	Tasks []TaskResult
	// Directory is the run directory, "" if there is none.
	Directory string

	stats api.Stats
}

// Task finds the result of a task, nil if there is none with this id.
func (r *Result) Task(id string) *TaskResult {
	for i := range r.Tasks {
		if r.Tasks[i].ID == id {
			return &r.Tasks[i]
		}
	}
	return nil
}

// ErrIncomplete is wrapped by the error of a run in which some block neither succeeded nor was skipped.
var ErrIncomplete = errors.New("not every block succeeded")

// err is nil if every block succeeded or was skipped.
func (r *Result) err() error {
	if r.State == Done {
		return nil
	}
	var parts []string
	for _, t := range r.Tasks {
		if left := t.Total - t.Success - t.Skipped; left > 0 {
			s := fmt.Sprintf("%s: %d of %d blocks did not", t.ID, left, t.Total)
			if len(t.Failures) > 0 {
				s += fmt.Sprintf(" (first failure: block %v: %s)", t.Failures[0].Block.Index, t.Failures[0].Message)
			}
			parts = append(parts, s)
		}
	}
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	return fmt.Errorf("%w: %s", ErrIncomplete, strings.Join(parts, "; "))
}

// A Snapshot is the state of a run while it goes on.
type Snapshot struct {
	State State
	Tasks []TaskSnapshot
}

// A TaskSnapshot is the state of a task.
type TaskSnapshot struct {
	ID    string
	State State
	Counts
	// Waits says what a task waits for that could do nothing now, "" if it is not waiting.
	Waits string
}

// stateOf is the public word for a state of the engine.
func stateOf(s engine.RunState) State { return State(s.String()) }
