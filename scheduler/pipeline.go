package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Edge says that blocks of a downstream task wait for blocks of an upstream task, by task id.
type Edge struct{ Upstream, Downstream string }

// Pipeline is tasks and the edges between them: acyclic, checked, immutable. Its tasks are in topological order: each stands
// after everything upstream of it, otherwise in the order given. A task is addressed by its position in that order.
type Pipeline struct {
	tasks    []Task
	edges    []Edge
	up, down [][]int
	index    map[string]int
}

// NewPipeline checks tasks and edges. Refused, all reasons at once, are: ill-formed tasks, duplicate ids, edges that name an
// unknown task, cycles, and edges between tasks of different dimensions. Edges given twice count once.
func NewPipeline(tasks []Task, edges []Edge) (*Pipeline, error) {
	var errs []error
	position := make(map[string]int, len(tasks))
	for i, t := range tasks {
		if err := t.check(); err != nil {
			errs = append(errs, err)
		}
		if _, twice := position[t.ID]; twice {
			errs = append(errs, fmt.Errorf("scheduler: two tasks have the id %q: ids must be unique", t.ID))
			continue
		}
		position[t.ID] = i
	}
	var merged []Edge
	down := make([][]int, len(tasks)) // by position as given
	seen := make(map[Edge]bool, len(edges))
	for _, e := range edges {
		if seen[e] {
			continue
		}
		seen[e] = true
		u, haveUp := position[e.Upstream]
		d, haveDown := position[e.Downstream]
		if !haveUp || !haveDown {
			for _, end := range []struct {
				id   string
				have bool
			}{{e.Upstream, haveUp}, {e.Downstream, haveDown}} {
				if !end.have {
					errs = append(errs, fmt.Errorf("scheduler: edge from %q to %q: there is no task %q", e.Upstream, e.Downstream, end.id))
				}
			}
			continue
		}
		a, b := tasks[u].Grid, tasks[d].Grid
		if a != nil && b != nil && a.Dims() != b.Dims() {
			errs = append(errs, fmt.Errorf("scheduler: edge from %q to %q: one has %d dimensions, the other %d", e.Upstream, e.Downstream, a.Dims(), b.Dims()))
		}
		merged = append(merged, e)
		down[u] = append(down[u], d)
	}
	order, cycle := topological(down)
	if cycle != nil {
		names := make([]string, len(cycle))
		for i, t := range cycle {
			names[i] = tasks[t].ID
		}
		errs = append(errs, fmt.Errorf("scheduler: tasks wait for each other in a circle: %s", strings.Join(names, " -> ")))
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}

	p := &Pipeline{edges: merged, index: make(map[string]int, len(tasks)), up: make([][]int, len(tasks)), down: make([][]int, len(tasks))}
	for i, t := range order {
		p.tasks = append(p.tasks, tasks[t])
		p.index[tasks[t].ID] = i
	}
	for _, e := range merged {
		u, d := p.index[e.Upstream], p.index[e.Downstream]
		p.up[d] = append(p.up[d], u)
		p.down[u] = append(p.down[u], d)
	}
	for i := range p.tasks {
		slices.Sort(p.up[i])
		slices.Sort(p.down[i])
	}
	return p, nil
}

// topological orders positions so that each follows all that lead to it, the lowest possible first. If that cannot be it
// returns one circle instead, its first position repeated at the end.
func topological(down [][]int) (order, cycle []int) {
	waits := make([]int, len(down))
	for _, ds := range down {
		for _, d := range ds {
			waits[d]++
		}
	}
	placed := make([]bool, len(down))
	for len(order) < len(down) {
		next := -1
		for i := range down {
			if !placed[i] && waits[i] == 0 {
				next = i
				break
			}
		}
		if next < 0 {
			return nil, findCycle(down, placed)
		}
		placed[next] = true
		order = append(order, next)
		for _, d := range down[next] {
			waits[d]--
		}
	}
	return order, nil
}

// findCycle walks upstream among the positions not placed, each of which waits for another, until it meets itself.
func findCycle(down [][]int, placed []bool) []int {
	up := make([]int, len(down))
	for u, ds := range down {
		for _, d := range ds {
			if !placed[u] && !placed[d] {
				up[d] = u
			}
		}
	}
	at := slices.Index(placed, false)
	var walk []int
	for {
		if i := slices.Index(walk, at); i >= 0 {
			cycle := append(walk[i:], at)
			slices.Reverse(cycle)
			return cycle
		}
		walk = append(walk, at)
		at = up[at]
	}
}

// Single returns the pipeline of one task, which Sequence, Parallel or New check.
func Single(t Task) *Pipeline {
	return &Pipeline{tasks: []Task{t}, up: make([][]int, 1), down: make([][]int, 1), index: map[string]int{t.ID: 0}}
}

// Sequence puts pipelines one after the other: each last task of one (with nothing downstream) becomes upstream of each first
// task of the next. Pipelines without a task are passed over.
func Sequence(parts ...*Pipeline) (*Pipeline, error) {
	tasks, edges := collect(parts)
	var before *Pipeline
	for _, p := range parts {
		if p == nil || len(p.tasks) == 0 {
			continue
		}
		if before != nil {
			for u := range before.tasks {
				for d := range p.tasks {
					if len(before.down[u]) == 0 && len(p.up[d]) == 0 {
						edges = append(edges, Edge{before.tasks[u].ID, p.tasks[d].ID})
					}
				}
			}
		}
		before = p
	}
	return NewPipeline(tasks, edges)
}

// Parallel puts pipelines side by side, with no edge between them.
func Parallel(parts ...*Pipeline) (*Pipeline, error) {
	return NewPipeline(collect(parts))
}

func collect(parts []*Pipeline) (tasks []Task, edges []Edge) {
	for _, p := range parts {
		if p != nil {
			tasks = append(tasks, p.tasks...)
			edges = append(edges, p.edges...)
		}
	}
	return tasks, edges
}

// Tasks returns the tasks in topological order. The slice is a copy.
func (p *Pipeline) Tasks() []Task { return slices.Clone(p.tasks) }

// Edges returns the edges, each once. The slice is a copy.
func (p *Pipeline) Edges() []Edge { return slices.Clone(p.edges) }

// Upstream returns the tasks that a task waits for, ascending. The slice is a copy.
func (p *Pipeline) Upstream(task int) []int { return slices.Clone(p.up[task]) }

// Downstream returns the tasks that wait for a task, ascending. The slice is a copy.
func (p *Pipeline) Downstream(task int) []int { return slices.Clone(p.down[task]) }

// Index returns the position of the task with an id, -1 if there is none.
func (p *Pipeline) Index(id string) int {
	if i, ok := p.index[id]; ok {
		return i
	}
	return -1
}
