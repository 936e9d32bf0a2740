package engine

import "time"

// An estimate is how long the blocks of a task take: an exponentially weighted mean with weight 1/8 for the newest, in
// integer nanoseconds. 0 = not measured yet.
type estimate int64

func (e *estimate) add(nanos int64) {
	nanos = max(nanos, 1)
	if *e == 0 {
		*e = estimate(nanos)
		return
	}
	*e += (estimate(nanos) - *e) / 8
}

// shareOf is how much work a worker may hold for each slot beyond the block that runs.
const shareOf = 100 * time.Millisecond

// fairShare is how many blocks a worker gets that asks for n: as many as its part of what is ready, so that the last blocks
// are spread over all, but no more than about 100 ms of measured work for its slots; at least 1. taskSlots are the slots that
// serve the task, slots those of this worker, held what it has already.
func fairShare(n int32, ready, taskSlots int64, slots, held int32, each estimate) int32 {
	share := min(int64(n), ready/(2*max(taskSlots, 1)))
	work := int64(max(slots-held, 1)) // not measured: a block for each free slot
	if each > 0 {
		perSlot := (int64(shareOf) + int64(each) - 1) / int64(each)
		work = perSlot*int64(slots) - int64(held)
	}
	return int32(max(min(share, work), 1))
}
