package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
)

func setCommand() *cli.Command {
	return &cli.Command{
		Name: "set", Usage: "change limits of a run while it goes on",
		UsageText: "daisy-submit set [RUN_DIR|latest] KEY=VALUE... [--json]",
		Description: `Changes limits of a run, with keys and values as those of --set: run.resources.NAME, and of a task task.ID.max_workers and
task.ID.timeout. All of them, or none if one is not possible. More resources and workers are used at once. When there are too
many workers for smaller limits, those leave first that have not joined yet, then those that have nothing to do, then those that
run blocks, which they finish. A new timeout holds for blocks that run, too, from
their start. A change holds for the rest of the run, over a resume too, unless that is given another value; the caps of the site hold for it.
` + runDirUsage + `

EXAMPLE
   daisy-submit set latest run.resources.cpu=8 task.predict.max_workers=4

EXIT STATUS
   0    the limits were changed
   2    the command line is wrong, or there is no such run, key or task, or the run has ended or is ending; nothing was changed
   3    no coordinator answers
`,
		Flags: []cli.Flag{jsonFlag("what was done")},
		Action: func(c *cli.Context) error {
			args := c.Args().Slice()
			given := len(args) > 0 && !strings.Contains(args[0], "=")
			order := api.SetOrder{By: orderOf()}
			if given {
				args = args[1:]
			}
			for _, a := range args {
				key, value, ok := strings.Cut(a, "=")
				if !ok {
					return usage("%q has no \"=\"; write KEY=VALUE, as task.predict.max_workers=4", a)
				}
				order.Sets = append(order.Sets, api.KeySet{Key: strings.TrimSpace(key), Value: value})
			}
			if len(order.Sets) == 0 {
				return usage("set needs at least one KEY=VALUE; see daisy-submit set --help")
			}
			dir, err := firstArgument(c, given)
			if err != nil {
				return err
			}
			return give(c, dir, api.PathSet, order)
		},
	}
}
