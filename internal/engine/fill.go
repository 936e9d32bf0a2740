package engine

import "example.org/daisy/scheduler"

// A worker of a task that fills is asked for with one slot, and finds out at its join how many what it was given holds. From then on workers
// of its class are expected to get as many, so that no more of them are asked for than it takes; the first one comes alone.

// slotsFor is how many slots a launched worker has that joins: as many as it says, or, if it can have more, as many as its grant holds and
// the budget and max_workers have room for, but at least one. One that a coordinator before has told, and that the journal does not know, has
// them already.
func (e *Engine) slotsFor(w *worker, j *Join) int32 {
	if w.sub == nil || !j.Fill {
		return int32(j.Slots)
	}
	holds := slotsIn(e.tasks[w.task].spec.Requires, j.Grant)
	e.expect(w.task, holds)
	if j.Slots > 1 {
		return int32(j.Slots)
	}
	more := min(holds-int64(w.slots), e.fleet.Room(int(w.task))) // of room there may be more than can be added to
	return int32(max(int64(w.slots)+more, 1))
}

// fillsUnknown reports whether workers of a class fill what they are given, and it is not known yet how many slots that is. Several that are asked
// for then share between them what may be less than one of them could have, and nobody uses the rest of their nodes.
func (e *Engine) fillsUnknown(class int) bool {
	for i := range e.tasks {
		if t := &e.tasks[i]; t.class == class && t.spec.Fill {
			return e.book != nil && !e.classes[class].holds
		}
	}
	return false
}

// slotsIn is how many slots are in what a worker was given, from 1. What is not known of it holds any number; if nothing is, it is 1.
func slotsIn(each scheduler.Resources, g Grant) int64 {
	most := int64(maxSlots + 1)
	for name, have := range map[string]int64{"cpu": g.CPUMilli, "memory": g.MemoryBytes, "gpu": g.GPUs * 1000} {
		if need := each.Get(name); need > 0 && have > 0 {
			most = min(most, have/need)
		}
	}
	if most > maxSlots {
		return 1
	}
	return max(most, 1)
}

// expect has workers of a task's class counted with so many slots when they are asked for.
func (e *Engine) expect(task int32, slots int64) {
	if e.book != nil {
		e.classes[e.tasks[task].class].holds = true
	}
	for i := range e.tasks {
		if t := &e.tasks[i]; t.class == e.tasks[task].class && t.spec.Fill {
			e.fleet.SetSlots(i, slots)
		}
	}
}
