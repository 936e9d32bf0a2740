package fleet

import "example.org/daisy/scheduler"

// SetMaxWorkers changes the bound on the slots of a task; 0 = no limit. What is taken stays taken.
func (f *Fleet) SetMaxWorkers(task int, slots int64) { f.tasks[task].MaxWorkers = slots }

// MaxWorkers is the bound on the slots of a task; 0 = none.
func (f *Fleet) MaxWorkers(task int) int64 { return f.tasks[task].MaxWorkers }

// SetSlots changes how many slots a worker of a task that is asked for has, from 1.
func (f *Fleet) SetSlots(task int, slots int64) { f.tasks[task].Slots = slots }

// SetTotal changes the budget. What is taken stays taken.
func (f *Fleet) SetTotal(total scheduler.Resources) { f.budget.SetTotal(total) }

// Inherit takes what slots of a task need, even if it is more than there is: they are in use already.
func (f *Fleet) Inherit(task int, slots int64) { f.Give(task, -slots) }
