package tracking

import (
	"encoding/binary"

	"example.org/daisy/geom"
)

// cells maps the blocks of a grid to the cells of a tracking array, both as
// flat indices in C order. A cell's index is a block's plus a constant on each
// axis, so consecutive blocks of a row are consecutive cells.
type cells struct {
	grid, array, base geom.Coordinate // blocks per axis, cells per axis, cell of block 0
	blocks, count     int64           // number of blocks, of cells
	run               int64           // blocks that are consecutive cells: rows, or more where rows join without a gap
	axes              int             // axes before those that run covers
}

// newCells gives an error if the number of cells is above 2^63-1 or zero.
func newCells(g *geom.Grid) (cells, error) {
	c := cells{grid: g.Shape(), array: g.TrackingShape(), blocks: g.Len(), run: 1, axes: g.Dims()}
	var err error
	if c.count, err = c.array.Product(); err != nil {
		return cells{}, err
	}
	if c.blocks == 0 {
		c.run = 0
		return c, nil
	}
	c.base = g.CellIndex(0)
	for c.axes > 0 {
		c.axes--
		c.run *= c.grid.At(c.axes)
		if c.grid.At(c.axes) != c.array.At(c.axes) {
			break // the next row begins behind a gap
		}
	}
	return c, nil
}

// cell is the flat index of a block's cell.
func (c *cells) cell(block int64) int64 {
	cell, stride := int64(0), int64(1)
	for axis := c.grid.Dims() - 1; axis >= 0; axis-- {
		n := c.grid.At(axis)
		cell += (block%n + c.base.At(axis)) * stride
		block /= n
		stride *= c.array.At(axis)
	}
	return cell
}

// runs calls yield for each run of consecutive blocks with the first block's cell, in ascending order.
func (c *cells) runs(yield func(cell, n int64) error) error {
	if c.blocks == 0 {
		return nil
	}
	// Distance of neighbouring cells on each axis, and the run's index on the axes before it.
	var stride, index [geom.MaxDims]int64
	distance := int64(1)
	for axis := c.array.Dims() - 1; axis >= 0; axis-- {
		stride[axis] = distance
		distance *= c.array.At(axis)
	}
	for cell := c.cell(0); ; {
		if err := yield(cell, c.run); err != nil {
			return err
		}
		axis := c.axes - 1
		for ; axis >= 0; axis-- {
			cell += stride[axis]
			if index[axis]++; index[axis] < c.grid.At(axis) {
				break
			}
			cell -= stride[axis] * index[axis]
			index[axis] = 0
		}
		if axis < 0 {
			return nil
		}
	}
}

// bitWriter appends bits to a bitmap, lowest bit first.
type bitWriter struct {
	words []uint64
	at    int64 // bits written
}

// nonzero8 gives one bit for each of eight bytes: the top bit of each is made
// to say "not zero", and the multiplication gathers the eight into the top byte.
func nonzero8(x uint64) uint64 {
	const low7 = 0x7f7f7f7f7f7f7f7f
	x = ((x&low7 + low7) | x) & ^uint64(low7) >> 7
	return x * 0x0102040810204080 >> 56
}

// appendNonzero appends one bit a byte: 1 where the byte is not zero.
func (w *bitWriter) appendNonzero(b []byte) {
	for len(b) > 0 && w.at%8 != 0 {
		w.bit(b[0])
		b = b[1:]
	}
	for len(b) >= 8 && w.at%64 != 0 {
		w.words[w.at/64] |= nonzero8(binary.LittleEndian.Uint64(b)) << (w.at % 64)
		w.at += 8
		b = b[8:]
	}
	for len(b) >= 64 && w.at%64 == 0 {
		word := uint64(0)
		for i := range 8 {
			word |= nonzero8(binary.LittleEndian.Uint64(b[8*i:])) << (8 * i)
		}
		w.words[w.at/64] = word
		w.at += 64
		b = b[64:]
	}
	for len(b) >= 8 {
		w.words[w.at/64] |= nonzero8(binary.LittleEndian.Uint64(b)) << (w.at % 64)
		w.at += 8
		b = b[8:]
	}
	for _, v := range b {
		w.bit(v)
	}
}

func (w *bitWriter) bit(v byte) {
	if v != 0 {
		w.words[w.at/64] |= 1 << (w.at % 64)
	}
	w.at++
}
