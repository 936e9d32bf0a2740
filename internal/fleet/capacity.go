package fleet

import (
	"cmp"
	"math"
	"slices"

	"example.org/daisy/scheduler"
)

// A Task is what the fleet knows of a task. Only MaxWorkers and Slots change, with SetMaxWorkers and SetSlots.
type Task struct {
	// Requires is what one slot needs.
	Requires scheduler.Resources
	// Slots is how many slots a worker of this task has, from 1.
	Slots int64
	// MaxWorkers bounds the slots of the task; 0 = no limit.
	MaxWorkers int64
	// Priority: higher goes first. When equal, the deeper one does: Depth is how many tasks are upstream of it in a row.
	Priority, Depth int
	// Class is equal for tasks between which a worker may move. See Classes.
	Class int
}

// A Fleet holds what is taken of the budget and by which task. Everything that is asked for counts from the moment that it
// is asked for until it has ended for certain.
type Fleet struct {
	tasks    []Task
	order    []int // of tasks, in the order in which they get free budget
	names    [][]string
	budget   *scheduler.Budget
	maxSlots int64
	taken    []int64 // slots by task
	total    int64   // slots
}

// New returns a fleet without a worker. Tasks are in topological order, and addressed by position. maxSlots bounds the slots
// of all tasks together; 0 = no limit.
func New(tasks []Task, budget *scheduler.Budget, maxSlots int64) *Fleet {
	f := &Fleet{tasks: tasks, budget: budget, maxSlots: maxSlots, taken: make([]int64, len(tasks))}
	for i := range tasks {
		f.order = append(f.order, i)
		f.names = append(f.names, tasks[i].Requires.Names())
	}
	slices.SortStableFunc(f.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(tasks[b].Priority, tasks[a].Priority), cmp.Compare(tasks[b].Depth, tasks[a].Depth))
	})
	return f
}

// Order returns the tasks in the order in which they get free budget. The slice belongs to the fleet.
func (f *Fleet) Order() []int { return f.order }

// Slots returns how many slots a task has taken.
func (f *Fleet) Slots(task int) int64 { return f.taken[task] }

// Total returns how many slots are taken.
func (f *Fleet) Total() int64 { return f.total }

// Budget returns what is taken of what. It is the fleet's own: only to be read.
func (f *Fleet) Budget() *scheduler.Budget { return f.budget }

// Take takes what slots slots of a task need, all or nothing, and reports whether it was there.
func (f *Fleet) Take(task int, slots int64) bool {
	if f.limits(task) < slots {
		return false
	}
	// An unlimited budget is not counted: with it this stays free of allocation.
	if !f.budget.Unlimited() && !f.budget.Take(f.tasks[task].Requires.Times(slots)) {
		return false
	}
	f.taken[task] += slots
	f.total += slots
	return true
}

// Give gives back what Take took.
func (f *Fleet) Give(task int, slots int64) {
	if !f.budget.Unlimited() {
		f.budget.Give(f.tasks[task].Requires.Times(slots))
	}
	f.taken[task] -= slots
	f.total -= slots
}

// Move hands slots of one task to another that requires the same, and reports whether its max_workers allows it.
func (f *Fleet) Move(from, to int, slots int64) bool {
	if m := f.tasks[to].MaxWorkers; m > 0 && f.taken[to]+slots > m {
		return false
	}
	f.taken[from] -= slots
	f.taken[to] += slots
	return true
}

// Room returns how many more slots a task could take now.
func (f *Fleet) Room(task int) int64 {
	return min(f.limits(task), f.fits(task, f.budget.Free()))
}

// limits is Room without the budget.
func (f *Fleet) limits(task int) int64 {
	room := int64(math.MaxInt64)
	if m := f.tasks[task].MaxWorkers; m > 0 {
		room = m - f.taken[task]
	}
	if f.maxSlots > 0 {
		room = min(room, f.maxSlots-f.total)
	}
	return max(room, 0)
}

// fits is how many slots of a task are in an amount of resources.
func (f *Fleet) fits(task int, free scheduler.Resources) int64 {
	if f.budget.Unlimited() {
		return math.MaxInt64
	}
	room := int64(math.MaxInt64)
	for _, name := range f.names[task] {
		if !free.Has(name) {
			return 0
		}
		if each := f.tasks[task].Requires.Get(name); each > 0 {
			room = min(room, free.Get(name)/each)
		}
	}
	return max(room, 0)
}
