package job

import (
	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// Grown says which blocks of each task of p are what they were when its grid was before[task], of which the task's has grown: they read and write
// the same, and so do all that they were made from. A nil grid stands for a task that did not exist. The others are to be done again.
func Grown(p *scheduler.Pipeline, before []*geom.Grid) []scheduler.Bitmap {
	tasks := p.Tasks()
	same := make([]scheduler.Bitmap, len(tasks))
	type place struct {
		task  int
		block int64
	}
	var changed []place
	for i := range tasks {
		g := tasks[i].Grid
		same[i] = scheduler.NewBitmap(g.Len())
		for b := range g.Len() {
			if before[i] != nil && stayed(g, before[i], b) {
				same[i].Set(b)
			} else {
				changed = append(changed, place{i, b})
			}
		}
	}
	for len(changed) > 0 {
		from := changed[len(changed)-1]
		changed = changed[:len(changed)-1]
		eachReader(p, from.task, from.block, func(task int, block int64) {
			if same[task].Get(block) {
				same[task].Clear(block)
				changed = append(changed, place{task, block})
			}
		})
	}
	return same
}

// eachReader calls yield with every block that reads what a block writes, after it: those of downstream tasks, and those of its own task that
// wait for it since they conflict.
func eachReader(p *scheduler.Pipeline, from int, block int64, yield func(task int, block int64)) {
	scheduler.Dependents(p, from, block, func(task int, b int64) {
		if task != from {
			yield(task, b)
		}
	})
	g := p.Tasks()[from].Grid
	if g.Levels() == 1 {
		return
	}
	box := g.ReadBlocks(g.WriteRoi(block))
	for n := range box.Len() {
		at, rest := box.Begin, n
		for axis := g.Dims() - 1; axis >= 0; axis-- {
			size := box.End.At(axis) - box.Begin.At(axis)
			at = at.With(axis, at.At(axis)+rest%size)
			rest /= size
		}
		if b := g.Flat(at); g.Level(b) > g.Level(block) {
			yield(from, b)
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
