package scheduler

import "slices"

// history is what is remembered of a block that was tried before: as long as it may be tried again, and for good once it has
// failed.
type history struct {
	attempts int32  // begun and ended
	spent    int32  // of them failed, timed out or out of memory
	lost     int32  // of them lost, not blameless
	holder   Holder // of the last one
	passed   uint8  // hand-outs of other blocks to that holder meanwhile
	failure  bool   // the last one used up a retry
}

// retries are the ready blocks of a task that go before all others, in the order in which they came back.
type retries struct {
	blocks []int64 // from head
	head   int
}

func (r *retries) len() int { return len(r.blocks) - r.head }

func (r *retries) push(block int64) {
	if r.head > 64 && r.head > len(r.blocks)/2 {
		r.blocks = slices.Delete(r.blocks, 0, r.head)
		r.head = 0
	}
	r.blocks = append(r.blocks, block)
}

// take removes the i-th, which is one of the first few.
func (r *retries) take(i int) int64 {
	block := r.blocks[r.head+i]
	copy(r.blocks[r.head+1:r.head+i+1], r.blocks[r.head:r.head+i])
	r.head++
	if r.head == len(r.blocks) {
		r.blocks, r.head = r.blocks[:0], 0
	}
	return block
}

const (
	retryWindow   = 16 // so many retries are looked at for one that another worker held
	retryPatience = 3  // so often a retry lets its last worker have a fresh block before it goes to it after all
)

// takeRetry chooses the retry for a holder: the first that another node held, else another worker. One that the holder itself held
// waits for another worker, if there are others and fresh blocks, but not for long.
func (t *task) takeRetry(h Holder) (block int64, ok bool) {
	n := min(t.retries.len(), retryWindow)
	if n == 0 {
		return 0, false
	}
	if h.Worker == 0 {
		return t.retries.take(0), true
	}
	best, rank := 0, 3
	for i := range n {
		r := 0
		if was := t.history[t.retries.blocks[t.retries.head+i]].holder; was.Worker == h.Worker {
			r = 2
		} else if was.Node != 0 && was.Node == h.Node {
			r = 1
		}
		if r < rank {
			best, rank = i, r
		}
		if rank == 0 {
			break
		}
	}
	if rank == 2 && t.severalWorkers && t.run.tally.Ready > int64(t.retries.len()) {
		first := t.retries.blocks[t.retries.head]
		was := t.history[first]
		if was.passed < retryPatience {
			was.passed++
			t.history[first] = was
			return 0, false
		}
	}
	return t.retries.take(best), true
}
