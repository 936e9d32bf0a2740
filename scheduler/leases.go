package scheduler

// leases is the table of hand-outs in flight. A lease is a running number and the slot it sits in: looking one up is an index
// and a comparison, and a slot used again has another number. The table is as large as what was in flight at once.
type leases struct {
	slots pages[leaseSlot]
	free  int32 // first free slot, linked through leaseSlot.block; -1 = none
	last  uint64
}

const (
	leaseSlotBits = 24 // 16 million in flight; 2^40 hand-outs
	leaseSlotMask = 1<<leaseSlotBits - 1
)

// leaseSlot is 32 bytes; lease is 0 while it is free.
type leaseSlot struct {
	lease  Lease
	holder Holder
	block  uint32
	record uint32 // of the block, in task.retries; 0 if it was never handed out before
	task   int32
	began  bool // the attempt is counted as begun
}

// Slot is a small number that no other current lease has: an index for tables beside the scheduler's own. A later lease can
// have it again.
func (l Lease) Slot() int { return int(l & leaseSlotMask) }

func newLeases() leases { return leases{free: -1} }

// full reports whether there is no room for one more.
func (l *leases) full() bool { return l.free < 0 && l.slots.n > leaseSlotMask }

// grant opens a lease; the caller fills in the slot.
func (l *leases) grant() *leaseSlot {
	i := l.free
	if i < 0 {
		i = int32(l.slots.add())
	} else {
		l.free = int32(l.slots.at(uint(i)).block)
	}
	l.last++
	slot := l.slots.at(uint(i))
	*slot = leaseSlot{lease: Lease(l.last<<leaseSlotBits | uint64(i))}
	return slot
}

// get returns the slot of a current lease, or nil.
func (l *leases) get(lease Lease) *leaseSlot {
	i := uint(lease) & leaseSlotMask
	if lease == 0 || i >= uint(l.slots.n) {
		return nil
	}
	if slot := l.slots.at(i); slot.lease == lease {
		return slot
	}
	return nil
}

// drop ends a lease.
func (l *leases) drop(slot *leaseSlot) {
	i := int32(slot.lease & leaseSlotMask)
	slot.lease = 0
	slot.block = uint32(l.free)
	l.free = i
}

// dropTask ends all leases of a task.
func (l *leases) dropTask(task int32) {
	for i := range uint(l.slots.n) {
		if s := l.slots.at(i); s.lease != 0 && s.task == task {
			l.drop(s)
		}
	}
}
