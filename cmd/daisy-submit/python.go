package main

import (
	"context"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/worker"
)

// importable imports the functions of python tasks as their workers will.
func importable(ctx context.Context) func(*job.Job, *job.Task) (string, error) {
	return func(j *job.Job, t *job.Task) (string, error) {
		spec, inherited, err := coordinator.Foreground(j, t.ID)
		if err != nil {
			return "", err
		}
		return worker.CheckPython(ctx, spec, inherited)
	}
}
