package geom

// Levels order the blocks of a task with read_write_conflict. On each axis blocks repeat every LevelStride blocks, far enough
// apart not to touch: stride = ceil((max(low, high) + w) / w) with context low and high and write shape w, at most the
// grid's. The offset of a block within the stride is its level, numbered in reversed C order: level 0 has the highest offsets.
// A block waits for the nearest blocks, one or two per axis, of the level before. Without conflict there is one level.

// Levels returns the number of levels, at least 1.
func (g *Grid) Levels() int { return g.levels }

// LevelStride returns the number of blocks on each axis after which levels repeat, at least 1.
func (g *Grid) LevelStride() Coordinate { return g.stride }

// Level returns the level of a block, in [0, Levels()).
func (g *Grid) Level(block int64) int {
	c, flat := g.Index(block), int64(0)
	for i := range g.dims {
		flat = flat*g.stride.v[i] + c.v[i]%g.stride.v[i]
	}
	return g.levels - 1 - int(flat)
}

// LevelOffset returns the offset within the stride of the blocks of a level in [0, Levels()).
func (g *Grid) LevelOffset(level int) Coordinate {
	c, flat := g.stride, int64(g.levels-1-level)
	for i := g.dims - 1; i >= 0; i-- {
		c.v[i] = flat % g.stride.v[i]
		flat /= g.stride.v[i]
	}
	return c
}

// LevelUpstream calls yield with each block of its own grid that a block waits for, in C order, until it returns false.
func (g *Grid) LevelUpstream(block int64, yield func(block int64) bool) {
	if level := g.Level(block); level > 0 {
		g.nearest(block, g.LevelOffset(level-1), yield)
	}
}

// LevelDownstream calls yield with each block of its own grid that waits for a block; it is the inverse of LevelUpstream.
func (g *Grid) LevelDownstream(block int64, yield func(block int64) bool) {
	if level := g.Level(block); level+1 < g.levels {
		g.nearest(block, g.LevelOffset(level+1), yield)
	}
}

// nearest visits the blocks with the given offset within the stride that are less than a stride away on each axis.
func (g *Grid) nearest(block int64, offset Coordinate, yield func(int64) bool) {
	at := g.Index(block)
	var choice [MaxDims][2]int64
	var count [MaxDims]int
	for i := range g.dims {
		s := g.stride.v[i]
		d := offset.v[i] - at.v[i]%s
		switch {
		case d > 0:
			choice[i] = [2]int64{at.v[i] + d - s, at.v[i] + d}
		case d < 0:
			choice[i] = [2]int64{at.v[i] + d, at.v[i] + d + s}
		default:
			choice[i][0] = at.v[i]
		}
		count[i] = 1
		if d != 0 {
			count[i] = 2
		}
	}
	var turn [MaxDims]int
	c := at
	for {
		for i := range g.dims {
			c.v[i] = choice[i][turn[i]]
		}
		if flat := g.Flat(c); flat >= 0 && !yield(flat) {
			return
		}
		i := g.dims - 1
		for ; i >= 0; i-- {
			if turn[i]++; turn[i] < count[i] {
				break
			}
			turn[i] = 0
		}
		if i < 0 {
			return
		}
	}
}
