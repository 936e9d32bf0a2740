package main

import (
	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
)

func cancelCommand() *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "end a run soon, or now",
		UsageText: "daisy-submit cancel [RUN_DIR|latest] [--now] [--json]",
		Description: `Has a run hand out no more blocks. Those that run have the grace time of the job to end; what has not ended then is given
up, and the run ends, as stopped. "daisy-submit run --resume RUN_DIR" can go on with it. The command does not wait for the end.
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
			return give(c, dir, api.PathCancel, order)
		},
	}
}
