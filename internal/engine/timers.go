package engine

import (
	"fmt"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

const (
	// timeoutSlack is how much later than the worker's own timer the engine's fires, for workers that cannot. A worker that can may need
	// 5 s for user code that does not heed SIGTERM, and a second for what that has left behind: until then it still writes.
	timeoutSlack = 10 * time.Second
	// endsWithin is for how long a block that was taken away is kept back: its worker, if it lives, may need 5 s and a second more to end
	// it, and is killed after answerWithin if it is silent. Before that, the code of two attempts could write at the same time.
	endsWithin = 8 * time.Second
	// A wake-up that comes later than this was a stall of the coordinator.
	stallAfter = time.Second
	// longestBackoff bounds the doubling of retry_backoff.
	longestBackoff = 64
)

// advance moves the clock. Where a deadline is served far too late, nobody was there to serve it, nor to hear the workers:
// the clock then stands still for that time and a second more, in which what they have said since can be read. So every
// deadline moves by the length of the stall.
func (e *Engine) advance(now time.Duration) {
	now = max(now, e.last)
	if late := now - e.stalled - e.wake; e.timed && late > stallAfter {
		e.stalled += min(late+stallAfter, now-e.last)
	}
	e.last, e.now = now, now-e.stalled
}

// fire does what is due.
func (e *Engine) fire() {
	for i := range e.tasks {
		t := &e.tasks[i]
		for t.timeout > 0 && t.running.first != nil && e.now >= t.running.first.began+t.timeout {
			e.timeOut(t.running.first)
		}
	}
	for len(e.retries) > 0 && e.now >= e.retries[0].at {
		r := e.retries.pop()
		e.sched.Unhold(int(r.task), r.block)
	}
	if e.now >= e.scanAt {
		e.scan()
	}
	e.demand.dirty = true // a pause may be over
}

// timeOut takes a block away from a worker that should have ended it long ago.
func (e *Engine) timeOut(l *lease) {
	w, id := l.worker, l.handout.Lease
	if w.session != 0 {
		e.emit(Effect{Kind: EffectKillBlock, Session: w.session, Lease: id})
	}
	if w.answer == never {
		w.answer = e.now + answerWithin
		e.lookAt(w.answer)
	}
	why := fmt.Sprintf("timed out after %s, and its worker %s did not end it", units.Duration(e.tasks[l.handout.Task].spec.Timeout), w.id)
	l.taken = true
	e.endLease(l, scheduler.Ending{Outcome: scheduler.TimedOut}, Use{}, &Failure{Message: why})
	e.recount(w)
}

// schedule finds the next deadline.
func (e *Engine) schedule() {
	e.wake = e.scanAt
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.timeout > 0 && t.running.first != nil {
			e.wake = min(e.wake, t.running.first.began+t.timeout)
		}
		if t.pauseTo > e.now {
			e.wake = min(e.wake, t.pauseTo)
		}
	}
	if len(e.retries) > 0 {
		e.wake = min(e.wake, e.retries[0].at)
	}
	if len(e.held) > 0 && e.now < e.holdTo {
		e.wake = min(e.wake, e.holdTo)
	}
	if e.phase != running && e.stop.at > e.now {
		e.wake = min(e.wake, e.stop.at)
	}
	if e.book != nil && !e.stop.aside { // which is asked nothing more
		e.wake = min(e.wake, e.book.Wake())
	}
	e.timed = e.wake != never
}

// A heldRetry is a block that is kept back for a while.
type heldRetry struct {
	at    time.Duration
	task  int32
	block int64
}

// holdRetry keeps a block back: the pause doubles with each attempt, and half of it is jitter, so that blocks that failed
// together do not come back together.
func (e *Engine) holdRetry(l *lease, base time.Duration) {
	h, pause := l.handout, time.Duration(0)
	if base > 0 {
		pause = backoff(base, h)
	}
	if l.taken {
		pause = max(pause, endsWithin)
	}
	e.retries.push(heldRetry{at: e.now + pause, task: h.Task, block: h.Block})
}

// backoff is the pause after an attempt: base × 2^(attempt-1), at most × 64, less up to half of it.
func backoff(base time.Duration, h scheduler.Handout) time.Duration {
	d := base * min(time.Duration(1)<<min(max(h.Attempt-1, 0), 30), longestBackoff)
	if d <= 0 || d/base > longestBackoff {
		d = base
	}
	// The mixer of splitmix64 (Steele, Lea, Flood 2014) over what names the attempt.
	x := uint64(h.Block)*0x9e3779b97f4a7c15 ^ uint64(h.Task)<<32 ^ uint64(h.Attempt)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return d - time.Duration(x%uint64(d/2+1))
}

// A retryHeap has the earliest first.
type retryHeap []heldRetry

func (h *retryHeap) push(r heldRetry) {
	*h = append(*h, r)
	s := *h
	for i := len(s) - 1; i > 0 && s[i].at < s[(i-1)/2].at; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *retryHeap) pop() heldRetry {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s = s[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && s[child+1].at < s[child].at {
			child++
		}
		if s[i].at <= s[child].at {
			break
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
	*h = s
	return top
}
