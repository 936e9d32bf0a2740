package geom

import (
	"errors"
	"fmt"
)

// GridSpec describes the blocks of one task.
type GridSpec struct {
	TotalRead         Roi  // all that blocks may read
	Read, Write       Roi  // both regions of one block; only their shapes and their distance count, not where they lie
	Fit               Fit  // what happens at the end
	ReadWriteConflict bool // blocks that run together must not read what the other writes
}

// Grid is the blocks of one task. It is immutable and safe for concurrent use, and holds nothing per block: a block is its
// flat index in [0, Len()), in C order of the grid (last axis fastest).
type Grid struct {
	spec       GridSpec
	dims       int
	totalWrite Roi
	low, high  Coordinate // context, >= 0
	firstCell  Coordinate // CellIndex of block 0
	shape      Coordinate // blocks per axis
	step       Coordinate // flat index distance of neighbours on each axis
	stride     Coordinate // blocks per axis after which levels repeat, >= 1
	written    Coordinate // end of what all blocks together write: clipped under shrink
	len        int64
	levels     int
}

// NewGrid checks a description and returns its grid. Refused, all reasons at once, are: dimensions that differ or are not 1 to
// MaxDims, shapes below 1, a block that writes outside what it reads, a context that leaves nothing to write, corners
// beyond 2^58, and more than 2^63-1 blocks. A well-formed grid without a block (fit valid, and the total write region
// smaller than a block) is no error.
func NewGrid(spec GridSpec) (*Grid, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	g := &Grid{spec: spec, dims: spec.Write.Dims()}
	g.low = spec.Write.Offset.Sub(spec.Read.Offset)
	g.high = spec.Read.End().Sub(spec.Write.End())
	g.totalWrite = Roi{spec.TotalRead.Offset.Add(g.low), spec.TotalRead.Shape.Sub(g.low).Sub(g.high)}
	var errs []error
	for i := range g.dims {
		if g.totalWrite.Shape.v[i] < 1 {
			errs = append(errs, fmt.Errorf("context %d below and %d above on axis %d leave nothing to write of the %d that are read in total: "+
				"make the context smaller or the total region larger", g.low.v[i], g.high.v[i], i, spec.TotalRead.Shape.v[i]))
		}
	}
	if errs != nil {
		return nil, fmt.Errorf("geom: %w", errors.Join(errs...))
	}
	g.shape, g.stride, g.step, g.written = Fill(g.dims, 0), Fill(g.dims, 1), Fill(g.dims, 1), Fill(g.dims, 0)
	g.firstCell = Fill(g.dims, 0)
	for i := range g.dims {
		w, extent := spec.Write.Shape.v[i], g.totalWrite.Shape.v[i]
		g.firstCell.v[i] = g.low.v[i] / w
		if spec.Fit == Valid {
			g.shape.v[i] = extent / w
		} else {
			g.shape.v[i] = ceilDiv(extent, w)
		}
		g.written.v[i] = g.totalWrite.Offset.v[i] + g.shape.v[i]*w
		if spec.Fit == Shrink {
			g.written.v[i] = g.totalWrite.Offset.v[i] + extent
		}
		if spec.ReadWriteConflict {
			g.stride.v[i] = max(1, min(g.shape.v[i], ceilDiv(max(g.low.v[i], g.high.v[i])+w, w)))
		}
	}
	n, err := g.shape.Product()
	if err != nil {
		return nil, fmt.Errorf("geom: a grid of %v blocks has more than 2^63-1 of them: make the blocks larger", g.shape)
	}
	g.len, g.levels = n, 1
	if n > 0 {
		for i := g.dims - 2; i >= 0; i-- {
			g.step.v[i] = g.step.v[i+1] * g.shape.v[i+1]
		}
		for i := range g.dims { // strides are at most the shape, so this product is at most n
			g.levels *= int(g.stride.v[i])
		}
	}
	return g, nil
}

// check looks at everything that can be judged before any arithmetic.
func (s GridSpec) check() error {
	var errs []error
	bad := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	bad(s.TotalRead.check("total read region"))
	bad(s.Read.check("read region of a block"))
	bad(s.Write.check("write region of a block"))
	if s.Fit > Shrink {
		bad(fmt.Errorf("fit %v: must be valid, overhang or shrink", s.Fit))
	}
	if errs == nil {
		t, r, w := s.TotalRead.Dims(), s.Read.Dims(), s.Write.Dims()
		switch {
		case t != r || r != w:
			bad(fmt.Errorf("dimensions differ: total read region %d, read region %d, write region %d", t, r, w))
		case w == 0:
			bad(fmt.Errorf("regions of no dimensions: 1 to %d are supported", MaxDims))
		case !s.Read.Contains(s.Write):
			bad(fmt.Errorf("a block writes %v, outside what it reads, %v: the read region must contain the write region", s.Write, s.Read))
		}
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("geom: %w", errors.Join(errs...))
}

// Spec returns the description that the grid was made of.
func (g *Grid) Spec() GridSpec { return g.spec }

// Dims returns the number of axes, 1 to MaxDims.
func (g *Grid) Dims() int { return g.dims }

// Len returns the number of blocks.
func (g *Grid) Len() int64 { return g.len }

// Shape returns the number of blocks on each axis.
func (g *Grid) Shape() Coordinate { return g.shape }

// TotalRead returns the total read region.
func (g *Grid) TotalRead() Roi { return g.spec.TotalRead }

// TotalWrite returns the total write region: the total read region shrunk by the context.
func (g *Grid) TotalWrite() Roi { return g.totalWrite }

// ContextLow returns what a block reads before the begin of what it writes, on each axis; at least 0.
func (g *Grid) ContextLow() Coordinate { return g.low }

// ContextHigh returns what a block reads after the end of what it writes, on each axis; at least 0.
func (g *Grid) ContextHigh() Coordinate { return g.high }

// BlockShape returns the shape of what an unclipped block writes.
func (g *Grid) BlockShape() Coordinate { return g.spec.Write.Shape }

// Unwritten returns how much at the end of each axis of the total write region no block writes: 0, but for what Valid leaves.
func (g *Grid) Unwritten() Coordinate {
	rest := g.totalWrite.Shape
	for i := range g.dims {
		rest.v[i] = max(0, g.totalWrite.Offset.v[i]+rest.v[i]-g.written.v[i])
	}
	return rest
}

// Index returns the position in the grid of a block in [0, Len()).
func (g *Grid) Index(block int64) Coordinate {
	c, last := g.step, g.dims-1
	for i := range last {
		c.v[i] = block / g.step.v[i]
		block -= c.v[i] * g.step.v[i]
	}
	c.v[last] = block // where a step is 1
	return c
}

// Flat returns the block at a position, -1 outside the grid or for another number of axes.
func (g *Grid) Flat(index Coordinate) int64 {
	if int(index.n) != g.dims {
		return -1
	}
	flat := int64(0)
	for i := range g.dims {
		if index.v[i] < 0 || index.v[i] >= g.shape.v[i] {
			return -1
		}
		flat += index.v[i] * g.step.v[i]
	}
	return flat
}

// WriteRoi returns what a block writes, clipped under shrink.
func (g *Grid) WriteRoi(block int64) Roi {
	var index Coordinate
	var read, write Roi
	g.Regions(block, &index, &read, &write)
	return write
}

// ReadRoi returns what a block reads, clipped under shrink.
func (g *Grid) ReadRoi(block int64) Roi {
	var index Coordinate
	var read, write Roi
	g.Regions(block, &index, &read, &write)
	return read
}

// Regions fills in Index, ReadRoi and WriteRoi of a block at once: for less than they take one by one.
func (g *Grid) Regions(block int64, index *Coordinate, read, write *Roi) {
	*index = g.Index(block)
	write.Offset, write.Shape = Coordinate{n: index.n}, g.spec.Write.Shape
	read.Offset, read.Shape = Coordinate{n: index.n}, g.spec.Read.Shape
	for i := range g.dims {
		write.Offset.v[i] = g.totalWrite.Offset.v[i] + index.v[i]*write.Shape.v[i]
		read.Offset.v[i] = write.Offset.v[i] - g.low.v[i]
	}
	if g.spec.Fit == Shrink {
		*read, *write = read.Intersect(g.spec.TotalRead), write.Intersect(g.totalWrite)
	}
}
