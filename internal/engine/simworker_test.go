package engine

import (
	"slices"
	"strings"

	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
	"pgregory.net/rapid"
)

// simWorker is a worker process as the shell knows it.
type simWorker struct {
	id           string
	at           launcher.Worker
	external     bool
	slots        int32
	task         int32
	nonce        uint64
	joined, dead bool
	rejected     bool // the launcher refused its submission
	ended        bool // its end was reported
	frozen       bool
	going        bool // it was told to leave
	leaves       bool // it has said so
	killed       bool // the launcher was told to kill it
	cancelled    bool // the launcher was told to have it leave before it joined
	named        bool // it has come for one task
	slow         bool // it gets less done than others
	session      SessionID
	request      uint64
	open         map[uint64]int32 // requests without an answer: blocks
	served       map[int32]int64  // blocks that ran, by task
	seq          uint64
	held         []scheduler.Lease
	unacked      []Event
	sent         uint64 // releases, up to here
	answered     bool   // the launcher's answer to its submission is on its way or has come
}

func (w *simWorker) drop(l scheduler.Lease) bool {
	for i := range w.held {
		if w.held[i] == l {
			w.held = append(w.held[:i], w.held[i+1:]...)
			return true
		}
	}
	return false
}

// later notes a release, to be sent when the worker acts next.
func (w *simWorker) later(s *chaos, l scheduler.Lease, o scheduler.Outcome) {
	if !w.drop(l) {
		return
	}
	w.seq++
	w.unacked = append(w.unacked, Event{Kind: EventRelease, Seq: w.seq, Epoch: 1, Lease: l, Outcome: o, Use: Use{WallNanos: s.wall}})
	if o != scheduler.Recalled {
		if w.served == nil {
			w.served = map[int32]int64{}
		}
		w.served[s.taskOf[l]]++
	}
}

// isFull: it has served max_blocks_per_worker of some task.
func (s *chaos) isFull(w *simWorker) bool {
	for task, n := range w.served {
		if m := s.e.tasks[task].spec.MaxBlocksPerWorker; m > 0 && n >= m {
			return true
		}
	}
	return false
}

// goAway has a worker leave of its own accord: what runs it gives back when it is done, all else at once.
func (s *chaos) goAway(w *simWorker, running int) {
	w.leaves, w.open = true, nil
	s.send(w, Event{Kind: EventLeaving, Leave: LeaveDone})
	for len(w.held) > running {
		w.later(s, w.held[len(w.held)-1], scheduler.Recalled)
	}
	s.flush(w)
}

// act has a worker do something.
func (s *chaos) act(w *simWorker) {
	if w.dead || w.frozen && !s.calming {
		if rapid.IntRange(0, 5).Draw(s.t, "thaw") == 0 {
			w.frozen = false
		}
		return
	}
	switch {
	case !w.joined:
		s.join(w)
		return
	case w.session == 0:
		s.attach(w)
		return
	}
	choice := 13 - rapid.IntRange(0, 13).Draw(s.t, "act") // small numbers are drawn more often: they are the good ones
	switch {
	case choice == 0 && s.rarely(8):
		w.dead = true
	case choice == 1:
		w.frozen = true
	case choice == 2 && s.rarely(2): // back before its loss was seen
		old := w.session
		s.attach(w)
		s.apply(Event{Kind: EventDetach, Session: old})
	case choice == 2:
		s.drop(w)
	case choice == 3 && len(w.unacked) > 0: // sent twice
		s.send(w, w.unacked[0])
	case choice == 4: // a lease that it has no longer, or never had
		lease := scheduler.Lease(1 << 40)
		if len(s.handed) > 0 {
			lease = rapid.SampledFrom(s.handed).Draw(s.t, "lease")
		}
		s.flush(w)
		if !slices.Contains(w.held, lease) {
			w.seq++
			s.send(w, Event{Kind: EventRelease, Seq: w.seq, Epoch: 1, Lease: lease, Outcome: scheduler.Outcome(rapid.SampledFrom([]int{0, 2}).Draw(s.t, "claims"))})
		}
	case choice == 5 && (w.going || w.leaves): // it asks all the same
		s.ask(w)
	case choice == 5:
		s.send(w, Event{Kind: EventHeartbeat})
	case choice == 6 && !w.leaves:
		s.goAway(w, int(w.slots))
	case choice < 10 && len(w.held) > 0:
		s.finishBlock(w, scheduler.Outcome(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7}).Draw(s.t, "outcome")))
	default:
		s.behave(w)
	}
}

func (s *chaos) finishBlock(w *simWorker, o scheduler.Outcome) {
	w.later(s, w.held[0], o)
	s.flush(w)
	if !w.leaves && s.isFull(w) {
		s.goAway(w, int(w.slots)-1)
	}
}

// flush sends what has not been sent.
func (s *chaos) flush(w *simWorker) {
	for _, ev := range append([]Event(nil), w.unacked...) {
		if ev.Seq > w.sent {
			s.send(w, ev)
		}
	}
}

func (s *chaos) send(w *simWorker, ev Event) {
	if w.session == 0 {
		return
	}
	ev.Session = w.session
	if ev.Kind == EventRelease {
		w.sent = max(w.sent, ev.Seq)
	}
	s.senders = append(s.senders, w)
	s.apply(ev)
}

// behave is what a good worker does.
func (s *chaos) behave(w *simWorker) {
	s.flush(w)
	switch {
	case w.session == 0:
	case len(w.held) > 0 && (int32(len(w.held)) >= w.slots || s.calming):
		s.finishBlock(w, scheduler.Success)
	case w.going || w.leaves:
		if len(w.held) == 0 && len(w.unacked) == 0 {
			w.dead = true
		}
	case len(w.open) < int(w.slots) && rapid.IntRange(0, len(w.open)).Draw(s.t, "asks again") == 0:
		s.ask(w)
	default:
		s.send(w, Event{Kind: EventHeartbeat})
	}
}

func (s *chaos) ask(w *simWorker) {
	w.request++
	if w.open == nil {
		w.open = map[uint64]int32{}
	}
	n := rapid.Int32Range(1, 16).Draw(s.t, "n")
	w.open[w.request] = n
	s.send(w, Event{Kind: EventAcquire, Request: w.request, N: n})
}

// node is "there" for some: the only one that is ever excluded, so that a run can always go on.
func (w *simWorker) node() string {
	if len(w.id)%2 == 0 || strings.HasSuffix(w.id, "1") {
		return "there"
	}
	return "here"
}

func (s *chaos) join(w *simWorker) {
	s.handOver()
	j := &Join{Tag: w.at.Tag, Element: w.at.Element, Nonce: w.nonce, Slots: int(w.slots), Node: w.node()}
	if known := s.e.workers[w.id]; !w.external && known.nonce == 0 && w.slots > 1 && rapid.Bool().Draw(s.t, "fewer slots") {
		j.Slots--
	}
	if w.external {
		j.Name, j.Tag = w.id, ""
		if w.named || rapid.Bool().Draw(s.t, "one task") {
			j.Task, w.named = s.e.tasks[w.task].spec.ID, true
		}
	}
	s.apply(Event{Kind: EventJoin, Request: 1, Join: j})
	known := s.e.workers[w.id]
	if known == nil || known.nonce != w.nonce || known.ended {
		w.dead = true // refused
		return
	}
	w.joined, w.slots = true, int32(j.Slots)
}

func (s *chaos) attach(w *simWorker) {
	s.handOver()
	s.last++
	delete(s.session, w.session)
	w.session, w.open = s.last, nil
	s.session[s.last] = w
	ev := Event{Kind: EventAttach, Session: s.last, Worker: w.id, Nonce: w.nonce}
	for _, l := range w.held {
		ev.Held = append(ev.Held, Held{Epoch: 1, Lease: l})
	}
	resend := append([]Event(nil), w.unacked...)
	for _, u := range resend {
		ev.Held = append(ev.Held, Held{Epoch: 1, Lease: u.Lease})
	}
	s.apply(ev)
	for _, u := range resend {
		s.send(w, u)
	}
	if w.leaves {
		s.send(w, Event{Kind: EventLeaving, Leave: LeaveDone})
	}
	if w.session == 0 && s.e.workers[w.id].ended {
		w.dead = true // it was sent away for good
	}
}
