package report

import (
	"fmt"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
)

const (
	// mostFailures is how many failed blocks of a task are listed, tailLines how many lines of output are shown of the
	// first, tailColumns how much of a line.
	mostFailures = 5
	tailLines    = 20
	tailColumns  = 400
)

// A finding is something that people should know, with what to do about it.
type finding struct {
	head  string
	lines []string
}

// findings are in the order of urgency from low to high: the last ones stay on the screen.
func findings(s api.Stats) []finding {
	fs := changes(s.Run.Changes)
	for i := range s.Tasks {
		fs = append(fs, unwritten(&s.Tasks[i])...)
		fs = append(fs, skips(&s.Tasks[i])...)
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		fs = append(fs, losses(t)...)
		fs = append(fs, memory(t, s.Run.Resources)...)
		fs = append(fs, timeouts(t)...)
		fs = append(fs, suggested(t)...)
	}
	full := true
	for i := range s.Tasks {
		f, ok := failures(&s.Tasks[i], full)
		fs = append(fs, f...)
		full = full && !ok
	}
	return append(fs, logs(s)...)
}

// changes are the limits that the job does not have.
func changes(list []api.LimitChange) (fs []finding) {
	for _, c := range list {
		fs = append(fs, finding{head: fmt.Sprintf("%s was %s in the job, and %s at the end: set by %s", c.Key, c.Was, c.Now, c.By)})
	}
	return fs
}

func unwritten(t *api.TaskStats) []finding {
	ends := units.AtEnd(t.UnwrittenAtEnd)
	if ends == "" {
		return nil
	}
	return []finding{{head: fmt.Sprintf("%q left unwritten %s, where no whole block fits: fit = \"shrink\" covers all", t.ID, ends)}}
}

func skips(t *api.TaskStats) []finding {
	skipped := t.Skipped - notSelected(t)
	if skipped == 0 {
		return nil
	}
	why := reasons(0, value(t.SkippedWhy.DoneBefore), value(t.SkippedWhy.Mask), t.SkippedWhy.Check)
	if t.SkippedWhy.DoneBefore == nil || t.SkippedWhy.Mask == nil {
		if why = reasons(0, 0, 0, t.SkippedWhy.Check); why != "" {
			why += ", "
		}
		why += "the others done before or by skip_mask"
	}
	return []finding{{head: fmt.Sprintf("%q skipped %s of %s: %s", t.ID, units.Count(skipped), units.Plural(t.Blocks-t.Unselected, "block"), why)}}
}

func losses(t *api.TaskStats) []finding {
	if t.Lost == 0 {
		return nil
	}
	return []finding{{head: fmt.Sprintf("%s of %q lost with the worker or its node: the table of workers says how each ended, the logs why",
		units.Plural(t.Lost, "attempt"), t.ID)}}
}

func memory(t *api.TaskStats, asked []api.AskedUsage) []finding {
	if t.OutOfMemory == 0 {
		return nil
	}
	head := fmt.Sprintf("%s of %q ran out of memory", units.Plural(t.OutOfMemory, "attempt"), t.ID)
	for _, a := range asked {
		if a.Task == t.ID && a.Resource == "memory" && a.Asked != nil {
			had := int64(*a.Asked)
			head += fmt.Sprintf(" with %s: raise requires.memory (--set task.%s.requires.memory=%s)", units.Size(had), t.ID, units.Size(2*had))
			return []finding{{head: head}}
		}
	}
	return []finding{{head: head + ": require more (--set task." + t.ID + ".requires.memory=…)"}}
}

// suggested is what was asked for and not used, or the other way round, as the job file would have it.
func suggested(t *api.TaskStats) []finding {
	if t.Suggested == nil {
		return nil
	}
	return []finding{{head: fmt.Sprintf("what %q used suggests, in its table of the job file:", t.ID), lines: strings.Split(*t.Suggested, "\n")}}
}

// timeouts tells blocks that need longer from blocks that hang: the first come close to the limit.
func timeouts(t *api.TaskStats) []finding {
	if t.TimedOut == 0 {
		return nil
	}
	head := fmt.Sprintf("%s of %q timed out", units.Plural(t.TimedOut, "attempt"), t.ID)
	if t.TimeoutSeconds != nil {
		head += " after " + units.WriteDuration(ofSeconds(*t.TimeoutSeconds).Round(time.Millisecond))
	}
	if t.TimedOutWorkers > 1 {
		head += fmt.Sprintf(" on %d workers", t.TimedOutWorkers)
	}
	b := t.BlockSeconds
	hangs := false
	switch {
	case b.Max == nil:
		head += "; none finished"
	default:
		head += fmt.Sprintf("; the longest that finished took %s", duration(b.Max))
		if t.Success > 1 {
			head += fmt.Sprintf(", half of them at most %s", duration(b.P50))
		}
		hangs = t.TimeoutSeconds != nil && *b.Max < *t.TimeoutSeconds/4
	}
	head += ": "
	if hangs {
		head += "look for what hangs, or "
	}
	head += "raise timeout"
	if t.TimeoutSeconds != nil {
		head += fmt.Sprintf(" (--set task.%s.timeout=%s)", t.ID, units.WriteDuration(2*ofSeconds(*t.TimeoutSeconds).Round(time.Millisecond)))
	}
	return []finding{{head: head}}
}

// failures lists the first failed blocks of a task, the very first in full; false if there is none.
func failures(t *api.TaskStats, full bool) ([]finding, bool) {
	if len(t.Failures) == 0 {
		return nil, false
	}
	var fs []finding
	listed := t.Failures
	if full {
		first := &t.Failures[0]
		head := "first failure: " + failureText(t.ID, first)
		if first.Log != nil {
			head += "; its whole output is in " + *first.Log
		}
		fs = append(fs, finding{head, tail(first.Tail)})
		listed = listed[1:]
	}
	f := finding{head: fmt.Sprintf("failed blocks of %q:", t.ID)}
	if full {
		f.head = fmt.Sprintf("further failed blocks of %q:", t.ID)
	}
	for i := range listed[:min(mostFailures, len(listed))] {
		f.lines = append(f.lines, clip(api.OneLine(failureText(t.ID, &listed[i])), tailColumns))
	}
	told := int64(len(f.lines))
	if full {
		told++
	}
	if more := t.Failed - told; more > 0 {
		f.lines = append(f.lines, fmt.Sprintf("… and %s more", units.Count(more)))
	}
	if len(f.lines) > 0 {
		fs = append(fs, f)
	}
	return fs, true
}

// failureText names a failed block and says what happened: `block 17 at (0, 1, 4) of "predict" failed after 3 attempts, on
// worker 3.0 (node n1) last: exit status 3`.
func failureText(task string, f *api.BlockFailure) string {
	var b strings.Builder
	b.WriteString("block ")
	if f.Block != nil {
		fmt.Fprintf(&b, "%d ", *f.Block)
	}
	at := make([]string, len(f.Index))
	for i, v := range f.Index {
		at[i] = fmt.Sprint(v)
	}
	fmt.Fprintf(&b, "at (%s) of %q failed after %s", strings.Join(at, ", "), task, units.Plural(f.Attempts, "attempt"))
	if f.Worker != nil {
		which := ", on"
		if f.Attempts > 1 {
			which = ", the last on"
		}
		fmt.Fprintf(&b, "%s worker %s", which, *f.Worker)
		if f.Node != nil {
			fmt.Fprintf(&b, " (node %s)", *f.Node)
		}
	}
	message := f.Message
	if message == "" {
		message = "no message"
	}
	return b.String() + ": " + clip(api.OneLine(message), tailColumns)
}

// tail is the last lines of an attempt's output.
func tail(output *string) []string {
	if output == nil {
		return nil
	}
	text := strings.Trim(strings.ReplaceAll(*output, "\r\n", "\n"), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	for i, l := range lines {
		lines[i] = clip(strings.TrimRight(l, " \t"), tailColumns)
	}
	return lines
}

func logs(s api.Stats) []finding {
	switch {
	case s.Run.Logs != nil:
		return []finding{{head: "logs: " + *s.Run.Logs}}
	case s.Run.Directory != nil:
		return []finding{{head: "run directory: " + *s.Run.Directory}}
	}
	return nil
}
