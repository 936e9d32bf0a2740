package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/job"
)

// selectionFlags name a part of the blocks.
func selectionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "only", Usage: "only blocks of `TASK`, as if all others were done; may be repeated"},
		&cli.StringFlag{Name: "roi", Usage: "only blocks that write into `REGION`, as 0:512,100:612 (begin and end of each axis), and what they need"},
		&cli.Int64Flag{Name: "limit", DefaultText: "all", Usage: "only the first `N` blocks of each task that nothing depends on, and what they need"},
	}
}

// selection reads the flags of selectionFlags.
func selection(c *cli.Context) (job.Selection, error) {
	s := job.Selection{Only: c.StringSlice("only"), Limit: c.Int64("limit")}
	if c.IsSet("limit") && s.Limit < 1 {
		return s, usage("--limit must be at least 1")
	}
	if c.IsSet("roi") {
		roi, err := job.ParseRoi(c.String("roi"))
		if err != nil {
			return s, usage("--roi %s: %v", c.String("roi"), err)
		}
		s.Roi, s.HasRoi = roi, true
	}
	return s, nil
}

// sayLeft says that a part of the job is left out: nobody should take the run for the whole.
func sayLeft(j *job.Job) string {
	total := int64(0)
	for i := range j.Tasks {
		total += j.Tasks[i].Grid.Len()
	}
	return fmt.Sprintf("%d of %d blocks are selected; the others are left out", j.Selected, total)
}
