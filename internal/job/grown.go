package job

import (
	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// Grown says which blocks of each task of p are what they were when its grid was before[task], of which the task's has grown: they read and write
// the same, and so do all that they were made from. A nil grid stands for a task that did not exist. The others are to be done again.
func Grown(p *scheduler.Pipeline, before []*geom.Grid) []scheduler.Bitmap {
	tasks := p.Tasks() // each after those that it needs
	same := make([]scheduler.Bitmap, len(tasks))
	for i := range tasks {
		g := tasks[i].Grid
		same[i] = scheduler.NewBitmap(g.Len())
		for b := range g.Len() {
			if before[i] != nil && stayed(g, before[i], b) {
				same[i].Set(b)
			}
		}
	}
	for i := range tasks {
		g := tasks[i].Grid
		for b := range g.Len() {
			if !same[i].Get(b) {
				spread(g, b, same[i])
			}
		}
		for b := range g.Len() {
			if !same[i].Get(b) {
				scheduler.Dependents(p, i, b, func(task int, b int64) {
					if task != i {
						same[task].Clear(b)
					}
				})
			}
		}
	}
	return same
}

// spread takes out of same the blocks of a task with conflicts that ran after a changed block of it and read what that wrote, and so on.
func spread(g *geom.Grid, changed int64, same scheduler.Bitmap) {
	if g.Levels() == 1 {
		return
	}
	for changed := []int64{changed}; len(changed) > 0; {
		from := changed[len(changed)-1]
		changed = changed[:len(changed)-1]
		box := g.ReadBlocks(g.WriteRoi(from))
		for n := range box.Len() {
			at, rest := box.Begin, n
			for axis := g.Dims() - 1; axis >= 0; axis-- {
				size := box.End.At(axis) - box.Begin.At(axis)
				at = at.With(axis, at.At(axis)+rest%size)
				rest /= size
			}
			if b := g.Flat(at); same.Get(b) && g.Level(b) > g.Level(from) {
				same.Clear(b)
				changed = append(changed, b)
			}
		}
	}
}

// stayed reports whether a block of now was one of before, and what it read is what it was. Beyond the edge of what its task wrote there
// may have been nothing, which user code makes up for somehow; where that edge has moved, there is something now.
func stayed(now, before *geom.Grid, block int64) bool {
	read, write := now.ReadRoi(block), now.WriteRoi(block)
	box := before.WriteBlocks(write)
	if box.Empty() {
		return false
	}
	at := before.Flat(box.Begin)
	if before.WriteRoi(at) != write {
		return false
	}
	if now.LevelStride() != before.LevelStride() || now.Level(block) != before.Level(at) {
		return false // its neighbours do not run in the order that they had
	}
	is, was := now.TotalWrite(), before.TotalWrite()
	for axis := range now.Dims() {
		if is.Begin().At(axis) != was.Begin().At(axis) && read.Begin().At(axis) < was.Begin().At(axis) ||
			is.End().At(axis) != was.End().At(axis) && read.End().At(axis) > was.End().At(axis) {
			return false
		}
	}
	return true
}
