package job

import (
	"fmt"
	"reflect"
	"slices"
)

// Changes names what differs between the job of a run and one with which it is to be resumed, other than limits: what has been done
// would not be what the new one asks for. Limits are max_workers, resources, timeouts of blocks and of silence, retries, priorities,
// and where the coordinator listens.
func (j *Job) Changes(now *Job) []string {
	var list []string
	differs := func(what string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			list = append(list, fmt.Sprintf("%s was %v, and is %v now", what, a, b))
		}
	}
	differs("the name", j.Name, now.Name)
	differs("the launcher", j.Launcher, now.Launcher)
	differs("the folder of the job file", j.Dir, now.Dir)
	differs("tracking", j.Tracking, now.Tracking)
	differs("what is selected", j.Selection, now.Selection)
	differs("the list of tasks", j.TaskIDs(), now.TaskIDs())
	if !slices.Equal(j.TaskIDs(), now.TaskIDs()) {
		return list
	}
	for i := range j.Tasks {
		a, b := &j.Tasks[i], &now.Tasks[i]
		of := func(key string) string { return fmt.Sprintf("task %q: %s", a.ID, key) }
		differs(of("after"), a.After, b.After)
		differs(of("its blocks"), a.Grid.Spec(), b.Grid.Spec())
		differs(of("array"), a.ArrayPath, b.ArrayPath)
		differs(of("output"), a.OutputPath, b.OutputPath)
		differs(of("run"), runnerOf(a), runnerOf(b))
		differs(of("check"), a.Check, b.Check)
		differs(of("requires"), a.Requires, b.Requires)
		differs(of("slots"), a.Slots, b.Slots)
		differs(of("env"), a.Env, b.Env)
		differs(of("skip_mask"), a.SkipMask, b.SkipMask)
		if a.SkipMask == b.SkipMask && !reflect.DeepEqual(a.Mask, b.Mask) {
			list = append(list, of("skip_mask")+" has other blocks now")
		}
	}
	return list
}

func runnerOf(t *Task) []any {
	r := []any{t.Runner.Kind.String(), t.Runner.Argv}
	if t.Runner.Kind == RunnerPython {
		r = append(r, t.Runner.Python)
	}
	return r
}

// TaskIDs are the ids of the tasks in the order of the job file.
func (j *Job) TaskIDs() (ids []string) {
	for i := range j.Tasks {
		ids = append(ids, j.Tasks[i].ID)
	}
	return ids
}
