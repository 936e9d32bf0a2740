package main

import (
	"net/url"
	"strconv"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

// paged asks the coordinator for page after page, from where --from says, until there are limit rows or no more. rowsOf takes a page
// apart. next is what --from takes to go on, nil at the end.
func paged[Page, Row any](c *cli.Context, dir *rundir.Dir, path string, query url.Values, limit int, rowsOf func(*Page) ([]Row, *string)) (rows []Row, next *string, err error) {
	run, err := coordinatorOf(dir)
	if err != nil {
		return nil, nil, err
	}
	rows = []Row{}
	for from := c.String("from"); ; from = *next {
		query.Set("limit", strconv.Itoa(min(limit-len(rows), api.MostBlocks)))
		query.Set("from", from)
		var page Page
		if err := run.get(c.Context, path, query, &page); err != nil {
			return nil, nil, err
		}
		some, behind := rowsOf(&page)
		rows, next = append(rows, some...), behind
		if next == nil || len(rows) >= limit {
			return rows, next, nil
		}
	}
}
