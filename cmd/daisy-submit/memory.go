package main

import (
	"errors"
	"fmt"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
)

// How the memory of blocks is enforced.
const (
	byCgroup = "cgroup"    // of all processes of a block together
	byRlimit = "rlimit_as" // of the address space of each process for itself
)

// How enforced memory can be had for a block as a whole, where systemd and cgroups of version 2 are.
const inAScope = "systemd-run --user --scope -p Delegate=yes daisy-submit run"

// A memoryHold is how this machine enforces memory: how is "" where it cannot. base is the cgroup below which those of blocks are
// made, why the reason for which it is not by cgroup.
type memoryHold struct {
	how, base string
	why       error
}

// memoryHoldAt looks below root, which is "/" but for tests.
func memoryHoldAt(root string) memoryHold {
	if !process.CanLimitMemory() {
		return memoryHold{why: errors.New("this system has no way to start a program with limited memory; Linux has")}
	}
	base, err := process.FindMemoryCgroups(root)
	if err != nil {
		return memoryHold{how: byRlimit, why: err}
	}
	return memoryHold{how: byCgroup, base: base}
}

// says is what the limit of one task means, one line.
func (h memoryHold) says(t *job.Task) string {
	most := units.Size(t.Requires.Get("memory"))
	if h.how == byCgroup {
		return fmt.Sprintf("task %q: the processes of a block cannot use more than %s of memory together (cgroups below %s)", t.ID, most, h.base)
	}
	return fmt.Sprintf("task %q: no process of a block can have more than %s of address space (RLIMIT_AS), but several can together, as cgroups cannot be used: %v", t.ID, most, h.why)
}

// warns is what may go wrong, "" if nothing.
func (h memoryHold) warns(t *job.Task) string {
	if h.how != byRlimit || t.Requires.Get("gpu") == 0 {
		return ""
	}
	return fmt.Sprintf("task %q: enforce_memory: programs that use GPUs reserve far more address space than memory, and may not start under RLIMIT_AS", t.ID)
}

// checkMemory refuses a job whose memory this machine cannot enforce, as it says, and gives the tasks that ask for it.
func (h memoryHold) checkMemory(j *job.Job) (asked []*job.Task, err error) {
	var errs []error
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if !t.EnforceMemory {
			continue
		}
		asked = append(asked, t)
		if h.how == "" {
			errs = append(errs, fmt.Errorf("task %q: enforce_memory: %w; leave it out here", t.ID, h.why))
		}
	}
	return asked, errors.Join(errs...)
}

// holdMemory says before anything is started how memory will be enforced, and refuses what cannot be.
func (r *jobRun) holdMemory() error {
	hold := memoryHoldAt("/")
	asked, err := hold.checkMemory(r.job)
	if err != nil {
		return &statusError{exitUsage, err}
	}
	if len(asked) > 0 && hold.how == byCgroup {
		// Workers find it as it is left now: this process is one of those that may have to move.
		if _, err := process.OpenMemoryCgroups("/"); err != nil {
			hold = memoryHold{how: byRlimit, why: err}
		}
	}
	for _, t := range asked {
		fmt.Fprintln(r.stderr, "daisy-submit: "+hold.says(t))
		if text := hold.warns(t); text != "" {
			fmt.Fprintln(r.stderr, "daisy-submit: warning: "+text)
		}
	}
	return nil
}

// memoryLimitFinding says how memory can be enforced here.
func memoryLimitFinding(h memoryHold) finding {
	const check = "enforced memory"
	switch h.how {
	case byCgroup:
		return is(check, fine, "of all processes of a block together (cgroups below "+h.base+")", "")
	case byRlimit:
		return is(check, warning, "of each process of a block for itself (RLIMIT_AS)",
			fmt.Sprintf("only tasks with enforce_memory = true need it. %v. Where systemd and cgroups of version 2 are, a run gets its own with \"%s JOB\"", h.why, inAScope))
	}
	return is(check, warning, "not possible", fmt.Sprintf("only tasks with enforce_memory = true need it: %v", h.why))
}
