package scheduler

import (
	"encoding/binary"
	"math/bits"
)

// One byte says where a block stands. The values up to stCountMax of a block that waits are its counter:
//
//	0                   never touched: it waits for everything it needs, or it is a root that nobody took yet
//	1 .. stCountMax     it waits for so many more, or, if it needs more than stCountMax, for at least so many; see counters.go
//
// A fresh array of zeros is therefore a task in which nothing has happened, and its pages need no memory.
const (
	stCountMax = 239

	stReady         byte = 240 // in task.ready
	stRetry         byte = 241 // ready, in task.retries
	stHeld          byte = 242 // to be tried again after Unhold; counts as waiting
	stSkipPending   byte = 243 // to be skipped, in task.todo; counts as waiting
	stSuccess       byte = 244 // this and the next two, and nothing else, are 4*61 + 0..3: lastUnended compares eight at once
	stSkipped       byte = 245
	stBefore        byte = 246 // skipped at the start, before anything ran: it was never part of a counter
	stLeased        byte = 248
	stFailed        byte = 249
	stOrphaned      byte = 250
	stOrphanPending byte = 251 // orphaned, in task.todo: what needs it is still to be orphaned
	stUncounted     byte = 252 // it waits, and for how many is to be counted: in task.uncounted
)

// waits reports whether a block of this state waits for others, or was never touched.
func waits(st byte) bool { return st <= stCountMax || st == stUncounted }

// endedWell reports whether what needs a block of this state may run.
func endedWell(st byte) bool { return st&^3 == stSuccess }

// lastUnended returns the last position of a state that has not ended well, -1 if there is none.
func lastUnended(states []byte) int {
	const ones = 0x0101010101010101
	i := len(states)
	for ; i >= 8; i -= 8 {
		x := binary.LittleEndian.Uint64(states[i-8:])
		if other := (x ^ ones*uint64(stSuccess)) & (ones * 0xfc); other != 0 {
			return i - 1 - bits.LeadingZeros64(other)/8
		}
	}
	for i--; i >= 0 && endedWell(states[i]); i-- {
	}
	return i
}
