package coordinator

import (
	"sync"

	"example.org/daisy/internal/engine"
)

// inbox takes events from every goroutine to the owner of the engine. Senders append to a slice under a mutex, and ring for
// the loop only when the slice was empty; the owner swaps it for an empty one. Under load a wake-up thus serves many events,
// which a channel of events cannot do.
type inbox struct {
	mu sync.Mutex
	// lists are events, in their order. Those of a reader come in its own slice, as an event is large; a sender of few appends to the
	// last one, unless that is a reader's.
	lists  [][]engine.Event
	append bool
	spare  [][]engine.Event // emptied, for the next ones
	calls  []func()
	wake   chan struct{} // capacity 1
}

// keptLists is how many emptied slices are kept, as many as readers may send before the owner looks.
const keptLists = 64

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put adds events, all in order, and sees to it that the loop takes them.
func (b *inbox) put(events ...engine.Event) {
	if b.add(events...) {
		b.ring()
	}
}

// add adds events, all in order, for a sender that sees to it itself that they are taken. It reports whether there were none.
func (b *inbox) add(events ...engine.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := len(b.lists) == 0 && len(b.calls) == 0
	if !b.append {
		b.lists = append(b.lists, b.emptyLocked())
		b.append = true
	}
	last := &b.lists[len(b.lists)-1]
	*last = append(*last, events...)
	return first
}

// give is add, but that the events stay where they are. It returns an empty slice for the next ones.
func (b *inbox) give(events []engine.Event) []engine.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists, b.append = append(b.lists, events), false
	return b.emptyLocked()
}

func (b *inbox) emptyLocked() []engine.Event {
	n := len(b.spare)
	if n == 0 {
		return nil
	}
	list := b.spare[n-1]
	b.spare = b.spare[:n-1]
	return list
}

// empty reports whether nothing waits.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lists) == 0 && len(b.calls) == 0
}

// call has the owner of the engine run f between two events.
func (b *inbox) call(f func()) {
	b.mu.Lock()
	first := len(b.lists) == 0 && len(b.calls) == 0
	b.calls = append(b.calls, f)
	b.mu.Unlock()
	if first {
		b.ring()
	}
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// swap takes what has come and leaves the given slices, emptied, in its place.
func (b *inbox) swap(lists [][]engine.Event, calls []func()) ([][]engine.Event, []func()) {
	for _, events := range lists {
		clear(events) // drop what the events point to
	}
	clear(calls)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, events := range lists {
		if len(b.spare) < keptLists {
			b.spare = append(b.spare, events[:0])
		}
		lists[i] = nil
	}
	l, c := b.lists, b.calls
	b.lists, b.calls, b.append = lists[:0], calls[:0], false
	return l, c
}
