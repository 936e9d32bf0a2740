package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/report"
)

func retryCommand() *cli.Command {
	return &cli.Command{
		Name: "retry", Usage: "run the blocks of a run again that had failed, after a fix",
		UsageText: "daisy-submit retry [RUN_DIR|latest] [OPTIONS]",
		Description: `Goes on with a run as "run --resume" does, and the blocks that had failed for good begin anew, with all their retries; what was
orphaned with them runs, too. Blocks that succeeded are not run again. The run must not be going on. Its job is the one that the run directory
keeps, so that a fix is one of the program, not of the job file.

EXAMPLE
   daisy-submit retry runs/segment-2026-11-30T15-04-05 --task predict

EXIT STATUS
   0    every block has succeeded now, or was skipped; also if none had failed
   1    some did not
   2    the command line is wrong, or the run goes on; nothing was started
   3    the infrastructure failed: cannot start workers, listen, or write
   130  interrupted (143: by SIGTERM, 131: by SIGQUIT)
`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "task", Usage: "only blocks of task `ID`; may be repeated (default: of all tasks)"},
			&cli.Int64Flag{Name: "max-workers", DefaultText: "as the run had", Usage: "at most `N` blocks of each task at once"},
			&cli.StringSliceFlag{Name: "set", Usage: "change a limit: `KEY=VALUE`, as task.predict.timeout=20m; may be repeated"},
			&cli.BoolFlag{Name: "take-over", Usage: "do not wait until the lock of a coordinator that does not answer has stood still for 30 s"},
			&cli.BoolFlag{Name: "json", Usage: "JSON lines instead of progress and tables"},
		},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			r := jobRun{json: c.Bool("json"), stdout: c.App.Writer, stderr: c.App.ErrWriter}
			if err := r.loadFrozen(c, dir); err != nil {
				return err
			}
			for i := range r.job.Tasks {
				if id := r.job.Tasks[i].ID; len(c.StringSlice("task")) == 0 || slices.Contains(c.StringSlice("task"), id) {
					r.retry = append(r.retry, id)
				}
			}
			for _, id := range c.StringSlice("task") {
				if r.job.Task(id) == nil {
					return usage("--task %s: the run has no such task; it has %s", id, strings.Join(r.job.TaskIDs(), ", "))
				}
			}
			if _, stats := stateOf(dir); stats != nil && stats.Run.State == "done" {
				fmt.Fprintf(r.stderr, "daisy-submit: no block of the run in %s has failed: there is nothing to retry\n", dir.Path())
				if r.json {
					return nil
				}
				return report.Tables(r.stdout, *stats, report.Table)
			}
			return r.goOn(c, dir)
		},
	}
}
