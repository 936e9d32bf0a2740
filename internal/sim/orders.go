package sim

import (
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

// What people want of a run that goes on, but its end: other limits, nodes that are not to be used, a worker that is to leave.

// order has a coordinator hear of a wish.
func (co *coordinator) order(ev engine.Event) {
	co.orders = append(co.orders, ev)
	co.world.queue.push(event{at: co.world.now, to: co, what: coOrdered, n: uint64(len(co.orders) - 1)})
}

// obey takes a wish in, as far as it is possible.
func (co *coordinator) obey(ev *engine.Event) {
	w := co.world
	switch {
	case ev.Kind == engine.EventSet && co.engine.CheckSetting(ev.Set) == nil:
		w.saw(sawSet)
	case ev.Kind == engine.EventStopWorker && co.engine.CheckStopWorker(ev.Worker) == nil:
		w.saw(sawStopWorker)
	case ev.Kind == engine.EventExclude && co.engine.CheckExclude(ev.Exclude) == nil && ev.Exclude.Include:
		w.saw(sawIncluded)
	case ev.Kind == engine.EventExclude && co.engine.CheckExclude(ev.Exclude) == nil:
		w.saw(sawExcluded)
	}
	co.apply(*ev)
}

// orders makes a wish of a fault.
func (a *faultActor) orders(f *Fault, n uint64) {
	w, co := a.world, a.world.co
	switch f.Kind {
	case FaultSet:
		co.order(engine.Event{Kind: engine.EventSet, Set: w.setting(f.N)})
	case FaultExclude:
		co.order(engine.Event{Kind: engine.EventExclude, Exclude: &engine.Exclusion{Node: a.excludes(f), By: "a person"}})
		a.passes(f, n)
	case FaultStopWorker:
		if x := w.victim(f.N); x != nil {
			co.order(engine.Event{Kind: engine.EventStopWorker, Worker: x.id, Text: "a person wants it so"})
		}
	}
}

// setting is another limit: resources of which each task can run a block still, or max_workers or the timeout of a task.
func (w *World) setting(n int) *engine.Setting {
	tasks := w.cfg.Job.Tasks
	s := &engine.Setting{Key: engine.SettingKey(n % 3), Task: int32(n / 3 % len(tasks)), By: "a person"}
	switch n /= 3 * len(tasks); s.Key {
	case engine.SetResources:
		need := int64(0)
		for i := range tasks {
			need = max(need, tasks[i].Requires.Get("cpu"))
		}
		s.Amounts = scheduler.NewResources(map[string]int64{"cpu": need + 1000*int64(n%6)})
	case engine.SetMaxWorkers:
		s.N = int64(1 + n%6)
	case engine.SetTimeout:
		s.Timeout = time.Duration(1+n%20) * time.Minute
	}
	return s
}

func (a *faultActor) excludes(f *Fault) string { return a.world.nodeName(f.N % len(a.world.net.nodes)) }

// includeEvery is how often a person looks whether a node is still excluded that need not be any more.
const includeEvery = 5 * time.Minute

// include takes an exclusion back, whichever coordinator it takes.
func (a *faultActor) include(n uint64) {
	w := a.world
	x := engine.Exclusion{Node: a.excludes(&w.cfg.Faults[n]), By: "a person", Include: true}
	if co := w.co; !co.dead && co.engine != nil && co.engine.CheckExclude(&x) == nil {
		co.order(engine.Event{Kind: engine.EventExclude, Exclude: &x})
	}
	w.queue.push(event{at: w.now + includeEvery, to: a, what: faultIncludes, n: n})
}
