package fleet

import (
	"fmt"
	"slices"
	"strings"

	"example.org/daisy/launcher"
)

const (
	perNode      = 3 // ends of one node that count
	excludeAfter = 2 // ends in a row after which a node is excluded
	lastEnds     = 5 // ends that the message names one by one
)

// A Brake stops a task whose workers end before they return anything, however often they are started again. It counts ends
// in a row over all workers of the task; a valid return sets it to zero.
type Brake struct {
	limit   int
	oneNode bool
	count   int
	nodes   map[string]*nodeCount
	ends    []BadEnd // the last ones
	words   map[string]int
}

type nodeCount struct{ counted, inARow int }

// A BadEnd is a worker that ended by itself, by a signal that was not ours, or never connected, before any valid return.
type BadEnd struct {
	Worker, Node string
	// Word says how: "exit status 1", "signal 9", "never connected".
	Word string
	// Last is the last thing that it said, "" if it said nothing.
	Last string
}

// NewBrake returns a brake that trips at limit ends. With oneNode, ends are not told apart by node and none is excluded.
func NewBrake(limit int, oneNode bool) *Brake {
	return &Brake{limit: max(limit, 1), oneNode: oneNode, nodes: make(map[string]*nodeCount), words: make(map[string]int)}
}

// Counts reports whether an end counts, given whether the worker was told to leave by us. Time limits, preemption, node
// failures and a lack of memory are nobody's bug.
func Counts(end launcher.End) bool {
	if end.Ours {
		return false
	}
	switch end.Cause {
	case launcher.Exited, launcher.Signalled, launcher.NeverStarted:
		return true
	default:
		return false
	}
}

// Word says in words how a worker ended.
func Word(end launcher.End) string {
	word := end.Cause.String()
	switch end.Cause {
	case launcher.Exited:
		if word = "by itself"; end.Exit >= 0 {
			word = fmt.Sprintf("exit status %d", end.Exit)
		}
	case launcher.Signalled:
		word = fmt.Sprintf("signal %d", end.Signal)
	}
	if end.Detail != "" {
		word += " (" + end.Detail + ")"
	}
	return word
}

// Bad counts an end, and reports whether its node is excluded by it.
func (b *Brake) Bad(end BadEnd) (excluded bool) {
	if len(b.ends) == lastEnds {
		b.ends = slices.Delete(b.ends, 0, 1)
	}
	b.ends = append(b.ends, end)
	b.words[end.Word]++
	if b.oneNode || end.Node == "" {
		b.count++
		return false
	}
	n := b.nodes[end.Node]
	if n == nil {
		n = new(nodeCount)
		b.nodes[end.Node] = n
	}
	if n.counted < perNode {
		n.counted++
		b.count++
	}
	n.inARow++
	return n.inARow == excludeAfter
}

// Good notes a valid return of a worker on a node. An excluded node stays excluded.
func (b *Brake) Good(node string) {
	if len(b.nodes) == 0 && b.count == 0 {
		return // nearly always
	}
	if n := b.nodes[node]; n != nil && n.inARow < excludeAfter {
		n.inARow = 0
	}
	if b.count == 0 && len(b.ends) == 0 {
		return
	}
	b.count, b.ends = 0, b.ends[:0]
	clear(b.words)
	for _, n := range b.nodes {
		n.counted = 0
	}
}

// Tripped reports whether submissions for the task are to stop.
func (b *Brake) Tripped() bool { return b.count >= b.limit }

// Ends returns how many ends count at the moment.
func (b *Brake) Ends() int { return b.count }

// Excluded returns the nodes that are not to be used, sorted.
func (b *Brake) Excluded() []string {
	var names []string
	for name, n := range b.nodes {
		if n.inARow >= excludeAfter {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Include lets a node be used again until workers fail on it anew. What has counted stays counted.
func (b *Brake) Include(node string) {
	if n := b.nodes[node]; n != nil {
		n.inARow = 0
	}
}

// Message says what happened: how often workers ended how, where, whose logs to read and what they said last.
func (b *Brake) Message() string {
	words := make([]string, 0, len(b.words))
	total := 0
	for word, n := range b.words {
		words = append(words, fmt.Sprintf("%d × %s", n, word))
		total += n
	}
	slices.Sort(words)
	var s strings.Builder
	who := "1 worker ended before it"
	if total != 1 {
		who = fmt.Sprintf("%d workers ended before they", total)
	}
	fmt.Fprintf(&s, "%s returned anything: %s", who, strings.Join(words, ", "))
	var nodes, workers []string
	last := ""
	for _, e := range b.ends {
		if e.Node != "" && !slices.Contains(nodes, e.Node) {
			nodes = append(nodes, e.Node)
		}
		if e.Worker != "" {
			workers = append(workers, e.Worker)
		}
		if e.Last != "" {
			last = e.Last
		}
	}
	if len(nodes) > 0 {
		fmt.Fprintf(&s, "; on %s", strings.Join(nodes, ", "))
	}
	if len(workers) > 0 {
		fmt.Fprintf(&s, "; see the logs of %s", strings.Join(workers, ", "))
	}
	if last != "" {
		fmt.Fprintf(&s, "; the last one said: %s", last)
	}
	return s.String()
}
