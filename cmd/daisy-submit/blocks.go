package main

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
)

func blocksCommand() *cli.Command {
	return &cli.Command{
		Name: "blocks", Usage: "list blocks of a run by their state",
		UsageText: "daisy-submit blocks [RUN_DIR|latest] [--state STATE] [--task T] [OPTIONS]",
		Description: `Lists blocks in the order of their tasks and grids: where each stands, the attempt that it is at, the worker that has or had
it, and how its last attempt ended that did not end well, as far as the coordinator remembers. Of a run that has ended only
failed blocks are known.
` + runDirUsage + `

A block is waiting (for others), ready, held (to be tried again after a pause), leased (in the hands of a worker), success, skipped,
failed, orphaned (it needs a failed one) or abandoned (the run or its task was given up).

EXAMPLE
   daisy-submit blocks --state failed --task predict

EXIT STATUS
   0    the blocks were listed, if there were any
   2    the command line is wrong, or there is no such run, task or state
   3    the run has not ended, and no coordinator answers; or the list could not be written
`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Usage: "only those in `STATE`; several with commas between them"},
			&cli.StringFlag{Name: "task", Usage: "only those of task `T`"},
			limitFlag(50, "blocks"), fromFlag(), jsonFlag("a page of blocks"),
		},
		Action: func(c *cli.Context) error {
			dir, err := runArgument(c)
			if err != nil {
				return err
			}
			limit, err := limitOf(c)
			if err != nil {
				return err
			}
			none := "no such block"
			var page *api.BlockPage
			if stats := endedStats(dir); stats != nil {
				page, err = failedBlocks(c, stats, limit)
				none = "no block failed; of an ended run only failed blocks are known"
				if task := c.String("task"); task != "" {
					none = fmt.Sprintf("no block of task %q failed; of an ended run only failed blocks are known", task)
				}
			} else {
				page, err = liveBlocks(c, dir, limit)
			}
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return written(json.NewEncoder(c.App.Writer).Encode(page))
			}
			return written(writeBlocks(c, page, none))
		},
	}
}

// liveBlocks asks the coordinator.
func liveBlocks(c *cli.Context, dir *rundir.Dir, limit int) (*api.BlockPage, error) {
	query := url.Values{"state": {c.String("state")}, "task": {c.String("task")}}
	blocks, next, err := paged(c, dir, api.PathBlocks, query, limit, func(p *api.BlockPage) ([]api.LiveBlock, *string) { return p.Blocks, p.Next })
	return &api.BlockPage{Version: api.ControlVersion, Blocks: blocks, Next: next}, err
}

// failedBlocks are those that the statistics have kept.
func failedBlocks(c *cli.Context, stats *api.Stats, limit int) (*api.BlockPage, error) {
	if state := c.String("state"); state != "" && state != "failed" {
		return nil, usage("the run has ended, and of its blocks only those that failed are known: --state failed")
	}
	if c.String("from") != "" {
		return nil, usage("--from %q: no list of a run that has ended ended so; --limit shows more at once", c.String("from"))
	}
	if task := c.String("task"); task != "" {
		var ids []string
		for i := range stats.Tasks {
			ids = append(ids, stats.Tasks[i].ID)
		}
		if err := checkTask(task, ids); err != nil {
			return nil, err
		}
	}
	page := &api.BlockPage{Version: api.ControlVersion, Blocks: []api.LiveBlock{}}
	for i := range stats.Tasks {
		t := &stats.Tasks[i]
		if c.String("task") != "" && t.ID != c.String("task") {
			continue
		}
		for _, f := range t.Failures {
			if len(page.Blocks) < limit {
				page.Blocks = append(page.Blocks, api.LiveBlock{Task: t.ID, Block: f.Block, Index: f.Index, State: "failed", Attempt: &f.Attempts,
					Worker: f.Worker, Node: f.Node, Message: &f.Message, Tail: f.Tail, Log: f.Log})
			}
		}
	}
	return page, nil
}

func writeBlocks(c *cli.Context, page *api.BlockPage, none string) error {
	head := []string{"<task", "block", "<position", "<state", "attempt", "<worker", "<node", "running for", "<last error"}
	var rows [][]string
	for _, b := range page.Blocks {
		running, last := "-", "-"
		if b.RunningSeconds != nil {
			running = units.Duration(ofSeconds(*b.RunningSeconds))
		}
		switch {
		case b.Message != nil && *b.Message != "":
			last = *b.Message
		case b.LastEnd != nil:
			last = *b.LastEnd
		}
		rows = append(rows, []string{b.Task, or(b.Block), "(" + numbers(b.Index, ", ") + ")", b.State, or(b.Attempt), or(b.Worker), or(b.Node), running, last})
	}
	return writePage(c, "Blocks", none, head, rows, page.Next)
}
