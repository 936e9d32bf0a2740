package scheduler

// Budget is what a run may use at once, and what of it is taken. It is not safe for concurrent use.
type Budget struct {
	total     Resources
	used      Resources
	unlimited bool
}

// NewBudget returns a budget of which nothing is taken. An unlimited one grants everything and still counts what is taken.
func NewBudget(total Resources, unlimited bool) *Budget {
	return &Budget{total: total, unlimited: unlimited}
}

// Take takes an amount, all or nothing, and reports whether it was there. Something required that the budget does not name is
// never there.
func (b *Budget) Take(r Resources) bool {
	if !b.unlimited && !r.Fits(b.Free()) {
		return false
	}
	b.used = b.used.Add(r)
	return true
}

// Give gives back what Take took.
func (b *Budget) Give(r Resources) { b.used = b.used.Sub(r) }

// Free returns what is left: of an unlimited budget the zero value, and negative amounts where more is taken than SetTotal left.
func (b *Budget) Free() Resources {
	if b.unlimited {
		return Resources{}
	}
	free := b.total
	for _, a := range b.used.amounts {
		if b.total.Has(a.name) { // Free names what the budget names: another name must not seem to be there
			free = free.Sub(Resources{[]amount{a}})
		}
	}
	return free
}

// SetTotal changes the size of a budget; what is taken stays taken, even if it is more than the new total.
func (b *Budget) SetTotal(total Resources) { b.total = total }

// Total returns the size of the budget.
func (b *Budget) Total() Resources { return b.total }

// Used returns what is taken.
func (b *Budget) Used() Resources { return b.used }

// Unlimited reports whether the budget grants everything.
func (b *Budget) Unlimited() bool { return b.unlimited }
