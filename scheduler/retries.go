package scheduler

import "math"

// record is what is remembered of a block that came back, from then on until it ends well, and for good once it has failed. 28 bytes.
type record struct {
	block    uint32
	next     uint32 // on the list that it is on; 0 at its end
	attempts uint32 // begun and ended
	spent    uint32 // of them failed, timed out or out of memory
	holder   Holder // of the last one
	lost     uint16 // of the attempts lost, not blameless
	passed   uint8  // hand-outs of other blocks to that holder meanwhile
	failure  bool   // the last one used up a retry
}

// maxMaxLost is as far as record.lost counts.
const maxMaxLost = math.MaxUint16

// count takes in the end of an attempt that was no good one.
func (r *record) count(o Outcome, blameless bool) {
	r.attempts++
	r.failure = false
	switch o {
	case Failed, TimedOut, OutOfMemory:
		r.spent++
		r.failure = true
	case Lost:
		if !blameless && r.lost < maxMaxLost {
			r.lost++
		}
	}
}

func (r *record) nextAttempt() int32 { return int32(r.attempts) + 1 }

// retries are the records of a task, by index. 0 is none.
type retries struct {
	records pages[record]
	unused  uint32   // first of a list
	waiting list     // ready blocks that go before all others, in the order in which they came back
	failed  list     // in the order in which they failed
	held    []uint32 // for each group of 64 blocks the first of a list of those held; nil while none ever was
}

// list is records linked through next.
type list struct {
	first, last uint32
	n           int64
}

func (r *retries) get(i uint32) *record { return r.records.at(uint(i)) }

// remember returns a new record of a block.
func (r *retries) remember(block int64) uint32 {
	i := r.unused
	if i != 0 {
		r.unused = r.get(i).next
	} else {
		if r.records.n == 0 {
			r.records.add()
		}
		i = uint32(r.records.add())
	}
	*r.get(i) = record{block: uint32(block)}
	return i
}

// forget gives up a record that is on no list.
func (r *retries) forget(i uint32) {
	r.get(i).next = r.unused
	r.unused = i
}

func (r *retries) append(l *list, i uint32) {
	r.get(i).next = 0
	if l.first == 0 {
		l.first = i
	} else {
		r.get(l.last).next = i
	}
	l.last = i
	l.n++
}

// take removes the n-th of those waiting, which is one of the first few.
func (r *retries) take(n int) uint32 {
	l := &r.waiting
	before, i := uint32(0), l.first
	for range n {
		before, i = i, r.get(i).next
	}
	next := r.get(i).next
	if before == 0 {
		l.first = next
	} else {
		r.get(before).next = next
	}
	if next == 0 {
		l.last = before
	}
	l.n--
	return i
}

// place returns the place among those waiting of a block's record, and the record; the block is one of them.
func (r *retries) place(block int64) (n int, i uint32) {
	for i = r.waiting.first; r.get(i).block != uint32(block); i = r.get(i).next {
		n++
	}
	return n, i
}

// hold puts the record of a block with those held, of a task of so many blocks.
func (r *retries) hold(i uint32, blocks int64) {
	if r.held == nil {
		r.held = make([]uint32, (blocks+63)/64)
	}
	first := &r.held[r.get(i).block/64]
	r.get(i).next = *first
	*first = i
}

// unhold takes the record of a held block from there.
func (r *retries) unhold(block int64) uint32 {
	link := &r.held[block/64]
	for r.get(*link).block != uint32(block) {
		link = &r.get(*link).next
	}
	i := *link
	*link = r.get(i).next
	return i
}

const (
	retryWindow   = 16 // so many retries are looked at for one that another worker held
	retryPatience = 3  // so often a retry lets its last worker have a fresh block before it goes to it after all
)

// takeRetry chooses the retry for a holder and returns its record, 0 if there is none: the first that another node held, else another
// worker. One that the holder itself held waits for another worker, if there are others and fresh blocks, but not for long.
func (t *task) takeRetry(h Holder) uint32 {
	waiting := &t.retries.waiting
	if waiting.n == 0 {
		return 0
	}
	if h.Worker == 0 {
		return t.retries.take(0)
	}
	best, rank := 0, 3
	for n, i := 0, waiting.first; n < retryWindow && i != 0 && rank > 0; n++ {
		was := t.retries.get(i)
		r := 0
		if was.holder.Worker == h.Worker {
			r = 2
		} else if was.holder.Node != 0 && was.holder.Node == h.Node {
			r = 1
		}
		if r < rank {
			best, rank = n, r
		}
		i = was.next
	}
	if first := t.retries.get(waiting.first); rank == 2 && t.severalWorkers && t.run.tally.Ready > waiting.n && first.passed < retryPatience {
		first.passed++
		return 0
	}
	return t.retries.take(best)
}
