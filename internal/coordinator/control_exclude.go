package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/units"
)

// longestNode is how many bytes a name of a node has at most, longestReason the reason to exclude it.
const (
	longestNode   = 255
	longestReason = 400
)

func (c *Coordinator) serveExclude(w http.ResponseWriter, r *http.Request) { c.serveNode(w, r, false) }
func (c *Coordinator) serveInclude(w http.ResponseWriter, r *http.Request) { c.serveNode(w, r, true) }

// serveNode excludes a node, or takes it back. The answer comes when the journal has it, so that no resume forgets it.
func (c *Coordinator) serveNode(w http.ResponseWriter, r *http.Request, include bool) {
	var o api.Order
	c.obey(w, r, &o, func() (api.Done, error) {
		if err := checkNode(o.Node); err != nil {
			return api.Done{}, err
		}
		reason := api.OneLine(o.Reason)
		x := engine.Exclusion{Node: o.Node, By: somebody(o.By), Reason: reason[:min(len(reason), longestReason)], Include: include}
		if err := c.engine.CheckExclude(&x); err != nil {
			return api.Done{}, err
		}
		there := c.engine.OnNode(x.Node)
		kind := api.EventExcluded
		if include {
			kind = api.EventIncluded
		}
		c.events.during(kind, x.Node, func() { c.applyNow(engine.Event{Kind: engine.EventExclude, Exclude: &x}) })
		switch {
		case include:
			return api.Done{Message: fmt.Sprintf("node %s may be used again", x.Node)}, nil
		case there == 0:
			return api.Done{Message: fmt.Sprintf("no worker of this run is used on node %s from now on; none is known to be there", x.Node)}, nil
		default:
			return api.Done{Message: fmt.Sprintf("no worker of this run is used on node %s from now on; %s there, to end what runs and leave", x.Node, has(there))}, nil
		}
	}, func() error { return c.written(r.Context()) })
}

func has(workers int64) string {
	if workers == 1 {
		return "1 worker is told"
	}
	return units.Plural(workers, "worker") + " are told"
}

// checkNode: it is the name of one node, and not a list or a pattern that a batch system would take for many.
func checkNode(name string) error {
	switch {
	case name == "":
		return wrongly("no node is named")
	case len(name) > longestNode || api.OneLine(name) != name || strings.ContainsAny(name, " ,;[]*?\"'`$\\/"):
		return wrongly("%q is not the name of one node; \"daisy-submit workers\" has the names", api.OneLine(name[:min(len(name), longestNode)]))
	}
	return nil
}

func (c *Coordinator) liveExcluded(nodes []engine.ExcludedNode) []api.LiveExcluded {
	list := []api.LiveExcluded{}
	for _, n := range nodes {
		x := api.LiveExcluded{Node: n.Node}
		if n.ByHand {
			x.By, x.Reason = &n.By, value(n.Reason)
		} else {
			x.Task = &c.specs[n.Task].ID
		}
		list = append(list, x)
	}
	return list
}

// A waiter waits until the first records are durable, or never will be; it is told which.
type waiter struct {
	upTo uint64
	told chan<- error // capacity 1
}

var errUnwritten = errors.New("the journal of the run cannot be written, and the run ends")

// wakeWaiters wakes those whose records are durable.
func (c *Coordinator) wakeWaiters() {
	kept := c.waiters[:0]
	for _, w := range c.waiters {
		switch {
		case w.upTo <= c.committed:
			w.told <- nil
		case c.broken:
			w.told <- errUnwritten
		default:
			kept = append(kept, w)
		}
	}
	clear(c.waiters[len(kept):])
	c.waiters = kept
}

// written waits until all records so far are durable.
func (c *Coordinator) written(ctx context.Context) error {
	told := make(chan error, 1)
	err := c.between(ctx, func() {
		c.waiters = append(c.waiters, waiter{c.appended, told})
		c.wakeWaiters()
	})
	if err != nil {
		return err
	}
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.listener.ctx.Done():
		return errOver
	}
}
