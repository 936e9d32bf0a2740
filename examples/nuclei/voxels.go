package main

import (
	"encoding/json"
	"fmt"
)

// point is a position or an extent in voxels, in the order z, y, x.
type point [3]int

// UnmarshalJSON accepts exactly three whole numbers; encoding/json alone would pad or cut a list of another length.
func (p *point) UnmarshalJSON(data []byte) error {
	var list []int
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != len(p) {
		return fmt.Errorf("%s has %d numbers, want 3 (z, y, x)", data, len(list))
	}
	copy(p[:], list)
	return nil
}

// volume is the number of voxels of an extent.
func (p point) volume() int { return p[0] * p[1] * p[2] }

// box is a half-open region: offset <= voxel < offset + shape, along each axis.
type box struct {
	Offset point `json:"offset"`
	Shape  point `json:"shape"`
}

func (b box) String() string {
	e := b.end()
	return fmt.Sprintf("[%d:%d, %d:%d, %d:%d]", b.Offset[0], e[0], b.Offset[1], e[1], b.Offset[2], e[2])
}

func (b box) end() point {
	return point{b.Offset[0] + b.Shape[0], b.Offset[1] + b.Shape[1], b.Offset[2] + b.Shape[2]}
}

// grow adds n voxels on all six sides.
func (b box) grow(n int) box {
	for axis := range b.Offset {
		b.Offset[axis] -= n
		b.Shape[axis] += 2 * n
	}
	return b
}

// intersect may be empty; then at least one extent is 0.
func (b box) intersect(other box) box {
	var out box
	be, oe := b.end(), other.end()
	for axis := range out.Offset {
		out.Offset[axis] = max(b.Offset[axis], other.Offset[axis])
		out.Shape[axis] = max(0, min(be[axis], oe[axis])-out.Offset[axis])
	}
	return out
}

func (b box) contains(other box) bool {
	be, oe := b.end(), other.end()
	for axis := range be {
		if other.Offset[axis] < b.Offset[axis] || oe[axis] > be[axis] || other.Shape[axis] < 0 {
			return false
		}
	}
	return true
}

// voxel is what the arrays of this example hold.
type voxel interface{ uint8 | int32 | int64 }

// voxels is a dense piece of a volume in memory, in C order (x runs fastest).
type voxels[T voxel] struct {
	shape point
	data  []T
}

func newVoxels[T voxel](shape point) voxels[T] {
	return voxels[T]{shape: shape, data: make([]T, shape.volume())}
}

// row is the run of voxels along x at (z, y).
func (v voxels[T]) row(z, y int) []T {
	begin := (z*v.shape[1] + y) * v.shape[2]
	return v.data[begin : begin+v.shape[2]]
}

// copyBox copies the voxels of the region from src to dst, where src and dst cover the regions srcBox and dstBox.
// The region must lie inside both.
func copyBox[T voxel](dst voxels[T], dstBox box, src voxels[T], srcBox, region box) {
	d, s := dstBox.Offset, srcBox.Offset
	end := region.end()
	for z := region.Offset[0]; z < end[0]; z++ {
		for y := region.Offset[1]; y < end[1]; y++ {
			copy(dst.row(z-d[0], y-d[1])[region.Offset[2]-d[2]:end[2]-d[2]],
				src.row(z-s[0], y-s[1])[region.Offset[2]-s[2]:end[2]-s[2]])
		}
	}
}
