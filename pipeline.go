package daisy

import (
	"errors"
	"fmt"

	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// A Part is a Task or a Pipeline: what pipelines are made of.
type Part interface {
	// graph gives the tasks of the part, and what Sequence and Parallel make of them.
	graph(tasks map[string]Task) (*scheduler.Pipeline, error)
}

// A Pipeline is tasks and the order between them. A block of a task waits for the blocks of its upstream tasks that write
// what it reads. Faults (an id given twice, a circle) are told by Run.
type Pipeline struct {
	parts []Part
	join  func(...*scheduler.Pipeline) (*scheduler.Pipeline, error)
}

// Sequence makes every first task of a part follow every last task of the part before it.
func Sequence(parts ...Part) *Pipeline { return &Pipeline{parts, scheduler.Sequence} }

// Parallel puts parts beside each other, with no order between them.
func Parallel(parts ...Part) *Pipeline { return &Pipeline{parts, scheduler.Parallel} }

func (t Task) graph(tasks map[string]Task) (*scheduler.Pipeline, error) {
	tasks[t.ID] = t
	grid, err := t.grid()
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", t.ID, err)
	}
	return scheduler.Single(scheduler.Task{ID: t.ID, Grid: grid}), nil
}

func (p *Pipeline) graph(tasks map[string]Task) (*scheduler.Pipeline, error) {
	if p.join == nil {
		return nil, errors.New("a Pipeline has no parts: make it with Sequence or Parallel")
	}
	var parts []*scheduler.Pipeline
	var errs []error
	for i, part := range p.parts {
		if absent(part) {
			errs = append(errs, fmt.Errorf("part %d of %d of a Pipeline is nil: give a Task or a Pipeline, or leave it out", i+1, len(p.parts)))
			continue
		}
		g, err := part.graph(tasks)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parts = append(parts, g)
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return p.join(parts...)
}

// absent: the part is nil, or a pointer that is.
func absent(p Part) bool {
	switch p := p.(type) {
	case nil:
		return true
	case *Task:
		return p == nil
	case *Pipeline:
		return p == nil
	default:
		return false
	}
}

// checked makes the tasks of a job, in topological order.
func checked(p Part, needProcess bool) ([]job.Task, map[string]Task, error) {
	if absent(p) {
		return nil, nil, errors.New("there is nothing to run: the part is nil; give a Task or a Pipeline")
	}
	tasks := make(map[string]Task)
	g, err := p.graph(tasks)
	if err != nil {
		return nil, nil, err
	}
	var out []job.Task
	var errs []error
	for _, gt := range g.Tasks() {
		t := tasks[gt.ID]
		jt, err := t.checked(needProcess)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range g.Edges() {
			if e.Downstream == gt.ID {
				jt.After = append(jt.After, e.Upstream)
			}
		}
		out = append(out, jt)
	}
	return out, tasks, errors.Join(errs...)
}
