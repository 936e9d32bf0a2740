package geom

// Box is a box of grid positions: [Begin, End) on each axis.
type Box struct{ Begin, End Coordinate }

// Empty reports whether no position is in the box.
func (b Box) Empty() bool {
	for i := range b.Begin.Dims() {
		if b.End.v[i] <= b.Begin.v[i] {
			return true
		}
	}
	return b.Begin.Dims() == 0
}

// Len returns the number of positions. Of a box inside a grid it is at most the grid's Len.
func (b Box) Len() int64 {
	if b.Empty() {
		return 0
	}
	n := int64(1)
	for i := range b.Begin.Dims() {
		n *= b.End.v[i] - b.Begin.v[i]
	}
	return n
}

// WriteBlocks returns the blocks whose write region (clipped under shrink) shares a point with r. Blocks tile what they
// write, so these are a box. It is empty for an empty region or another number of axes.
func (g *Grid) WriteBlocks(r Roi) Box { return g.blocksMeeting(r, false) }

// ReadBlocks returns the blocks whose read region (clipped under shrink) shares a point with r; otherwise as WriteBlocks.
func (g *Grid) ReadBlocks(r Roi) Box { return g.blocksMeeting(r, true) }

func (g *Grid) blocksMeeting(r Roi, read bool) Box {
	box := Box{Fill(g.dims, 0), Fill(g.dims, 0)}
	if r.Dims() != g.dims || r.Empty() || g.len == 0 {
		return box
	}
	end := r.End()
	for i := range g.dims {
		first, last := g.totalWrite.Offset.v[i], g.written.v[i] // of all that the blocks write
		low, high := int64(0), int64(0)
		if read {
			low, high = g.low.v[i], g.high.v[i]
			first, last = first-low, last+high // under shrink the total read region, to which reads are clipped
		}
		b, e := max(r.Offset.v[i], first), min(end.v[i], last)
		if b >= e {
			return Box{Fill(g.dims, 0), Fill(g.dims, 0)}
		}
		// Block k spans [k*w - low, (k+1)*w + high) from the begin of the total write region; it meets [b, e) when
		// (k+1)*w + high > b and k*w - low < e.
		w, origin := g.spec.Write.Shape.v[i], g.totalWrite.Offset.v[i]
		box.Begin.v[i] = max(0, floorDiv(b-origin-high, w))
		box.End.v[i] = min(g.shape.v[i], ceilDiv(e-origin+low, w))
	}
	return box
}
