// Package scheduler decides which block may run now.
//
// A task covers its volume with blocks (package geom); a pipeline is tasks and who is upstream of whom. A block is waiting
// until everything it needs has ended well, then ready. A worker acquires it and holds a lease, and with the lease it releases
// it again: success, or another end of the attempt; the block of a worker that is gone is reclaimed. A failed attempt makes
// the block ready again, a retry, until its budget is used up and the block has failed. What needs a failed block is
// orphaned, across tasks and levels. A block that was done before, or that a mask leaves out, is skipped. What is left of a
// task that is given up is abandoned. For each task, after every call:
//
//	total = waiting + ready + leased + success + skipped + failed + orphaned + abandoned
//
// The scheduler is a value without goroutine, clock, input or output. It keeps one byte per block, and nothing for blocks
// that were never touched; the dependencies of a block are arithmetic on its position. No call takes long: what touches
// many blocks is left pending and done in slices by [Scheduler.Work].
package scheduler
