package main

import (
	"bytes"
	"fmt"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
	"example.org/daisy/internal/units"
)

// shownJobs is how many rows of jobs status has for people; --json has all.
const shownJobs = 40

// writeJobs shows the jobs of a batch system: how many workers of each are in which state, and why they wait.
func writeJobs(b *bytes.Buffer, jobs []api.LiveJob) error {
	var rows [][]string
	for _, j := range jobs {
		name := "submission " + j.Submission
		if j.Job != nil {
			name = *j.Job
		}
		add := func(n int64, state, reason, meaning, starts string) {
			if n > 0 {
				rows = append(rows, []string{name, j.Task, units.Count(n), state, reason, meaning, starts})
			}
		}
		if j.Running > 0 {
			meaning := "on " + shortList(j.Nodes)
			if len(j.Nodes) == 0 {
				meaning = ""
			}
			if n := j.Running - j.Connected; n > 0 {
				meaning = strings.TrimPrefix(fmt.Sprintf("%s; %s not connected", meaning, units.Count(n)), "; ")
			}
			add(j.Running, "running", "-", meaning, "")
		}
		pending := j.Pending
		for _, w := range j.Waits {
			starts := "-"
			if w.StartsInSeconds != nil {
				starts = "in " + units.Duration(ofSeconds(*w.StartsInSeconds))
			}
			n := min(w.Workers, pending)
			pending -= n
			add(n, "pending", or(w.Reason), or(w.Meaning), starts)
		}
		add(pending, "pending", "-", "", "-")
		switch {
		case j.Unsure:
			add(j.Asked, "unsure", "-", "the batch system has not said whether it took them", "-")
		default:
			add(j.Asked, "asked for", "-", "the batch system has not shown them yet", "-")
		}
	}
	if rows == nil {
		return nil
	}
	more := len(rows) - shownJobs
	if more > 0 {
		rows = rows[:shownJobs]
	}
	if err := report.Grid(b, "\nJobs", []string{"<job", "<task", "workers", "<state", "<reason", "<which means", "<first starts"}, rows); err != nil {
		return err
	}
	if more > 0 {
		fmt.Fprintf(b, "… and %d more rows, which --json has\n", more)
	}
	return nil
}

// shortList is the first few of a list.
func shortList(list []string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
