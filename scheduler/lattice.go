package scheduler

import (
	"example.org/daisy/geom"
)

// lattice is the arithmetic of one grid in plain numbers: positions of flat indices, and the level scheme of package geom. There are
// at most MaxBlocks blocks, so positions divide in 32 bits, which is several times faster than in 64.
type lattice struct {
	dims   int
	levels bool // blocks of the task wait for each other
	n      int64
	shape  point // blocks per axis
	step   point // flat distance of neighbours
	stride point // blocks per axis after which levels repeat
}

func newLattice(g *geom.Grid) lattice {
	l := lattice{dims: g.Dims(), n: g.Len(), levels: g.Levels() > 1}
	step := int64(1)
	for i := l.dims - 1; i >= 0; i-- {
		l.shape[i], l.step[i], l.stride[i] = g.Shape().At(i), step, g.LevelStride().At(i)
		step *= max(1, l.shape[i])
	}
	return l
}

// position writes the grid position of a block to k.
func (l *lattice) position(block int64, k *point) {
	last, rest := l.dims-1, uint32(block)
	for i := range last {
		q := rest / uint32(l.step[i])
		k[i] = int64(q)
		rest -= q * uint32(l.step[i])
	}
	k[last] = int64(rest)
}

// offset returns the offset of a position within the stride of an axis.
func (l *lattice) offset(i int, k int64) int64 {
	s := l.stride[i]
	if s&(s-1) == 0 {
		return k & (s - 1)
	}
	return int64(uint32(k) % uint32(s))
}

// first reports whether a position is of level 0: at the highest offset on each axis.
func (l *lattice) first(k *point) bool {
	if l.levels {
		for i := range l.dims {
			if l.offset(i, k[i]) != l.stride[i]-1 {
				return false
			}
		}
	}
	return true
}

// level returns the level of a position.
func (l *lattice) level(k *point) int {
	flat, all := int64(0), int64(1)
	for i := range l.dims {
		flat = flat*l.stride[i] + l.offset(i, k[i])
		all *= l.stride[i]
	}
	return int(all - 1 - flat)
}

// family is up to 2^MaxDims blocks.
type family [1 << geom.MaxDims]int64

// waitsFor writes the blocks of the level before that the block at k waits for, and returns how many. The level before is the next
// offset in C order: on the axes from the last to the first that is not at its highest offset, each the nearest two.
func (l *lattice) waitsFor(block int64, k *point, out *family) int {
	return l.nearest(block, k, 1, out)
}

// leadsTo writes the blocks of the next level that wait for the block at k; the inverse of waitsFor.
func (l *lattice) leadsTo(block int64, k *point, out *family) int {
	return l.nearest(block, k, -1, out)
}

// nearest steps the level offset by d, 1 or -1, and writes the nearest blocks there: k+d, and k+d a stride back, on each axis
// whose offset changes.
func (l *lattice) nearest(block int64, k *point, d int64, out *family) int {
	if !l.levels {
		return 0
	}
	out[0] = block
	n := 1
	for i := l.dims - 1; i >= 0; i-- {
		s := l.stride[i]
		if s == 1 {
			continue
		}
		near, far := k[i]+d, k[i]+d-d*s
		step := l.step[i]
		nearIn := uint64(near) < uint64(l.shape[i])
		farIn := uint64(far) < uint64(l.shape[i])
		switch {
		case nearIn && farIn:
			for j := range n {
				b := out[j]
				out[j] = b + d*step
				out[n+j] = b + (d-d*s)*step
			}
			n *= 2
		case nearIn:
			for j := range n {
				out[j] += d * step
			}
		default: // a grid is at least a stride wide, so one of the two is inside
			for j := range n {
				out[j] += (d - d*s) * step
			}
		}
		r := l.offset(i, k[i])
		if d > 0 && r < s-1 || d < 0 && r > 0 {
			return n
		}
	}
	return 0 // all axes wrapped around: there is no such level
}

// countWaitsFor returns the number of blocks that waitsFor writes.
func (l *lattice) countWaitsFor(k *point) int64 {
	if !l.levels {
		return 0
	}
	n := int64(1)
	for i := l.dims - 1; i >= 0; i-- {
		s := l.stride[i]
		if s == 1 {
			continue
		}
		if k[i]+1 < l.shape[i] && k[i]+1-s >= 0 {
			n *= 2
		}
		if l.offset(i, k[i]) < s-1 {
			return n
		}
	}
	return 0
}

// along moves k n positions along its row of a box, from the end of the row to the begin of the next one, and reports whether it
// is inside the box then.
func (l *lattice) along(b *box, k *point, n int64) bool {
	last := l.dims - 1
	if k[last] += n; k[last] < b.hi[last] {
		return true
	}
	k[last] = b.lo[last]
	for i := last - 1; i >= 0; i-- {
		if k[i]++; k[i] < b.hi[i] {
			return true
		}
		k[i] = b.lo[i]
	}
	return false
}

// back moves k to the position before it in a box, and reports whether there is one.
func (l *lattice) back(b *box, k *point) bool {
	for i := l.dims - 1; i >= 0; i-- {
		if k[i]--; k[i] >= b.lo[i] {
			return true
		}
		k[i] = b.hi[i] - 1
	}
	return false
}

// lastBefore sets k to the last position of a box whose block is below end, and reports whether there is one.
func (l *lattice) lastBefore(b *box, end int64, k *point) bool {
	for i := range l.dims {
		k[i] = b.hi[i] - 1
	}
	if l.flat(k) < end {
		return true
	}
	if end == 0 {
		return false
	}
	var p point
	l.position(end-1, &p)
	for i := range l.dims {
		if p[i] >= b.hi[i] {
			return true
		}
		if p[i] < b.lo[i] { // the begin of what is too far
			for j := i; j < l.dims; j++ {
				k[j] = b.lo[j]
			}
			return l.back(b, k)
		}
		k[i] = p[i]
	}
	return true
}

// flat returns the block at k.
func (l *lattice) flat(k *point) int64 {
	f := int64(0)
	for i := range l.dims {
		f += k[i] * l.step[i]
	}
	return f
}
