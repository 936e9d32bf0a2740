package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/units"
)

const (
	// frameInterval is how often bars are redrawn at most.
	frameInterval = 100 * time.Millisecond
	// frameTimeout bounds the wait for mpb's goroutines to draw a frame, which takes microseconds.
	frameTimeout = time.Second
	// longestName is how much of a task's id a bar shows.
	longestName = 24
)

// bars shows one bar a task. mpb lays out and draws; when, with what text and whereto is said here: it redraws only when
// told, its bars never complete by themselves, and its output goes through the screen to the outlet.
type bars struct {
	screen  *screen
	pool    *mpb.Progress
	refresh chan any
	rows    []*bar
	when    time.Time // of the last frame
	hidden  bool      // something changed since
}

// bar is one row; its texts are read by mpb's goroutines.
type bar struct {
	*mpb.Bar
	mu         sync.Mutex
	head, tail string
}

func newBars(out *outlet, size func() (width, height int)) *bars {
	b := &bars{
		screen:  &screen{out: out, size: size, drawn: make(chan struct{}, 1)},
		refresh: make(chan any),
	}
	b.pool = mpb.New(mpb.WithConsoleWriter(b.screen), mpb.WithManualRefresh(b.refresh))
	return b
}

func (b *bars) update(now time.Time, s *Snapshot, paces []pace) {
	b.set(s, paces)
	if b.when.IsZero() || now.Sub(b.when) >= frameInterval {
		b.when = now
		b.draw()
	}
}

// set gives the rows their texts.
func (b *bars) set(s *Snapshot, paces []pace) {
	var nameWidth, countWidth int
	counts := make([]string, len(s.Tasks))
	for i := range s.Tasks {
		t := &s.Tasks[i]
		counts[i] = units.Count(t.Done()) + "/" + units.Count(t.selected())
		countWidth = max(countWidth, len(counts[i]))
		nameWidth = max(nameWidth, min(longestName, utf8.RuneCountInString(t.ID)))
	}
	_, rows, _ := b.screen.GetTermSize()
	for row, i := range visible(s.Tasks, rows) {
		t := &s.Tasks[i]
		if row == len(b.rows) {
			b.rows = append(b.rows, b.add())
		}
		name := clip(api.OneLine(t.ID), longestName)
		head := name + strings.Repeat(" ", max(0, nameWidth-utf8.RuneCountInString(name))) + fmt.Sprintf("  %*s", countWidth, counts[i])
		tail := fmt.Sprintf("%4s", percent(t.Done(), t.selected()))
		for _, r := range remarks(t, &paces[i]) {
			tail += "  " + r
		}
		b.rows[row].set(head, tail)
		b.rows[row].SetTotal(t.selected(), false)
		b.rows[row].SetCurrent(t.Done())
	}
	b.hidden = true
}

// visible chooses the tasks to show on so many rows: all if they fit, else first those that run, then those that wait, then
// those that have ended; in the order of the pipeline.
func visible(tasks []TaskProgress, rows int) []int {
	var chosen []int
	for _, wanted := range []func(*TaskProgress) bool{
		func(t *TaskProgress) bool { return t.State == "running" && t.Running > 0 },
		func(t *TaskProgress) bool { return t.State == "running" && t.Running == 0 },
		func(t *TaskProgress) bool { return t.State != "running" },
	} {
		for i := range tasks {
			if len(chosen) < rows && wanted(&tasks[i]) {
				chosen = append(chosen, i)
			}
		}
	}
	slices.Sort(chosen)
	return chosen
}

// add makes a bar. A total of 0 keeps it from completing by itself.
func (b *bars) add() *bar {
	t := &bar{}
	t.Bar = b.pool.New(0, mpb.BarStyle().Rbound("]"), mpb.BarWidth(24),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { t.mu.Lock(); defer t.mu.Unlock(); return t.head })),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { t.mu.Lock(); defer t.mu.Unlock(); return t.tail })))
	return t
}

func (t *bar) set(head, tail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head, t.tail = head, tail
}

// draw has a frame drawn and waits until it has reached the outlet.
func (b *bars) draw() {
	b.hidden = false
	timeout := time.NewTimer(frameTimeout)
	defer timeout.Stop()
	select {
	case b.refresh <- b.when:
	case <-timeout.C:
		return
	}
	select {
	case <-b.screen.drawn:
	case <-timeout.C:
	}
}

func (b *bars) notice(text string) {
	b.screen.print(text + "\n")
}

func (b *bars) end(_ api.Stats, last *Snapshot, paces []pace) { b.set(last, paces) }

func (b *bars) close() {
	if b.hidden && len(b.rows) > 0 {
		b.draw()
	}
	b.pool.Shutdown()
}

// A screen is where the bars stand on the terminal: the lowest lines, redrawn in place, with notices above them. It
// implements mpb.ConsoleWriter.
type screen struct {
	out   *outlet
	size  func() (width, height int)
	drawn chan struct{} // a frame has been drawn; room for one

	mu    sync.Mutex
	next  bytes.Buffer // the frame that mpb is writing
	frame []byte       // the frame on the terminal
	lines int          // its lines
}

// print writes text above the bars.
func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.send(append(append(s.erase(), text...), s.frame...), roomForNotices)
}

// erase is what clears the frame on the terminal and brings the cursor to its begin.
func (s *screen) erase() []byte {
	if s.lines == 0 {
		return nil
	}
	return fmt.Appendf(nil, "\x1b[%dA\x1b[J", s.lines)
}

// Flush shows the frame. One that does not fit into the outlet is never shown, and the one before it stays. The lines are
// counted here: mpb's own number is wrong, even negative, when it left out bars for which the terminal is too low.
func (s *screen) Flush(int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer signal(s.drawn)
	if s.out.send(append(s.erase(), s.next.Bytes()...), roomForProgress) {
		s.frame = append(s.frame[:0], s.next.Bytes()...)
		s.lines = bytes.Count(s.frame, []byte{'\n'})
	}
	s.next.Reset()
	return nil
}

// Write and ReadFrom add to the frame.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.Write(b)
}

func (s *screen) ReadFrom(r io.Reader) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.ReadFrom(r)
}

// IsTerminal makes mpb ask for the size.
func (s *screen) IsTerminal() bool { return true }

// GetTermSize leaves the last column free: a full line makes some terminals begin a new one.
func (s *screen) GetTermSize() (width, height int, err error) {
	width, height = s.size()
	return max(width-1, 1), max(height-1, 1), nil
}
