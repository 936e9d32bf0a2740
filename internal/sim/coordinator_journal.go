package sim

import (
	"fmt"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/scheduler"
)

// What a coordinator keeps, and what it makes of what others have kept.

// retries are what a person says who wants blocks run again that have failed for good.
func (co *coordinator) retries() (list []engine.Record) {
	w := co.world
	for i := range w.cfg.Job.Tasks {
		r := engine.Record{Kind: engine.RecordRetry, Task: int32(i)}
		if !w.retry {
			continue
		}
		if _, _, err := co.past.Add(&r); err != nil {
			w.checks.fail("a retry is refused: %v", err)
		}
		list = append(list, r)
		w.saw(sawRetry)
	}
	w.retry = false
	return list
}

// mine says whether the run is this coordinator's still.
func (co *coordinator) mine() error {
	if co.world.epoch != co.epoch {
		return fmt.Errorf("taken over by epoch %d", co.world.epoch)
	}
	return nil
}

// compact puts a snapshot in the place of the segments that are full, as the journal asks for it.
func (co *coordinator) compact() {
	if co.journal == nil || !co.journal.Overgrown() {
		return
	}
	w := co.world
	at := co.journal.Closed()
	past := engine.NewPast(co.pipeline)
	from := []journal.ReadOption{journal.ReadFrom(w.disk), journal.Until(at)}
	_, err := journal.Read(journalDir, func(_, _ uint64, raw []byte) error {
		r, err := engine.DecodeRecord(raw)
		if err == nil {
			_, _, err = past.Add(&r)
		}
		return err
	}, append(from, journal.WithSnapshot(func(state []byte) error {
		var err error
		past, err = engine.ReadPast(co.pipeline, state)
		return err
	}))...)
	if err != nil {
		if w.logf("epoch %d: compact: %v", co.epoch, err); !w.disk.rotten {
			w.checks.fail("the journal cannot be read for a snapshot: %v", err)
		}
		return
	}
	state := past.AppendBytes(nil)
	w.checks.compacts(at.Last, state, from)
	if err := co.journal.Compact(at, state); err != nil {
		w.logf("epoch %d: compact: %v", co.epoch, err)
		return
	}
	w.snapshots++
	w.saw(sawSnapshot)
	w.logf("epoch %d: a snapshot stands for all up to %v", co.epoch, at.Last)
}

// readPast reads the journal.
func (co *coordinator) readPast(p *scheduler.Pipeline) (journal.Position, error) {
	co.past = engine.NewPast(p)
	report, err := journal.Read(journalDir, func(_, _ uint64, raw []byte) error {
		r, err := engine.DecodeRecord(raw)
		if err != nil {
			return err
		}
		_, _, err = co.past.Add(&r)
		return err
	}, journal.ReadFrom(co.world.disk), journal.WithSnapshot(func(state []byte) (err error) {
		co.past, err = engine.ReadPast(p, state)
		return err
	}))
	return report.Last, err
}

// readOutbox takes in the good results that workers could not deliver.
func (co *coordinator) readOutbox(p *scheduler.Pipeline) (found []engine.Record) {
	for i := range co.world.outbox {
		l := &co.world.outbox[i]
		if o := l.u.ev.Outcome; o != scheduler.Success && o != scheduler.Skipped {
			continue
		}
		r := engine.Record{Kind: engine.RecordEnd, Task: l.u.h.Task, Block: l.u.h.Block, Lease: uint64(l.u.h.Lease), Attempt: l.u.h.Attempt,
			Worker: co.past.Number(l.worker, l.nonce), Outcome: uint8(l.u.ev.Outcome), Use: l.u.ev.Use, Held: l.u.ev.Use.WallNanos / 1000}
		records := []engine.Record{r}
		if r.Worker == 0 {
			r.Worker = co.past.NextNumber()
			records = []engine.Record{
				{Kind: engine.RecordJoin, Task: r.Task, Worker: r.Worker, ID: l.worker, Nonce: l.nonce, Count: 1},
				{Kind: engine.RecordGone, Task: r.Task, Worker: r.Worker, Text: "lost"},
				r,
			}
		}
		for _, r := range records {
			_, isEnd, err := co.past.Add(&r)
			if err != nil {
				co.world.checks.fail("the outbox is refused: %v", err)
			}
			if isEnd && r.Kind == engine.RecordEnd {
				co.world.saw(sawOutboxUsed)
			}
			if isEnd || r.Kind != engine.RecordEnd {
				found = append(found, r)
			}
		}
	}
	return found
}

// askCommit has the flusher commit, now or soon.
func (co *coordinator) askCommit(urgent bool) {
	w := co.world
	if co.committing {
		co.urgent = urgent || co.again && co.urgent
		co.again = true
		return
	}
	at := w.now
	if co.journal != nil && !urgent {
		at += commitWithin
	}
	if at < co.commitAt {
		co.commitAt = at
		w.queue.push(event{at: at, to: co, what: coCommits})
	}
}

// commit writes what was appended. The coordinator may die before it hears that it is durable.
func (co *coordinator) commit() {
	w := co.world
	if w.killNext {
		w.saw(sawKilledUncommitted)
		panic(killed{})
	}
	co.commitAt, co.committing = never, true
	if co.journal == nil {
		w.queue.push(event{at: w.now, to: co, what: coCommitted, n: co.appended})
		return
	}
	upTo, err := co.journal.Commit()
	at := w.now + w.syncTime()
	if co.mine() != nil {
		if err == nil {
			w.checks.fail("epoch %d was taken over, and commits", co.epoch)
		}
		w.saw(sawFenced)
	}
	if err != nil {
		w.logf("epoch %d: commit: %v", co.epoch, err)
		w.queue.push(event{at: at, to: co, what: coFailed})
		return
	}
	w.queue.push(event{at: at, to: co, what: coCommitted, n: upTo})
}
