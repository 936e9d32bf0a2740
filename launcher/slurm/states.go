package slurm

import (
	"strings"

	"example.org/daisy/launcher"
)

// A state is what a word of squeue or sacct means for a worker.
type state struct {
	state launcher.State
	cause launcher.Cause // of an end; of a node that failed, too
	// plain is for people who do not know Slurm.
	plain string
}

// states has every word for the state of a job of Slurm 18 to 25. What proves nothing is launcher.Unknown: a job in it may hold
// resources, run again, or be gone.
var states = map[string]state{
	"PENDING":     {launcher.Pending, 0, "waits in the queue"},
	"RUNNING":     {launcher.Running, 0, "runs"},
	"CONFIGURING": {launcher.Running, 0, "has a node, which is being made ready"},

	"COMPLETED":     {launcher.Ended, launcher.Exited, "ended"},
	"FAILED":        {launcher.Ended, launcher.Exited, "ended with an exit status other than 0, or by a signal"},
	"CANCELLED":     {launcher.Ended, launcher.Cancelled, "was cancelled"},
	"TIMEOUT":       {launcher.Ended, launcher.TimeLimit, "was ended at its time limit"},
	"DEADLINE":      {launcher.Ended, launcher.TimeLimit, "was ended at its deadline"},
	"OUT_OF_MEMORY": {launcher.Ended, launcher.OutOfMemory, "ran out of memory"},
	"PREEMPTED":     {launcher.Ended, launcher.Preempted, "was ended in favour of another job"},

	"NODE_FAIL":     {launcher.Unknown, launcher.NodeFailed, "its node failed"},
	"BOOT_FAIL":     {launcher.Unknown, launcher.NodeFailed, "its node did not boot"},
	"LAUNCH_FAILED": {launcher.Unknown, 0, "it could not be started on its node"},
	"RECONFIG_FAIL": {launcher.Unknown, 0, "its node could not be configured"},
	"REQUEUED":      {launcher.Unknown, 0, "goes back to the queue"},
	"REQUEUE_FED":   {launcher.Unknown, 0, "goes back to the queue of a federation"},
	"REQUEUE_HOLD":  {launcher.Unknown, 0, "goes back to the queue and is held there"},
	"SPECIAL_EXIT":  {launcher.Unknown, 0, "goes back to the queue and is held there"},
	"RESV_DEL_HOLD": {launcher.Unknown, 0, "is held, as its reservation was deleted"},
	"COMPLETING":    {launcher.Unknown, 0, "is ending: its node is being cleaned up"},
	"STAGE_OUT":     {launcher.Unknown, 0, "is ending: its files are being moved"},
	"RESIZING":      {launcher.Unknown, 0, "is changing its size"},
	"SIGNALING":     {launcher.Unknown, 0, "is being sent a signal"},
	"STOPPED":       {launcher.Unknown, 0, "is stopped and keeps its node"},
	"SUSPENDED":     {launcher.Unknown, 0, "is suspended: its node runs something else"},
	"REVOKED":       {launcher.Unknown, 0, "runs in another cluster of the federation"},
	"POWER_UP_NODE": {launcher.Unknown, 0, "waits for its node to be switched on"},
	"UPDATE_DB":     {launcher.Unknown, 0, "is being recorded"},
	"EXPEDITING":    {launcher.Unknown, 0, "goes back to the queue, to its front"},
}

// unknownExit is the exit status of an end of which only the failure is known.
const unknownExit = -1

// stateOf reads a word for a state, as of a job on a node ("" if it never had one).
func stateOf(word, node string) (launcher.State, string, launcher.End) {
	word = strings.ToUpper(strings.TrimSuffix(strings.TrimSpace(word), "+"))
	s, known := states[word]
	if !known || s.state != launcher.Ended {
		return s.state, word, launcher.End{Cause: s.cause}
	}
	end := launcher.End{Cause: s.cause}
	switch {
	case node == "" && s.cause != launcher.Exited && s.cause != launcher.Cancelled:
		end.Cause = launcher.NeverStarted
	case word == "FAILED":
		end.Exit = unknownExit
	}
	if word != "COMPLETED" {
		end.Detail = s.plain + " (" + word + ")"
	}
	return launcher.Ended, word, end
}

// Plain says what a state means, for people; the word itself if nobody knows it.
func Plain(word string) string {
	if s, known := states[word]; known {
		return s.plain
	}
	return "is in a state that this version does not know (" + word + ")"
}
