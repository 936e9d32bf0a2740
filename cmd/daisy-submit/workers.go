package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
)

func workersCommand() *cli.Command {
	return &cli.Command{
		Name: "workers", Usage: "list the workers of a run",
		UsageText: "daisy-submit workers [RUN_DIR|latest] [OPTIONS]",
		Description: `Lists the workers that have been asked for and have not ended: what each does, what it has done for the task that it
serves now, and for how long nothing has been heard of it; and nodes that are not used, with the reason. Of a run that has ended it
lists those of its statistics.
` + runDirUsage + `

EXAMPLE
   daisy-submit workers latest --ended

EXIT STATUS
   0    the workers were listed
   2    the command line is wrong, or there is no such run
   3    the run has not ended, and no coordinator answers; or the list could not be written
`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "ended", Usage: "those that have ended, one line for each task that they served"},
			limitFlag(200, "workers"), fromFlag(), jsonFlag("a page of workers"),
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
			page, err := workersOf(c, dir, limit)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return written(json.NewEncoder(c.App.Writer).Encode(page))
			}
			return written(writeWorkers(c, page))
		},
	}
}

func limitFlag(n int, what string) cli.Flag {
	return &cli.IntFlag{Name: "limit", Value: n, Usage: "at most `N` " + what}
}

func fromFlag() cli.Flag {
	return &cli.StringFlag{Name: "from", Usage: "go on at `PLACE`, where the list before ended"}
}

func limitOf(c *cli.Context) (int, error) {
	limit := c.Int("limit")
	if limit < 1 {
		return 0, usage("--limit must be at least 1")
	}
	return limit, nil
}

// workersOf asks the coordinator, or of a run that has ended its statistics.
func workersOf(c *cli.Context, dir *rundir.Dir, limit int) (*api.WorkerPage, error) {
	all := &api.WorkerPage{Version: api.ControlVersion, Workers: []api.LiveWorker{}, Excluded: []api.LiveExcluded{}}
	if stats := endedStats(dir); stats != nil {
		from, err := strconv.Atoi("0" + c.String("from"))
		if err != nil {
			return nil, usage("--from %q: no list ended so", c.String("from"))
		}
		for i := from; i < len(stats.Workers) && len(all.Workers) < limit; i++ {
			w := stats.Workers[i]
			all.Workers = append(all.Workers, api.LiveWorker{ID: w.ID, Task: w.Task, Node: w.Node, State: "ended", End: w.End, Slots: w.Slots, Processed: w.Processed,
				Failed: w.Failed, BusySeconds: w.BusySeconds, IdleSeconds: w.IdleSeconds, PeakRSSBytes: w.PeakRSSBytes, Log: w.Log, Asked: w.Asked, Granted: w.Granted})
		}
		if next := from + len(all.Workers); next < len(stats.Workers) {
			text := strconv.Itoa(next)
			all.Next = &text
		}
		return all, nil
	}
	query := url.Values{}
	if c.Bool("ended") {
		query.Set("ended", "1")
	}
	var err error
	all.Workers, all.Next, err = paged(c, dir, api.PathWorkers, query, limit, func(p *api.WorkerPage) ([]api.LiveWorker, *string) {
		all.Excluded = p.Excluded
		return p.Workers, p.Next
	})
	return all, err
}

// endedStats is the statistics of a run that has ended; nil if it goes on or was killed.
func endedStats(dir *rundir.Dir) *api.Stats {
	switch state, stats := stateOf(dir); state {
	case runRunning, runKilled:
		return nil
	default:
		return stats
	}
}

func writeWorkers(c *cli.Context, page *api.WorkerPage) error {
	head := []string{"<worker", "<task", "<node", "<state", "slots", "running", "processed", "failed", "busy", "idle", "last heard", "peak memory"}
	ofJobs := slices.ContainsFunc(page.Workers, func(w api.LiveWorker) bool { return w.Job != nil })
	if ofJobs {
		head = append(head, "<job", "time left")
	}
	given := slices.ContainsFunc(page.Workers, func(w api.LiveWorker) bool { return w.Granted != (api.Amounts{}) })
	if given {
		head = append(head, "<asked for", "<given")
	}
	var rows [][]string
	for _, w := range page.Workers {
		state := w.State
		if w.End != nil {
			state += ": " + *w.End
		} else if w.Why != nil {
			state += ": " + *w.Why
		}
		silent, peak := "-", "-"
		if w.SilentSeconds != nil {
			silent = units.Duration(ofSeconds(*w.SilentSeconds)) + " ago"
		}
		if w.PeakRSSBytes != nil {
			peak = units.Size(*w.PeakRSSBytes)
		}
		row := []string{w.ID, w.Task, or(w.Node), state, units.Count(w.Slots), units.Count(w.Running), units.Count(w.Processed), units.Count(w.Failed),
			units.Duration(ofSeconds(w.BusySeconds)), units.Duration(ofSeconds(w.IdleSeconds)), silent, peak}
		if ofJobs {
			left := "-"
			if w.LeftSeconds != nil {
				left = units.Duration(ofSeconds(*w.LeftSeconds))
			}
			row = append(row, or(w.Job), left)
		}
		if given {
			row = append(row, report.Amounts(w.Asked), report.Amounts(w.Granted))
		}
		rows = append(rows, row)
	}
	if err := writePage(c, "Workers", "no workers", head, rows, page.Next); err != nil {
		return err
	}
	_, err := c.App.Writer.Write([]byte(notUsed(page.Excluded)))
	return err
}

// notUsed says which nodes are not used, and why: a line for each.
func notUsed(list []api.LiveExcluded) string {
	var b strings.Builder
	for _, x := range list {
		fmt.Fprintf(&b, "node %s is not used", api.OneLine(x.Node))
		if x.By == nil {
			fmt.Fprintf(&b, " for %s: workers keep failing on it", or(x.Task))
		} else {
			fmt.Fprintf(&b, ": excluded by %s", api.OneLine(*x.By))
		}
		if x.Reason != nil {
			b.WriteString(": " + api.OneLine(*x.Reason))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// writePage writes a table, or none where it has no rows, and how to see more.
func writePage(c *cli.Context, title, none string, head []string, rows [][]string, next *string) error {
	var b bytes.Buffer
	if len(rows) == 0 {
		b.WriteString(none + "\n")
	} else if err := report.Grid(&b, title, head, rows); err != nil {
		return err
	}
	if next != nil {
		fmt.Fprintf(&b, "… there may be more: --from %s goes on, --limit shows more at once\n", *next)
	}
	_, err := c.App.Writer.Write(b.Bytes())
	return err
}
