package main

import (
	"errors"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/coordinator"
)

// TestARunOfWhichNothingCouldStartIsNotGoneOnWith: its cause is the error of the command, and the next step is another job file.
func TestARunOfWhichNothingCouldStartIsNotGoneOnWith(t *testing.T) {
	why, file, dir, status := `task "a": the batch system refused its workers: Invalid qos specification`, "my job.toml", "/runs/x", exitUsage
	s := api.Stats{Run: api.RunStats{JobFile: &file, Directory: &dir, ExitStatus: &status, Message: &why}, Tasks: []api.TaskStats{{ID: "a", Abandoned: 10}}}
	lines := strings.Join(nextOf(&s), "\n")
	if !strings.Contains(lines, "plan 'my job.toml' --test-only") || !strings.Contains(lines, "run 'my job.toml'") || strings.Contains(lines, "--resume") {
		t.Errorf("what is next:\n%s", lines)
	}
	var as *statusError
	if err := ended(coordinator.Result{ExitStatus: status, Stats: s}, nil); !errors.As(err, &as) || as.status != exitUsage || err.Error() != why {
		t.Errorf("it ends with %v", err)
	}
	status = exitInfrastructure
	if lines := nextOf(&s); len(lines) != 1 || !strings.Contains(lines[0], "run --resume /runs/x") {
		t.Errorf("after an infrastructure that failed: %q", lines)
	}
}
