package sim

import "time"

// An actor is a party to which events happen.
type actor interface{ act(ev *event) }

// An event happens to one actor at one time. What n and packet mean is the actor's business.
type event struct {
	at     time.Duration
	seq    uint64 // order of those at the same time
	to     actor
	what   what
	n      uint64
	packet *packet
}

// what says which event it is; each actor has its own.
type what uint8

// An eventHeap has the earliest event first. Four children a node: half the depth, and siblings share cache lines.
type eventHeap struct {
	list []event
	seq  uint64
}

func (h *eventHeap) push(ev event) {
	h.seq++
	ev.seq = h.seq
	h.put(ev)
}

// postpone puts an event off. It keeps its place among those that are put off with it: what was said first is heard first.
func (h *eventHeap) postpone(ev *event, at time.Duration) {
	again := *ev
	again.at = at
	ev.packet = nil // it is not used up
	h.put(again)
}

func (h *eventHeap) put(ev event) {
	h.list = append(h.list, ev)
	s := h.list
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !ev.before(&s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = ev
}

// pop removes the earliest event; there must be one.
func (h *eventHeap) pop() event {
	s := h.list
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = event{}
	s = s[:len(s)-1]
	h.list = s
	if len(s) == 0 {
		return top
	}
	for i := 0; ; {
		first := 4*i + 1
		if first >= len(s) {
			s[i] = last
			return top
		}
		least := first
		for c := first + 1; c < min(first+4, len(s)); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if !s[least].before(&last) {
			s[i] = last
			return top
		}
		s[i] = s[least]
		i = least
	}
}

func (ev *event) before(other *event) bool {
	return ev.at < other.at || ev.at == other.at && ev.seq < other.seq
}
