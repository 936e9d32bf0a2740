package coordinator

import (
	"slices"
	"strconv"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

// RequestFor is what a launcher is asked for count workers of a task with all their slots, but for the environment, logs and nodes. argv is the
// program with its first arguments, runDir "" where there is no run directory.
func RequestFor(j *job.Job, t *job.Task, tag string, count int, argv []string, runDir string) launcher.Request {
	return requestFor(j, t, tag, count, t.Slots, argv, runDir)
}

// requestFor is RequestFor with a number of slots, which may be fewer than those of the task where there is no room for all.
func requestFor(j *job.Job, t *job.Task, tag string, count, slots int, argv []string, runDir string) launcher.Request {
	r := requestOf(t, slots)
	r.Tag, r.Count, r.Dir = tag, count, j.Dir
	number := strconv.Itoa(max(slots, 1))
	if t.Fill && j.Launcher == "slurm" {
		number, r.Fill = "fill", true
	}
	r.Argv = append(slices.Clone(argv), "--slots", number)
	if runDir != "" {
		r.Argv = append(r.Argv, "--run-dir", runDir)
	}
	return r
}

// requestOf is what one worker of a task needs that has so many slots. One that fills what it is given asks for one slot.
func requestOf(t *job.Task, slots int) launcher.Request {
	if t.Fill {
		slots = t.Slots
	}
	each := t.Requires.Times(int64(max(slots, 1)))
	return launcher.Request{CPUMilli: each.Get("cpu"), MemoryBytes: each.Get("memory"), GPUs: gpus(each), Options: t.Options}
}

// LaunchEnvironment is an environment for launched workers, with what marks them as those of a run.
func LaunchEnvironment(env []string, runID string) []string {
	return append(slices.Clone(env), launchedFor+"="+runID)
}
