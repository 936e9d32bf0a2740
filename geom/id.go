package geom

import "math/bits"

// Cantor returns the generalised Cantor number of an index: C([x]) = x and C(v) = P(n, sum v) + C(v without its last),
// where P(n, e) = e (e+1) .. (e+n-1) / n!. Negative values count as 0. It is daisy's spatial id; the second result is false
// where the number does not fit 64 bits, and for an index of no axes.
func Cantor(index Coordinate) (uint64, bool) {
	if index.n == 0 {
		return 0, false
	}
	id, sum := uint64(0), uint64(0)
	for i := range int(index.n) {
		s, carry := bits.Add64(sum, uint64(max(0, index.v[i])), 0)
		if carry != 0 {
			return 0, false
		}
		sum = s
		p, ok := pyramid(i+1, sum)
		if !ok {
			return 0, false
		}
		if id, carry = bits.Add64(id, p, 0); carry != 0 {
			return 0, false
		}
	}
	return id, true
}

// pyramid returns P(n, e), the number of n-dimensional indices with a sum below e; false where it does not fit 64 bits.
func pyramid(n int, e uint64) (uint64, bool) {
	if e < 1<<20 { // all but huge grids: the same in small numbers
		switch n {
		case 1:
			return e, true
		case 2:
			return e * (e + 1) / 2, true
		case 3:
			return e * (e + 1) * (e + 2) / 6, true
		}
	}
	if e == 0 {
		return 0, true
	}
	v := uint64(1)
	for k := range uint64(n) {
		f, carry := bits.Add64(e, k, 0)
		if carry != 0 {
			return 0, false
		}
		// After each step v is a binomial coefficient, so the division is exact and v never shrinks.
		hi, lo := bits.Mul64(v, f)
		if hi >= k+1 {
			return 0, false
		}
		v, _ = bits.Div64(hi, lo, k+1)
	}
	return v, true
}

// inverseCantor returns the index of n axes with the given number.
func inverseCantor(id uint64, n int) (Coordinate, bool) {
	var sums [MaxDims + 1]uint64 // sums[k]: sum of the first k values
	for k := n; k >= 1; k-- {
		// The largest e with P(k, e) <= id. P(k, e) >= e, so it is at most id.
		lo, hi := uint64(0), id
		for lo < hi {
			mid := lo + (hi-lo)/2 + 1
			if p, ok := pyramid(k, mid); ok && p <= id {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		p, _ := pyramid(k, lo)
		sums[k], id = lo, id-p
	}
	c := Fill(n, 0)
	for k := 1; k <= n; k++ {
		if sums[k] < sums[k-1] || sums[k]-sums[k-1] > 1<<62 {
			return Coordinate{}, false
		}
		c.v[k-1] = int64(sums[k] - sums[k-1])
	}
	return c, true
}

// CellIndex returns a block's index as in its id: its write offset minus the offset of the total read region, divided by the
// write shape, rounded down. It differs from Index where the context is a block or more. Arrays of tracking are addressed
// with it.
func (g *Grid) CellIndex(block int64) Coordinate { return g.cellOf(g.Index(block)) }

func (g *Grid) cellOf(index Coordinate) Coordinate {
	for i := range g.dims {
		index.v[i] += g.firstCell.v[i]
	}
	return index
}

// TrackingShape returns the shape of tracking arrays: the total read shape divided by the write shape, rounded up. It is
// at least the grid's shape on each axis, and every CellIndex lies inside.
func (g *Grid) TrackingShape() Coordinate {
	c := g.shape
	for i := range g.dims {
		c.v[i] = ceilDiv(g.spec.TotalRead.Shape.v[i], g.spec.Write.Shape.v[i])
	}
	return c
}

// ID returns daisy's spatial id of a block: the Cantor number of its CellIndex; false where that does not fit 64 bits.
func (g *Grid) ID(block int64) (uint64, bool) { return g.IDAt(g.Index(block)) }

// IDAt returns daisy's spatial id of the block at a position in the grid.
func (g *Grid) IDAt(index Coordinate) (uint64, bool) { return Cantor(g.cellOf(index)) }

// BlockOfID returns the block with a spatial id; false where no block of the grid has it.
func (g *Grid) BlockOfID(id uint64) (int64, bool) {
	c, ok := inverseCantor(id, g.dims)
	if !ok {
		return -1, false
	}
	for i := range g.dims {
		c.v[i] -= g.firstCell.v[i]
	}
	flat := g.Flat(c)
	return flat, flat >= 0
}
