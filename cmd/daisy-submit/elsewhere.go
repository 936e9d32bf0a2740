package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/rundir"
	"example.org/daisy/launcher/slurm"
)

// A coordinator need not live in the terminal in which the run is begun: --detach leaves it on this machine, --coordinator job has Slurm run
// it. Either way all that can be checked is checked here first, and said here. Then the run directory is made, and the coordinator begins
// as a resume of it.

// elsewhere says where the coordinator is to run, if not here.
type elsewhere struct {
	detach   bool     // else as a job
	after    []string // dependencies of the job, as sbatch has them
	parsable bool
}

func elsewhereFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "detach", Usage: "leave the coordinator on this machine without a terminal, and return once it is up"},
		&cli.StringFlag{Name: "coordinator", Usage: "\"job\": the coordinator is a job of Slurm itself; `WHERE` is job or here", DefaultText: "here"},
		&cli.StringSliceFlag{Name: "after", Usage: "with --coordinator job: after the job `ID` has ended, or ID:afterok if that was well (afternotok, after); may be repeated"},
		&cli.BoolFlag{Name: "parsable", Usage: "with --coordinator job: print only the id of the job"},
	}
}

// elsewhereOf reads the flags, and gives nil if the coordinator is to run here.
func elsewhereOf(c *cli.Context) (*elsewhere, error) {
	e := &elsewhere{detach: c.Bool("detach"), parsable: c.Bool("parsable")}
	asJob := false
	switch where := c.String("coordinator"); where {
	case "", "here":
	case "job":
		asJob = true
	default:
		return nil, usage("--coordinator %s: it is \"job\" or \"here\"", where)
	}
	switch {
	case asJob && e.detach:
		return nil, usage("--detach leaves the coordinator on this machine, --coordinator job has Slurm run it: give one of them")
	case !asJob && (c.IsSet("after") || e.parsable):
		return nil, usage("--after and --parsable go with --coordinator job")
	case !asJob && !e.detach:
		return nil, nil
	case c.Bool("with-stdin"):
		return nil, usage("--with-stdin ends the run with the program that starts it, and a coordinator elsewhere is to outlive that")
	case c.Bool("json"):
		return nil, usage("--json is for a run in this terminal; \"daisy-submit events RUN --follow --json\" tells what happens in one elsewhere")
	}
	for _, a := range c.StringSlice("after") {
		dependency, err := dependencyOf(a)
		if err != nil {
			return nil, err
		}
		e.after = append(e.after, dependency)
	}
	return e, nil
}

// dependencyOf makes "afterok:7" of "7:afterok", and "afterany:7" of "7".
func dependencyOf(s string) (string, error) {
	id, how, given := strings.Cut(s, ":")
	if !given {
		how = "afterany"
	}
	if id == "" || strings.Trim(id, "0123456789_") != "" || !slices.Contains([]string{"after", "afterany", "afterok", "afternotok"}, how) {
		return "", usage("--after %s: it is the id of a job, as 123, or with what has to become of it, as 123:afterok (afterany, afternotok, after)", s)
	}
	return how + ":" + id, nil
}

// Findings of doctor that are not of the job.
var ofTheSite = []string{"sbatch", "squeue", "scancel", "scontrol", "controller", "munge", "partitions", "run directory", "rename", "flock"}

// examine looks at what only shows later otherwise, when nobody looks on any more. It says what it finds.
func (r *jobRun) examine(ctx context.Context, worker string) error {
	if r.job.Launcher == "serial" {
		return usage("a run with launcher = \"serial\" takes no commands, so that it could not be ended from elsewhere: run it in this terminal")
	}
	if r.job.Launcher != "slurm" {
		if !r.where.detach {
			return usage("--coordinator job goes with launcher = \"slurm\": the workers of %q are processes beside the coordinator. Submit such a run yourself, with sbatch, and ask for what its blocks need", r.job.Launcher)
		}
		return nil
	}
	l, err := slurmDoctor(r.job)
	if err != nil {
		return err
	}
	of, _ := examineSlurm(ctx, r.job, l, worker)
	status, errs := exitUsage, []error(nil)
	for _, f := range append(of, folderFindings(r.job.Directory, true)...) {
		text := f.Check + ": " + f.Found
		if f.Advice != nil {
			text += ": " + *f.Advice
		}
		switch f.State {
		case missing:
			errs = append(errs, errors.New(text))
			if slices.Contains(ofTheSite, f.Check) {
				status = exitInfrastructure
			}
		case warning:
			fmt.Fprintln(r.stderr, "daisy-submit: warning: "+text)
		}
	}
	if errs != nil {
		return &statusError{status, errors.Join(errs...)}
	}
	return nil
}

// leave begins a new run whose coordinator is elsewhere. Nothing is left of it if that fails; one that has begun stays, whatever can be said of it.
func (r *jobRun) leave(ctx context.Context, dir *rundir.Dir, binary string) (err error) {
	begun := false
	defer func() {
		if err != nil && !begun {
			_ = dir.Discard()
		}
	}()
	if err := freeze(dir, r.job); err != nil {
		return infrastructure(err)
	}
	if _, err := dir.CopyWorker(binary); err != nil {
		return infrastructure(err)
	}
	if r.where.detach {
		begun, err = r.detach(ctx, dir, []string{"run", "--resume", dir.Path()})
	} else {
		begun, err = r.submitCoordinator(ctx, dir, nil)
	}
	return err
}

// unsaid is the error of a run that has begun elsewhere, where that could not be printed.
func unsaid(dir *rundir.Dir, where string, err error) error {
	return infrastructure(fmt.Errorf("the run in %s has begun, and %s, but that could not be printed: %w", dir.Path(), where, err))
}

// leaveResumed goes on with a run whose coordinator is to be elsewhere.
func (r *jobRun) leaveResumed(c *cli.Context, dir *rundir.Dir, binary string) error {
	if err := r.examine(c.Context, dir.WorkerPath()); err != nil {
		return err
	}
	if binary != "" {
		if _, err := dir.CopyWorker(binary); err != nil {
			return infrastructure(err)
		}
	}
	owner, alive := dir.Coordinated()
	alive = alive && !c.Bool("take-over")
	if r.where.detach {
		// A coordinator that lives here is sure to refuse another, and what that one would say stood in the log of the first.
		if host, _ := os.Hostname(); alive && owner.Host == host {
			return &statusError{exitUsage, &rundir.LockedError{Path: dir.Path(), Owner: owner}}
		}
		args := []string{"run", "--resume", dir.Path()}
		for _, s := range c.StringSlice("set") {
			args = append(args, "--set", s)
		}
		if c.IsSet("max-workers") {
			args = append(args, "--max-workers", fmt.Sprint(c.Int64("max-workers")))
		}
		if c.Bool("take-over") {
			args = append(args, "--take-over")
		}
		_, err := r.detach(c.Context, dir, append(args, c.Args().Slice()...))
		return err
	}
	if alive {
		return &statusError{exitUsage, &rundir.LockedError{Path: dir.Path(), Owner: owner}}
	}
	if err := dir.WriteJob(r.job.Frozen); err != nil {
		return infrastructure(err)
	}
	_, err := r.submitCoordinator(c.Context, dir, r.set)
	return err
}

// sayHowToLook says how to look into a run, a line each.
func sayHowToLook(w io.Writer, dir *rundir.Dir) error {
	_, err := fmt.Fprintf(w, "   follow it          %s\n   where it stands    %s\n   end it             %s\n",
		command("attach", dir.Path()), command("status", dir.Path()), command("cancel", dir.Path()))
	return written(err)
}

// startedBy is the variable by which a coordinator knows that it is one of those, and which. It is for this process alone.
const startedBy = "DAISY_COORDINATOR"

// Values of startedBy. A detached coordinator says on the descriptor readyFD that it is up.
const (
	asDetached = "detached"
	asJob      = "job"
	readyFD    = 3
)

// takeStartedBy reads the variable and removes it, as workers and commands inherit the environment.
func takeStartedBy() string {
	value := os.Getenv(startedBy)
	_ = os.Unsetenv(startedBy)
	return value
}

// slurmOf asks Slurm about a run that exists.
func slurmOf(dir *rundir.Dir, cluster string) (*slurm.Launcher, error) {
	return slurm.New(slurm.Config{Run: dir.RunID(), Begun: dir.Created(), Dir: dir.ScriptsPath(), Cluster: cluster, Env: slurm.Environment(os.Environ()), Limit: askTime})
}
