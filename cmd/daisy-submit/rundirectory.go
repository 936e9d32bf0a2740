package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

// runArgument opens the run directory that a command names: a path, or the name of one in runs/; without one, or with
// "latest", the newest of runs/.
func runArgument(c *cli.Context) (*rundir.Dir, error) {
	if c.NArg() > 1 {
		_, err := oneArgument(c, "a run directory")
		return nil, err
	}
	name := "latest"
	if c.NArg() == 1 {
		name = c.Args().First()
	}
	if name == "" { // a variable of a script that was not set: it does not mean the latest run
		return nil, usage("the run directory is given as \"\", which names none; leave it out for the latest of runs/")
	}
	path := name
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !filepath.IsAbs(name) {
		if inRuns := filepath.Join("runs", name); exists(inRuns) {
			path = inRuns
		} else {
			return nil, noRun(name)
		}
	}
	dir, err := rundir.Open(path)
	switch {
	case err == nil:
		return dir, nil
	case exists(filepath.Join(path, "latest")):
		return nil, folderOfRuns(path)
	case isFile(path):
		return nil, usage("%s is a file, not a run directory. %s", path, whereRunsAre)
	}
	return nil, &statusError{exitUsage, err}
}

// whereRunsAre says how a run directory is found.
const whereRunsAre = "A run says at its start where its directory is: in the one that \"directory\" in the job file names, or in runs/ beside that file"

// noRun is the error of a command that was given the name of no run, or none.
func noRun(name string) error {
	here := absolute("runs")
	if name == "latest" {
		return usage("there is no run in %s: give a run directory. %s", here, whereRunsAre)
	}
	return usage("there is no run directory %s, neither here nor in %s. %s", name, here, whereRunsAre)
}

// folderOfRuns is the error of a command that was given the folder that runs are in, not a run.
func folderOfRuns(path string) error {
	return usage("%s is no run directory but holds some: give %s for the newest; %s lists them", path, filepath.Join(path, "latest"), said("runs", path))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Where a run stands beside the states of stats.json, which are those of runs that have ended.
const (
	runRunning = "running" // a coordinator is alive
	runQueued  = "queued"  // the same, but it is a job that waits in the queue; only where Slurm was asked
	runKilled  = "killed"  // none is, and none has written down how it ended
)

// stateOf is where a run stands, with its statistics if it has any: while it runs those are of an earlier end.
func stateOf(dir *rundir.Dir) (string, *api.Stats) {
	var s *api.Stats
	if data, err := os.ReadFile(dir.StatsPath()); err == nil {
		read := new(api.Stats)
		if json.Unmarshal(data, read) == nil && read.Version == api.StatsVersion {
			s = read
		}
	}
	if _, alive := dir.Coordinated(); alive {
		return runRunning, s
	}
	if s == nil || s.Run.State == "" || s.Run.State == runRunning {
		return runKilled, s
	}
	return s.Run.State, s
}

// mayGoOn tells whether --resume has something to do in a run that is not going on: it was killed or ended early.
func mayGoOn(state string, s *api.Stats) bool {
	switch state {
	case "done":
		return false
	case "failed": // every block was tried, unless the infrastructure failed
		return s == nil || s.Run.ExitStatus != nil && *s.Run.ExitStatus == exitInfrastructure
	default:
		return true
	}
}

// checkTask is an error if a run has no such task.
func checkTask(task string, ids []string) error {
	if slices.Contains(ids, task) {
		return nil
	}
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = strconv.Quote(id)
	}
	return usage("there is no task %q in this run; it has %s", task, strings.Join(quoted, ", "))
}

// blockName is a block as people see it: its id, or where ids do not fit its position.
func blockName(id *uint64, index []int64) string {
	if id != nil {
		return fmt.Sprint(*id)
	}
	return "(" + numbers(index, ", ") + ")"
}
