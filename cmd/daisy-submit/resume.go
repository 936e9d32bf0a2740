package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
)

// resume goes on with a run.
func (r *jobRun) resume(c *cli.Context) error {
	if c.IsSet("run-dir") {
		return usage("--run-dir is for a new run; --resume names the run directory itself")
	}
	for _, flag := range []string{"only", "roi", "limit"} {
		if c.IsSet(flag) {
			return usage("--%s is for a new run; a resume has the part that the run began with", flag)
		}
	}
	where, jobPath := c.String("resume"), ""
	if c.NArg() > 0 {
		var err error
		if jobPath, err = oneArgument(c, "at most one job file"); err != nil {
			return err
		}
		if r.job, err = loadJob(c, jobPath); err != nil {
			return err
		}
	}
	if where == "latest" {
		where = filepath.Join("runs", "latest")
		if r.job != nil {
			where = filepath.Join(r.job.Directory, "latest")
		}
	}
	dir, err := rundir.Open(where)
	switch {
	case err == nil:
	case isFile(where):
		return usage("--resume names a run directory, and %s is a file; %s goes on with the last run of a job file", where, said("run", where, "--resume", "latest"))
	case exists(filepath.Join(where, "latest")):
		return folderOfRuns(where)
	case c.String("resume") == "latest" && jobPath == "" && !exists(where):
		return noRun("latest")
	default:
		return &statusError{exitUsage, fmt.Errorf("--resume %s: %w", c.String("resume"), err)}
	}
	if _, err := os.Stat(dir.JobPath()); errors.Is(err, fs.ErrNotExist) {
		return usage("--resume %s: %s is the run directory of a run that had not begun yet when it was cut off: it has no %s. Remove it, and start a new run", c.String("resume"), dir.Path(), filepath.Base(dir.JobPath()))
	}
	if r.life != nil {
		if err := r.takesUp(dir); err != nil {
			return err
		}
	}
	ended, err := r.reportEnded(dir)
	if ended || err != nil {
		return err
	}
	if err := r.loadFrozen(c, dir); err != nil {
		return err
	}
	return r.goOn(c, dir)
}

// goOn runs the rest of the job of a run directory.
func (r *jobRun) goOn(c *cli.Context, dir *rundir.Dir) error {
	for _, w := range r.job.Warnings {
		fmt.Fprintln(r.stderr, "daisy-submit: warning: "+w)
	}
	if !r.job.Selection.IsAll() {
		fmt.Fprintln(r.stderr, "daisy-submit: "+sayLeft(r.job))
	}
	if err := r.checkFiles(); err != nil {
		return err
	}
	if err := r.holdMemory(); err != nil {
		return err
	}
	if r.life == nil {
		if err := checkNoCoordinatorJob(c.Context, dir, c.Bool("take-over")); err != nil {
			return err
		}
	}
	var err error
	binary := "" // the run's own copy, so that an upgrade does not touch it
	if _, err := os.Stat(dir.WorkerPath()); err != nil {
		if binary, err = findWorker(r.job.Launcher); err != nil {
			return infrastructure(err)
		}
	}
	if r.where != nil {
		return r.leaveResumed(c, dir, binary)
	}
	host, _ := os.Hostname()
	r.lock, err = dir.TryLock()
	var held *rundir.LockedError
	switch here := errors.As(err, &held) && held.Owner.Host == host; {
	case err == nil, held == nil, here && !c.Bool("take-over"): // a process of this machine that has the lock lives: no need to watch it
	case c.Bool("take-over"):
		r.lock, err = dir.TakeOver()
	default:
		r.lock, err = dir.AwaitLock(c.Context, func(o rundir.Owner) {
			fmt.Fprintf(r.stderr, "daisy-submit: %s is held by process %d on %s, since %s; waiting until it moves, or has stood still for %v\n",
				dir.Path(), o.PID, o.Host, o.Since.Format("2006-01-02 15:04:05 MST"), rundir.StaleAfter)
		})
	}
	var locked *rundir.LockedError
	switch {
	case errors.As(err, &locked):
		return &statusError{exitUsage, err}
	case err != nil:
		return infrastructure(err)
	}
	if r.retry == nil { // it may have ended while this one waited for the lock
		if ended, err := r.reportEnded(dir); ended || err != nil {
			return errors.Join(err, r.lock.Unlock())
		}
	}
	r.sayChanged()
	_, err = r.begin(c.Context, dir, binary)
	return err
}

// loadFrozen takes the job from the run directory, with the changes of the command line, which may be of limits only.
func (r *jobRun) loadFrozen(c *cli.Context, dir *rundir.Dir) error {
	opts := jobfile.Options{Machine: machine(), Mask: dir.MaskPath}
	was, err := jobfile.LoadFrozen(dir.JobPath(), nil, opts)
	if err != nil {
		return &statusError{exitUsage, fmt.Errorf("the job of the run in %s: %w", dir.Path(), err)}
	}
	if r.job != nil && r.job.Selection.IsAll() && !was.Selection.IsAll() {
		if r.job, err = loadPart(c, c.Args().First(), was.Selection); err != nil {
			return err
		}
	}
	if r.job == nil {
		opts.Launcher, opts.MaxWorkers = c.String("launcher"), c.Int64("max-workers")
		opts.CheckPython, opts.CheckSlurm, opts.CheckCoordinator = importable(c.Context), checkSlurm, checkCoordinator
		if r.job, err = jobfile.LoadFrozen(dir.JobPath(), c.StringSlice("set"), opts); err != nil {
			return &statusError{exitUsage, err}
		}
	}
	if changes := was.Changes(r.job); changes != nil {
		var errs []error
		for _, change := range changes {
			errs = append(errs, errors.New(change))
		}
		return &statusError{exitUsage, fmt.Errorf("%s cannot be resumed with another job; only limits may change. Start a new run, or undo this:\n%w", dir.Path(), errors.Join(errs...))}
	}
	r.set = append(r.set, limitsGiven(was, r.job, c.StringSlice("set"), c.IsSet("max-workers"))...)
	return nil
}

// limitsGiven are the keys of the limits that a resume was given: on the command line, or because the job beside it has others than the run began
// with.
func limitsGiven(was, now *job.Job, sets []string, maxWorkers bool) (keys []string) {
	for _, s := range sets {
		key, _, _ := strings.Cut(s, "=")
		keys = append(keys, strings.TrimSpace(key))
	}
	if was.HasResources != now.HasResources || was.Resources.String() != now.Resources.String() {
		keys = append(keys, "run.resources")
	}
	for i := range now.Tasks {
		a, b := &was.Tasks[i], &now.Tasks[i]
		if maxWorkers || a.MaxWorkers != b.MaxWorkers {
			keys = append(keys, "task."+b.ID+".max_workers")
		}
		if a.Timeout != b.Timeout {
			keys = append(keys, "task."+b.ID+".timeout")
		}
	}
	return keys
}

// reportEnded prints the report of a run that has ended with all its blocks, well or not; there is nothing to resume then.
func (r *jobRun) reportEnded(dir *rundir.Dir) (ended bool, err error) {
	data, err := os.ReadFile(dir.StatsPath())
	if err != nil {
		return false, nil // it was killed before it could write them
	}
	var stats api.Stats
	if err := json.Unmarshal(data, &stats); err != nil {
		return false, nil // the journal knows better
	}
	status := stats.Run.ExitStatus
	over := stats.Run.State == "done" || stats.Run.State == "failed" && status != nil && *status == exitIncomplete
	if status == nil || !over && !r.life.again() {
		return false, nil
	}
	fmt.Fprintf(r.stderr, "daisy-submit: the run in %s has ended; this is its report\n", dir.Path())
	if r.json {
		if _, err := r.stdout.Write(append(data, '\n')); err != nil {
			return true, infrastructure(err)
		}
	} else if err := report.Tables(r.stdout, stats, report.Table); err != nil {
		return true, infrastructure(err)
	}
	if *status == exitOK {
		return true, nil
	}
	return true, &statusError{status: *status}
}

// sayChanged warns of a job file that was edited since the run began, as a resume does not look at it.
func (r *jobRun) sayChanged() {
	text, err := os.ReadFile(r.job.File)
	if err != nil || bytes.HasSuffix(r.job.Frozen, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) {
		return
	}
	fmt.Fprintf(r.stderr, "daisy-submit: warning: %s has changed since the run began; the run keeps its own copy. Give limits with --set; for other changes start a new run\n", r.job.File)
}
