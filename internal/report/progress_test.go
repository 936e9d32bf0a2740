package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
)

// step is a moment of a run.
type step struct {
	at    time.Duration
	tasks []TaskProgress
}

// aRun has two tasks: the second waits for the first, in which a block fails.
func aRun() []step {
	var steps []step
	for i := range int64(31) {
		a := TaskProgress{ID: "predict", State: "running", Blocks: 1240, Skipped: 40, Success: i * 40, Leased: 16, Running: 16, Slots: 16}
		b := TaskProgress{ID: "agglomerate", State: "running", Blocks: 100, Waiting: 100, Waits: `100 blocks wait for "predict"`}
		if i >= 3 {
			a.Failed, a.Success, b.Orphaned, b.Waiting = 1, a.Success-1, 1, 99
		}
		if i == 0 {
			a.Leased, a.Running, a.Waits = 0, 0, "2 workers are starting"
		}
		if i == 30 {
			a.State, a.Leased, a.Running = "done", 0, 0
			b.Waits, b.Leased, b.Running, b.Waiting = "", 2, 2, 97
		}
		a.Ready = a.Blocks - a.Success - a.Skipped - a.Failed - a.Leased
		steps = append(steps, step{time.Duration(i) * 3 * time.Second, []TaskProgress{a, b}})
	}
	return steps
}

// play shows a run and returns what was written.
func play(t *testing.T, mode Mode, steps []step) []byte {
	t.Helper()
	var b bytes.Buffer
	show := newProgress(&b, mode, func() (int, int) { return 121, 30 })
	for i, s := range steps {
		if i == 4 {
			show.Notice("first failure: block 17 at (0, 1, 4) of \"predict\"\n    ValueError\x1b[31m")
		}
		show.Update(began.Add(s.at), Snapshot{State: "running", Elapsed: s.at, Tasks: s.tasks})
	}
	if err := show.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOffATerminalALineSaysWhatChanged(t *testing.T) {
	got := play(t, Lines, aRun())
	if bytes.ContainsAny(got, "\x1b\r") {
		t.Error("there are codes for terminals")
	}
	golden(t, "lines.txt", got)
}

func TestOffATerminalNothingIsWrittenWhenNothingChanges(t *testing.T) {
	steps := []step{{0, aRun()[5].tasks}}
	for i := range 1000 {
		steps = append(steps, step{time.Duration(i) * time.Second, aRun()[5].tasks})
	}
	got := play(t, Lines, steps)
	if n := bytes.Count(got, []byte("predict: ")); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, got)
	}
}

func TestOffATerminalLinesAreTenSecondsApart(t *testing.T) {
	var b bytes.Buffer
	show := NewProgress(&b, Lines)
	for i := range int64(600) { // a minute, ten updates a second
		at := time.Duration(i) * 100 * time.Millisecond
		show.Update(began.Add(at), Snapshot{Elapsed: at, Tasks: []TaskProgress{{ID: "a", State: "running", Blocks: 600, Success: i, Ready: 600 - i}}})
	}
	if err := show.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(b.String(), "\n"), 6+1; got != want { // at 0, 10, … 50 s, and at the end
		t.Errorf("%d lines, want %d:\n%s", got, want, b.String())
	}
}

func TestJSONLinesHaveTheDocumentedForm(t *testing.T) {
	var b bytes.Buffer
	show := NewProgress(&b, JSONLines)
	for i, s := range aRun() {
		if i == 4 {
			show.Notice("a notice\x1b[31m\n")
		}
		show.Update(began.Add(s.at), Snapshot{State: "running", Elapsed: s.at, Tasks: s.tasks})
		show.Update(began.Add(s.at+time.Second/2), Snapshot{State: "running", Elapsed: s.at, Tasks: s.tasks})
	}
	show.End(failedRun())
	if err := show.Close(); err != nil {
		t.Fatal(err)
	}
	golden(t, "events.jsonl", b.Bytes())
	events := map[string]int{}
	for line := range strings.Lines(b.String()) {
		var e struct {
			Event string
			Tasks []map[string]any
			Stats api.Stats
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events[e.Event]++
		if e.Event == "end" {
			if diff := cmp.Diff(failedRun(), e.Stats); diff != "" {
				t.Error(diff)
			}
		}
	}
	if want := map[string]int{"progress": 31, "notice": 1, "end": 1}; !cmp.Equal(events, want) {
		t.Errorf("events %v, want %v", events, want)
	}
}

func TestJSONLinesShowTheLastStateThoughItComesTooSoon(t *testing.T) {
	var b bytes.Buffer
	show := NewProgress(&b, JSONLines)
	show.Update(began, Snapshot{State: "running", Tasks: []TaskProgress{{ID: "a", Blocks: 1, Leased: 1, Running: 1}}})
	show.Update(began.Add(time.Millisecond), Snapshot{State: "done", Tasks: []TaskProgress{{ID: "a", Blocks: 1, Success: 1}}})
	if err := show.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"state":"done"`) {
		t.Error(b.String())
	}
}

func TestTheLastThatIsSeenIsHowTheTasksEnded(t *testing.T) {
	for mode, want := range map[Mode]string{
		Lines: `3m05s  agglomerate: 100 of 128 done (78%), 1 failed, 27 orphaned, finished`,
		Bars:  `agglomerate      100/128 [================>-----]  78%  1 failed  27 orphaned  finished`,
	} {
		for _, updates := range []int{0, 1, 5} {
			var b bytes.Buffer
			show := newProgress(&b, mode, func() (int, int) { return 121, 30 })
			for _, s := range aRun()[:updates] {
				show.Update(began.Add(s.at), Snapshot{State: "running", Elapsed: s.at, Tasks: s.tasks})
			}
			show.End(failedRun())
			if err := show.Close(); err != nil {
				t.Fatal(err)
			}
			var s terminal
			s.show(b.String())
			if got := s.lines[len(s.lines)-1]; got != want {
				t.Errorf("mode %d after %d updates: got\n%s\nwant\n%s", mode, updates, got, want)
			}
		}
	}
}

// terminal is as much of a terminal as progress needs: lines, "cursor up" and "erase below".
type terminal struct {
	lines []string
	row   int
}

var up = regexp.MustCompile(`^\x1b\[(\d+)A\x1b\[J`)

func (s *terminal) show(out string) {
	for out != "" {
		if m := up.FindStringSubmatch(out); m != nil {
			n, _ := strconv.Atoi(m[1])
			s.row -= n
			s.lines = s.lines[:s.row]
			out = out[len(m[0]):]
			continue
		}
		line, rest, _ := strings.Cut(out, "\n")
		s.lines = append(s.lines[:s.row], line)
		s.row++
		out = rest
	}
}

func TestOnATerminalEachTaskHasABarThatIsRedrawnInPlace(t *testing.T) {
	steps := aRun()
	var all bytes.Buffer
	for _, n := range []int{1, 4, 20, len(steps)} {
		var s terminal
		s.show(string(play(t, Bars, steps[:n])))
		fmt.Fprintf(&all, "after %v\n%s\n\n", steps[n-1].at, strings.Join(s.lines, "\n"))
	}
	golden(t, "bars.txt", all.Bytes())
}

func TestBarsFitANarrowTerminal(t *testing.T) {
	for _, width := range []int{1, 2, 10, 40, 80} {
		var b bytes.Buffer
		show := newProgress(&b, Bars, func() (int, int) { return width, 3 })
		for _, s := range aRun() {
			show.Update(began.Add(s.at), Snapshot{Tasks: s.tasks})
		}
		if err := show.Close(); err != nil {
			t.Fatal(err)
		}
		var s terminal
		s.show(b.String())
		for _, line := range s.lines {
			if n := len([]rune(line)); n > width {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
}

func TestMoreTasksThanLinesLeaveTheTerminalInOrder(t *testing.T) {
	var b bytes.Buffer
	show := newProgress(&b, Bars, func() (int, int) { return 80, 10 })
	for i := range 50 {
		tasks := make([]TaskProgress, 40)
		for k := range tasks {
			tasks[k] = TaskProgress{ID: fmt.Sprint("task", k), State: "running", Blocks: 100, Success: int64(i), Ready: int64(100 - i)}
			if k == 5 || k == 30 {
				tasks[k].Leased, tasks[k].Running, tasks[k].Ready = 1, 1, tasks[k].Ready-1
			}
		}
		show.Update(began.Add(time.Duration(i)*time.Second), Snapshot{Tasks: tasks})
	}
	if err := show.Close(); err != nil {
		t.Fatal(err)
	}
	var s terminal
	s.show(b.String())
	screen := strings.Join(s.lines, "\n")
	if len(s.lines) != 9 || !strings.Contains(screen, "task5 ") || !strings.Contains(screen, "task30 ") {
		t.Errorf("want 9 lines on a terminal of 10, with the tasks that run:\n%s", screen)
	}
}

// stuck is a terminal that takes nothing (Ctrl-S), until it is let go.
type stuck struct{ letGo chan struct{} }

func (s stuck) Write(b []byte) (int, error) { <-s.letGo; return len(b), nil }

func TestAReaderThatTakesNothingStopsNobody(t *testing.T) {
	for _, mode := range []Mode{Lines, Bars, JSONLines} {
		synctest.Test(t, func(t *testing.T) {
			out := stuck{make(chan struct{})}
			show := newProgress(out, mode, func() (int, int) { return 80, 24 })
			before := time.Now()
			for i := range int64(20000) {
				at := time.Duration(i) * 10 * time.Second
				show.Update(began.Add(at), Snapshot{Tasks: []TaskProgress{{ID: "a", State: "running", Blocks: 20000, Success: i, Ready: 20000 - i}}})
				show.Notice("a notice of some length, so that many of them are too much")
			}
			if d := time.Since(before); d != 0 {
				t.Errorf("mode %d: waited %v", mode, d)
			}
			show.mu.Lock()
			show.outlet.mu.Lock()
			if n := len(show.outlet.pending); n > 2*roomForNotices {
				t.Errorf("mode %d: %d bytes are kept for a reader that takes nothing", mode, n)
			}
			show.outlet.mu.Unlock()
			show.mu.Unlock()
			err := show.Close()
			if d := time.Since(before); d != patience {
				t.Errorf("mode %d: Close waited %v", mode, d)
			}
			if err == nil || !strings.Contains(err.Error(), "the reader took nothing for 2s; ") {
				t.Errorf("mode %d: %v", mode, err)
			}
			close(out.letGo) // the writing goroutine ends; else synctest reports it
		})
	}
}

// slow takes one write at each tick.
type slow struct {
	bytes.Buffer
	tick <-chan time.Time
}

func (s *slow) Write(b []byte) (int, error) { <-s.tick; return s.Buffer.Write(b) }

func TestASlowReaderGetsTheEndOfTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every := time.NewTicker(time.Second)
		defer every.Stop()
		out := &slow{tick: every.C}
		show := NewProgress(out, JSONLines)
		s := failedRun()
		for i := range 5000 { // about a megabyte
			s.Workers = append(s.Workers, api.WorkerStats{Task: "predict", ID: fmt.Sprintf("9.%d", i)})
		}
		show.End(s)
		if err := show.Close(); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(out.String(), "}}\n") {
			t.Errorf("the last event was cut after %d bytes", out.Len())
		}
	})
}

func TestAReaderThatIsGoneIsReportedAtTheEnd(t *testing.T) {
	for _, mode := range []Mode{Lines, Bars, JSONLines} {
		show := newProgress(failingWriter{}, mode, func() (int, int) { return 80, 24 })
		for _, s := range aRun() {
			show.Update(began.Add(s.at), Snapshot{Tasks: s.tasks})
			show.Notice("still there?")
		}
		if err := show.Close(); err == nil || err.Error() != "progress: no space left on device" {
			t.Errorf("mode %d: %v", mode, err)
		}
		if err := show.Close(); err != nil {
			t.Errorf("mode %d: closed again: %v", mode, err)
		}
		show.Update(began, Snapshot{}) // after Close nothing happens
		show.Notice("hello")
		show.End(api.Stats{})
	}
}

func TestProgressMayBeCalledFromSeveralGoroutines(t *testing.T) {
	for _, mode := range []Mode{Lines, Bars, JSONLines} {
		show := newProgress(io.Discard, mode, func() (int, int) { return 80, 24 })
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				for _, s := range aRun() {
					show.Update(began.Add(s.at), Snapshot{Tasks: s.tasks})
					show.Notice("n")
				}
			})
		}
		g.Wait()
		if err := show.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheModeFollowsTheOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, test := range []struct {
		out  io.Writer
		json bool
		want Mode
	}{{w, false, Lines}, {w, true, JSONLines}, {&bytes.Buffer{}, false, Lines}} {
		if got := ModeFor(test.out, test.json); got != test.want {
			t.Errorf("%T, json %v: mode %d, want %d", test.out, test.json, got, test.want)
		}
	}
	if width, height := terminalSize(w)(); width != 80 || height != 24 {
		t.Errorf("size without a terminal: %d × %d", width, height)
	}
}

func TestTheRateFollowsChangesAndIgnoresSkippedBlocks(t *testing.T) {
	var k pace
	at := func(s int, success, skipped int64) {
		k.update(began.Add(time.Duration(s)*time.Second), &TaskProgress{Leased: 1, Running: 1, Success: success, Skipped: skipped})
	}
	at(0, 0, 0)
	if _, ok := k.perSecond(); ok {
		t.Error("a rate after no time")
	}
	at(1, 0, 1000000)
	if _, ok := k.left(5); ok {
		t.Error("an estimate without a block")
	}
	for s := range 100 {
		at(2+s, int64(s), 1000000) // 1/s
	}
	if rate, _ := k.perSecond(); rate < 0.95 || rate > 1.05 {
		t.Errorf("rate %v, want about 1", rate)
	}
	for s := range 200 {
		at(102+s, 99+10*int64(s), 1000000) // 10/s
	}
	if rate, _ := k.perSecond(); rate < 9.5 || rate > 10.5 {
		t.Errorf("rate %v, want about 10", rate)
	}
	if left, ok := k.left(600); !ok || left < 57*time.Second || left > 63*time.Second {
		t.Errorf("left %v, want about 1m", left)
	}
	if _, ok := k.left(1 << 60); ok {
		t.Error("an estimate of ages")
	}
}

func TestPercentAndRatesForPeople(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{percent(0, 0), "100%"}, {percent(999, 1000), "99%"}, {percent(1000, 1000), "100%"}, {percent(0, 5), "0%"},
		{rateText(12345.6), "12,346/s"}, {rateText(3.44), "3.4/s"}, {rateText(0.5), "30.0/min"}, {rateText(0.001), "3.6/h"},
	} {
		if test.got != test.want {
			t.Errorf("got %s, want %s", test.got, test.want)
		}
	}
}
