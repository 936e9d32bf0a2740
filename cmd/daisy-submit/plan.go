package main

import (
	"github.com/urfave/cli/v2"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "show what a job would run, and start nothing",
		UsageText: "daisy-submit plan JOB [OPTIONS]",
		Flags: append(jobFlags(), &cli.BoolFlag{Name: "json", Usage: "as JSON"}),
		Action: func(c *cli.Context) error {
			_, err := loadJob(c, c.Args().First())
			return err
		},
	}
}
