package coordinator

import (
	"fmt"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/job"
)

// Foreground is what a worker would be told of a task and would inherit from a local launcher, for a block that runs without a
// coordinator.
func Foreground(j *job.Job, task string) (api.TaskSpec, []string, error) {
	pipeline, err := j.Pipeline()
	if err != nil {
		return api.TaskSpec{}, nil, err
	}
	for _, spec := range makeSpecs(j, pipeline, nil) {
		if spec.ID == task {
			return spec, workerEnvironment(), nil
		}
	}
	return api.TaskSpec{}, nil, fmt.Errorf("there is no task %q", task)
}
