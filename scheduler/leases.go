package scheduler

// leases is the table of hand-outs in flight. A lease is a running number and the slot it sits in: looking one up is an index
// and a comparison, and a slot used again has another number. The table is as large as what was in flight at once.
type leases struct {
	slots []leaseSlot
	free  int32 // first free slot, linked through leaseSlot.block; -1 = none
	last  uint64
}

const (
	leaseSlotBits = 24 // 16 million in flight; 2^40 hand-outs
	leaseSlotMask = 1<<leaseSlotBits - 1
)

// leaseSlot is 40 bytes; lease is 0 while it is free.
type leaseSlot struct {
	lease        Lease
	block        int64
	holder       Holder
	task         int32
	attempt      int32
	afterFailure bool // the block's previous end used up a retry
	began        bool // the attempt is counted as begun
	known        bool // the block has a history
}

// Slot is a small number that no other current lease has: an index for tables beside the scheduler's own. A later lease can
// have it again.
func (l Lease) Slot() int { return int(l & leaseSlotMask) }

func newLeases() leases { return leases{free: -1} }

// full reports whether there is no room for one more.
func (l *leases) full() bool { return l.free < 0 && len(l.slots) > leaseSlotMask }

// grant opens a lease; the caller fills in the slot.
func (l *leases) grant() *leaseSlot {
	i := l.free
	if i < 0 {
		i = int32(len(l.slots))
		l.slots = append(l.slots, leaseSlot{})
	} else {
		l.free = int32(l.slots[i].block)
	}
	l.last++
	slot := &l.slots[i]
	*slot = leaseSlot{lease: Lease(l.last<<leaseSlotBits | uint64(i))}
	return slot
}

// get returns the slot of a current lease, or nil.
func (l *leases) get(lease Lease) *leaseSlot {
	i := uint64(lease) & leaseSlotMask
	if lease == 0 || i >= uint64(len(l.slots)) || l.slots[i].lease != lease {
		return nil
	}
	return &l.slots[i]
}

// drop ends a lease.
func (l *leases) drop(slot *leaseSlot) {
	i := int32(slot.lease & leaseSlotMask)
	slot.lease = 0
	slot.block = int64(l.free)
	l.free = i
}

// dropTask ends all leases of a task.
func (l *leases) dropTask(task int32) {
	for i := range l.slots {
		if s := &l.slots[i]; s.lease != 0 && s.task == task {
			l.drop(s)
		}
	}
}
