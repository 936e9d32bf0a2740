package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/jobfile"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/slurm"
)

// checkCoordinator finds what is wrong with the options of the job that is the coordinator.
func checkCoordinator(options map[string][]string) (faults, warnings []jobfile.OptionFault) {
	_, f, w := slurm.ParseCoordinator(options)
	for _, x := range f {
		faults = append(faults, jobfile.OptionFault(x))
	}
	for _, x := range w {
		warnings = append(warnings, jobfile.OptionFault(x))
	}
	return faults, warnings
}

// alike are the keys of workers that the coordinator has too, where all tasks agree and its own table says nothing.
var alike = []string{"account", "partition", "qos", "reservation", "setup", "login_env", "prefix", "cluster"}

// coordinatorOptions are those of the job that is the coordinator of a run.
func coordinatorOptions(j *job.Job) (slurm.CoordinatorOptions, error) {
	given := map[string][]string{}
	for _, key := range alike {
		value, there := j.Tasks[0].Options[key]
		for i := range j.Tasks {
			there = there && slices.Equal(value, j.Tasks[i].Options[key])
		}
		if there {
			given[key] = value
		}
	}
	for key, value := range j.Coordinator {
		given[key] = value
	}
	o, faults, _ := slurm.ParseCoordinator(given)
	var errs []error
	for _, f := range faults {
		errs = append(errs, fmt.Errorf("%s: %s", f.Key, f.Text))
	}
	return o, errors.Join(errs...)
}

// planCoordinator renders the job that is the coordinator of a run in a directory.
func planCoordinator(l *slurm.Launcher, j *job.Job, dir, program, log string, after []string) (slurm.Submission, error) {
	o, err := coordinatorOptions(j)
	if err != nil {
		return slurm.Submission{}, &statusError{exitUsage, fmt.Errorf("[slurm.coordinator]: %w", err)}
	}
	argv := []string{"/usr/bin/env", startedBy + "=" + asJob, program, "run", "--resume", dir, "--take-over"}
	s, err := l.PlanCoordinator(&o, argv, j.Dir, log, after)
	if err != nil {
		return s, &statusError{exitUsage, fmt.Errorf("[slurm.coordinator]: %w", err)}
	}
	return s, nil
}

// unsureFor is for how long a coordinator is looked for of which it is not known whether Slurm has accepted it.
var unsureFor = []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second}

// submitCoordinator has Slurm run the coordinator of a run, and says so. set are the keys of limits that it was given. It reports whether the
// coordinator is in the queue, which the error may be unable to say.
func (r *jobRun) submitCoordinator(ctx context.Context, dir *rundir.Dir, set []string) (begun bool, err error) {
	l, err := slurmLauncher(r.job, dir)
	if err != nil {
		return false, infrastructure(err)
	}
	if err := l.Check(ctx); err != nil {
		return false, infrastructure(err)
	}
	self, err := os.Executable()
	if err == nil {
		err = dir.CopySubmit(self)
	}
	if err != nil {
		return false, infrastructure(err)
	}
	s, err := planCoordinator(l, r.job, dir.Path(), dir.SubmitPath(), dir.CoordinatorLog(), r.where.after)
	if err != nil {
		return false, err
	}
	cluster, err := clusterOf(r.job)
	if err != nil {
		return false, err
	}
	id, err := l.SubmitCoordinator(ctx, s)
	if errors.Is(err, launcher.ErrUnsure) {
		fmt.Fprintf(r.stderr, "daisy-submit: it is not known whether Slurm has accepted the coordinator: %v; it is looked for\n", err)
		id, err = lookFor(ctx, l, err)
	}
	var refusal *launcher.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Kind != launcher.RefusedForNow:
		return false, &statusError{exitUsage, fmt.Errorf("the coordinator as a job: %w", err)}
	case err != nil:
		return false, infrastructure(fmt.Errorf("the coordinator as a job: %w", err))
	}
	if err := dir.WriteCoordinatorJob(rundir.CoordinatorJob{Job: id, Cluster: cluster, Submitted: time.Now().UTC().Truncate(time.Second), Set: set}); err != nil {
		err = errors.Join(err, l.CancelCoordinator(ctx, id, s.Name)) // nobody would find it
		return false, infrastructure(err)
	}
	if r.where.parsable {
		_, err := fmt.Fprintln(r.stdout, id)
		if err != nil {
			err = unsaid(dir, "its coordinator is job "+id, err)
		}
		return true, err
	}
	if _, err := fmt.Fprintf(r.stdout, "run directory: %s\nthe coordinator is job %s; what it prints goes to %s\n", dir.Path(), id, dir.CoordinatorLog()); err != nil {
		return true, unsaid(dir, "its coordinator is job "+id, err)
	}
	return true, sayHowToLook(r.stdout, dir)
}

// lookFor finds the coordinator by its name, which no other job has. unsure is what is wrong if it is not there.
func lookFor(ctx context.Context, l *slurm.Launcher, unsure error) (id string, err error) {
	for _, wait := range unsureFor {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		j, err := l.FindCoordinator(ctx)
		if err == nil && j != nil && j.State != launcher.Ended {
			return j.ID, nil
		}
		unsure = errors.Join(unsure, err)
	}
	return "", unsure
}

// A queuedCoordinator is a run's coordinator as a job. now is what Slurm says of it: nil if it knows no such job, or cannot be asked, for
// which why is the reason.
type queuedCoordinator struct {
	rundir.CoordinatorJob
	launcher *slurm.Launcher
	now      *slurm.CoordinatorJob
	why      error
}

// coordinatorJobOf asks Slurm for the job that is the coordinator of a run; nil if none was ever submitted.
func coordinatorJobOf(ctx context.Context, dir *rundir.Dir) *queuedCoordinator {
	j, err := dir.CoordinatorJob()
	if j == nil {
		if err == nil {
			return nil
		}
		return &queuedCoordinator{why: err}
	}
	q := &queuedCoordinator{CoordinatorJob: *j}
	if q.launcher, q.why = slurmOf(dir, j.Cluster); q.why == nil {
		q.now, q.why = q.launcher.FindCoordinator(ctx)
	}
	return q
}

// alive: it waits in the queue or runs, as far as is known.
func (q *queuedCoordinator) alive() bool {
	return q != nil && q.why == nil && q.now != nil && q.now.State != launcher.Ended
}

// words say where it stands, as the end of a sentence that names the run.
func (q *queuedCoordinator) words() string {
	switch {
	case q.why != nil:
		return fmt.Sprintf("job %s of Slurm, of which nothing is known now: %v", q.Job, q.why)
	case q.now == nil:
		return fmt.Sprintf("job %s of Slurm, which it does not know any more", q.Job)
	}
	text := fmt.Sprintf("job %s of Slurm, which %s", q.now.ID, q.now.Plain)
	if q.now.State == launcher.Pending {
		if w := q.now.Reason.Word; w != "" {
			text += fmt.Sprintf(": %s (%s)", q.now.Reason.Plain, w)
		}
		if left := time.Until(q.now.Start); !q.now.Start.IsZero() && left > 0 {
			text += fmt.Sprintf("; Slurm expects to start it in %s", units.Duration(left.Round(time.Second)))
		}
	} else if q.now.Node != "" && q.now.State == launcher.Running {
		text += " on " + q.now.Node
	}
	return text
}

// withoutCoordinator is the error of a run that nobody coordinates at the moment, and whose coordinator is a job.
func withoutCoordinator(dir *rundir.Dir, q *queuedCoordinator) error {
	text := fmt.Sprintf("the coordinator of the run in %s is %s", dir.Path(), q.words())
	switch {
	case q.alive() && q.now.State == launcher.Running:
		text += ". It begins or ends just now; try again"
	case q.alive():
		text += fmt.Sprintf(". %s waits for it, %s ends it", said("attach", dir.Path()), said("cancel", dir.Path()))
	default:
		text += fmt.Sprintf(". The run has not ended: %s goes on with it", said("run", "--resume", dir.Path(), "--coordinator", "job"))
	}
	return infrastructure(errors.New(text))
}

// checkNoCoordinatorJob refuses to coordinate a run whose coordinator is a job that may start at any time, unless it is taken over. Else no
// job is its coordinator from now on.
func checkNoCoordinatorJob(ctx context.Context, dir *rundir.Dir, takeOver bool) error {
	q := coordinatorJobOf(ctx, dir)
	switch {
	case q == nil:
		return nil
	case q.why != nil && !takeOver:
		return &statusError{exitUsage, fmt.Errorf("the coordinator of the run in %s is %s. If it is certainly not in the queue any more, give --take-over", dir.Path(), q.words())}
	case q.alive() && !takeOver:
		return &statusError{exitUsage, fmt.Errorf("the coordinator of the run in %s is %s. Leave it to that, or end it first: %s", dir.Path(), q.words(), said("cancel", dir.Path()))}
	case q.alive():
		if err := endJob(ctx, q, dir); err != nil {
			return infrastructure(fmt.Errorf("job %s, the coordinator of the run, cannot be ended: %w", q.now.ID, err))
		}
	}
	return dir.ForgetCoordinatorJob()
}

const (
	// endPatience is how long a job that was cancelled may take to end: the site gives it time to do so in order.
	endPatience = 2 * time.Minute
	// Slurm is asked for its end after endFirst, then after twice as long each time, up to endLast. It is cancelled endTries times at most, with
	// endAgain in between: a second signal ends a run without its grace.
	endFirst, endLast = 500 * time.Millisecond, 5 * time.Second
	endTries          = 3
	endAgain          = 40 * time.Second
)

// endJob cancels the coordinator's job, and waits until it has ended.
func endJob(ctx context.Context, q *queuedCoordinator, dir *rundir.Dir) error {
	return awaitEnd(ctx, func() error {
		return q.launcher.CancelCoordinator(ctx, q.now.ID, q.now.Name)
	}, func() (over bool, state string, err error) {
		now, err := q.launcher.FindCoordinator(ctx)
		if now == nil {
			return err == nil, "", err
		}
		_, coordinated := dir.Coordinated()
		return now.State == launcher.Ended && !coordinated, now.Plain, nil
	})
}

// awaitEnd has something cancelled, and waits until it is over. state is where it stands, for people.
func awaitEnd(ctx context.Context, cancel func() error, look func() (over bool, state string, err error)) error {
	begun, tries := time.Now(), 0
	for wait := endFirst; ; wait = min(2*wait, endLast) {
		if tries < endTries && time.Since(begun) >= time.Duration(tries)*endAgain {
			tries++
			if err := cancel(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		over, state, err := look()
		switch {
		case over:
			return nil
		case time.Since(begun) <= endPatience:
		case err != nil:
			return err
		default:
			return fmt.Errorf("it %s after %s", state, units.Duration(endPatience))
		}
	}
}

// askEvery is how often Slurm is asked for a coordinator that waits in the queue, askSoon how often for one that is on its way there, or out.
const (
	askEvery = 20 * time.Second
	askSoon  = 3 * time.Second
)

// awaitCoordinator waits until a run is coordinated whose coordinator is a job, and says what it waits for. The error is why that will not
// be. Of another run it says nothing.
func awaitCoordinator(ctx context.Context, dir *rundir.Dir, say func(string)) error {
	said := ""
	var asked time.Time
	every := askEvery
	for {
		if state, _ := stateOf(dir); state != runKilled {
			return nil
		}
		if time.Since(asked) >= every || said == "" {
			asked = time.Now()
			q := coordinatorJobOf(ctx, dir)
			switch {
			case q == nil:
				return nil
			case q.why == nil && !q.alive():
				if state, _ := stateOf(dir); state != runKilled {
					return nil
				}
				return withoutCoordinator(dir, q)
			}
			if every = askEvery; q.now != nil && q.now.State != launcher.Pending {
				every = askSoon
			}
			if words := "the coordinator is " + q.words(); words != said {
				said = words
				say(said)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}
