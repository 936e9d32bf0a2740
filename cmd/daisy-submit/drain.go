package main

import (
	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
)

func drainCommand() *cli.Command {
	return &cli.Command{
		Name: "drain", Usage: "end a run once the blocks that run have ended",
		UsageText: "daisy-submit drain [RUN_DIR|latest] [--json]",
		Description: `Has a run hand out no more blocks. Those that run may finish, however long it takes; then the run ends, as stopped, and
"daisy-submit run --resume RUN_DIR" can go on with it. The command does not wait for the end.
` + runDirUsage + `

EXAMPLE
   daisy-submit drain runs/latest

EXIT STATUS
   0    the run was told
   2    the command line is wrong, or there is no such run, or it has ended or is ending already
   3    no coordinator answers
`,
		Flags: []cli.Flag{jsonFlag("what was done")},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			return give(c, dir, api.PathDrain, api.Order{By: orderOf()})
		},
	}
}
