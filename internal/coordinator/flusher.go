package coordinator

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/tracking"
)

// commitWithin is how long records may wait for others to share their fsync, if nobody waits for them. An fsync costs 50 µs of
// CPU and more, however little it writes, and holds up one of few cores.
const commitWithin = 20 * time.Millisecond

// trackEvery is how often tracking is written out: it is a projection of the journal, so that a late write loses nothing.
const trackEvery = time.Second

// mark is one change for the tracking of a task.
type mark struct {
	task  int32
	done  bool
	block int64
	use   *engine.Use // what the block has used, and nothing else; nil otherwise
}

// flusher is the goroutine that makes things durable: it commits the journal when asked, all that has come since the last
// commit at once, and writes tracking at intervals. Beside it only a compaction writes to the tracking stores, what they have already.
type flusher struct {
	journal *journal.Journal  // nil: nothing is kept, and no commit asked for
	stores  []*tracking.Store // by task; nil without tracking
	inbox   *inbox

	ask   chan struct{} // capacity 1: commit at once
	soon  chan struct{} // capacity 1: commit within commitWithin
	asked atomic.Bool   // a commit is to come that was not there when it was set: nobody need ask for another one soon
	dirty chan struct{} // capacity 1: there are marks
	grown chan struct{} // capacity 1: it is time to compact the journal
	quit  chan struct{}
	done  sync.WaitGroup

	mu    sync.Mutex
	marks []mark
	err   error // of the stores, the first one
}

func newFlusher(j *journal.Journal, stores []*tracking.Store, b *inbox) *flusher {
	return &flusher{journal: j, stores: stores, inbox: b, ask: make(chan struct{}, 1), soon: make(chan struct{}, 1), dirty: make(chan struct{}, 1), grown: make(chan struct{}, 1), quit: make(chan struct{})}
}

func (f *flusher) start() { f.done.Go(f.run) }

// commit asks for a commit of all that was appended so far.
func (f *flusher) commit(urgent bool) {
	when := f.soon
	if urgent {
		when = f.ask
	} else if !f.asked.CompareAndSwap(false, true) {
		return // waking the flusher for every result would cost more than the result
	}
	select {
	case when <- struct{}{}:
	default:
	}
}

// track notes marks to be written soon.
func (f *flusher) track(marks []mark) {
	f.mu.Lock()
	first := len(f.marks) == 0
	if len(f.marks)+len(marks) > cap(f.marks) {
		f.marks = slices.Grow(f.marks, len(f.marks)+len(marks)) // twice as long, not a quarter longer
	}
	f.marks = append(f.marks, marks...)
	f.mu.Unlock()
	if first {
		select {
		case f.dirty <- struct{}{}:
		default:
		}
	}
}

func (f *flusher) run() {
	late := time.NewTimer(trackEvery) // armed only while there are marks: an idle run wakes nobody
	late.Stop()
	defer late.Stop()
	shared := time.NewTimer(commitWithin) // armed while records wait for others
	shared.Stop()
	defer shared.Stop()
	var spare []mark
	for {
		select {
		case <-f.ask:
			f.commitNow()
		case <-f.soon:
			shared.Reset(commitWithin)
		case <-shared.C:
			f.commitNow()
		case <-f.dirty:
			late.Reset(trackEvery)
		case <-late.C:
			spare = f.writeMarks(spare)
		case <-f.quit:
			if f.journal != nil {
				f.commitNow()
			}
			f.writeMarks(spare)
			return
		}
	}
}

func (f *flusher) commitNow() {
	f.asked.Store(false) // what was appended before anybody saw it set is in this commit
	upTo, err := f.journal.Commit()
	if err != nil {
		f.inbox.put(engine.Event{Kind: engine.EventBroken, Text: err.Error() + rundir.Shortage(err, f.journal.Dir(), f.journal.Waiting())})
		return
	}
	f.inbox.put(engine.Event{Kind: engine.EventCommitted, UpTo: upTo})
	if f.journal.Overgrown() {
		select {
		case f.grown <- struct{}{}:
		default:
		}
	}
}

// writeMarks writes what has come and returns the emptied slice for reuse.
func (f *flusher) writeMarks(spare []mark) []mark {
	f.mu.Lock()
	marks := f.marks
	f.marks = spare[:0]
	f.mu.Unlock()
	if len(marks) == 0 {
		return marks
	}
	touched := make(map[int32]bool)
	for _, m := range marks {
		touched[m.task] = true
		if m.use != nil {
			f.stores[m.task].SetResources(m.block, resources(m.use))
		} else if m.done {
			f.stores[m.task].MarkDone(m.block)
		} else {
			f.stores[m.task].AddFailure(m.block)
		}
	}
	for t := range touched {
		if err := f.stores[t].Flush(); err != nil {
			f.broken(f.stores[t], err)
		}
	}
	return marks
}

// resources are what tracking says of a block.
func resources(u *engine.Use) tracking.Resources {
	r := tracking.Resources{
		WallSeconds: float32(float64(u.WallNanos) / 1e9), CPUSeconds: float32(float64(u.CPUNanos) / 1e9),
		PeakRSSBytes: uint64(max(u.PeakRSSBytes, 0)), ReadBytes: uint64(max(u.ReadBytes, 0)), WrittenBytes: uint64(max(u.WrittenBytes, 0)),
		GPUPercent: u.GPU.Percent, GPUMemBytes: uint64(max(u.GPU.MemBytes, 0)),
	}
	if u.CPUNanos == 0 && u.PeakRSSBytes == 0 { // no process was measured
		r.CPUSeconds = float32(math.NaN())
	}
	if !u.GPU.Measured {
		r.GPUPercent = float32(math.NaN())
	}
	return r
}

func (f *flusher) broken(s *tracking.Store, err error) {
	if more := rundir.Shortage(err, s.Dir(), s.Unwritten()); more != "" {
		err = fmt.Errorf("%w%s", err, more)
	}
	f.mu.Lock()
	first := f.err == nil
	if first {
		f.err = err
	}
	f.mu.Unlock()
	if first {
		f.inbox.put(engine.Event{Kind: engine.EventBroken, Text: err.Error()})
	}
}

// close commits and writes what is left, syncs and closes the stores, and returns the first error of any store.
func (f *flusher) close() error {
	close(f.quit)
	f.done.Wait()
	for _, s := range f.stores {
		if s == nil {
			continue
		}
		if err := s.Sync(); err != nil {
			f.broken(s, err)
		}
		if err := s.Close(); err != nil {
			f.broken(s, err)
		}
	}
	return f.err
}
