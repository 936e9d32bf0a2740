package worker

// A heldBlock is a block that has not been released, under the name that its hand-out had. A coordinator that has resumed the run knows
// the hand-out under another name, which whoever runs the block need not hear of.
type heldBlock struct {
	task   *Task
	flat   int64
	handed leaseKey // the name that the hand-out had
	now    leaseKey
	first  int32 // the attempt, as it was counted when it was handed out
	// attempt is as the coordinator counts now.
	attempt int32
	// at is its place among all that are held, -1 once it is not.
	at    int32
	taken bool // a slot has it
}

// block is what a slot gets.
func (h *heldBlock) block() (b Block) {
	h.fill(&b)
	return b
}

// fill makes b the block.
func (h *heldBlock) fill(b *Block) {
	b.Task, b.Flat, b.Attempt, b.Epoch, b.Lease, b.held = h.task, h.flat, int(h.first), h.handed.epoch, h.handed.lease, h
	if t := h.task; t != nil {
		t.Grid.Regions(h.flat, &b.Index, &b.Read, &b.Write)
		b.ID, b.IDFits = t.Grid.IDAt(b.Index)
	}
}

// whichBlock is a block of the run, whatever its hand-out.
type whichBlock struct {
	task int
	flat int64
}

// what is the block that was handed out; its task is known.
func (h *heldBlock) what() whichBlock { return whichBlock{h.task.Spec.Index, h.flat} }

type leaseKey struct{ epoch, lease uint64 }

// held are the blocks that have not been released, in no order.
type held []*heldBlock

func (l *held) add(h *heldBlock) {
	h.at = int32(len(*l))
	*l = append(*l, h)
}

// remove is false if it is not there.
func (l *held) remove(h *heldBlock) bool {
	if h.at < 0 {
		return false
	}
	list := *l
	last := len(list) - 1
	list[h.at] = list[last]
	list[h.at].at = h.at
	list[last] = nil
	*l, h.at = list[:last], -1
	return true
}
