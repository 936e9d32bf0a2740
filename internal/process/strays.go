package process

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// killBound limits the waiting for killed processes where ctx does not: one that hangs in the kernel (a dead file server)
// cannot be ended at all.
const killBound = 10 * time.Second

// PIDs are processes of which somebody is to be told.
type PIDs []int

// shownPIDs is how many of them anybody wants to read.
const shownPIDs = 10

// String is "[17 18 19]", and of many "[1 2 3 4 5 6 7 8 9 10 and 1490 more]".
func (p PIDs) String() string {
	if len(p) <= shownPIDs {
		return fmt.Sprint([]int(p))
	}
	first := fmt.Sprint([]int(p[:shownPIDs]))
	return fmt.Sprintf("%s and %d more]", strings.TrimSuffix(first, "]"), len(p)-shownPIDs)
}

// A target is a process to end, or with a negative pid a group. start tells it from a later one of the same pid.
type target struct {
	pid   int
	start int64
}

// Found is a process that Marked has found.
type Found struct {
	target  target
	environ string
}

func pidsOf(targets []target) PIDs {
	pids := make(PIDs, len(targets))
	for i, t := range targets {
		pids[i] = t.pid
	}
	return pids
}

// end sends signals to the targets and to what find finds until nothing is left of either. What was found once is a target to
// the end: after the death of its parent it may be found no more.
func end(ctx context.Context, grace time.Duration, targets []target, find func() ([]target, error)) (found PIDs, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, grace+killBound, fmt.Errorf("they still exist %v after SIGKILL", killBound))
	defer cancel()
	deadline := time.Now().Add(grace)
	told := map[target]bool{}
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		more, err := find()
		if err != nil {
			return found, err
		}
		for _, t := range more {
			if !slices.Contains(targets, t) {
				targets = append(targets, t)
			}
		}
		late := !time.Now().Before(deadline)
		var left []target
		for _, t := range targets {
			if !t.alive() {
				continue
			}
			left = append(left, t)
			switch {
			case late:
				_ = syscall.Kill(t.pid, syscall.SIGKILL) // it may be gone
			case !told[t]:
				_ = syscall.Kill(t.pid, syscall.SIGTERM)
			}
			if !told[t] {
				told[t] = true
				found = append(found, t.pid)
			}
		}
		// Who has ended since it was found may have started another just before.
		if targets = left; len(left) == 0 && len(more) == 0 {
			return found, nil
		}
		// Nothing announces the end of a process that is not one's child.
		wait := pause
		if !late {
			wait = min(wait, max(time.Until(deadline), 0))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return found, fmt.Errorf("processes %v could not be ended: %w", pidsOf(left), context.Cause(ctx))
		}
	}
}
