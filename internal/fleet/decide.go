package fleet

import (
	"time"

	"example.org/daisy/scheduler"
)

// A Load is what a task wants at a moment.
type Load struct {
	// Ready is blocks that could run now, Covered slots that are free for them or will be once their worker has started.
	Ready, Covered int64
	// Left is blocks that have not been handed out: no worker gets more slots than that.
	Left int64
	// Leaving is slots of workers that were told to leave and still hold what they took.
	Leaving int64
	// Starts bounds the workers that may be asked for now, those for other tasks of its class included; 0 = none (no launcher,
	// brake, pause).
	Starts int64
	// Ended: nothing of the task can come any more.
	Ended bool
}

// Need is ready blocks that no slot covers.
func (l Load) Need() int64 { return max(l.Ready-l.Covered, 0) }

// An Idle worker holds no block and its task has none for it.
type Idle struct {
	// Ref is the caller's name for it.
	Ref   int
	Task  int
	Slots int64
	Since time.Duration
	// Starting: it has not joined; it can be cancelled, but not moved.
	Starting bool
	// External: nobody launched it: it holds nothing of the budget and is never sent away.
	External bool
	// Any: it may move to every task, whatever its class. Pinned: to none.
	Any, Pinned bool
}

// OrderKind says what an order wants.
type OrderKind uint8

const (
	// Reassign: the worker Ref works for Task from now on. What it took was moved.
	Reassign OrderKind = iota
	// Release: the worker Ref is to leave; Why says why.
	Release
	// Start: Count workers of Slots slots each for Task. What they need was taken.
	Start
)

// Why an idle worker is to leave.
type Why uint8

const (
	// Needed: another task needs its share of the budget.
	Needed Why = iota
	// TimedOut: it has had nothing to do for the idle timeout.
	TimedOut
	// Over: nothing can come for it any more.
	Over
)

// An Order is one thing to do.
type Order struct {
	Kind  OrderKind
	Why   Why
	Ref   int
	Task  int
	Slots int64
	Count int64
}

// maxStart bounds the workers of one decision where nothing else does.
const maxStart = 10_000

// Decide returns what is to be done, appended to orders. loads has one entry for each task. It takes and moves what its
// orders need; what a worker that leaves has taken stays taken until the caller gives it back.
func (f *Fleet) Decide(now, idleTimeout time.Duration, loads []Load, idle []Idle, orders []Order) []Order {
	need, starts := make([]int64, len(loads)), make([]int64, len(loads))
	for i, l := range loads {
		starts[i] = min(l.Starts, maxStart)
		if !l.Ended {
			need[i] = l.Need()
		}
	}
	used, kept := make([]bool, len(idle)), make([]int64, len(loads))
	orders = f.takeOver(need, idle, used, kept, orders)
	orders = f.start(need, starts, loads, orders)
	orders = f.makeRoom(need, starts, loads, idle, used, orders)
	for t, slots := range kept {
		f.Give(t, slots)
	}
	return f.sendAway(now, idleTimeout, loads, idle, used, orders)
}

// takeOver moves idle workers to tasks of their class that have need. An external one takes its share of the budget only when
// it is served, right after this decision: until then it is kept for it.
func (f *Fleet) takeOver(need []int64, idle []Idle, used []bool, kept []int64, orders []Order) []Order {
	for _, t := range f.order {
		for i := range idle {
			if need[t] <= 0 {
				break
			}
			w := &idle[i]
			if used[i] || w.Starting || w.Pinned || w.Task == t || !w.Any && f.tasks[w.Task].Class != f.tasks[t].Class {
				continue
			}
			slots := w.Slots
			if w.External {
				slots = min(slots, need[t], f.Room(t))
				if slots == 0 || !f.Take(t, slots) {
					continue
				}
				kept[t] += slots
			} else if !f.Move(w.Task, t, slots) {
				continue
			}
			used[i] = true
			need[t] -= slots
			orders = append(orders, Order{Kind: Reassign, Ref: w.Ref, Task: t, Slots: slots})
		}
	}
	return orders
}

// start gives free budget to need. A worker gets all its slots if they fit, else as many as do.
func (f *Fleet) start(need, starts []int64, loads []Load, orders []Order) []Order {
	for _, t := range f.order {
		for need[t] > 0 && starts[t] > 0 {
			room := f.Room(t)
			slots := max(min(f.tasks[t].Slots, loads[t].Left), 1)
			count := min((need[t]+slots-1)/slots, room/slots, starts[t])
			if count == 0 {
				if room == 0 {
					break
				}
				slots, count = room, 1
			}
			if !f.Take(t, slots*count) {
				break
			}
			need[t] -= slots * count
			for o := range starts {
				if f.tasks[o].Class == f.tasks[t].Class {
					starts[o] -= count
				}
			}
			orders = append(orders, Order{Kind: Start, Task: t, Slots: slots, Count: count})
		}
	}
	return orders
}

// makeRoom sends idle workers of other tasks away where that lets a slot of a task with need start: none in vain, and no more
// than it takes. What leaves already is counted on.
func (f *Fleet) makeRoom(need, starts []int64, loads []Load, idle []Idle, used []bool, orders []Order) []Order {
	if f.budget.Unlimited() && f.maxSlots == 0 {
		return orders
	}
	free, slots := f.budget.Free(), int64(0)
	if f.maxSlots > 0 {
		slots = f.maxSlots - f.total
	}
	for t, l := range loads {
		free = free.Add(f.tasks[t].Requires.Times(l.Leaving))
		slots += l.Leaving
	}
	pools := f.pools(idle, used)
	for _, t := range f.order {
		// Not more than may be started, and than max_workers allows.
		most := min(need[t], max(starts[t], 0)*f.tasks[t].Slots)
		if m := f.tasks[t].MaxWorkers; m > 0 {
			most = min(most, m-f.taken[t])
		}
		for most > 0 {
			fits := f.fits(t, free)
			if f.maxSlots > 0 {
				fits = min(fits, slots)
			}
			if fits == 0 {
				released := f.release(t, free, slots, idle, used, pools)
				if released == nil {
					break
				}
				for _, i := range released {
					used[i] = true
					free = free.Add(f.tasks[idle[i].Task].Requires.Times(idle[i].Slots))
					slots += idle[i].Slots
					orders = append(orders, Order{Kind: Release, Why: Needed, Ref: idle[i].Ref})
				}
				continue
			}
			fits = min(fits, most)
			free = free.Sub(f.tasks[t].Requires.Times(fits))
			slots -= fits
			most -= fits
		}
	}
	return orders
}

// pools lists, for each task, those of its idle workers that can be sent away.
func (f *Fleet) pools(idle []Idle, used []bool) [][]int {
	pools := make([][]int, len(f.tasks))
	for i := range idle {
		if !used[i] && !idle[i].External {
			pools[idle[i].Task] = append(pools[idle[i].Task], i)
		}
	}
	return pools
}

// release chooses idle workers whose leaving makes room for one slot of a task; nil if all of them together do not. It looks at
// no worker of a task that takes nothing of what is short, and at none that has been chosen before, so that room for many slots
// costs one look at each worker.
func (f *Fleet) release(t int, free scheduler.Resources, slots int64, idle []Idle, used []bool, pools [][]int) []int {
	var chosen []int
	enough := func() bool { return f.fits(t, free) > 0 && (f.maxSlots == 0 || slots > 0) }
	share := func(i int) scheduler.Resources { return f.tasks[idle[i].Task].Requires.Times(idle[i].Slots) }
	for source := range pools {
		if source == t || !f.helps(source, t, free, slots) {
			continue
		}
		pool := pools[source]
		for len(pool) > 0 && used[pool[0]] {
			pool = pool[1:]
		}
		pools[source] = pool
		for _, i := range pool {
			if enough() || !f.helps(source, t, free, slots) {
				break
			}
			if !used[i] {
				chosen = append(chosen, i)
				free, slots = free.Add(share(i)), slots+idle[i].Slots
			}
		}
	}
	if !enough() {
		return nil
	}
	kept := chosen[:0]
	for _, i := range chosen { // without those that it does not take
		free, slots = free.Sub(share(i)), slots-idle[i].Slots
		if !enough() {
			free, slots = free.Add(share(i)), slots+idle[i].Slots
			kept = append(kept, i)
		}
	}
	return kept
}

// helps reports whether workers of a source task hold something that is short for one slot of t.
func (f *Fleet) helps(source, t int, free scheduler.Resources, slots int64) bool {
	if f.maxSlots > 0 && slots <= 0 {
		return true
	}
	if f.budget.Unlimited() {
		return false
	}
	for _, name := range f.names[t] {
		if free.Get(name) < f.tasks[t].Requires.Get(name) && f.tasks[source].Requires.Get(name) > 0 {
			return true
		}
	}
	return false
}

// sendAway lets go of those that nobody needs.
func (f *Fleet) sendAway(now, idleTimeout time.Duration, loads []Load, idle []Idle, used []bool, orders []Order) []Order {
	for i := range idle {
		w := &idle[i]
		if used[i] || w.External {
			continue
		}
		switch {
		case f.over(w.Task, loads):
			orders = append(orders, Order{Kind: Release, Why: Over, Ref: w.Ref})
		case !w.Starting && now-w.Since >= idleTimeout:
			orders = append(orders, Order{Kind: Release, Why: TimedOut, Ref: w.Ref})
		}
	}
	return orders
}

// over reports whether every task of a class has ended.
func (f *Fleet) over(task int, loads []Load) bool {
	for t := range loads {
		if f.tasks[t].Class == f.tasks[task].Class && !loads[t].Ended {
			return false
		}
	}
	return true
}
