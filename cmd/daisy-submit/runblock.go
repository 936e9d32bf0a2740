package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/coordinator"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/worker"
)

func runBlockCommand() *cli.Command {
	return &cli.Command{
		Name: "run-block", Usage: "run one block here, to see what it does",
		UsageText: "daisy-submit run-block JOB TASK ID|INDEX [OPTIONS]",
		Description: `Runs the user code of task TASK of the job file JOB for one block, in the foreground, with the environment that a worker would
give it. The block is named by its id, as 17, or its position in the grid, as 0,1,4. Nothing is counted and nothing marked as
done; there is no check before it, no time limit and no retry. DAISY_RUN_DIR is an empty folder that is removed afterwards.

EXAMPLE
   daisy-submit run-block segment.toml predict 0,1,4

EXIT STATUS
   0    the block succeeded
   2    the job file or the command line is wrong, or there is no such block
   3    the program could not be started
   N    what its process ended with (128 + N: by signal N; 1: a stream said that the block failed)
`,
		Flags: append(jobFlags(),
			&cli.BoolFlag{Name: "interactive", Aliases: []string{"i"}, Usage: "standard input is yours, as a debugger needs it, instead of the block as JSON"},
		),
		Action: func(c *cli.Context) error {
			if c.NArg() != 3 {
				return usage("run-block needs a job file, a task and a block; see daisy-submit run-block --help")
			}
			b, err := parseBlock(c.Args().Get(2))
			if err != nil {
				return usage("%w", err)
			}
			j, err := loadJob(c, c.Args().First())
			if err != nil {
				return err
			}
			return runBlock(c, j, c.Args().Get(1), b)
		},
	}
}

func runBlock(c *cli.Context, j *job.Job, task string, wanted blockArgument) error {
	t := j.Task(task)
	if t == nil {
		var ids []string
		for i := range j.Tasks {
			ids = append(ids, j.Tasks[i].ID)
		}
		return usage("there is no task %q%s", task, job.Nearest(task, ids))
	}
	flat, err := wanted.in(t.Grid)
	if err != nil {
		return usage("task %q: %w", task, err)
	}
	if t.Runner.Kind == job.RunnerClients {
		return usage("task %q has no code that could be started: its blocks are for clients of daisy that come by themselves", task)
	}
	if c.Bool("interactive") && (t.Runner.Kind == job.RunnerStream || t.Runner.Kind == job.RunnerPython) {
		return usage("task %q reads its blocks from standard input: --interactive is for a command", task)
	}
	spec, inherited, err := coordinator.Foreground(j, task)
	if err != nil {
		return infrastructure(err)
	}
	if spec.RunDir, err = os.MkdirTemp("", "daisy-run-block-"); err != nil {
		return infrastructure(err)
	}
	defer os.RemoveAll(spec.RunDir)
	f := worker.Foreground{
		Spec: spec, Block: flat, Inherited: inherited, GPUs: process.ThisMachine().GPUs, Stdout: c.App.Writer, Stderr: c.App.ErrWriter,
	}
	if c.Bool("interactive") {
		f.Stdin = os.Stdin
	}
	began := time.Now()
	status, text, err := f.Run()
	took := time.Since(began)
	switch {
	case err != nil:
		return infrastructure(err)
	case status != exitOK:
		return &statusError{status, fmt.Errorf("block %s of task %q: %w", position(t.Grid, flat), task, errors.New(api.OneLine(text)))}
	}
	fmt.Fprintf(c.App.ErrWriter, "block %s of task %q: done after %s\n", position(t.Grid, flat), task, units.Duration(took))
	return nil
}
