package sim

import (
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// Cause is what a block waited for last.
type Cause uint8

const (
	// ByWorker: it was ready, and began as the block before it left its slot. More workers would have begun it earlier.
	ByWorker Cause = iota
	// ByNeed: workers waited for it; it began when the last block had ended that it needed.
	ByNeed
	// ByStart: it is the first block of a worker, which was waited for.
	ByStart
	// ByRetry: it began when an attempt before had ended badly.
	ByRetry
)

// A Path is a chain of blocks of which each could begin when the one before it had ended: what the time of a run is made of.
type Path struct {
	// Tasks are in the order of the pipeline. Before is the time in which none of its blocks ran: that for workers to come,
	// and a little between blocks.
	Tasks  []PathTask
	Before time.Duration
	// Latest are its last blocks, at most pathSteps, oldest first.
	Latest []Step

	end time.Duration
}

// PathTask is what a task adds to a path.
type PathTask struct {
	Blocks int64
	Time   time.Duration
	// By divides Blocks by what they waited for.
	By [4]int64
}

// Step is one block of a path.
type Step struct {
	Task    int32
	Block   int64
	Attempt int32
	Began   time.Duration
	Took    time.Duration
	By      Cause
}

// By is how many of its blocks waited for something.
func (p *Path) By(c Cause) (n int64) {
	for i := range p.Tasks {
		n += p.Tasks[i].By[c]
	}
	return n
}

const (
	// pathSteps is how many steps a path remembers one by one.
	pathSteps = 6
	// recentEnds is among how many ends of blocks the one is looked for that a waiting block needed.
	recentEnds = 64
)

// copyFrom makes it another one's copy, in its own memory.
func (p *Path) copyFrom(from *Path) {
	p.Before, p.end = from.Before, from.end
	p.Tasks = append(p.Tasks[:0], from.Tasks...)
	p.Latest = append(p.Latest[:0], from.Latest...)
}

// paths follow, for each slot, what its block waited for. So the memory does not grow with the blocks: what is behind is added up.
type paths struct {
	tasks    []scheduler.Task
	upstream [][]bool // by task, of tasks
	recent   [recentEnds]recentEnd
	next     int
	last     Path // that of the block that ended last
}

type recentEnd struct {
	there bool
	task  int32
	block int64
	path  Path
}

func (p *paths) init(pipeline *scheduler.Pipeline) {
	p.tasks = pipeline.Tasks()
	for i := range p.tasks {
		up := make([]bool, len(p.tasks))
		for _, u := range pipeline.Upstream(i) {
			up[u] = true
		}
		p.upstream = append(p.upstream, up)
	}
	p.last.Tasks = make([]PathTask, len(p.tasks))
}

// begin is where the path of a new worker begins: it is there since something had ended, or since the begin.
func (p *paths) begin(path *Path) { path.copyFrom(&p.last) }

// follow goes on with a block that begins in a slot now.
func (p *paths) follow(s *crewSlot, h scheduler.Handout, now time.Duration) {
	by := ByWorker
	switch {
	case s.run == 0:
		by = ByStart
	case s.free == now:
	default:
		if e := p.cause(h); e != nil {
			by = ByNeed
			if e.task == h.Task && e.block == h.Block {
				by = ByRetry
			}
			s.path.copyFrom(&e.path)
		} else if h.Attempt > 1 {
			by = ByRetry
		}
	}
	if n := len(s.path.Latest); n == pathSteps {
		copy(s.path.Latest, s.path.Latest[1:])
		s.path.Latest = s.path.Latest[:n-1]
	}
	s.path.Before += now + Turnaround - s.path.end
	s.path.Latest = append(s.path.Latest, Step{Task: h.Task, Block: h.Block, Attempt: h.Attempt, Began: now + Turnaround, By: by})
	s.path.Tasks[h.Task].By[by]++
}

// cause is the latest of the recent ends that the block waited for.
func (p *paths) cause(h scheduler.Handout) *recentEnd {
	g := p.tasks[h.Task].Grid
	read, write := g.ReadRoi(h.Block), g.WriteRoi(h.Block)
	for i := range p.recent {
		e := &p.recent[(p.next-1-i+2*recentEnds)%recentEnds]
		if !e.there {
			break
		}
		if p.needs(h, e, read, write) {
			return e
		}
	}
	return nil
}

// needs reports whether a block had to wait for another: one of a task before it, one beside it that reads or writes the same, or itself.
func (p *paths) needs(h scheduler.Handout, e *recentEnd, read, write geom.Roi) bool {
	g := p.tasks[e.task].Grid
	switch {
	case p.upstream[h.Task][e.task]:
		return g.WriteRoi(e.block).Intersects(read)
	case e.task != h.Task:
		return false
	case e.block == h.Block:
		return true
	}
	return g.Levels() > 1 && (g.WriteRoi(e.block).Intersects(read) || g.ReadRoi(e.block).Intersects(write))
}

// ended goes on with the end of the block of a slot.
func (p *paths) ended(s *crewSlot, now time.Duration) {
	step := &s.path.Latest[len(s.path.Latest)-1]
	began := min(step.Began, now)
	s.path.Before -= step.Began - began // it was ended before it began
	step.Began, step.Took = began, now-began
	s.path.Tasks[s.h.Task].Blocks++
	s.path.Tasks[s.h.Task].Time += step.Took
	s.path.end = now
	e := &p.recent[p.next]
	p.next = (p.next + 1) % recentEnds
	e.there, e.task, e.block = true, s.h.Task, s.h.Block
	e.path.copyFrom(&s.path)
	p.last.copyFrom(&s.path)
}
