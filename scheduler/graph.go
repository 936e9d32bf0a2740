package scheduler

import "example.org/daisy/geom"

// Dependencies calls yield with every block that a block of a pipeline waits for: those of its own task's level before, and of each
// upstream task those that write what it reads.
func Dependencies(p *Pipeline, task int, block int64, yield func(task int, block int64)) {
	g := p.tasks[task].Grid
	g.LevelUpstream(block, func(b int64) bool { yield(task, b); return true })
	for _, u := range p.up[task] {
		eachBlock(p.tasks[u].Grid, p.tasks[u].Grid.WriteBlocks(g.ReadRoi(block)), func(b int64) { yield(u, b) })
	}
}

// Dependents calls yield with every block that waits for a block of a pipeline. It is the inverse of Dependencies.
func Dependents(p *Pipeline, task int, block int64, yield func(task int, block int64)) {
	g := p.tasks[task].Grid
	g.LevelDownstream(block, func(b int64) bool { yield(task, b); return true })
	for _, d := range p.down[task] {
		eachBlock(p.tasks[d].Grid, p.tasks[d].Grid.ReadBlocks(g.WriteRoi(block)), func(b int64) { yield(d, b) })
	}
}

// eachBlock calls do with each block of a box in C order.
func eachBlock(g *geom.Grid, b geom.Box, do func(int64)) {
	if b.Empty() {
		return
	}
	at := b.Begin
	for {
		do(g.Flat(at))
		i := g.Dims() - 1
		for ; i >= 0; i-- {
			if at = at.With(i, at.At(i)+1); at.At(i) < b.End.At(i) {
				break
			}
			at = at.With(i, b.Begin.At(i))
		}
		if i < 0 {
			return
		}
	}
}
