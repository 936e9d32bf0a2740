package report

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"example.org/daisy/internal/api"
)

// Mode is how progress is shown.
type Mode uint8

const (
	// Lines: a plain line for each task that changed, at most every 10 s.
	Lines Mode = iota
	// Bars: one bar a task, redrawn in place. For terminals.
	Bars
	// JSONLines: one JSON object a line, for programs: docs/stats.md has their form.
	JSONLines
)

// ModeFor chooses: JSON lines if asked for, bars if out is a terminal that can move its cursor, else lines.
func ModeFor(out io.Writer, jsonLines bool) Mode {
	if jsonLines {
		return JSONLines
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return Bars
	}
	return Lines
}

// Progress shows where a run stands. Its methods may be called from several goroutines; none waits for the reader of the
// output, but for Close, which waits 2 s at most for a reader that takes nothing. Output that cannot be written is lost and
// reported by Close; the run goes on.
type Progress struct {
	mu     sync.Mutex
	show   display
	outlet *outlet
	paces  []pace
	closed bool
}

// A display is one way to show progress.
type display interface {
	update(now time.Time, s *Snapshot, paces []pace)
	notice(text string)
	// end is told the statistics and where the tasks ended up.
	end(s api.Stats, last *Snapshot, paces []pace)
	close()
}

// NewProgress shows progress on out.
func NewProgress(out io.Writer, mode Mode) *Progress {
	return newProgress(out, mode, terminalSize(out))
}

func newProgress(out io.Writer, mode Mode, size func() (width, height int)) *Progress {
	p := &Progress{outlet: newOutlet(out)}
	switch mode {
	case Bars:
		p.show = newBars(p.outlet, size)
	case JSONLines:
		p.show = &jsonLines{out: p.outlet}
	default:
		p.show = &lines{out: p.outlet}
	}
	return p
}

// Update shows s. Call it often (a few times a second) or rarely: what is shown how often is decided by now, which must
// not go back. The tasks of all snapshots must be the same ones in the same order. s is not kept.
func (p *Progress) Update(now time.Time, s Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.grow(len(s.Tasks))
	for i := range s.Tasks {
		p.paces[i].update(now, &s.Tasks[i])
	}
	p.show.update(now, &s, p.paces)
}

func (p *Progress) grow(tasks int) {
	for len(p.paces) < tasks {
		p.paces = append(p.paces, pace{})
	}
}

// Notice shows a message of one or several lines at once.
func (p *Progress) Notice(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.show.notice(strings.TrimRight(api.Printable(text), "\n"))
	}
}

// End is told how the run ended. With JSONLines it writes the last event; the other modes show where the tasks ended up, so
// that the last that is seen of them is no longer on its way, and leave the rest to Tables.
func (p *Progress) End(s api.Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	last := Snapshot{State: s.Run.State, Elapsed: ofSeconds(s.Run.WallSeconds), Tasks: make([]TaskProgress, len(s.Tasks))}
	for i, t := range s.Tasks {
		last.Tasks[i] = TaskProgress{
			ID: t.ID, State: t.State, Blocks: t.Blocks, Waiting: t.Waiting, Ready: t.Ready, Leased: t.Leased,
			Success: t.Success, Skipped: t.Skipped, Failed: t.Failed, Orphaned: t.Orphaned, Abandoned: t.Abandoned, Unselected: t.Unselected, Retries: t.Retries,
		}
	}
	p.grow(len(last.Tasks))
	p.show.end(s, &last, p.paces)
}

// Close shows what has not been shown yet, and ends. It returns what went wrong with the output in all this time.
// Calls after the first do nothing.
func (p *Progress) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.show.close()
	return p.outlet.close()
}

// terminalSize tells the size of the terminal behind out, now; 80 × 24 if there is none.
func terminalSize(out io.Writer) func() (width, height int) {
	return func() (int, int) {
		if f, ok := out.(*os.File); ok {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
				return w, h
			}
		}
		return 80, 24
	}
}
