package worker

import "errors"

// Exit statuses of daisy-worker. 0 is: told to leave.
const (
	// StatusCannotStart: user code could not be started.
	StatusCannotStart = 1
	// StatusUsage: the command line is wrong.
	StatusUsage = 2
	// StatusNoAnswer: no address of the coordinator answered with the right secret.
	StatusNoAnswer = 3
	// StatusRefused: the coordinator does not want this worker (version, epoch, twin, a node that is excluded).
	StatusRefused = 4
	// StatusGone: the coordinator was there and has been silent for too long.
	StatusGone = 5
	// StatusNoGPU: fewer GPUs than the task needs.
	StatusNoGPU = 6
)

// An ExitError is why a worker ended otherwise than by being told to leave; Status is the exit status of daisy-worker.
type ExitError struct {
	Status int
	Err    error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

var (
	// ErrNoMore is what Acquire gives once the worker leaves.
	ErrNoMore = errors.New("no more blocks: the worker leaves")
	// ErrReclaimed is what Release gives for a block that is no longer the worker's own. Nothing was sent.
	ErrReclaimed = errors.New("the block was reclaimed")
)
