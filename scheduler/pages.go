package scheduler

// pages is an array that grows without moving what it holds: it takes little more memory than it needs, and no call long.
type pages[T any] struct {
	all []*[pageLen]T
	n   int
}

const pageLen = 1024

func (p *pages[T]) at(i uint) *T { return &p.all[i/pageLen][i%pageLen] }

// add makes room for one more and returns its index.
func (p *pages[T]) add() int {
	if p.n == len(p.all)*pageLen {
		p.all = append(p.all, new([pageLen]T))
	}
	p.n++
	return p.n - 1
}
