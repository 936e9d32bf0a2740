package coordinator

import (
	"sync"

	"example.org/daisy/internal/engine"
)

// inbox takes events from every goroutine to the owner of the engine. Senders append to a slice under a mutex, and ring for
// the loop only when the slice was empty; the owner swaps it for an empty one. Under load a wake-up thus serves many events,
// which a channel of events cannot do.
type inbox struct {
	mu     sync.Mutex
	events []engine.Event
	calls  []func()
	wake   chan struct{} // capacity 1
}

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
	first := len(b.events) == 0 && len(b.calls) == 0
	b.events = append(b.events, events...)
	return first
}

// empty reports whether nothing waits.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events) == 0 && len(b.calls) == 0
}

// call has the owner of the engine run f between two events.
func (b *inbox) call(f func()) {
	b.mu.Lock()
	first := len(b.events) == 0 && len(b.calls) == 0
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
func (b *inbox) swap(events []engine.Event, calls []func()) ([]engine.Event, []func()) {
	clear(events) // drop what the events point to
	clear(calls)
	b.mu.Lock()
	defer b.mu.Unlock()
	e, c := b.events, b.calls
	b.events, b.calls = events[:0], calls[:0]
	return e, c
}
