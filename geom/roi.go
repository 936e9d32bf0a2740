package geom

import (
	"fmt"
	"math"
	"strconv"
)

// Roi is a region: offset and shape, half-open. Regions compare with ==. Offset and Shape have the same number of axes.
type Roi struct {
	Offset Coordinate
	Shape  Coordinate
}

// Begin returns the first point.
func (r Roi) Begin() Coordinate { return r.Offset }

// End returns the first point outside, on each axis. It stops at the largest int64 instead of wrapping around.
func (r Roi) End() Coordinate {
	e := r.Offset
	for i := range r.Dims() {
		e.v[i] = addClamped(r.Offset.v[i], r.Shape.v[i])
	}
	return e
}

// Dims returns the number of axes; of a region whose offset and shape disagree, the smaller.
func (r Roi) Dims() int { return int(min(r.Offset.n, r.Shape.n)) }

// Empty reports whether the region has no point. A region of no axes is empty.
func (r Roi) Empty() bool {
	for i := range r.Dims() {
		if r.Shape.v[i] <= 0 {
			return true
		}
	}
	return r.Dims() == 0
}

// Contains reports whether every point of s is in r. An empty s of the same number of axes is contained in any region.
func (r Roi) Contains(s Roi) bool {
	if r.Dims() != s.Dims() {
		return false
	}
	if s.Empty() {
		return true
	}
	re, se := r.End(), s.End()
	for i := range r.Dims() {
		if s.Offset.v[i] < r.Offset.v[i] || se.v[i] > re.v[i] {
			return false
		}
	}
	return true
}

// Intersect returns the common part. Where there is none, the shape is 0 on the axes that do not meet. Both regions must have
// the same number of axes.
func (r Roi) Intersect(s Roi) Roi {
	mustMatch(r.Offset, s.Offset)
	re, se := r.End(), s.End()
	out := Roi{Offset: r.Offset, Shape: r.Shape}
	for i := range r.Dims() {
		b := max(r.Offset.v[i], s.Offset.v[i])
		out.Offset.v[i] = b
		out.Shape.v[i] = max(0, min(re.v[i], se.v[i])-b)
	}
	return out
}

// Intersects reports whether the regions share at least one point.
func (r Roi) Intersects(s Roi) bool {
	return r.Dims() == s.Dims() && !r.Empty() && !s.Empty() && !r.Intersect(s).Empty()
}

// Grow returns the region with low added before its begin and high after its end; negative amounts shrink it.
func (r Roi) Grow(low, high Coordinate) Roi {
	return Roi{Offset: r.Offset.Sub(low), Shape: r.Shape.Add(low).Add(high)}
}

// Volume returns the number of points: 0 for an empty region, an error where it does not fit an int64.
func (r Roi) Volume() (int64, error) {
	if r.Empty() {
		return 0, nil
	}
	return r.Shape.Product()
}

// String returns "[0:10, 4:20]": begin and end of each axis.
func (r Roi) String() string {
	b := make([]byte, 0, 48)
	b = append(b, '[')
	e := r.End()
	for i := range r.Dims() {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, r.Offset.v[i], 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, e.v[i], 10)
	}
	return string(append(b, ']'))
}

// check says what is wrong with a region that came from outside: its axes and the range of its corners.
func (r Roi) check(name string) error {
	if r.Offset.n != r.Shape.n {
		return fmt.Errorf("%s: offset %v has %d dimensions, shape %v has %d", name, r.Offset, r.Offset.n, r.Shape, r.Shape.n)
	}
	for i := range r.Dims() {
		o, s := r.Offset.v[i], r.Shape.v[i]
		if s < 1 {
			return fmt.Errorf("%s: shape %v is %d on axis %d: it must be at least 1", name, r.Shape, s, i)
		}
		if o < -maxExtent || s > 2*maxExtent || o > maxExtent-s {
			return fmt.Errorf("%s: from %d with shape %d on axis %d it leaves the range of coordinates, -2^58 to 2^58", name, o, s, i)
		}
	}
	return nil
}

// maxExtent bounds every corner of a region of a grid, so that sums of a few of them, across grids too, fit an int64.
const maxExtent = int64(1) << 58

func addClamped(a, b int64) int64 {
	s := a + b
	switch {
	case b > 0 && s < a:
		return math.MaxInt64
	case b < 0 && s > a:
		return math.MinInt64
	}
	return s
}

// floorDiv divides rounding down; b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilDiv divides rounding up; b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
