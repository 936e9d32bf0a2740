package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"example.org/daisy/internal/tracking"
	"example.org/daisy/internal/units"
)

func resetCommand() *cli.Command {
	return &cli.Command{
		Name: "reset", Usage: "forget what a task has done, and what was made from it",
		UsageText: "daisy-submit reset JOB TASK... [OPTIONS]",
		Description: `Removes the done marks of tasks from the tracking folder of the job, and those of every task downstream of them, so that the next
run does these blocks again. What the blocks have written stays where it is, and so does the count of failures. It asks first.
Going on with an earlier run afterwards ("run --resume", "retry") marks again what the journal of that run has as done.

EXAMPLE
   daisy-submit reset segment.toml predict --yes

EXIT STATUS
   0    the marks are gone, or there were none
   1    nothing was changed, as the answer was not yes
   2    the job file or the command line is wrong, or the marks are of other blocks
   3    marks could not be read or removed, or a run is writing them
`,
		Flags:  marksFlags("task, marks"),
		Action: reset,
	}
}

// resetTask is what is, or was, marked of a task.
type resetTask struct {
	Task  string `json:"task"`
	Marks int64  `json:"marks"`
}

func reset(c *cli.Context) error {
	if c.NArg() < 2 {
		return usage("reset needs a job file and at least one task; see daisy-submit reset --help")
	}
	j, p, err := markedJob(c, "there are no marks to forget, and a new run does every block")
	if err != nil {
		return err
	}
	chosen := make([]bool, len(p.Tasks()))
	for _, id := range c.Args().Tail() {
		i := p.Index(id)
		if i < 0 {
			return usage("%s has no task %q; it has %s", j.File, id, strings.Join(j.TaskIDs(), ", "))
		}
		chosen[i] = true
	}
	tasks := p.Tasks()
	for i := range tasks { // in topological order
		if chosen[i] {
			for _, d := range p.Downstream(i) {
				chosen[d] = true
			}
		}
	}
	marked, err := withMarks(p, j.Tracking)
	if err != nil {
		return refused(err)
	}
	list, words, total := []resetTask{}, []string{}, int64(0)
	for i, t := range marked.Tasks() {
		if chosen[i] {
			n := t.Done.Count()
			list, total = append(list, resetTask{t.ID, n}), total+n
			words = append(words, fmt.Sprintf("%s of %s", units.Plural(n, "mark"), t.ID))
		}
	}
	if total == 0 {
		words = nil
	}
	if err := confirmMarks(c, "Forget", words); err != nil {
		return err
	}
	// From the end: should it fail in between, what is forgotten is never what something else was made from.
	var errs []error
	for i := len(tasks) - 1; i >= 0 && errs == nil; i-- {
		if chosen[i] {
			n, err := tracking.Forget(filepath.Join(j.Tracking, tasks[i].ID), tasks[i].Grid)
			if err != nil {
				errs = append(errs, fmt.Errorf("task %q: %w", tasks[i].ID, err))
			}
			at := slices.IndexFunc(list, func(t resetTask) bool { return t.Task == tasks[i].ID })
			list[at].Marks = n
		}
	}
	if errs != nil {
		return refused(errors.Join(errs...))
	}
	var rows [][]string
	for _, t := range list {
		rows = append(rows, []string{t.Task, units.Count(t.Marks)})
	}
	return tellMarks(c, list, "Forgotten", []string{"<task", "marks"}, rows)
}
