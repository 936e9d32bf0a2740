// Package geom is the geometry of block-wise work: coordinates, regions and the grid of blocks that covers a volume.
//
// The words mean the same everywhere. A Coordinate is a vector of 1 to 6 integers. A Roi (region of interest) has an
// offset and a shape, and with them a begin and an end; it is half-open, so its end is outside. A block reads one
// region, its read_roi, and writes a smaller one, its write_roi; what it reads beyond what it writes is its context.
// The total_roi of a task is all that its blocks may read; shrunk by the context on each side it is what they write.
//
// Blocks step by the shape of the write_roi from the begin of the total write region. The fit says what happens at the
// end: valid keeps only blocks wholly inside, overhang lets them stick out, and shrink clips them (write to the total
// write region, read to the total_roi).
//
// With read_write_conflict, blocks that may run together must not read what the other writes. Blocks are therefore
// sorted into levels, and a block waits for the nearest blocks (one or two per axis) of the level before its own.
//
// A [Grid] holds no structure per block: every answer is arithmetic on the block's flat index, its position in C order
// (last axis fastest). People and files name a block by its spatial id, the generalised Cantor number of [Cantor],
// which equals that of the Python package daisy.
//
// Everything is checked where a grid is made. Past [NewGrid] no arithmetic can overflow.
package geom
