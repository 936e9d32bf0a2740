package main

import (
	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
)

func excludeCommand() *cli.Command {
	return &cli.Command{
		Name: "exclude", Usage: "use a node no more in a run",
		UsageText: "daisy-submit exclude [RUN_DIR|latest] NODE [--reason TEXT] [--json]",
		Description: `Has a run use a node no more, by its name in "daisy-submit workers". Workers on it get no more blocks: they finish what
they run, give back what they have not started, and leave. No workers are asked for there, and those that come from there are turned away.
It holds for the whole run, also when it is resumed, until "daisy-submit include" takes it back; "daisy-submit status" lists it.
Where all workers run on this machine there is no node to exclude.
` + runDirUsage + `

EXAMPLE
   daisy-submit exclude latest gpu07 --reason "its disk is full"

EXIT STATUS
   0    the node is excluded, and that is written down
   2    the command line is wrong, or there is no such run, or the node cannot be excluded, or the run has ended or is ending
   3    no coordinator answers
`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "reason", Usage: "why, for those who see it: `TEXT`"},
			jsonFlag("what was done"),
		},
		Action: func(c *cli.Context) error {
			dir, node, err := runAnd(c, "a node")
			if err != nil {
				return err
			}
			return give(c, dir, api.PathExclude, api.Order{By: orderOf(), Node: node, Reason: c.String("reason")})
		},
	}
}
