package main

import (
	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
)

func includeCommand() *cli.Command {
	return &cli.Command{
		Name: "include", Usage: "use a node again in a run",
		UsageText: "daisy-submit include [RUN_DIR|latest] NODE [--json]",
		Description: `Takes back what "daisy-submit exclude" has done. A node that is not used because workers kept failing on it may be used again,
too, until they fail there again.
` + runDirUsage + `

EXAMPLE
   daisy-submit include latest gpu07

EXIT STATUS
   0    the node may be used again, and that is written down
   2    the command line is wrong, or there is no such run, or the node is not excluded, or the run has ended or is ending
   3    no coordinator answers
`,
		Flags: []cli.Flag{jsonFlag("what was done")},
		Action: func(c *cli.Context) error {
			dir, node, err := runAnd(c, "a node")
			if err != nil {
				return err
			}
			return give(c, dir, api.PathInclude, api.Order{By: orderOf(), Node: node})
		},
	}
}
