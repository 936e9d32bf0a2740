package local

import (
	"slices"
	"sync"
)

// devices gives GPUs out, each to one claim at a time, in the order in which they were asked for.
type devices struct {
	all int // how many there are

	mu    sync.Mutex
	free  []string
	queue []*claim
}

// A claim is n devices, or the wait for them.
type claim struct {
	n       int
	granted chan struct{} // closed when devices is there
	devices []string
}

func (d *devices) ask(n int) *claim {
	c := &claim{n: n, granted: make(chan struct{})}
	if n <= 0 {
		close(c.granted)
		return c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, c)
	d.serve()
	return c
}

// claimed is a claim of devices that are in use already; those that there are not here are left out.
func (d *devices) claimed(names []string) *claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &claim{granted: make(chan struct{})}
	close(c.granted)
	for _, name := range names {
		if i := slices.Index(d.free, name); i >= 0 {
			d.free = slices.Delete(d.free, i, i+1)
			c.devices = append(c.devices, name)
		}
	}
	return c
}

// giveBack ends a claim, granted or not.
func (d *devices) giveBack(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, c.devices...)
	d.queue = slices.DeleteFunc(d.queue, func(q *claim) bool { return q == c })
	d.serve()
}

// serve is called with mu held. A big claim is not overtaken by small ones behind it: it would wait for ever.
func (d *devices) serve() {
	for len(d.queue) > 0 && d.queue[0].n <= len(d.free) {
		c := d.queue[0]
		d.queue = d.queue[1:]
		c.devices = slices.Clone(d.free[:c.n])
		d.free = slices.Delete(d.free, 0, c.n)
		close(c.granted)
	}
}
