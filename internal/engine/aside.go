package engine

import "time"

// A coordinator can end while its run goes on: it writes down all that it knows, tells its workers for how long they are to keep what they
// run, and leaves the rest to the next one, which gives nobody up before that time.

// stepAside begins to end this coordinator's part in the run. A run that ends already ends here.
func (e *Engine) stepAside(within time.Duration, why string) {
	if e.phase != running {
		return
	}
	e.phase, e.why = closing, why
	e.stop = stopping{early: true, aside: true, state: RunAside, at: never}
	e.append(Record{Kind: RecordAside, Count: int64(within), At: e.last.Microseconds()})
	e.within = within
	for _, w := range e.away {
		if w.heard == 0 {
			e.append(Record{Kind: RecordUnheard, Worker: w.number, Count: e.cfg.Began + int64(w.keeps)})
		}
	}
	for _, w := range e.held {
		e.append(Record{Kind: RecordUnheard, Worker: w.number, Count: e.cfg.Began + int64(e.holdTo-e.AbandonAfter())})
	}
	e.wantCommit = true
	e.queue.push(pending{upTo: e.appended, kind: pendingEnd})
}

// sayAway tells every worker, once the next coordinator is certain to know of it.
func (e *Engine) sayAway() {
	e.acknowledge()
	for _, w := range e.live {
		if w.session != 0 {
			e.emit(Effect{Kind: EffectAway, Session: w.session, Left: e.within})
		}
	}
}
