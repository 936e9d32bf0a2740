package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

func cancelCommand() *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "end a run soon, or now",
		UsageText: "daisy-submit cancel [RUN_DIR|latest] [--now] [--json]",
		Description: `Has a run hand out no more blocks. Those that run have the grace time of the job to end; what has not ended then is given
up, and the run ends, as stopped. "daisy-submit run --resume RUN_DIR" can go on with it. The command does not wait for the end.
Where the coordinator is a job of Slurm that waits in the queue, or is not reached from here, that job is cancelled, and then the
workers that are left; this is waited for.
` + runDirUsage + `

EXAMPLE
   daisy-submit cancel runs/latest

EXIT STATUS
   0    the run was told
   2    the command line is wrong, or there is no such run, or it has ended or is ending already
   3    no coordinator answers
`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "now", Usage: "without the grace time; also of a run that is ending already"},
			jsonFlag("what was done"),
		},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			order := api.Order{By: orderOf()}
			if c.Bool("now") {
				order.How = "now"
			}
			done, err := have(c, dir, api.PathCancel, order)
			if err == nil {
				return sayDone(c, done)
			}
			var failed *statusError
			if errors.As(err, &failed) && failed.status == exitInfrastructure { // nobody has heard it
				if q := coordinatorJobOf(c.Context, dir); q != nil && q.why == nil {
					return cancelJob(c, dir, q)
				}
			}
			return err
		},
	}
}

// cancelJob ends a run whose coordinator is a job and cannot be spoken to: that job, if it has not ended, and then the workers that it has
// left.
func cancelJob(c *cli.Context, dir *rundir.Dir, q *queuedCoordinator) error {
	was := q.words()
	if q.alive() {
		if err := endJob(c.Context, q, dir); err != nil {
			return infrastructure(fmt.Errorf("job %s, the coordinator of the run, cannot be ended: %w", q.now.ID, err))
		}
	}
	ctx, cancel := context.WithTimeout(c.Context, endPatience)
	defer cancel()
	if err := q.launcher.EndAll(ctx); err != nil {
		return infrastructure(fmt.Errorf("the coordinator has ended, and workers are left: %w", err))
	}
	return sayDone(c, api.Done{Version: api.ControlVersion, Message: fmt.Sprintf("the coordinator was %s. No job of the run is left. To go on with it: %s", was, command("run", "--resume", dir.Path(), "--coordinator", "job"))})
}
