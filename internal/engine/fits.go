package engine

import (
	"fmt"
	"math/bits"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A batch system lets a worker run for a time. It gets blocks that fit in what is left, judged by how long the blocks of its task took.

const (
	// fitsFrom is how many blocks have to be measured before any does not fit.
	fitsFrom = 5
	// fitsMargin is kept free at the end, besides a fifth more than a block takes.
	fitsMargin = 30 * time.Second
	// cutMargin is how long before its end a worker may be told to leave for it, and its blocks be cut by it.
	cutMargin = 3 * time.Minute
	// toldEarly is by how much earlier than it says a batch system may tell a worker of its end, and a little.
	toldEarly = 90 * time.Second
	// maxCuts is how often a block may have a worker's whole life and be cut by its end.
	maxCuts = 2
)

// times is how long the blocks of a task took: counts by powers of two, each in eight parts, so that a time is known to 12 %.
type times struct {
	counts  [64 * 8]uint32
	total   uint32
	longest time.Duration
	known   time.Duration // the percentile as of asOf measurements
	asOf    uint32
}

func (t *times) add(d time.Duration) {
	t.total++
	t.longest = max(t.longest, d)
	t.counts[part(uint64(max(d, 1)))]++
}

// measure notes how long a block took.
func (t *task) measure(nanos int64) {
	if t.times == nil {
		t.times = new(times)
	}
	t.times.add(time.Duration(nanos))
}

// part is the place of a number: its highest bit, and the three below it.
func part(n uint64) int {
	high := bits.Len64(n) - 1
	if high < 3 {
		return int(n)
	}
	return high*8 + int(n>>(high-3)&7)
}

// p95 is a time that 95 of 100 blocks did not exceed, rounded up; it is looked for anew when an eighth more have been measured.
func (t *times) p95() time.Duration {
	if t.asOf > 0 && t.total < t.asOf+t.asOf/8+1 {
		return t.known
	}
	rest := t.total/20 + min(t.total%20, 1) // above it
	for i := len(t.counts) - 1; i >= 0; i-- {
		if n := t.counts[i]; n < rest {
			rest -= n
			continue
		}
		high := i / 8
		upper := time.Duration(i + 1)
		if high >= 3 {
			upper = time.Duration(8+i%8+1) << (high - 3)
		}
		t.known, t.asOf = min(upper, t.longest), t.total
		break
	}
	return t.known
}

// fitting is how many of n blocks a worker with an end gets; 0 if none fits any more: then it is told to leave. Its first one always
// fits, since no other worker would have more time for it.
func (e *Engine) fitting(i int, w *worker, n int32) int32 {
	t := &e.tasks[i]
	if t.times == nil || t.times.total < fitsFrom {
		return n
	}
	left := w.endOf() - e.now - fitsMargin
	each := t.times.p95() * 6 / 5
	perSlot := int64(0)
	if left > 0 && each > 0 {
		perSlot = int64(left / each)
	}
	if perSlot == 0 {
		if w.seq == 0 && w.held == 0 {
			return 1
		}
		e.tell(w, toLeave, fmt.Sprintf("no block fits in the %s that are left of its time", units.Duration(max(w.endOf()-e.now, 0).Round(time.Second))))
		return 0
	}
	return int32(max(min(int64(n), perSlot*int64(w.slots)-int64(w.held)), 1))
}

// tellTimeLeft lets a worker know its end, if it has one and a connection.
func (e *Engine) tellTimeLeft(w *worker) {
	if w.session != 0 && w.until > 0 {
		e.emit(Effect{Kind: EffectTimeLeft, Session: w.session, Left: w.endOf() - e.now})
	}
}

// endsSoon takes in that a batch system has told a worker that its end is near. It tells so up to a minute early: an end that the queue
// shows is better known. Where that one is far, the worker is not cut by its time limit: it is preempted.
func (e *Engine) endsSoon(w *worker, left time.Duration) {
	switch end := e.now + max(left, 1); {
	case w.until == 0:
		w.until = end
	case w.until > end+toldEarly:
		w.early = end
	}
}

// endOf is when a worker with an end has to be done.
func (w *worker) endOf() time.Duration {
	if w.early != 0 {
		return min(w.until, w.early)
	}
	return w.until
}

// cut looks at the end of an attempt that had the whole life of its worker. A block that was cut by a worker's end as often as maxCuts
// has failed: it does not fit.
func (e *Engine) cut(l *lease, end scheduler.Ending, f *Failure) (scheduler.Ending, *Failure) {
	w := l.worker
	byEnd := end.Outcome == scheduler.Lost && w.endSeen && w.end.Cause == launcher.TimeLimit ||
		end.Outcome == scheduler.Returned && w.until > 0 && e.now >= w.until-cutMargin
	if !byEnd || l.state != started {
		return end, f
	}
	key := blockOf{l.handout.Task, l.handout.Block}
	if e.cuts == nil {
		e.cuts = map[blockOf]int{}
	}
	e.append(Record{Kind: RecordCut, Task: l.handout.Task, Block: l.handout.Block})
	if e.cuts[key]++; e.cuts[key] < maxCuts {
		return end, f
	}
	delete(e.cuts, key)
	longest := "none has finished yet"
	if t := e.tasks[l.handout.Task].times; t != nil && t.total > 0 {
		longest = "the longest that finished took " + units.Duration(t.longest.Round(time.Second))
	}
	why := fmt.Sprintf("does not fit the time limit: it had a worker to itself %d times, the last time for %s, and was cut by the end of its time; of this task's blocks %s; ask for a longer time, or make blocks smaller",
		maxCuts, units.Duration((e.now - l.began).Round(time.Second)), longest)
	return scheduler.Ending{Outcome: scheduler.Returned, Final: true}, &Failure{Message: why}
}

type blockOf struct {
	task  int32
	block int64
}
