package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/report"
	"example.org/daisy/scheduler"
)

// What the commands that change done marks, reset and migrate, have in common: options, the job, the question and the answer.

// marksFlags are those of such a command, whose JSON is a list of objects with these fields.
func marksFlags(fields string) []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "set", Usage: "change a key: `KEY=VALUE`; may be repeated"},
		&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
		&cli.BoolFlag{Name: "json", Usage: "JSON instead of a table: a list of {" + fields + "}; needs --yes"},
	}
}

// markedJob reads the job that the first argument names. lacks says what it means that it keeps no marks.
func markedJob(c *cli.Context, lacks string) (*job.Job, *scheduler.Pipeline, error) {
	if c.Bool("json") && !c.Bool("yes") {
		return nil, nil, usage("--json goes with --yes: a program cannot be asked")
	}
	j, err := loadJob(c, c.Args().First())
	if err != nil {
		return nil, nil, err
	}
	if j.Tracking == "" {
		return nil, nil, &statusError{exitUsage, fmt.Errorf("%s: run.tracking is not set: %s", j.File, lacks)}
	}
	p, err := j.Pipeline()
	if err != nil {
		return nil, nil, &statusError{exitUsage, err}
	}
	return j, p, nil
}

// confirmMarks asks whether to do something with marks, where there are any.
func confirmMarks(c *cli.Context, verb string, marks []string) error {
	if len(marks) == 0 || c.Bool("yes") {
		return nil
	}
	return confirm(c, verb+" "+strings.Join(marks, ", ")+"?")
}

// tellMarks says what has become of them: list as JSON, or the rows as a table.
func tellMarks(c *cli.Context, list any, title string, head []string, rows [][]string) error {
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(list)
	}
	return report.Grid(c.App.Writer, title, head, rows)
}
