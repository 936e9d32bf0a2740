package worker

import "time"

const (
	// shortBlock is below what blocks are asked for in batches: a round trip would be a part of their time that matters.
	shortBlock = 10 * time.Millisecond
	// batchTime is how much work a batch is to hold.
	batchTime = 100 * time.Millisecond
	maxBatch  = 256
	// tinyBlock is below what a release may wait a little for others, to share their system call.
	tinyBlock = 200 * time.Microsecond
)

// batch decides how many blocks to ask for at once, from how long blocks take.
type batch struct {
	size int
	mean time.Duration // exponential average, 0 = nothing measured

	measured int
	longest  time.Duration
}

// took notes how long a block took.
func (b *batch) took(d time.Duration) {
	b.measured++
	b.longest = max(b.longest, d)
	if b.mean == 0 {
		b.mean = max(d, 1)
		return
	}
	b.mean = max(b.mean+(d-b.mean)/8, 1)
}

// next is how many to ask for now: one, unless blocks are short; then at most twice as many as before, up to batchTime of work.
func (b *batch) next() int {
	if b.mean == 0 || b.mean >= shortBlock {
		b.size = 1
		return 1
	}
	b.size = int(min(int64(batchTime/b.mean), int64(2*max(b.size, 1)), maxBatch))
	return b.size
}

// tiny: blocks are so short that a system call for each would count.
func (b *batch) tiny() bool { return b.mean > 0 && b.mean < tinyBlock }
