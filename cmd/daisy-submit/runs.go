package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
)

func runsCommand() *cli.Command {
	return &cli.Command{
		Name: "runs", Usage: "list the runs in a directory, or remove old ones",
		UsageText: "daisy-submit runs [DIR] [OPTIONS]",
		Description: `Lists the run directories in DIR ("runs" by default) with their state and size. --prune removes those that have ended: it shows
which, and asks. Runs that go on are never removed, and those that "run --resume" can go on with, as they were killed, interrupted
or stopped, or the infrastructure failed (exit status 3), only with --unfinished.
Done marks in the tracking folder stay.

EXAMPLE
   daisy-submit runs --prune --keep 5 --older-than 30d

EXIT STATUS
   0    the runs were listed, or those that were to go are gone
   1    nothing was removed, as the answer was not yes
   2    the command line is wrong, or there is no such directory
   3    a run could not be looked at or removed, or the answer not written
`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "prune", Usage: "remove runs that have ended"},
			&cli.IntFlag{Name: "keep", Usage: "with --prune: leave the newest `N` of them"},
			&cli.StringFlag{Name: "older-than", Usage: "with --prune: only those that were started more than `D` ago, as 30d"},
			&cli.BoolFlag{Name: "unfinished", Usage: "with --prune: also those that can be resumed"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
			&cli.BoolFlag{Name: "json", Usage: "as JSON, in the shape of docs/cli.md"},
		},
		Action: func(c *cli.Context) error {
			folder := "runs"
			if c.NArg() > 0 {
				var err error
				if folder, err = oneArgument(c, "a directory of runs"); err != nil {
					return err
				}
			}
			p, err := parsePrune(c)
			if err != nil {
				return err
			}
			list, err := listRuns(c.Context, folder)
			if err != nil {
				return err
			}
			if c.Bool("prune") {
				p.choose(list.Runs, time.Now())
				return p.prune(c, folder, list)
			}
			if err := list.write(c.App.Writer, c.Bool("json")); err != nil {
				return infrastructure(err)
			}
			return list.damage()
		},
	}
}

// runList is what runs --json prints, as docs/cli.md describes it.
type runList struct {
	Version int      `json:"version"`
	Runs    []runRow `json:"runs"` // oldest first
	// Freed is what was removed, in bytes.
	Freed int64 `json:"freed_bytes"`

	errs []error
}

type runRow struct {
	Directory string    `json:"directory"`
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Started   time.Time `json:"started"`
	// Done and Blocks are null where nobody can say: the coordinator does not answer, or the journal of a run that was killed cannot be
	// read, or not soon.
	Done    *int64 `json:"done"`
	Blocks  *int64 `json:"blocks"`
	Bytes   int64  `json:"bytes"`
	Files   int64  `json:"files"`
	Removed bool   `json:"removed"`

	dir     *rundir.Dir
	mayGoOn bool // --resume has something to do there
	chosen  bool // to be removed
}

// absolute is a path for messages: where it was looked for.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// listRuns looks at the runs in a folder. What is no run directory is passed over.
func listRuns(ctx context.Context, folder string) (*runList, error) {
	if exists(filepath.Join(folder, "run.json")) {
		return nil, usage("%s is a run directory itself; give the directory that it is in", folder)
	}
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage("there is no directory %s: give the one that \"directory\" in the job file names, or runs/ beside that file", absolute(folder))
	case err != nil:
		return nil, usage("%w", err)
	}
	list := &runList{Version: 1, Runs: []runRow{}}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if !e.IsDir() || !exists(filepath.Join(path, "run.json")) { // links, latest among them, are others' runs or met already
			continue
		}
		dir, err := rundir.Open(path)
		if err != nil {
			list.errs = append(list.errs, err)
			continue
		}
		row := runRow{Directory: dir.Path(), Name: dir.Name(), ID: dir.RunID(), Started: dir.Created(), dir: dir}
		state, s := stateOf(dir)
		row.State, row.mayGoOn = state, mayGoOn(state, s)
		if state == runKilled {
			if q := coordinatorJobOf(ctx, dir); q.alive() || q != nil && q.why != nil { // what cannot be known is not removed
				row.State = runQueued
			}
		}
		switch {
		case state == runRunning:
			row.askCoordinator(ctx)
		case state == runKilled: // without a count if its journal cannot be read, or not soon
			if now, err := statsOfKilled(ctx, dir, readForList); err == nil {
				row.count(&now)
			}
		default:
			row.count(s)
		}
		if row.Bytes, row.Files, err = sizeOf(path); err != nil {
			list.errs = append(list.errs, err)
		}
		list.Runs = append(list.Runs, row)
	}
	slices.SortStableFunc(list.Runs, func(a, b runRow) int { return a.Started.Compare(b.Started) })
	return list, nil
}

// goesOn: a coordinator is alive, or a job that waits in the queue will be one.
func (r *runRow) goesOn() bool { return r.State == runRunning || r.State == runQueued }

// count takes the blocks of a run that are done, and all, from its statistics. Those that are not selected are none.
func (r *runRow) count(s *api.Stats) {
	var done, blocks int64
	for _, t := range s.Tasks {
		leftOut := t.Unselected
		if n := t.SkippedWhy.NotSelected; n != nil {
			leftOut = *n
		}
		done, blocks = done+t.Success+max(t.Skipped-leftOut, 0), blocks+t.Blocks-t.Unselected
	}
	r.Done, r.Blocks = &done, &blocks
}

// askFor bounds the wait for a coordinator, which a list of runs can do without.
const askFor = 2 * time.Second

// askCoordinator asks the coordinator of a run that goes on how much is done. One that does not answer leaves it open.
func (r *runRow) askCoordinator(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	run, err := coordinatorOf(r.dir)
	if err != nil {
		return
	}
	var now api.State
	if run.get(ctx, api.PathState, nil, &now) != nil {
		return
	}
	var done, blocks int64
	for _, t := range now.Tasks {
		done, blocks = done+t.Success+max(t.Skipped-t.Unselected, 0), blocks+t.Blocks-t.Unselected
	}
	r.Done, r.Blocks = &done, &blocks
}

// sizeOf adds up the files below a directory. What goes away meanwhile is not counted.
func sizeOf(path string) (bytes, files int64, err error) {
	err = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				files++
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return bytes, files, err
}

func (l *runList) damage() error {
	if err := errors.Join(l.errs...); err != nil {
		return infrastructure(err)
	}
	return nil
}

func (l *runList) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(l)
	}
	if len(l.Runs) == 0 {
		_, err := fmt.Fprintln(w, "There are no runs.")
		return err
	}
	return report.Grid(w, "Runs", runsHead, runRows(l.Runs))
}

var runsHead = []string{"<run", "<name", "<state", "<started", "blocks done", "size", "files"}

func runRows(runs []runRow) [][]string {
	var rows [][]string
	for _, r := range runs {
		done := "-"
		if r.Done != nil {
			done = units.Count(*r.Done) + " of " + units.Count(*r.Blocks)
		}
		rows = append(rows, []string{
			filepath.Base(r.Directory), r.Name, r.State, r.Started.Local().Format("2006-01-02 15:04:05"), done, units.Size(r.Bytes), units.Count(r.Files),
		})
	}
	return rows
}

// pruning is which runs go.
type pruning struct {
	keep       int
	olderThan  time.Duration
	unfinished bool
	yes, json  bool
}

func parsePrune(c *cli.Context) (*pruning, error) {
	p := &pruning{keep: c.Int("keep"), unfinished: c.Bool("unfinished"), yes: c.Bool("yes"), json: c.Bool("json")}
	for _, name := range []string{"keep", "older-than", "unfinished", "yes"} {
		if c.IsSet(name) && !c.Bool("prune") {
			return nil, usage("--%s is for --prune", name)
		}
	}
	if p.keep < 0 {
		return nil, usage("--keep must be 0 or more")
	}
	if text := c.String("older-than"); text != "" {
		var err error
		if p.olderThan, err = units.ParseDuration(text); err != nil {
			return nil, usage("--older-than: %w", err)
		}
	}
	return p, nil
}

// choose marks the runs that are to go.
func (p *pruning) choose(runs []runRow, now time.Time) {
	kept := 0
	for i := range slices.Backward(runs) { // the newest first
		r := &runs[i]
		if r.goesOn() || r.mayGoOn && !p.unfinished {
			continue
		}
		if kept < p.keep {
			kept++
			continue
		}
		r.chosen = now.Sub(r.Started) > p.olderThan || p.olderThan == 0
	}
}

func (p *pruning) prune(c *cli.Context, folder string, list *runList) error {
	var chosen []runRow
	var bytes int64
	left := 0
	for _, r := range list.Runs {
		if r.chosen {
			chosen = append(chosen, r)
			bytes += r.Bytes
		} else if !r.goesOn() && r.mayGoOn && !p.unfinished {
			left++
		}
	}
	if left > 0 {
		fmt.Fprintf(c.App.ErrWriter, "daisy-submit: left alone, as they can be resumed: %s; --unfinished removes them too\n", units.Plural(int64(left), "run"))
	}
	out := c.App.Writer
	if p.json {
		out = c.App.ErrWriter // the answer alone is on standard output
	}
	if len(chosen) == 0 {
		fmt.Fprintln(out, "There is nothing to remove.")
	} else {
		title := fmt.Sprintf("To be removed: %s, which frees %s", units.Plural(int64(len(chosen)), "run"), units.Size(bytes))
		if err := report.Grid(out, title, runsHead, runRows(chosen)); err != nil {
			return infrastructure(err)
		}
		if !p.yes {
			if err := confirm(c, "Remove them?"); err != nil {
				return err
			}
		}
	}
	for i := range list.Runs {
		r := &list.Runs[i]
		if !r.chosen {
			continue
		}
		if err := remove(r.dir); err != nil {
			list.errs = append(list.errs, err)
			continue
		}
		r.Removed = true
		list.Freed += r.Bytes
	}
	switch {
	case p.json:
		if err := list.write(c.App.Writer, true); err != nil {
			return infrastructure(err)
		}
	case len(chosen) > 0:
		fmt.Fprintf(out, "Removed; %s are free.\n", units.Size(list.Freed))
	}
	return list.damage()
}

// remove removes a run directory that nobody coordinates, and holds its lock while it does.
func remove(dir *rundir.Dir) error {
	lock, err := dir.TryLock()
	if err != nil {
		return fmt.Errorf("it was left: %w", err)
	}
	err = dir.Discard()
	_ = lock.Unlock() // of a file that is gone
	return err
}
