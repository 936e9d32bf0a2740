package report

import (
	"fmt"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
)

// Headline is what became of the blocks of a run, in one sentence whose numbers add up:
// "128 blocks: 126 succeeded, 1 failed, 1 orphaned."
func Headline(s api.Stats) string {
	sum := totals(s)
	switch {
	case sum.Blocks == 0:
		return "0 blocks: nothing to run."
	case sum.Skipped == sum.Blocks:
		return allSkipped(s, sum.Blocks)
	}
	leftOut := int64(0)
	for i := range s.Tasks {
		leftOut += notSelected(&s.Tasks[i])
	}
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, units.Count(n)+" "+what)
		}
	}
	add(sum.Success, "succeeded")
	add(sum.Skipped-leftOut, "skipped")
	add(sum.Failed, "failed")
	add(sum.Orphaned, "orphaned")
	add(sum.Abandoned, "abandoned")
	add(sum.Leased, "running")
	add(sum.Waiting+sum.Ready, "left")
	add(leftOut, "not selected")
	return units.Plural(sum.Blocks, "block") + ": " + strings.Join(parts, ", ") + "."
}

// notSelected is how many of the skipped blocks the selection of the run leaves out. Where that is not certain, they are taken to be those
// that were skipped first.
func notSelected(t *api.TaskStats) int64 {
	if t.SkippedWhy.NotSelected != nil {
		return *t.SkippedWhy.NotSelected
	}
	return min(t.Skipped, t.Unselected)
}

func allSkipped(s api.Stats, blocks int64) string {
	var leftOut, doneBefore, mask, check int64
	for _, t := range s.Tasks {
		leftOut += notSelected(&t)
		doneBefore += value(t.SkippedWhy.DoneBefore)
		mask += value(t.SkippedWhy.Mask)
		check += t.SkippedWhy.Check
	}
	all := fmt.Sprintf("all %s blocks were", units.Count(blocks))
	if blocks == 1 {
		all = "the only block was"
	}
	switch blocks {
	case leftOut:
		return "none of " + units.Plural(blocks, "block") + " is selected: nothing to run."
	case doneBefore:
		return all + " done before: nothing to run."
	case mask:
		return all + " masked: nothing to run."
	case check:
		return all + " found done by their checks: nothing to run."
	}
	return fmt.Sprintf("%s skipped (%s): nothing to run.", all, reasons(leftOut, doneBefore, mask, check))
}

// reasons says why blocks were skipped: "5 not selected, 100 done before, 20 by skip_mask, 3 by check".
func reasons(leftOut, doneBefore, mask, check int64) string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, units.Count(n)+" "+what)
		}
	}
	add(leftOut, "not selected")
	add(doneBefore, "done before")
	add(mask, "by skip_mask")
	add(check, "by check")
	return strings.Join(parts, ", ")
}

// verdict is what became of the run itself, in one sentence.
func verdict(s api.Stats) string {
	d := units.Duration(ofSeconds(s.Run.WallSeconds))
	message, why := "", "."
	if s.Run.Message != nil {
		message = strings.TrimRight(api.OneLine(*s.Run.Message), ".")
		why = ": " + message + "."
	}
	switch s.Run.State {
	case "done":
		return "The run took " + d + why
	case "failed":
		return "The run failed after " + d + why
	case "stopped":
		return "The run was stopped after " + d + why
	case "interrupted": // the message may begin with the same word
		if strings.HasPrefix(message, "interrupted by ") {
			return "The run was " + message + " after " + d + "."
		}
		return "The run was interrupted after " + d + strings.Replace(why, ": interrupted: ", ": ", 1)
	case "killed":
		return "The run was killed after " + d + why
	case "running":
		return "The run has been going on for " + d + why
	default:
		return fmt.Sprintf("The run is %q after %s%s", s.Run.State, d, why)
	}
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
