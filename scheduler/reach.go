package scheduler

import "example.org/daisy/geom"

// point is a grid position, or one number per axis; axes past the grid's are 0.
type point = [geom.MaxDims]int64

// box is the grid positions [lo, hi) on each axis.
type box struct{ lo, hi point }

// axisReach maps a position on an axis of one grid to the range of positions on that axis of another grid that it touches. The
// position k spans [mul*k + from, mul*k + to) of the volume, clipped to [first, last). Position j of the other grid is touched
// when div*j + after > begin of that span and div*j + before < its end.
type axisReach struct {
	mul, from, to int64
	first, last   int64
	div           int64
	before, after int64
	n             int64 // positions of the other grid
	// Where both grids have the same step, positions in [safeLo, safeHi) touch [k + addLo, k + addHi): no clipping, no division.
	safeLo, safeHi int64
	addLo, addHi   int64
}

// at returns the range [lo, hi) that k touches; lo >= hi if none.
func (r *axisReach) at(k int64) (lo, hi int64) {
	if k >= r.safeLo && k < r.safeHi {
		return k + r.addLo, k + r.addHi
	}
	return r.span(r.mul*k+r.from, r.mul*k+r.to)
}

// span returns the range that an interval of the volume touches.
func (r *axisReach) span(begin, end int64) (lo, hi int64) {
	begin, end = max(begin, r.first), min(end, r.last)
	if begin >= end {
		return 0, 0
	}
	if begin >= r.after {
		lo = int64(uint64(begin-r.after) / uint64(r.div))
	}
	// div*j + before < end: j below the quotient rounded up. Clipping to first made the dividend positive.
	hi = int64(uint64(end-r.before+r.div-1) / uint64(r.div))
	return lo, min(hi, r.n)
}

// settle fills in the part of the reach that needs no division; positions is the number on the axis of the grid it leads from.
func (r *axisReach) settle(positions int64) {
	r.safeHi = 0
	if r.mul != r.div || positions == 0 {
		return
	}
	r.addLo = floorDiv(r.from-r.after, r.div)
	r.addHi = -floorDiv(r.before-r.to, r.div)
	// Unclipped: mul*k + from >= first, mul*k + to <= last, k + addLo >= 0, k + addHi <= n.
	r.safeLo = max(0, -r.addLo, -floorDiv(r.from-r.first, r.mul))
	r.safeHi = min(positions, r.n-r.addHi+1, floorDiv(r.last-r.to, r.mul)+1)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// edge is the dependency of one task on another: which blocks of the one write what a block of the other reads.
type edge struct {
	up, down int // tasks
	dims     int
	toUp     [geom.MaxDims]axisReach // from what a downstream block reads to who writes it
	toDown   [geom.MaxDims]axisReach // from what an upstream block writes to who reads it
	needs    box                     // the downstream blocks that wait for any upstream block
	maxUp    int64                   // bounds on the number of blocks of one side that a block of the other touches
	maxDown  int64
}

// newEdge returns the dependency, and false if no block of the one task touches a block of the other.
func newEdge(up, down int, a, b *geom.Grid) (*edge, bool) {
	e := &edge{up: up, down: down, dims: a.Dims(), maxUp: 1, maxDown: 1}
	if a.Len() == 0 || b.Len() == 0 {
		return nil, false
	}
	for i := range e.dims {
		aw, bw := a.BlockShape().At(i), b.BlockShape().At(i)
		an, bn := a.Shape().At(i), b.Shape().At(i)
		aOrigin, bOrigin := a.TotalWrite().Offset.At(i), b.TotalWrite().Offset.At(i)
		low, high := b.ContextLow().At(i), b.ContextHigh().At(i)
		// What the upstream task writes, and what the downstream task reads, at all.
		first, last := aOrigin, aOrigin+an*aw
		if a.Spec().Fit == geom.Shrink {
			last = min(last, a.TotalWrite().End().At(i))
		}
		readFirst, readLast := bOrigin-low, bOrigin+bn*bw+high
		if b.Spec().Fit == geom.Shrink {
			readFirst, readLast = b.TotalRead().Offset.At(i), b.TotalRead().End().At(i)
		}
		first, last = max(first, readFirst), min(last, readLast)

		e.toUp[i] = axisReach{mul: bw, from: bOrigin - low, to: bOrigin + bw + high, first: first, last: last,
			div: aw, before: aOrigin, after: aOrigin, n: an}
		e.toDown[i] = axisReach{mul: aw, from: aOrigin, to: aOrigin + aw, first: first, last: last,
			div: bw, before: bOrigin - low, after: bOrigin + high, n: bn}
		lo, hi := e.toDown[i].span(first, last)
		if lo >= hi {
			return nil, false
		}
		e.needs.lo[i], e.needs.hi[i] = lo, hi
		e.toUp[i].settle(bn)
		e.toDown[i].settle(an)
		e.maxUp = clampedProduct(e.maxUp, min(an, (bw+low+high)/aw+2))
		e.maxDown = clampedProduct(e.maxDown, min(bn, (aw+low+high)/bw+2))
	}
	return e, true
}

// clampedProduct multiplies positive numbers, stopping at 2^60.
func clampedProduct(a, b int64) int64 {
	const most = int64(1) << 60
	if a > most/b {
		return most
	}
	return a * b
}

// upstream returns the upstream blocks of the downstream block at k; size 0 if there are none.
func (e *edge) upstream(k *point, out *box) (size int64) { return e.touched(&e.toUp, k, out) }

// downstream returns the downstream blocks of the upstream block at k; size 0 if there are none.
func (e *edge) downstream(k *point, out *box) (size int64) { return e.touched(&e.toDown, k, out) }

func (e *edge) touched(reach *[geom.MaxDims]axisReach, k *point, out *box) (size int64) {
	size = 1
	for i := range e.dims {
		lo, hi := reach[i].at(k[i])
		if lo >= hi {
			return 0
		}
		out.lo[i], out.hi[i] = lo, hi
		size *= hi - lo
	}
	return size
}
