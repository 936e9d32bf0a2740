package main

import (
	"flag"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

func stopCommand() *cli.Command {
	return &cli.Command{
		Name: "stop", Usage: "stop one worker of a run",
		UsageText: "daisy-submit stop [RUN_DIR|latest] WORKER [--json]",
		Description: `Has one worker leave, by its id in "daisy-submit workers". Blocks that it runs have the grace time of the job to end; those that
have not ended then go to other workers, and that counts as no failure. If there is work for it, another worker is started in its
place.
` + runDirUsage + `

EXAMPLE
   daisy-submit stop runs/latest 3.0

EXIT STATUS
   0    the worker was told
   2    the command line is wrong, or there is no such run or worker, or it has ended or is being stopped already
   3    no coordinator answers
`,
		Flags: []cli.Flag{jsonFlag("what was done")},
		Action: func(c *cli.Context) error {
			dir, worker, err := runAnd(c, "a worker")
			if err != nil {
				return err
			}
			return give(c, dir, api.PathStopWorker, api.Order{By: orderOf(), Worker: worker})
		},
	}
}

// runAnd takes one argument, and before it the run directory if that is not the latest.
func runAnd(c *cli.Context, what string) (dir *rundir.Dir, argument string, err error) {
	if n := c.NArg(); n == 1 || n == 2 {
		argument = c.Args().Get(n - 1)
	}
	if argument == "" {
		return nil, "", usage("%s takes %s, after the run directory if that is not the latest; see daisy-submit %s --help", c.Command.Name, what, c.Command.Name)
	}
	dir, err = firstArgument(c, c.NArg() == 2)
	return dir, argument, err
}

// firstArgument opens the run directory that the first argument names, or else the latest.
func firstArgument(c *cli.Context, given bool) (*rundir.Dir, error) {
	only := flag.NewFlagSet(c.Command.Name, flag.ContinueOnError)
	if given {
		if err := only.Parse([]string{"--", c.Args().First()}); err != nil {
			return nil, err
		}
	}
	return runArgument(cli.NewContext(c.App, only, c))
}
