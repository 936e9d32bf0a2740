package sim

import (
	"bytes"
	"fmt"
	"slices"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/scheduler"
)

// A fold is what the journal says of a task, worked out in the plainest way.
type fold struct {
	blocks map[int64]*foldedBlock
	tally  scheduler.Tally // only ends of attempts, Success, Failed and Skipped by check
	mark   int64
}

type foldedBlock struct {
	good, final  bool
	blamed, lost int
	cuts         int // ends of workers that cut it
	ever         int // of blamed, those before a retry included
}

// folded reads the journal as it is on the disk.
func (c *checks) folded() (folds []fold, end *engine.Record, tags map[string]bool) {
	folds = make([]fold, len(c.tasks))
	tags = make(map[string]bool)
	for i := range folds {
		folds[i].blocks = make(map[int64]*foldedBlock)
	}
	err := c.records([]journal.ReadOption{journal.ReadFrom(c.world.disk)}, func(raw []byte) error {
		r, err := engine.DecodeRecord(raw)
		if err != nil {
			return err
		}
		switch r.Kind {
		case engine.RecordEnd:
			c.foldEnd(&folds[r.Task], &r)
		case engine.RecordRetry:
			folds[r.Task].retry()
		case engine.RecordCut:
			folds[r.Task].at(r.Block).cuts++
		case engine.RecordMark:
			folds[r.Task].mark = max(folds[r.Task].mark, r.Block)
		case engine.RecordSubmission:
			if tags[r.ID] {
				c.fail("the tag %s is used twice", r.ID)
			}
			tags[r.ID] = true
		case engine.RecordRunEnd:
			end = &r
		case engine.RecordStart:
			end = nil
		}
		return nil
	})
	if err != nil {
		c.fail("the journal cannot be read: %v", err)
	}
	return folds, end, tags
}

// An archived snapshot is its state, and the records that it stands for.
type archived struct {
	state   []byte
	records [][]byte
}

// records gives all records of the journal, those that a snapshot stands for out of the archive. What is read has to be what was written.
func (c *checks) records(options []journal.ReadOption, yield func(raw []byte) error) error {
	var list [][]byte
	var state []byte
	var last journal.Position
	report, err := journal.Read(journalDir, func(epoch, seq uint64, raw []byte) error {
		wrote := c.wrote[epoch]
		if seq == 0 || seq > uint64(len(wrote)) || !bytes.Equal(raw, wrote[seq-1]) {
			c.fail("record %d of epoch %d is read as %x, and that was not written", seq, epoch, raw)
		}
		if last.Epoch == epoch && last.Record+1 != seq {
			c.fail("record %d of epoch %d is read after record %d", seq, epoch, last.Record)
		}
		last = journal.Position{Epoch: epoch, Record: seq}
		list = append(list, slices.Clone(raw))
		return nil
	}, append(options, journal.WithSnapshot(func(read []byte) error { state = slices.Clone(read); return nil }))...)
	if err != nil {
		return err
	}
	if state != nil {
		before, known := c.archive[report.Snapshot]
		if !known || !bytes.Equal(state, before.state) {
			return fmt.Errorf("it has a snapshot up to %v, which nobody has made", report.Snapshot)
		}
		list = append(slices.Clone(before.records), list...)
	}
	for _, raw := range list {
		if err := yield(raw); err != nil {
			return err
		}
	}
	return nil
}

// compacts keeps the records that a snapshot is about to stand for.
func (c *checks) compacts(at journal.Position, state []byte, options []journal.ReadOption) {
	var list [][]byte
	err := c.records(options, func(raw []byte) error {
		list = append(list, raw)
		return nil
	})
	if err != nil {
		c.fail("the journal cannot be read: %v", err)
	}
	c.archive[at] = archived{state, list}
}

// mostCuts is how often a block may have a worker's life and be cut by its end.
const mostCuts = 2

// retry has all blocks that had failed for good begin anew.
func (f *fold) retry() {
	for _, b := range f.blocks { // each by itself: in any order
		if b.cuts = 0; b.final {
			b.final, b.blamed, b.lost = false, 0, 0
			f.tally.Failed--
		}
	}
}

func (f *fold) at(block int64) *foldedBlock {
	b := f.blocks[block]
	if b == nil {
		b = new(foldedBlock)
		f.blocks[block] = b
	}
	return b
}

func (c *checks) foldEnd(f *fold, r *engine.Record) {
	spec := &c.world.cfg.Job.Tasks[r.Task]
	b := f.at(r.Block)
	if b.good || b.final {
		c.fail("the journal has an end of block %d of task %d, which had ended", r.Block, r.Task)
	}
	switch scheduler.Outcome(r.Outcome) {
	case scheduler.Success:
		b.good = true
		f.tally.Success++
		f.tally.Processed++
	case scheduler.Skipped:
		b.good = true
		f.tally.Skipped++
	case scheduler.Failed:
		f.tally.Processed++
		b.blamed++
		b.ever++
	case scheduler.TimedOut:
		f.tally.TimedOut++
		b.blamed++
		b.ever++
	case scheduler.OutOfMemory:
		f.tally.OutOfMemory++
		b.blamed++
		b.ever++
	case scheduler.Lost:
		f.tally.Lost++
		if !r.Blameless {
			b.lost++
		}
	case scheduler.Returned:
		f.tally.Returned++
	}
	if b.blamed > spec.MaxRetries || b.lost >= spec.MaxLost || scheduler.Outcome(r.Outcome) == scheduler.Returned && b.cuts >= mostCuts {
		b.final = true
		f.tally.Failed++
	}
	if b.final != r.Final {
		c.fail("block %d of task %d: after %d failures and %d losses the journal says final %v", r.Block, r.Task, b.blamed, b.lost, r.Final)
	}
}

// recall compares what a new coordinator finds on the disk with what the one before was told is durable.
func (c *checks) recall(co *coordinator) {
	folds, _, tags := c.folded()
	for i := range folds {
		t, f := &c.tasks[i], &folds[i]
		for b := range t.blocks {
			k := f.blocks[b]
			good := k != nil && k.good
			if t.done.Get(b) && !good {
				c.fail("block %d of task %d had succeeded durably, and a new epoch does not know it", b, i)
			}
			if good {
				t.done.Set(b)
				t.counted.Set(b)
			}
		}
		if f.mark < t.mark {
			c.fail("the mark %d of task %d was durable, and a new epoch finds %d", t.mark, i, f.mark)
		}
		t.mark = f.mark
		clear(t.failures)
		for b, k := range f.blocks {
			t.failures[b] = int32(k.blamed)
		}
	}
	for tag, made := range c.tags { // the order does not matter: nothing is decided by it but the words of an error
		if !tags[tag] && made != 0 {
			c.fail("submission %s was durable, and a new epoch does not know it", tag)
		}
	}
	for tag := range tags {
		c.tags[tag] = 1 // used, and never to be used again
	}
}

// recount compares the rows of the workers with the counts of the tasks.
func (c *checks) recount(co *coordinator) {
	co.engine.Snapshot(&c.snapshot)
	for i := range c.snapshot.Tasks {
		t := &c.snapshot.Tasks[i]
		processed := t.Tally.Processed
		for k := range c.snapshot.Workers {
			if r := &c.snapshot.Workers[k]; int(r.Task) == i {
				processed -= r.Processed
				if r.Busy < 0 || r.Idle < 0 {
					c.fail("worker %s was busy for %v and idle for %v", r.ID, r.Busy, r.Idle)
				}
			}
		}
		if processed != 0 {
			c.fail("task %s has %d valid returns more than its workers", t.ID, processed)
		}
	}
}

// ends: a life has ended in good order.
func (c *checks) ends(co *coordinator) {
	if co != c.world.co || co.broken {
		return
	}
	if !c.world.cfg.Small {
		return
	}
	c.recount(co)
	if co.journal == nil {
		return
	}
	folds, end, _ := c.folded()
	if end == nil || engine.RunState(end.State) != co.state {
		c.fail("the run ends %v, and the journal does not say so", co.state)
	}
	for i := range folds {
		tally, _ := co.engine.Tally(i)
		f := &folds[i].tally
		got := scheduler.Tally{Success: tally.Success, Failed: tally.Failed, Processed: tally.Processed, TimedOut: tally.TimedOut, Lost: tally.Lost, Returned: tally.Returned, OutOfMemory: tally.OutOfMemory, Skipped: tally.Skipped}
		if got != *f {
			c.fail("task %d: the engine counts %+v, the journal %+v", i, got, *f)
		}
	}
	c.checkBlocks(co, folds)
	c.checkTracking(co, folds)
}

// checkBlocks compares where every block stands with what its attempts say.
func (c *checks) checkBlocks(co *coordinator, folds []fold) {
	bad := make([]map[int64]bool, len(folds))
	abandoned := false
	for i := range folds {
		bad[i] = make(map[int64]bool)
		tally, _ := co.engine.Tally(i)
		abandoned = abandoned || tally.Abandoned > 0
	}
	for i := range folds { // upstream tasks come first
		views, _ := co.engine.Blocks(i, 0, nil, int(c.tasks[i].blocks), nil)
		for _, v := range views {
			k := folds[i].blocks[v.Block]
			want := scheduler.BlockAbandoned
			switch {
			case k != nil && k.good && k.blamed+k.lost >= 0 && v.State == scheduler.BlockSkipped:
				want = scheduler.BlockSkipped
			case k != nil && k.good:
				want = scheduler.BlockSuccess
			case k != nil && k.final:
				want, bad[i][v.Block] = scheduler.BlockFailed, true
			case v.State == scheduler.BlockOrphaned:
				if !abandoned && !c.hasReason(i, v.Block, bad) {
					c.fail("block %d of task %d is orphaned, and all that it needs has ended well", v.Block, i)
				}
				want, bad[i][v.Block] = scheduler.BlockOrphaned, true
			}
			if v.State != want {
				c.fail("block %d of task %d ends %v, and its attempts say %v", v.Block, i, v.State, want)
			}
			if (want == scheduler.BlockAbandoned) && !abandoned {
				c.fail("block %d of task %d was never done", v.Block, i)
			}
		}
	}
}

// hasReason: something that an orphaned block needs has failed, or is orphaned itself.
func (c *checks) hasReason(task int, block int64, bad []map[int64]bool) bool {
	for _, n := range c.tasks[task].needs[block] {
		if bad[n.task][n.block] {
			return true
		}
	}
	// Within its task a block waits for its neighbours of the level before.
	return c.world.cfg.Job.Tasks[task].Grid.Spec().ReadWriteConflict
}

// atEnd: the run has ended.
func (c *checks) atEnd() {
	for i := range c.tasks {
		for b, e := range c.tasks[i].running { // any of them is wrong, whichever comes first
			if c.world.cfg.Batch == nil && !e.x.guest {
				c.fail("block %d of task %d runs after the end", b, i)
			}
		}
	}
}
