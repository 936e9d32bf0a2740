package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
)

// lineInterval is how often lines are written at most.
const lineInterval = 10 * time.Second

// lines shows a plain line for each task that changed.
type lines struct {
	out    *outlet
	shown  []TaskProgress // as last written
	latest []TaskProgress // as last told
	paces  []pace
	when   time.Time // of the last lines
	past   time.Duration
}

func (l *lines) update(now time.Time, s *Snapshot, paces []pace) {
	l.take(s, paces)
	if !l.when.IsZero() && now.Sub(l.when) < lineInterval {
		return
	}
	if l.write() {
		l.when = now
	}
}

func (l *lines) take(s *Snapshot, paces []pace) {
	l.latest = append(l.latest[:0], s.Tasks...)
	l.paces, l.past = paces, s.Elapsed
}

// write writes the tasks that changed since they were written; false if there are none.
func (l *lines) write() bool {
	var b strings.Builder
	for i := range l.latest {
		t := &l.latest[i]
		if i < len(l.shown) && l.shown[i] == *t {
			continue
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", units.Duration(l.past.Round(time.Second)), t.ID, describe(t, &l.paces[i]))
	}
	if b.Len() == 0 {
		return false
	}
	l.shown = append(l.shown[:0], l.latest...)
	l.out.send([]byte(b.String()), roomForProgress)
	return true
}

func (l *lines) notice(text string) {
	l.out.send([]byte(text+"\n"), roomForNotices)
}

func (l *lines) end(_ api.Stats, last *Snapshot, paces []pace) { l.take(last, paces) }

func (l *lines) close() { l.write() }

// describe is where a task stands, in words: "1,234 of 10,000 done (12%), 16 running, 2 failed, 3.4/s, 43m10s left".
func describe(t *TaskProgress, p *pace) string {
	if t.selected() == 0 && t.Unselected > 0 {
		return "no block of it is selected"
	}
	head := fmt.Sprintf("%s of %s done (%s)", units.Count(t.Done()), units.Count(t.selected()), percent(t.Done(), t.selected()))
	if t.Unselected > 0 {
		head = fmt.Sprintf("%s of %s selected done (%s)", units.Count(t.Done()), units.Count(t.selected()), percent(t.Done(), t.selected()))
	}
	return strings.Join(append([]string{head}, remarks(t, p)...), ", ")
}

// remarks is what there is to say of a task besides how much of it is done.
func remarks(t *TaskProgress, p *pace) []string {
	var r []string
	add := func(n int64, what string) {
		if n > 0 {
			r = append(r, units.Count(n)+" "+what)
		}
	}
	add(t.Running, "running")
	add(t.Failed, "failed")
	add(t.Orphaned, "orphaned")
	add(t.Abandoned, "abandoned")
	switch t.State {
	case "running":
	case "done": // "done" counts blocks already
		return append(r, "finished")
	default:
		return append(r, t.State)
	}
	if rate, ok := p.perSecond(); ok {
		r = append(r, rateText(rate))
	}
	if left, ok := p.left(t.left()); ok {
		r = append(r, units.Duration(left.Round(time.Second))+" left")
	}
	if t.Waits != "" {
		r = append(r, "waits: "+api.OneLine(t.Waits))
	}
	return r
}

// percent is rounded down, so that 100% means all. Of nothing, all is done.
func percent(n, of int64) string {
	if of <= 0 {
		return "100%"
	}
	return fmt.Sprintf("%d%%", int64(math.Floor(float64(n)/float64(of)*100)))
}

// rateText prints blocks per second, minute or hour, whichever makes a readable number.
func rateText(perSecond float64) string {
	switch {
	case perSecond >= 100:
		return units.Count(int64(math.Round(perSecond))) + "/s"
	case perSecond >= 1:
		return fmt.Sprintf("%.1f/s", perSecond)
	case perSecond*60 >= 1:
		return fmt.Sprintf("%.1f/min", perSecond*60)
	default:
		return fmt.Sprintf("%.1f/h", perSecond*3600)
	}
}
