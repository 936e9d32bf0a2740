package engine

import (
	"slices"

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
	session      SessionID
	request      uint64
	open         int32
	seq          uint64
	held         []scheduler.Lease
	unacked      []Event
	unackedAt    map[uint64]uint64 // seq: records when it was first sent
	answered     bool              // the launcher's answer to its submission is on its way or has come
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
	case choice == 5:
		s.send(w, Event{Kind: EventHeartbeat})
	case choice == 6 && !w.leaves:
		w.leaves, w.open = true, 0
		s.send(w, Event{Kind: EventLeaving, Leave: LeaveDone})
	case choice < 10 && len(w.held) > 0:
		s.finishBlock(w, scheduler.Outcome(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7}).Draw(s.t, "outcome")))
	default:
		s.behave(w)
	}
}

func (s *chaos) finishBlock(w *simWorker, o scheduler.Outcome) {
	w.later(s, w.held[0], o)
	s.flush(w)
}

// flush sends what has not been sent.
func (s *chaos) flush(w *simWorker) {
	for _, ev := range append([]Event(nil), w.unacked...) {
		if _, sent := w.unackedAt[ev.Seq]; !sent {
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
		w.unackedAt[ev.Seq] = s.appended
	}
	s.sender = w
	s.apply(ev)
	s.sender = nil
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
	case w.open == 0:
		w.open++
		w.request++
		s.send(w, Event{Kind: EventAcquire, Request: w.request, N: rapid.Int32Range(1, 16).Draw(s.t, "n")})
	default:
		s.send(w, Event{Kind: EventHeartbeat})
	}
}

func (s *chaos) join(w *simWorker) {
	j := &Join{Tag: w.at.Tag, Element: w.at.Element, Nonce: w.nonce, Slots: int(w.slots), Node: "here"}
	if w.external {
		j.Name, j.Tag = w.id, ""
		if rapid.Bool().Draw(s.t, "one task") {
			j.Task = s.e.tasks[w.task].spec.ID
		}
	}
	s.apply(Event{Kind: EventJoin, Request: 1, Join: j})
	known := s.e.workers[w.id]
	if known == nil || known.nonce != w.nonce || known.ended {
		w.dead = true // refused
		return
	}
	w.joined = true
}

func (s *chaos) attach(w *simWorker) {
	s.last++
	w.session, w.open = s.last, 0
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
