package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher/slurm"
)

// A jobLife is one life of a coordinator that is a job of Slurm: from its start to its end, or to its return to the queue.
type jobLife struct {
	slurm    *slurm.Launcher
	id       string
	restarts int // how often the job has been started before
	away     time.Duration
	requeued bool // it is in the queue again already
}

// newJobLife reads who this job is.
func newJobLife() (*jobLife, error) {
	id := os.Getenv("SLURM_JOB_ID")
	if id == "" {
		return nil, usage("%s=%s is set by the batch script of a coordinator, and this process is in no job of Slurm", startedBy, asJob)
	}
	os.Args[0] = filepath.Base(os.Args[0])                        // what it says to type is for login nodes, not for its copy in the run directory
	restarts, _ := strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT")) // it is not set in the first life
	return &jobLife{id: id, restarts: restarts}, nil
}

// again: the job has been started before, so that what has been written of the run's end is its end, and Slurm has not seen it.
func (l *jobLife) again() bool { return l != nil && l.restarts > 0 }

// takesUp has a coordinator that is a job go on where that job is to: only the one that the run directory names may.
func (r *jobRun) takesUp(dir *rundir.Dir) error {
	j, err := dir.CoordinatorJob()
	for until := time.Now().Add(notedWithin); err == nil && (j == nil || j.Job != r.life.id) && time.Now().Before(until); j, err = dir.CoordinatorJob() {
		time.Sleep(notedWithin / 100) // it is written when sbatch has answered, and a file system may show it late
	}
	switch {
	case err != nil:
		return infrastructure(err)
	case j == nil:
		return usage("the run in %s has no job for its coordinator: this job is not wanted", dir.Path())
	case j.Job != r.life.id:
		return usage("the coordinator of the run in %s is job %s: this job, %s, is not wanted", dir.Path(), j.Job, r.life.id)
	}
	if !r.life.again() {
		r.set = j.Set
	}
	return nil
}

// notedWithin is how long the run directory may take to name the job. It is a variable for tests.
var notedWithin = time.Minute

const (
	// whyTime bounds the question why the job is told to end: it has KillWait, half a minute mostly.
	whyTime = 5 * time.Second
	// asideWithin is how long a coordinator may take to step aside before it is taken for one whose run ends.
	asideWithin = 3 * time.Second
	// requeueFor is for how long the job tries to return to the queue, and then waits to be ended.
	requeueFor   = 2 * time.Minute
	requeueEvery = 5 * time.Second
)

// minds takes in a signal of Slurm, and reports whether that is all that it means.
func (l *jobLife) minds(sig syscall.Signal, c *coordinator.Coordinator, notice func(string)) bool {
	why := ""
	switch sig {
	case syscall.SIGUSR1:
		why = "Slurm will soon end this job"
	case syscall.SIGTERM:
		if why = l.returns(); why == "" {
			return false
		}
		// A run that is ending does not step aside.
		time.AfterFunc(asideWithin, func() { c.Interrupt(sig) })
	default:
		return false
	}
	notice(fmt.Sprintf("%s: the run goes on when job %s starts again; until then workers keep what they run, for %s at most", why, l.id, units.Duration(l.away)))
	c.StepAside(l.away, why)
	return true
}

// returns says why Slurm ends the job, if that is no reason for the run to end.
func (l *jobLife) returns() string {
	ctx, cancel := context.WithTimeout(context.Background(), whyTime)
	defer cancel()
	why, err := l.slurm.WhyEnds(ctx, l.id, l.restarts)
	switch {
	case err != nil || why == slurm.EndWanted:
		return ""
	case why == slurm.EndRequeued:
		l.requeued = true
		return "Slurm ends this job, and has put it into the queue again"
	default:
		return "the time limit of this job is over"
	}
}

// goesBack returns the job to the queue, and waits to be ended: its own end could be taken for that of the run.
func (l *jobLife) goesBack(signals <-chan os.Signal, notice func(string)) error {
	ctx, cancel := context.WithTimeout(context.Background(), requeueFor)
	defer cancel()
	for !l.requeued {
		err := l.slurm.Requeue(ctx, l.id)
		if err == nil {
			l.requeued = true
			break
		}
		notice(fmt.Sprintf("job %s cannot be put back into the queue: %v", l.id, err))
		select {
		case <-time.After(requeueEvery):
		case <-ctx.Done():
			return infrastructure(fmt.Errorf("job %s could not be put back into the queue, and the run has not ended: its workers keep what they run for %s. Resume it", l.id, units.Duration(l.away)))
		}
	}
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
