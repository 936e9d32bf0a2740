package engine

import (
	"slices"

	"example.org/daisy/scheduler"
)

// What must be durable before something else may happen waits in one queue, in the order of its records.

type pendingKind uint8

const (
	pendingResult      pendingKind = iota // lease: count it, open what depends on it, acknowledge
	pendingFailure                        // task, block: into tracking
	pendingRecovered                      // task, block, which had ended well before this epoch: into tracking
	pendingAcknowledge                    // worker, seq
	pendingMark                           // task: blocks below block may be handed out
	pendingHandout                        // worker, session, seq (its request), task, handouts: hand them over
	pendingSubmission                     // sub: ask the launcher
	pendingShare                          // sub: its throttle may be higher
	pendingEnd                            // the run is over, or this coordinator's part in it
)

type pending struct {
	upTo   uint64
	kind   pendingKind
	task   int32
	block  int64
	lease  *lease
	worker *worker
	seq    uint64
	rarely *rarely // nil for results and what goes with each of them: there are tens of thousands of those at a time
}

// rarely is what only some kinds of pending have.
type rarely struct {
	session  SessionID
	sub      *submission
	handouts []scheduler.Handout
}

// A queue is first in, first out.
type queue struct {
	list     []pending
	head     int
	blocking int // of them hold something up
}

// blocks reports whether something is held up by it, as against counts and words that are only late.
func (k pendingKind) blocks() bool { return k >= pendingMark }

func (q *queue) push(p pending) {
	if q.head > 1024 && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	if len(q.list) == cap(q.list) {
		q.list = slices.Grow(q.list, len(q.list)+1) // twice as long, not a quarter longer
	}
	q.list = append(q.list, p)
	if p.kind.blocks() {
		q.blocking++
	}
}

func (q *queue) empty() bool { return q.head == len(q.list) }

// askCommit asks for a commit if there is a reason. It is urgent if somebody waits for it: a worker for a block (a result may
// open what depends on it), a submission, a hand-over, a worker on its way out, the end of the run. All else can share one
// with what comes meanwhile.
func (e *Engine) askCommit() {
	urgent := e.appended > e.committed && e.urged < e.appended && e.awaited()
	if !e.wantCommit && !urgent {
		return
	}
	e.wantCommit = false
	if e.cfg.NoJournal {
		return
	}
	if urgent {
		e.urged = e.appended
	}
	e.emit(Effect{Kind: EffectCommit, Urgent: urgent})
}

// awaited reports whether anything waits for a commit.
func (e *Engine) awaited() bool {
	if e.phase != running || e.queue.blocking > 0 {
		return true
	}
	for i := range e.tasks {
		if t := &e.tasks[i]; t.waiting.first != nil || t.leaving > 0 {
			return true
		}
	}
	return false
}

// commit notes that records are durable.
func (e *Engine) commit(upTo uint64) { e.committed = max(e.committed, min(upTo, e.appended)) }

// drainAtOnce is how much of what a commit has made durable is done in one Apply: a commit may cover ten thousand results, and
// their effects are a megabyte that nobody should wait for, nor find in no cache.
const drainAtOnce = 256

// undrained reports whether something waits for nothing any more.
func (e *Engine) undrained() bool {
	return !e.queue.empty() && e.queue.list[e.queue.head].upTo <= e.committed
}

// drain does what waits for nothing any more, up to drainAtOnce.
func (e *Engine) drain() {
	for n := 0; n < drainAtOnce && e.undrained(); n++ {
		p := e.queue.list[e.queue.head]
		e.queue.list[e.queue.head] = pending{}
		e.queue.head++
		if p.kind.blocks() {
			e.queue.blocking--
		}
		switch p.kind {
		case pendingResult:
			e.settleResult(p.lease)
		case pendingFailure:
			e.emit(Effect{Kind: EffectTrack, Task: p.task, Block: p.block})
		case pendingRecovered:
			e.emit(Effect{Kind: EffectTrack, Task: p.task, Block: p.block, Done: true})
		case pendingAcknowledge:
			if p.seq > p.worker.durable {
				p.worker.durable = p.seq
			}
			e.due(p.worker)
		case pendingMark:
			m := &e.tasks[p.task].mark
			m.durable = max(m.durable, p.block)
		case pendingHandout:
			e.handOver(&p)
		case pendingSubmission:
			e.sendSubmission(p.rarely.sub)
		case pendingShare:
			e.book.Throttle(p.rarely.sub.tag, int(p.rarely.sub.throttle))
		case pendingEnd:
			if e.stop.aside {
				e.sayAway()
			}
			e.finish()
		}
	}
	if e.queue.empty() {
		e.queue.list, e.queue.head = e.queue.list[:0], 0
	}
}

// A mark is the number above which no block of a task has been handed out, as the journal knows it: after a crash, what is
// below may be in the hands of a worker. It is written ahead in large steps, so that hardly anybody waits for it.
type mark struct {
	step             int64
	written, durable int64
	record           uint64 // of the last one written
}

// markStep is how far marks are apart: an eighth of the task, within 1024 and 2^20 blocks.
func markStep(blocks int64) int64 { return min(max(blocks/8, 1024), 1<<20) }

// raiseMark writes a mark beyond a block, unless one is written.
func (e *Engine) raiseMark(i int, block int64) {
	m := &e.tasks[i].mark
	blocks := e.sched.Tally(i).Total
	if block < m.written && block+m.step/2 < m.written || m.written >= blocks {
		return
	}
	m.written = min((block/m.step+2)*m.step, blocks)
	e.append(Record{Kind: RecordMark, Task: int32(i), Block: m.written})
	m.record = e.appended
	e.wantCommit = true
	e.queue.push(pending{upTo: e.appended, kind: pendingMark, task: int32(i), block: m.written})
}

// append has a record appended to the journal.
func (e *Engine) append(r Record) {
	if !e.unwritten() {
		e.write(&r)
	}
}

func (e *Engine) write(r *Record) {
	start := len(e.out.records)
	e.out.records = r.Append(e.out.records)
	e.appended++
	e.effect(EffectAppend).Record = e.out.records[start:len(e.out.records):len(e.out.records)]
}

// unwritten counts a record that nobody writes. It is false where there is a journal.
func (e *Engine) unwritten() bool {
	if e.cfg.NoJournal {
		e.appended++
		e.committed = e.appended
	}
	return e.cfg.NoJournal
}

// appendEnd writes down the end of an attempt.
func (e *Engine) appendEnd(l *lease, end scheduler.Ending, use Use, final bool) {
	if e.unwritten() {
		return
	}
	r := &e.ofBlock // a new record for each block would take longer to clear than to write
	r.Kind, r.Task, r.Block, r.Lease, r.Attempt, r.Worker = RecordEnd, l.handout.Task, l.handout.Block, uint64(l.handout.Lease), l.handout.Attempt, l.worker.number
	r.Outcome, r.Blameless, r.Final, r.Use = uint8(end.Outcome), end.Blameless, final, use
	r.At, r.Held = l.at.Microseconds(), l.held.Microseconds()
	e.write(r)
	e.wantCommit = true
}

// appendHandout writes down that a worker has got a block.
func (e *Engine) appendHandout(h scheduler.Handout, w *worker) {
	if e.unwritten() {
		return
	}
	r := &e.ofBlock
	r.Kind, r.Task, r.Block, r.Lease, r.Attempt, r.Worker = RecordHandout, h.Task, h.Block, uint64(h.Lease), h.Attempt, w.number
	e.write(r)
	e.wantCommit = true
}
