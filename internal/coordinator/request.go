package coordinator

import (
	"slices"
	"strconv"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

// RequestFor is what a launcher is asked for count workers of a task, but for the environment, logs and nodes. argv is the program with its
// first arguments, runDir "" where there is no run directory.
func RequestFor(j *job.Job, t *job.Task, tag string, count int, argv []string, runDir string) launcher.Request {
	r := requestOf(t)
	r.Tag, r.Count, r.Dir = tag, count, j.Dir
	slots := strconv.Itoa(max(t.Slots, 1))
	if t.Fill && j.Launcher == "slurm" {
		slots, r.Fill = "fill", true
	}
	r.Argv = append(slices.Clone(argv), "--slots", slots)
	if runDir != "" {
		r.Argv = append(r.Argv, "--run-dir", runDir)
	}
	return r
}

// requestOf is what one worker of a task needs.
func requestOf(t *job.Task) launcher.Request {
	each := t.Requires.Times(int64(max(t.Slots, 1)))
	return launcher.Request{CPUMilli: each.Get("cpu"), MemoryBytes: each.Get("memory"), GPUs: gpus(each), Options: t.Options}
}

// LaunchEnvironment is an environment for launched workers, with what marks them as those of a run.
func LaunchEnvironment(env []string, runID string) []string {
	return append(slices.Clone(env), launchedFor+"="+runID)
}
