package sim

import "time"

// A forecastEvent happens to one worker, or to the run. It has no pointers, so that millions cost the garbage collector nothing.
type forecastEvent struct {
	at     time.Duration
	seq    uint64 // order of those at the same time
	n      uint64
	number int32
	kind   uint8
}

func (ev *forecastEvent) before(other *forecastEvent) bool {
	return ev.at < other.at || ev.at == other.at && ev.seq < other.seq
}

// A forecastHeap has the earliest event first, with four children a node as an eventHeap.
type forecastHeap []forecastEvent

func (h *forecastHeap) push(ev forecastEvent) {
	*h = append(*h, ev)
	s := *h
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
func (h *forecastHeap) pop() forecastEvent {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= len(s) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(s)); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if !s[least].before(&last) {
			break
		}
		s[i] = s[least]
		i = least
	}
	s[i] = last
	return top
}
