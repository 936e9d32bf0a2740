package main

import (
	"errors"
	"fmt"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// How many files are open at once at most. A run that cannot open one more ends: it can write nothing down.
const (
	// filesOfProgram are those that do not depend on the job, in this program and in a worker.
	filesOfProgram = 32
	// filesOfTask are those of its tracking.
	filesOfTask = 4
	// filesOfResources are those of its tracking besides, if it keeps what blocks use.
	filesOfResources = 7
	// filesOfWorker are its connection, its log and its process.
	filesOfWorker = 3
	// filesOfSlot are the pipes and the process of user code, in the worker.
	filesOfSlot = 8
)

// checkFileLimit refuses a job whose workers and slots may need more open files than the system allows a process.
func checkFileLimit(j *job.Job, budget scheduler.Resources, limit uint64) error {
	if j.Launcher == "serial" {
		return nil
	}
	var errs []error
	have := int64(min(limit, 1<<40))
	refuse := func(who string, need int64, instead string) {
		if need > have {
			errs = append(errs, fmt.Errorf("%s needs %s open files, and the limit is %s: give more with \"ulimit -n %d\" before the start, which above the hard limit needs an administrator; or %s",
				who, units.Count(need), units.Count(have), need+1, instead))
		}
	}
	base := filesOfProgram + filesOfTask*int64(len(j.Tasks))
	for _, t := range j.Tasks {
		if t.ResourceTracking && j.Tracking != "" {
			base += filesOfResources
		}
	}
	workers := mostWorkers(j, budget)
	refuse(fmt.Sprintf("a run with %s at once", units.Plural(workers, "worker")), base+filesOfWorker*workers,
		fmt.Sprintf("allow %s at most, by max_workers of the tasks or resources of [run]", units.Plural(max(have-base, 0)/filesOfWorker, "worker")))
	for _, t := range j.Tasks {
		slots := int64(max(t.Slots, 1))
		refuse(fmt.Sprintf("task %q: a worker with %s", t.ID, units.Plural(slots, "slot")), filesOfProgram+filesOfSlot*slots, "give it fewer slots")
	}
	return errors.Join(errs...)
}

// mostWorkers is how many workers there can be at once at most: as many as have blocks, max_workers allows, and the budget has
// room for.
func mostWorkers(j *job.Job, budget scheduler.Resources) int64 {
	const plenty = 1 << 40
	of := make([]int64, len(j.Tasks))
	var all int64
	for i := range j.Tasks {
		t := &j.Tasks[i]
		slots := min(fitting(t, budget), plenty)
		if t.MaxWorkers > 0 {
			slots = min(slots, t.MaxWorkers)
		}
		each := int64(max(t.Slots, 1))
		of[i] = min(slots/each, (min(t.Grid.Len(), plenty)+each-1)/each)
		all += of[i]
	}
	most := all
	for _, name := range budget.Names() {
		var others, sharing, least int64
		for i := range j.Tasks {
			need := j.Tasks[i].Requires.Times(int64(max(j.Tasks[i].Slots, 1))).Get(name)
			if need == 0 {
				others += of[i]
				continue
			}
			sharing += of[i]
			if least == 0 || need < least {
				least = need
			}
		}
		if least > 0 {
			most = min(most, others+min(sharing, budget.Get(name)/least))
		}
	}
	return most
}
