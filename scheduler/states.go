package scheduler

// One byte says where a block stands. The values up to stCountMax of a block that waits are its counter:
//
//	0                   never touched: it waits for everything it needs, or it is a root that nobody took yet
//	1 .. stCountMax     it waits for so many more; more than stCountMax are kept in task.surplus
//
// A fresh array of zeros is therefore a task in which nothing has happened, and its pages need no memory.
const (
	stCountMax byte = 239

	stReady         byte = 240 // in task.ready
	stRetry         byte = 241 // ready, in task.retries
	stHeld          byte = 242 // to be tried again after Unhold; counts as waiting
	stSkipPending   byte = 243 // to be skipped, in task.todo; counts as waiting
	stLeased        byte = 244
	stSuccess       byte = 245
	stSkipped       byte = 246
	stBefore        byte = 247 // skipped at the start, before anything ran: it was never part of a counter
	stFailed        byte = 248
	stOrphaned      byte = 249
	stOrphanPending byte = 250 // orphaned, in task.todo: what needs it is still to be orphaned
)

// waits reports whether a state byte is the counter of a waiting block, or that of an untouched one.
func waits(st byte) bool { return st <= stCountMax }

// endedWell reports whether what needs a block of this state may run.
func endedWell(st byte) bool { return st >= stSuccess && st <= stBefore }
