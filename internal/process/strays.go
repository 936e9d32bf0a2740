package process

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// killBound limits the waiting for killed processes where ctx does not: one that hangs in the kernel (a dead file server)
// cannot be ended at all.
const killBound = 10 * time.Second

// EndStrays ends every process that carries all the markers, and its descendants: SIGTERM, and SIGKILL after grace (at once
// if grace is 0). It returns when none is left, with the pids of those that it found. It searches all processes; use
// Process.EndStrays after a process of one's own. Only Linux can find them: elsewhere there are none.
func EndStrays(ctx context.Context, markers []string, grace time.Duration) ([]int, error) {
	if len(markers) == 0 {
		return nil, nil
	}
	return end(ctx, grace, nil, func() ([]target, error) { return strays(markers) })
}

// Strays are the pids of all living processes that carry all the markers ("K=V") in the environment that they were started
// with, and of their descendants; never of this process and its ancestors. None without markers, and none on systems that
// do not show the environment.
func Strays(markers ...string) []int {
	found, err := strays(markers)
	if err != nil {
		return nil
	}
	return pidsOf(found)
}

// A target is a process to end, or with a negative pid a group. start tells it from a later one of the same pid.
type target struct {
	pid   int
	start int64
}

func pidsOf(targets []target) []int {
	pids := make([]int, len(targets))
	for i, t := range targets {
		pids[i] = t.pid
	}
	return pids
}

// end sends signals to the targets and to what find finds until nothing is left of either. What was found once is a target to
// the end: after the death of its parent it may be found no more.
func end(ctx context.Context, grace time.Duration, targets []target, find func() ([]target, error)) (found []int, err error) {
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
		if targets = left; len(left) == 0 {
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
