package main

import (
	"context"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/rundir"
)

// How long the journal of a run that was killed may be read: a list of runs can do without, statistics cannot.
const (
	readForList  = 2 * time.Second
	readForStats = 5 * time.Minute
)

// statsOfKilled are the statistics of a run that was killed, by its journal.
func statsOfKilled(ctx context.Context, dir *rundir.Dir, limit time.Duration) (s api.Stats, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	j, err := jobfile.LoadFrozen(dir.JobPath(), nil, jobfile.Options{Machine: machine(), Mask: dir.MaskPath})
	if err != nil {
		return s, err
	}
	return coordinator.StatsOfKilled(ctx, dir, j)
}
