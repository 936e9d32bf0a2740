package engine

import (
	"cmp"
	"slices"

	"pgregory.net/rapid"
)

// The rules of a run that are more than one line, checked after every event of TestWhateverWorkersDo.

// A grant is what one event made the engine give a task: a worker of another, or new ones.
type grant struct {
	task   int32
	worker *worker // moved there; nil = count new ones
	slots  int64
	count  int64
}

// byPriority is the tasks in the order in which they are to be served, as a reader of the job file would work it out.
func (s *chaos) byPriority() []int {
	p := s.e.cfg.Pipeline
	depth, order := make([]int, len(s.e.tasks)), make([]int, len(s.e.tasks))
	for i := range depth {
		order[i] = i
		for _, u := range p.Upstream(i) {
			depth[i] = max(depth[i], depth[u]+1)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.e.tasks[b].spec.Priority, s.e.tasks[a].spec.Priority), cmp.Compare(depth[b], depth[a]))
	})
	return order
}

// checkPriority: while a task has ready blocks without a slot, no free worker of its class went to a task that comes after it,
// nor stays where it has nothing to do, and no free budget went to such a task.
func (s *chaos) checkPriority() {
	e := s.e
	for rank, first := range s.order {
		t := &e.tasks[first]
		if t.ended || t.ready <= t.covers {
			continue
		}
		admits := func(slots int64) bool {
			m := t.spec.MaxWorkers
			return m == 0 || e.fleet.Slots(first)+slots <= m
		}
		for _, w := range e.live {
			if int(w.task) != first && w.sub != nil && s.isFree(w) && e.tasks[w.task].ready == 0 && e.tasks[w.task].class == t.class && admits(int64(w.slots)) {
				s.t.Fatalf("worker %s of task %d is free, and passes over the ready blocks of task %d", w.id, w.task, first)
			}
		}
		freed, freedSlots, wave := e.fleet.Budget().Free().Get("cpu"), int64(0), e.firstWave(t.class)
		for _, g := range s.grants {
			if slices.Index(s.order, int(g.task)) <= rank {
				continue
			}
			if g.worker == nil {
				freed += g.slots * g.count * s.requires[g.task]
				freedSlots += g.slots * g.count
				if e.tasks[g.task].class == t.class {
					wave += g.count
				}
			} else if g.worker.sub != nil && e.tasks[g.task].class == t.class && admits(g.slots) {
				s.t.Fatalf("worker %s was moved to task %d, while task %d, which comes before it, has ready blocks without a slot", g.worker.id, g.task, first)
			}
		}
		if freedSlots == 0 || t.brake.Tripped() || t.pauseTo > e.now || !e.proven[t.class] && wave == 0 || !admits(1) {
			continue
		}
		if m := int64(e.cfg.MaxSlots); m > 0 && e.fleet.Total()-freedSlots >= m {
			continue
		}
		if freed >= s.requires[first] {
			s.t.Fatalf("workers were asked for by tasks that come after task %d, whose ready blocks have no slot: %+v", first, s.grants)
		}
	}
}

// isFree: it could take a block at once.
func (s *chaos) isFree(w *worker) bool {
	return w.nonce != 0 && w.session != 0 && w.held == 0 && !w.quiet && s.isWell(w)
}

func (s *chaos) isWell(w *worker) bool {
	return !w.suspect && w.answer == never && !goes(w)
}

// goes: it will not take blocks any more.
func goes(w *worker) bool { return w.killed || w.ending || w.leaving || w.told != notTold }

// checkQueues: nobody waits for what is there, and only those wait that may be served.
func (s *chaos) checkQueues() {
	for i := range s.e.tasks {
		t := &s.e.tasks[i]
		for w := t.waiting.first; w != nil; w = w.behind {
			if int(w.task) != i || w.session == 0 || w.suspect || goes(w) || len(w.requests) == 0 {
				s.t.Fatalf("worker %s waits for blocks of task %d: %+v", w.id, i, w)
			}
			if t.ready > 0 && (w.sub != nil || w.started >= w.slots || s.e.fleet.Room(i) > 0) {
				s.t.Fatalf("worker %s waits for blocks, and task %d has %d ready", w.id, i, t.ready)
			}
		}
	}
	for _, w := range s.e.live {
		if len(w.requests) > 0 && !w.queued && !w.suspect {
			s.t.Fatalf("worker %s has asked and does not wait", w.id)
		}
	}
}

// checkSums: what the engine has added up is what its workers and their leases, looked at one by one, add up to.
func (s *chaos) checkSums() {
	type sums struct{ covers, joined, starting, leaving, started, ahead, running int64 }
	got, want := make([]sums, len(s.e.tasks)), make([]sums, len(s.e.tasks))
	for i := range s.e.tasks {
		t := &s.e.tasks[i]
		got[i] = sums{t.covers, t.joined, t.starting, t.leaving, t.started, t.ahead, 0}
		for l := t.running.first; l != nil; l = l.later {
			got[i].running++
			if l.later != nil && l.later.began < l.began {
				s.t.Fatalf("task %d: a block that runs stands before one that began earlier", i)
			}
		}
	}
	inHands := int64(0)
	for _, w := range s.e.live {
		n, slots := &want[w.task], int64(w.slots)
		held, began, doubts := int32(0), int32(0), int32(0)
		for l := w.first; l != nil; l = l.next {
			of := &want[l.handout.Task]
			held++
			switch {
			case l.state == started:
				of.running++
				fallthrough
			case l.state == parked:
				of.started++
				began++
			case !l.recalled && w.session != 0:
				of.ahead++
			}
			if l.doubtful {
				doubts++
			}
			if s.e.leases.get(l.handout.Lease) != l {
				s.t.Fatalf("worker %s holds lease %d, which nobody would find", w.id, l.handout.Lease)
			}
		}
		inHands += int64(held)
		if held != w.held || began != w.started || doubts != w.doubts || began > w.slots {
			s.t.Fatalf("worker %s of %d slots holds %d, runs %d, doubts %d; it is counted with %d, %d, %d", w.id, w.slots, held, began, doubts, w.held, w.started, w.doubts)
		}
		if w.sub != nil && began < min(held, w.slots) {
			s.t.Fatalf("worker %s has a free slot and %d blocks that wait for one", w.id, held-began)
		}
		if w.nonce == 0 {
			n.starting += slots
		} else {
			n.joined += slots
		}
		switch {
		case w.sub == nil: // it takes its share of the budget only while it runs something, and can be asked for nothing
		case goes(w):
			n.leaving += slots
		case w.nonce == 0:
			n.covers += slots
		case s.isWell(w) && !w.quiet:
			n.covers += slots - int64(began)
		}
	}
	for i := range want {
		if got[i] != want[i] {
			s.t.Fatalf("task %d is counted with %+v, its workers make %+v", i, got[i], want[i])
		}
	}
	if inHands != s.e.inHands {
		s.t.Fatalf("%d leases are counted as in hands, the workers hold %d", s.e.inHands, inHands)
	}
}

// checkLimits: a worker returns no more blocks of a task than max_blocks_per_worker; as it says that it leaves when the last
// but those of its other slots is done, that many may come on top. Of a class that has not shown that it works, no more
// workers than the first wave are there. Never more than the ceiling are asked for.
func (s *chaos) checkLimits() {
	for _, r := range s.snap.Workers {
		if m := s.e.tasks[r.Task].spec.MaxBlocksPerWorker; m > 0 && r.Processed >= m+int64(r.Slots) {
			s.t.Fatalf("worker %s returned %d blocks of task %d, max_blocks_per_worker is %d", r.ID, r.Processed, r.Task, m)
		}
	}
	for _, g := range s.grants {
		class, n := s.e.tasks[g.task].class, 0
		for _, w := range s.e.live {
			if w.sub != nil && s.e.tasks[w.task].class == class {
				n++
			}
		}
		if g.worker == nil && !s.e.proven[class] && n > firstWave {
			s.t.Fatalf("%d workers of a class that has not shown that it works", n)
		}
	}
	if most := ceilingPerWorker*max(s.e.peak, ceilingAlive) + ceilingPerReturn*s.e.good; s.e.launched > most {
		s.t.Fatalf("%d workers were asked for, the ceiling is %d", s.e.launched, most)
	}
}

// checkStopped: once the run was told to stop, no block is leased any more. One whose infrastructure has failed waits for
// nothing that would have to become durable: it ends with its workers, who get killedWithin.
func (s *chaos) checkStopped() {
	if !s.stopped {
		return
	}
	leased := int64(0)
	for i := range s.e.tasks {
		leased += s.e.sched.Tally(i).Leased
	}
	if leased > s.leased {
		s.t.Fatalf("%d blocks are leased, and there were %d when the run was told to stop", leased, s.leased)
	}
	s.leased = leased
	if s.broken && s.e.phase != finished && s.e.now >= s.brokenAt+killedWithin {
		s.t.Fatalf("broken at %v, the run still goes on at %v", s.brokenAt, s.e.now)
	}
}

// stop takes the event of a stop or of a failure of the infrastructure.
func (s *chaos) stop(ev Event) {
	s.handOver()
	s.leased = 0
	for i := range s.e.tasks {
		s.leased += s.e.sched.Tally(i).Leased
	}
	if ev.Kind == EventBroken && !s.broken && !s.e.Finished() { // what was handed over just now may have ended it
		s.broken, s.brokenAt = true, s.e.now
		s.silent = rapid.Bool().Draw(s.t, "nothing is committed any more")
	}
	s.stopped = true
	s.apply(ev)
}

// checkCancelled: of those that have not joined, the launcher knows which are to go.
func (s *chaos) checkCancelled() {
	for _, w := range s.workers {
		known := s.e.workers[w.id]
		if w.external || w.ended || known.ended || known.nonce != 0 || known.told == notTold {
			continue
		}
		if !w.cancelled && !w.killed {
			s.t.Fatalf("worker %s was told to go before it joined, and its launcher does not know", w.id)
		}
	}
}

// checkSessions: a connection that the shell has is that of its worker. At the end it closes all of them.
func (s *chaos) checkSessions() {
	if s.e.Finished() {
		return
	}
	for id, w := range s.session {
		if known := s.e.sessions[id]; known == nil || known.id != w.id || known.session != id {
			s.t.Fatalf("the engine does not know the connection %d of %s", id, w.id)
		}
	}
}

// checkEnd looks at how the run has ended.
func (s *chaos) checkEnd() {
	if s.broken && s.e.State() != RunBroken {
		s.t.Fatalf("the infrastructure failed, and the run ended %v", s.e.State())
	}
	for k, record := range s.ends {
		if record <= s.done && !s.tracked[k] && !s.broken {
			s.t.Fatalf("block %v is done by the journal and was not counted", k)
		}
	}
	well := true
	rows := make([]int64, len(s.snap.Tasks))
	for _, r := range s.snap.Workers {
		rows[r.Task]++
	}
	for i, t := range s.snap.Tasks {
		well = well && t.Tally.Success+t.Tally.Skipped == t.Tally.Total
		spec := s.e.tasks[i].spec
		if m := spec.MaxBlocksPerWorker; m > 0 && rows[i]*(m+int64(spec.Slots)) < t.Tally.Success {
			s.t.Fatalf("task %d: %d workers served its %d blocks, max_blocks_per_worker is %d", i, rows[i], t.Tally.Success, m)
		}
	}
	if well != (s.e.State() == RunDone) && !s.broken {
		s.t.Fatalf("the run ended %v: %+v", s.e.State(), s.snap.Tasks)
	}
}
