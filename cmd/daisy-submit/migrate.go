package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

func migrateCommand() *cli.Command {
	return &cli.Command{
		Name: "migrate", Usage: "keep the done marks of a volume that has grown",
		UsageText: "daisy-submit migrate JOB [OPTIONS]",
		Description: `Done marks are of blocks of one volume: when that has grown, a run refuses them. This makes marks for the grown volume, in which a block
is done if it was, and nothing that it was made from has changed. To be done again are, besides the new blocks: those that were cut at an edge
that has moved or read beyond it, and all that were made from any block that is to be done again. Positions in the volume must have stayed; it
may have grown at its end, or by whole blocks at its begin. It asks first. What was there stays in the tracking folder, as TASK.before-HASH.

EXAMPLE
   daisy-submit migrate segment.toml --yes

EXIT STATUS
   0    the marks are of the job's volume now, or were
   1    nothing was changed, as the answer was not yes
   2    the job file or the command line is wrong, or marks are of other blocks: nothing was changed
   3    marks could not be read or written, or a run is writing them
`,
		Flags:  marksFlags("task, marks, kept, before"),
		Action: migrate,
	}
}

// migratedTask is what is told of the marks of a task.
type migratedTask struct {
	Task  string `json:"task"`
	Marks int64  `json:"marks"`
	Kept  int64  `json:"kept"`
	// Before is where the marks are as they were; nil if they have stayed.
	Before *string `json:"before"`
}

func migrate(c *cli.Context) error {
	if c.NArg() != 1 {
		return usage("migrate needs a job file; see daisy-submit migrate --help")
	}
	j, p, err := markedJob(c, "there are no marks to keep")
	if err != nil {
		return err
	}
	moves, err := planMoves(j, p)
	if err != nil {
		return refused(err)
	}
	var words []string
	for _, m := range moves {
		if m.isNeeded() {
			words = append(words, fmt.Sprintf("%s of %s of %s", units.Count(m.Kept), units.Plural(m.Marks, "mark"), m.Task))
		}
	}
	if err := confirmMarks(c, "Keep", words); err != nil {
		return err
	}
	// From the end: should it fail in between, what is lost is never what something else was made from.
	for _, m := range slices.Backward(moves) {
		if m.isNeeded() {
			backup, err := tracking.Migrate(m.dir, m.from, m.to, m.same.Get)
			if err != nil {
				return refused(fmt.Errorf("task %q: %w", m.Task, err))
			}
			m.Before = &backup
		}
	}
	return reportMoves(c, moves)
}

// move is what becomes of the marks of a task.
type move struct {
	migratedTask
	dir      string
	from, to *geom.Grid // from is nil where there are no marks
	same     scheduler.Bitmap
}

func (m *move) isNeeded() bool { return m.from != nil && (m.from != m.to || m.Kept < m.Marks) }

// planMoves finds out which marks of each task still hold.
func planMoves(j *job.Job, p *scheduler.Pipeline) (moves []*move, err error) {
	var before []*geom.Grid
	var errs []error
	for _, t := range p.Tasks() {
		dir := filepath.Join(j.Tracking, t.ID)
		from, err := tracking.Before(dir, t.Grid)
		if err != nil {
			errs = append(errs, fmt.Errorf("task %q: %w", t.ID, err))
		}
		before = append(before, from)
		moves = append(moves, &move{migratedTask: migratedTask{Task: t.ID}, dir: dir, from: from, to: t.Grid})
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	same := job.Grown(p, before)
	for i, m := range moves {
		m.same = same[i]
		if m.from == nil {
			continue
		}
		words, err := tracking.ReadDone(m.dir, m.from)
		if err != nil {
			return nil, fmt.Errorf("task %q: %w", m.Task, err)
		}
		done := scheduler.Bitmap(words)
		m.Marks = done.Count()
		for b := range m.from.Len() {
			if done.Get(b) && m.same.Get(m.to.Flat(m.to.WriteBlocks(m.from.WriteRoi(b)).Begin)) {
				m.Kept++
			}
		}
	}
	return moves, nil
}

func reportMoves(c *cli.Context, moves []*move) error {
	list, rows := []migratedTask{}, [][]string{}
	for _, m := range moves {
		list = append(list, m.migratedTask)
		before := ""
		if m.Before != nil {
			before = *m.Before
		}
		rows = append(rows, []string{m.Task, units.Count(m.Marks), units.Count(m.Kept), before})
	}
	return tellMarks(c, list, "Marks", []string{"<task", "marks", "kept", "<what was there"}, rows)
}
