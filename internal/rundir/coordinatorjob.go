package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	coordinatorJobFile = "coordinator.json"
	coordinatorLogFile = "coordinator.log"
	submitName         = "daisy-submit"
)

// A CoordinatorJob says that the coordinator of a run is a job of a batch system.
type CoordinatorJob struct {
	Version   int       `json:"version"`
	Job       string    `json:"job"`
	Cluster   string    `json:"cluster,omitempty"`
	Submitted time.Time `json:"submitted"`
	// Set are the keys of limits that the resume was given which submitted it.
	Set []string `json:"set,omitempty"`
}

// WriteCoordinatorJob says which job is the coordinator. The version is filled in.
func (d *Dir) WriteCoordinatorJob(j CoordinatorJob) error {
	j.Version = 1
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", d.join(coordinatorJobFile), err)
	}
	return d.write(coordinatorJobFile, append(data, '\n'))
}

// CoordinatorJob says which job is the coordinator, nil if none is.
func (d *Dir) CoordinatorJob() (*CoordinatorJob, error) {
	path := d.join(coordinatorJobFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, explain("read", path, err)
	}
	j := new(CoordinatorJob)
	if err := json.Unmarshal(data, j); err != nil || j.Version != 1 || j.Job == "" {
		return nil, fmt.Errorf("%s cannot be read as the job of the coordinator, version 1; remove it if no job of this run is in the queue", path)
	}
	return j, nil
}

// ForgetCoordinatorJob says that no job is the coordinator any more.
func (d *Dir) ForgetCoordinatorJob() error {
	path := d.join(coordinatorJobFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain("remove", path, err)
	}
	return nil
}

// CoordinatorLog takes the output of a coordinator that has no terminal.
func (d *Dir) CoordinatorLog() string { return d.join(coordinatorLogFile) }

// SubmitPath is where CopySubmit puts the program.
func (d *Dir) SubmitPath() string { return filepath.Join(d.path, binDir, submitName) }

// CopySubmit copies this program into the run directory, as CopyWorker does the worker's.
func (d *Dir) CopySubmit(src string) error { return copyProgram(src, d.SubmitPath()) }
