package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
)

func attachCommand() *cli.Command {
	return &cli.Command{
		Name: "attach", Usage: "follow a run from another terminal until its end",
		UsageText: "daisy-submit attach [RUN_DIR|latest] [--json]",
		Description: `Shows the progress of a run and what happens in it, as "daisy-submit run" does, until the run has ended; then its report. It may be
called on any machine that reaches the coordinator, by as many as wish. Ctrl-C ends the look, not the run. When the coordinator
is killed and the run resumed within a minute, it goes on with that; a coordinator that is a job of Slurm and waits in the queue is waited
for, and what it waits for is said. Of a run that has ended it prints the report.
` + runDirUsage + `

EXAMPLE
   daisy-submit attach runs/latest

EXIT STATUS
   0    every block of the run succeeded or was skipped
   1    some did not
   2    the command line is wrong, or there is no such run, or too many look on
   3    the infrastructure of the run failed, or no coordinator answers, or none has for a minute; or nothing could be written
   130  Ctrl-C (the run goes on), or the run was interrupted by it (143: by SIGTERM, 131: by SIGQUIT)
`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "JSON lines instead of progress and tables, as those of run (docs/stats.md)"},
		},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			out := c.App.ErrWriter
			if c.Bool("json") {
				out = c.App.Writer
			}
			progress := report.NewProgress(out, report.ModeFor(out, c.Bool("json")))
			if stats := endedStats(dir); stats != nil {
				if c.Bool("json") {
					progress.End(*stats)
				}
				return reportOf(c, progress, stats)
			}
			return attach(c, dir, progress)
		},
	}
}

// endTime is how long the statistics of a run may take to be seen once its end is known: its directory may be on a slow file system.
const endTime = 30 * time.Second

// attach follows a run until its end, and closes progress.
func attach(c *cli.Context, dir *rundir.Dir, progress *report.Progress) error {
	ctx, stop := signal.NotifyContext(c.Context, os.Interrupt)
	defer stop()
	c.Context = ctx
	progress.Notice("run directory: " + dir.Path())
	told := make(chan error, 1)
	go func() {
		if err := awaitCoordinator(ctx, dir, progress.Notice); err != nil {
			told <- err
			return
		}
		p := &eventPrinter{c: c, dir: dir, follow: true, waits: progress.Notice, show: func(e *api.Event) error {
			progress.Notice(e.Line())
			return nil
		}}
		told <- p.run()
	}()
	show := time.NewTicker(showEvery[report.Lines])
	defer show.Stop()
	var err error
	for over := false; !over; {
		select {
		case err = <-told:
			over = true
		case <-show.C:
			if run, err := coordinatorOf(dir); err == nil {
				var live api.State
				if run.get(ctx, api.PathState, nil, &live) == nil {
					progress.Update(time.Now(), progressOfLive(&live))
				}
			}
		}
	}
	defer progress.Close()
	if ctx.Err() != nil {
		_ = progress.Close()
		fmt.Fprintf(c.App.ErrWriter, "the run goes on; to follow it again: %s\n", command("attach", dir.Path()))
		return &statusError{status: exitInterrupted}
	}
	if state, _ := stateOf(dir); err != nil && (state == runRunning || state == runKilled) {
		return err
	}
	// Or it has ended meanwhile, perhaps before it could answer.
	for begun := time.Now(); ; {
		if stats := endedStats(dir); stats != nil {
			progress.End(*stats)
			return reportOf(c, progress, stats)
		}
		if time.Since(begun) > endTime {
			return infrastructure(errors.New("the run has ended, and its statistics are not there: daisy-submit status says more"))
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return infrastructure(context.Cause(ctx))
		}
	}
}

// reportOf prints the report of a run that has ended, of which the last line as JSON has all, and ends as it has.
func reportOf(c *cli.Context, progress *report.Progress, stats *api.Stats) error {
	err := progress.Close()
	if !c.Bool("json") { // what went wrong with progress is no failure of the look then
		err = report.Tables(c.App.Writer, *stats, report.Table)
	}
	if err != nil {
		return infrastructure(err)
	}
	if status := stats.Run.ExitStatus; status != nil && *status != exitOK {
		return &statusError{status: *status}
	}
	return nil
}

func progressOfLive(s *api.State) report.Snapshot {
	out := report.Snapshot{State: s.Run.State, Elapsed: ofSeconds(s.Run.Seconds), Tasks: make([]report.TaskProgress, len(s.Tasks))}
	for i, t := range s.Tasks {
		out.Tasks[i] = report.TaskProgress{
			ID: t.ID, State: t.State, Blocks: t.Blocks, Waiting: t.Waiting, Ready: t.Ready, Leased: t.Leased, Running: t.Running,
			Success: t.Success, Skipped: t.Skipped, Failed: t.Failed, Orphaned: t.Orphaned, Abandoned: t.Abandoned,
			Unselected: t.Unselected, Retries: t.Retries, Slots: t.Running + t.Idle + t.Starting,
		}
		if t.Waits != nil {
			out.Tasks[i].Waits = *t.Waits
		}
	}
	return out
}
