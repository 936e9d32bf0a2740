package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// RecordExclude: a node is excluded by hand (Final), or may be used again: Final, ID (the node), Text (why), Tail (by whom).
const RecordExclude RecordKind = 17

// An Exclusion is a node that a person does not want used, whatever the task, until it is taken back.
type Exclusion struct {
	Node string
	// By is who wants it, Reason why, "" if nothing was said; both for people.
	By, Reason string
	// Include takes it back.
	Include bool
}

// words says it in one line.
func (x *Exclusion) words() string {
	text := fmt.Sprintf("node %s is excluded by %s", x.Node, x.By)
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	return text
}

// An ExcludedNode is a node that is not used: by hand, or for Task as its workers keep failing there.
type ExcludedNode struct {
	Node       string
	ByHand     bool
	By, Reason string // by hand only
	Task       int32  // unless by hand
}

// Excluded lists the nodes that are not used, by name; those by hand first.
func (e *Engine) Excluded() []ExcludedNode {
	var list []ExcludedNode
	for _, x := range e.excluded {
		list = append(list, ExcludedNode{Node: x.Node, ByHand: true, By: x.By, Reason: x.Reason})
	}
	slices.SortFunc(list, func(a, b ExcludedNode) int { return cmp.Compare(a.Node, b.Node) })
	for i := range e.tasks {
		for _, node := range e.tasks[i].brake.Excluded() {
			list = append(list, ExcludedNode{Node: node, Task: int32(i)})
		}
	}
	return list
}

// CheckExclude says why a node cannot be excluded, or taken back.
func (e *Engine) CheckExclude(x *Exclusion) error {
	was := e.excluded[x.Node]
	switch {
	case e.phase != running:
		return fmt.Errorf("the run is ending: %s", e.why)
	case x.Node == "":
		return errors.New("no node is named")
	case x.Include && was == nil && !e.failsOn(x.Node):
		return fmt.Errorf("node %s is not excluded", x.Node)
	case x.Include:
		return nil
	case was != nil && was.Reason == x.Reason:
		return errors.New(was.words() + ", already")
	case e.cfg.Launcher.OneNode && x.Node == e.cfg.Node:
		return fmt.Errorf("all workers that this run starts run on this machine, %s: without it nothing would run; drain ends the run, stop one worker", x.Node)
	case e.cfg.Launcher.OneNode && e.nodes[x.Node] == 0:
		return fmt.Errorf("no worker has come from node %s, and all workers that this run starts run on this machine, %s; drain ends the run, stop one worker", x.Node, e.cfg.Node)
	}
	return nil
}

// excludedByHand lists the nodes that people have excluded.
func (e *Engine) excludedByHand() []string { return slices.Sorted(maps.Keys(e.excluded)) }

// failsOn reports whether a node is excluded for a task.
func (e *Engine) failsOn(node string) bool {
	for i := range e.tasks {
		if slices.Contains(e.tasks[i].brake.Excluded(), node) {
			return true
		}
	}
	return false
}

// exclude takes in that a node is not to be used from now on, or may be again. Its workers finish what they run.
func (e *Engine) exclude(x *Exclusion) {
	if x == nil || e.CheckExclude(x) != nil {
		return
	}
	e.wantCommit = true
	e.demand.dirty = true
	if x.Include {
		delete(e.excluded, x.Node)
		for i := range e.tasks {
			e.tasks[i].brake.Include(x.Node)
		}
		e.append(Record{Kind: RecordExclude, ID: x.Node, Tail: x.By})
		e.notice("node %s may be used again (%s)", x.Node, x.By)
		e.keepAllOff()
		return
	}
	e.excluded[x.Node] = x
	e.append(Record{Kind: RecordExclude, Final: true, ID: x.Node, Text: x.Reason, Tail: x.By})
	e.notice("%s", x.words())
	e.keepAllOff()
	e.clearNode(x)
}

// clearNode has the workers on an excluded node finish what they run, and leave.
func (e *Engine) clearNode(x *Exclusion) {
	for _, w := range e.live {
		if w.node == x.Node && !w.goes() {
			e.tell(w, toDrain, x.words())
			if w.nonce == 0 || w.session == 0 && w.held == 0 && !w.away {
				e.cancel(w)
			}
		}
	}
}

// clearNodes does so for all nodes that are excluded.
func (e *Engine) clearNodes() {
	for _, node := range e.excludedByHand() {
		e.clearNode(e.excluded[node])
	}
}

// OnNode is how many workers that have not ended are on a node, as far as that is known.
func (e *Engine) OnNode(node string) (n int64) {
	for _, w := range e.live {
		if w.node == node {
			n++
		}
	}
	return n
}

// turnedAway is what a worker of a node that is excluded is told; "" lets it in. One that was asked for is not waited for any
// more, and its end says nothing about the node.
func (e *Engine) turnedAway(w *worker, node string) string {
	x := e.excluded[node]
	if x == nil || w != nil && w.nonce != 0 { // one that comes back brings results, and has been told to go
		return ""
	}
	if w != nil {
		w.node = node
		e.tell(w, toDrain, x.words())
		e.cancel(w)
	}
	return x.words()
}

// notOn lists the nodes on which no worker of a task is to be started.
func (e *Engine) notOn(task int32) []string {
	nodes := e.tasks[task].brake.Excluded()
	for node := range e.excluded {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// excludes takes in that a node was excluded, or taken back.
func (p *Past) excludes(r *Record) {
	if delete(p.exclude, r.ID); !r.Final {
		return
	}
	if p.exclude == nil {
		p.exclude = make(map[string]*Exclusion)
	}
	p.exclude[r.ID] = &Exclusion{Node: r.ID, By: r.Tail, Reason: r.Text}
}

// stillExcluded takes over what earlier epochs of the run have excluded, but for the one node that a launcher has.
func (e *Engine) stillExcluded(was map[string]*Exclusion) {
	for node, x := range was {
		if !e.cfg.Launcher.OneNode || node != e.cfg.Node {
			e.excluded[node] = x
		}
	}
}
