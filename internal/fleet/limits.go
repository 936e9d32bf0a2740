package fleet

import "example.org/daisy/scheduler"

// SetMaxWorkers changes the bound on the slots of a task; 0 = no limit. What is taken stays taken.
func (f *Fleet) SetMaxWorkers(task int, slots int64) { f.tasks[task].MaxWorkers = slots }

// SetTotal changes the budget. What is taken stays taken.
func (f *Fleet) SetTotal(total scheduler.Resources) { f.budget.SetTotal(total) }

// Inherit takes what slots of a task need, even if it is more than there is: they are in use already.
func (f *Fleet) Inherit(task int, slots int64) { f.Give(task, -slots) }
