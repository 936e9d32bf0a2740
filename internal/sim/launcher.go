package sim

import (
	"math/rand/v2"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// processes is a launcher of processes on the coordinator's machine: they start at once, their end is seen at once, and they outlive a
// coordinator that dies.
type processes struct {
	world *World
	rng   *rand.Rand
	list  map[launcher.Worker]*process
	used  scheduler.Resources
	// refuses: submissions are refused. dies: processes end as soon as they start, with status 1. broken: they start and cannot start user code.
	refuses, dies, broken interval
}

// A process is a worker's, as its launcher sees it.
type process struct {
	x        *worker
	parent   *coordinator        // has started it
	owner    *coordinator        // watches it
	requires scheduler.Resources // of the whole worker
	ours     bool                // it was told to leave or killed
}

func newProcesses(w *World) *processes {
	return &processes{world: w, rng: w.cfg.rng(streamLauncher), list: make(map[launcher.Worker]*process)}
}

func (p *processes) properties() launcher.Properties {
	return launcher.Properties{OneNode: true, Local: true, IdleTimeout: 5 * time.Second, AbandonAfter: 2 * time.Minute}
}

func (p *processes) begins(*coordinator)       {}
func (p *processes) held() scheduler.Resources { return p.used }

// close ends all that it has started or taken over.
func (p *processes) close(co *coordinator) {
	for i := len(p.world.workers) - 1; i >= 0; i-- {
		x := p.world.workers[i]
		if e := p.list[x.at]; e != nil && (e.parent == co || e.owner == co) {
			e.ours = true
			x.die(launcher.End{Cause: launcher.Signalled, Signal: 9})
		}
	}
}

// adopt takes over those that the journal knows, and ends all others.
func (p *processes) adopt(co *coordinator) (left []launcher.Worker) {
	known := map[string]bool{}
	for _, w := range co.past.Live() {
		known[w.ID] = known[w.ID] || w.Launched
	}
	for i := len(p.world.workers) - 1; i >= 0; i-- {
		x := p.world.workers[i]
		switch e := p.list[x.at]; {
		case e == nil:
		case known[x.id]:
			e.owner = co
			left = append(left, x.at)
		default:
			x.die(launcher.End{Cause: launcher.Signalled, Signal: 9})
		}
	}
	return left
}

// ask: nobody has to be asked.
func (p *processes) ask(*coordinator, engine.EffectKind, engine.Ask) {}

func (p *processes) submit(co *coordinator, s *engine.Submission) {
	w := p.world
	each := s.Requires.Times(int64(s.Slots))
	w.checks.submitted(co, each, int64(s.Count))
	in := time.Millisecond + time.Duration(p.rng.Int64N(int64(20*time.Millisecond)))
	a := answer{tag: s.Tag}
	if p.refuses.has(w.now) {
		w.saw(sawRefused)
		a.refusal = "fork: resource temporarily unavailable"
	}
	co.answers = append(co.answers, a)
	w.queue.push(event{at: w.now + in, to: co, what: coSubmitted, n: uint64(len(co.answers) - 1)})
	if a.refusal != "" {
		return
	}
	for i := range s.Count {
		at := launcher.Worker{Tag: s.Tag, Element: i}
		start := in
		if d := int64(w.cfg.StartTime); d > 0 {
			start += time.Duration(d/2 + p.rng.Int64N(d))
		}
		x := w.process(at, 0, s.Slots, start)
		x.dud, x.broken = p.dies.has(w.now), p.broken.has(w.now)
		p.list[at] = &process{x: x, parent: co, owner: co, requires: each}
		p.used = p.used.Add(each)
	}
}

func (p *processes) cancel(co *coordinator, workers []launcher.Worker) {
	for _, at := range workers {
		if e := p.list[at]; e != nil && !e.x.dead {
			e.ours = true
			if e.x.link == nil && !e.x.known {
				e.x.die(launcher.End{Cause: launcher.Signalled, Signal: 15})
			} else {
				e.x.signal()
			}
		}
	}
}

func (p *processes) kill(co *coordinator, workers []launcher.Worker) {
	for _, at := range workers {
		if e := p.list[at]; e != nil && !e.x.dead {
			e.ours = true
			e.x.die(launcher.End{Cause: launcher.Signalled, Signal: 9})
		}
	}
}

func (p *processes) ended(x *worker, how launcher.End) {
	w := p.world
	e := p.list[x.at]
	p.used = p.used.Sub(e.requires)
	delete(p.list, x.at)
	w.gone(x)
	how.Ours = e.ours
	if e.owner != e.parent {
		how = launcher.End{Cause: launcher.Exited, Exit: -1, Ours: e.ours} // nobody is told
	}
	p.world.tellStatus(e.owner, launcher.Status{Worker: x.at, State: launcher.Ended, Node: w.nodeName(x.node), End: how}, time.Duration(p.rng.Int64N(int64(5*time.Millisecond))))
}

// tellStatus has a coordinator hear of a change.
func (w *World) tellStatus(co *coordinator, s launcher.Status, in time.Duration) {
	if co.dead {
		return
	}
	co.statuses = append(co.statuses, s)
	w.queue.push(event{at: w.now + in, to: co, what: coStatus, n: uint64(len(co.statuses) - 1)})
}
