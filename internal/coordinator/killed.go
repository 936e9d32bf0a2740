package coordinator

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/stats"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/scheduler"
)

// StatsOfKilled are the statistics of a run that was killed before it could write its own: by its journal, with the state "killed". It
// changes nothing, and gives up when ctx ends.
func StatsOfKilled(ctx context.Context, dir *rundir.Dir, j *job.Job) (api.Stats, error) {
	s, err := statsOfKilled(ctx, dir, j)
	if err != nil {
		err = fmt.Errorf("the journal of %s: %w", dir.Path(), err)
	}
	return s, err
}

func statsOfKilled(ctx context.Context, dir *rundir.Dir, j *job.Job) (none api.Stats, err error) {
	pipeline, err := j.Pipeline()
	if err != nil {
		return none, err
	}
	f := newFold(j, pipeline)
	if _, err = f.read(dir.JournalDir(), func(*engine.Attempt) error { return ctx.Err() }); err != nil {
		return none, err
	}
	past, recorder := f.past, f.recorder
	if len(past.Epochs()) == 0 {
		return none, fmt.Errorf("it says nothing: the run was killed before it had begun")
	}
	tasks := pipeline.Tasks()
	if j.Tracking != "" {
		for i := range tasks {
			if tasks[i].Done, err = tracking.ReadDone(filepath.Join(j.Tracking, tasks[i].ID), tasks[i].Grid); err != nil {
				return none, err
			}
		}
		if pipeline, err = scheduler.NewPipeline(tasks, pipeline.Edges()); err != nil {
			return none, err
		}
	}
	segments, wall := segments(past), past.Lasted()
	last := segments[len(segments)-1]
	e, err := past.Standing(j, pipeline, func() bool { return ctx.Err() == nil })
	if err != nil {
		return none, err
	}
	if e == nil {
		return none, ctx.Err()
	}
	in := stats.Input{Run: stats.Run{
		ID: dir.RunID(), Name: j.Name, State: "killed", Message: "as of " + last.Ended.UTC().Format(time.RFC3339) + ", by its journal; it is not running",
		Started: segments[0].Started, Began: last.Started, Wall: wall, Launcher: j.Launcher, JobFile: j.File, Directory: dir.Path(), Logs: logsIn(dir),
		Epoch: last.Epoch, Earlier: segments[:len(segments)-1],
	}}
	var snap engine.Snapshot
	e.Snapshot(&snap)
	addTasks(&in, j, tasks, &snap, e.Limits().Tasks, func(worker string) string { return logIn(dir, worker) })
	return recorder.Stats(in), nil
}
