package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
)

// none stands for "no value".
const none = "-"

// tables are the tables of a report, in their order, without those that would be empty.
func tables(s api.Stats) []table {
	all := []table{taskTable(s), attemptTable(s), timeTable(s), askedTable(s), workerTable(s), nodeTable(s), runTable(s)}
	return slices.DeleteFunc(all, func(t table) bool { return len(t.rows) == 0 })
}

func taskTable(s api.Stats) table {
	t := table{title: "Tasks", head: []string{"<task", "<state", "blocks", "success", "skipped", "failed", "orphaned", "abandoned"}}
	left := func(t *api.TaskStats) int64 { return t.Waiting + t.Ready + t.Leased }
	sum := totals(s)
	open := left(&sum) > 0
	if open {
		t.head = append(t.head, "running", "left")
	}
	part := sum.Unselected > 0
	if part {
		t.head = append(t.head, "not selected")
	}
	row := func(name, state string, x *api.TaskStats, leftOut int64) []string {
		r := []string{name, state}
		for _, n := range []int64{x.Blocks, x.Success, x.Skipped - leftOut, x.Failed, x.Orphaned, x.Abandoned} {
			r = append(r, units.Count(n))
		}
		if open {
			r = append(r, units.Count(x.Leased), units.Count(x.Waiting+x.Ready))
		}
		if part {
			r = append(r, units.Count(leftOut))
		}
		return r
	}
	all := int64(0)
	for i := range s.Tasks {
		leftOut := notSelected(&s.Tasks[i])
		all += leftOut
		t.rows = append(t.rows, row(s.Tasks[i].ID, s.Tasks[i].State, &s.Tasks[i], leftOut))
	}
	if len(s.Tasks) > 1 {
		t.foot = row("all", "", &sum, all)
	}
	return t
}

func attemptTable(s api.Stats) table {
	t := table{title: "Attempts", head: []string{"<task", "processed", "retries", "timed out", "lost", "returned", "out of memory", "workers", "most at once", "wasted"}}
	for _, x := range s.Tasks {
		r := []string{x.ID}
		for _, n := range []int64{x.Processed, x.Retries, x.TimedOut, x.Lost, x.Returned, x.OutOfMemory, x.Workers, x.MaxConcurrency} {
			r = append(r, units.Count(n))
		}
		t.rows = append(t.rows, append(r, duration(&x.WastedSeconds)))
	}
	return t
}

func timeTable(s api.Stats) table {
	t := table{title: "Block times", head: []string{"<task", "mean", "p50", "p95", "max", "trend", "CPU busy", "peak memory", "wall time"}}
	for _, x := range s.Tasks {
		b := x.BlockSeconds
		t.rows = append(t.rows, []string{
			x.ID, duration(b.Mean), duration(b.P50), duration(b.P95), duration(b.Max), trend(&x),
			share(x.CPUBusy), size(x.PeakRSSBytes), duration(x.WallSeconds),
		})
	}
	return t
}

// trend is how much longer blocks took at the end of the run than at its begin, along the fitted line, of their mean.
func trend(x *api.TaskStats) string {
	b := x.BlockSeconds
	if b.Slope == nil || b.Mean == nil || *b.Mean == 0 {
		return none
	}
	change := math.Round(*b.Slope * float64(x.Success-1) / *b.Mean * 100)
	if change == 0 {
		return "0%"
	}
	return fmt.Sprintf("%+.0f%%", change)
}

func askedTable(s api.Stats) table {
	t := table{title: "Asked for and used", head: []string{"<task", "<resource", "asked", "used", "<suggestion"}}
	for _, r := range s.Run.Resources {
		asked := amountOf(r.Resource, r.Asked)
		if r.AskedAtStart != nil {
			asked += fmt.Sprintf(" (%s at the start)", amountOf(r.Resource, positive(*r.AskedAtStart)))
		}
		t.rows = append(t.rows, []string{r.Task, r.Resource, asked, amountOf(r.Resource, r.Used), orNone(r.Suggestion)})
	}
	return t
}

// amountOf prints an amount of a resource for people.
func amountOf(resource string, v *float64) string {
	switch {
	case v == nil:
		return none
	case resource == "memory":
		return units.Size(int64(*v))
	case resource == "timeout":
		return duration(v)
	default:
		return fmt.Sprintf("%.3g", *v)
	}
}

// positive is nil for 0, which stands for no limit.
func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

func workerTable(s api.Stats) table {
	t := table{title: "Workers", long: true, head: []string{"<worker", "<task", "<node", "slots", "processed", "failed", "busy", "idle", "peak memory", "<end"}}
	given := s.Run.CoreHours.Granted != nil
	if given {
		t.head = append(t.head, "<asked for", "<given")
	}
	for _, w := range s.Workers {
		row := []string{
			w.ID, w.Task, orNone(w.Node), units.Count(w.Slots), units.Count(w.Processed), units.Count(w.Failed),
			duration(&w.BusySeconds), duration(&w.IdleSeconds), size(w.PeakRSSBytes), orNone(w.End),
		}
		if given {
			row = append(row, Amounts(w.Asked), Amounts(w.Granted))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// Amounts are resources of one worker for people.
func Amounts(a api.Amounts) string {
	var parts []string
	if a.Cores != nil {
		word := "cores"
		if *a.Cores == 1 {
			word = "core"
		}
		parts = append(parts, fmt.Sprintf("%.3g %s", *a.Cores, word))
	}
	if a.MemoryBytes != nil {
		parts = append(parts, units.Size(*a.MemoryBytes))
	}
	if a.GPUs != nil {
		parts = append(parts, units.Plural(*a.GPUs, "GPU"))
	}
	if parts == nil {
		return none
	}
	return strings.Join(parts, ", ")
}

func nodeTable(s api.Stats) table {
	t := table{title: "Nodes", long: true, head: []string{"<node", "workers", "processed", "failed", "busy", "idle", "wasted", "peak memory", "<ends"}}
	given := s.Run.CoreHours.Granted != nil
	if given {
		t.head = append(t.head, "core-hours", "used", "left idle")
	}
	for _, n := range s.Nodes {
		var ends []string
		for end, count := range n.Ends {
			ends = append(ends, fmt.Sprintf("%d %s", count, end))
		}
		slices.Sort(ends)
		how := strings.Join(ends, ", ")
		row := []string{
			n.Node, units.Count(n.Workers), units.Count(n.Processed), units.Count(n.Failed),
			duration(&n.BusySeconds), duration(&n.IdleSeconds), duration(&n.WastedSeconds), size(n.PeakRSSBytes), orNone(&how),
		}
		if given {
			row = append(row, coreHours(n.CoreHours.Granted), coreHours(n.CoreHours.Used), coreHours(n.CoreHours.Idle))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func runTable(s api.Stats) table {
	r := s.Run
	t := table{title: "Run", head: []string{"<what", "<value"}}
	add := func(what, value string) { t.rows = append(t.rows, []string{what, value}) }
	add("name", runName(s))
	add("state", r.State)
	add("started", r.Started.UTC().Format(time.RFC3339))
	if r.Ended != nil {
		add("ended", r.Ended.UTC().Format(time.RFC3339))
	}
	wall := duration(&r.WallSeconds)
	if len(r.Segments) > 1 {
		wall += fmt.Sprintf(" in %d segments", len(r.Segments))
	}
	add("wall time", wall)
	if r.Launcher != nil {
		add("launcher", *r.Launcher)
	}
	h := r.WorkerHours
	add("worker time", fmt.Sprintf("%s used, %s idle, %s wasted", hours(h.Used), hours(h.Idle), hours(h.Wasted)))
	if c := r.CoreHours; c.Granted != nil {
		add("core-hours", fmt.Sprintf("%s given, %s used, %s idle", coreHours(c.Granted), coreHours(c.Used), coreHours(c.Idle)))
	}
	if r.State != "killed" { // it took what it had used with it
		c := s.Coordinator
		own := duration(&c.CPUSeconds) + " CPU"
		if c.PeakRSSBytes != nil {
			own += ", " + size(c.PeakRSSBytes) + " memory"
		}
		add("coordinator", fmt.Sprintf("%s, %s in, %s out", own, units.Size(c.BytesIn), units.Size(c.BytesOut)))
	}
	if r.JobFile != nil {
		add("job file", *r.JobFile)
	}
	if r.Directory != nil {
		add("run directory", *r.Directory)
	}
	return t
}

// runName is the run's name and id.
func runName(s api.Stats) string {
	switch {
	case s.Run.Name == "":
		return s.Run.ID
	case s.Run.ID == "":
		return s.Run.Name
	}
	return fmt.Sprintf("%s (%s)", s.Run.Name, s.Run.ID)
}

// totals adds up the blocks of all tasks by how they ended.
func totals(s api.Stats) api.TaskStats {
	var sum api.TaskStats
	for _, t := range s.Tasks {
		sum.Blocks += t.Blocks
		sum.Waiting += t.Waiting
		sum.Ready += t.Ready
		sum.Leased += t.Leased
		sum.Success += t.Success
		sum.Skipped += t.Skipped
		sum.Failed += t.Failed
		sum.Orphaned += t.Orphaned
		sum.Abandoned += t.Abandoned
		sum.Unselected += t.Unselected
	}
	return sum
}

func orNone(s *string) string {
	if s == nil || *s == "" {
		return none
	}
	return *s
}

func duration(seconds *float64) string {
	if seconds == nil {
		return none
	}
	return units.Duration(ofSeconds(*seconds))
}

// ofSeconds is a duration; what no duration holds becomes the nearest that does.
func ofSeconds(s float64) time.Duration {
	const most = float64(math.MaxInt64 / int64(time.Second))
	return time.Duration(min(max(s, -most), most) * float64(time.Second))
}

// coreHours prints cores × hours.
func coreHours(h *float64) string {
	switch {
	case h == nil:
		return none
	case *h >= 100:
		return units.Count(int64(math.Round(*h)))
	default:
		return fmt.Sprintf("%.3g", *h)
	}
}

func hours(h float64) string { return units.Duration(ofSeconds(h * 3600)) }

func size(bytes *int64) string {
	if bytes == nil {
		return none
	}
	return units.Size(*bytes)
}

func share(f *float64) string {
	if f == nil {
		return none
	}
	return fmt.Sprintf("%.0f%%", *f*100)
}
