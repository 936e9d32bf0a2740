package geom

import (
	"fmt"
	"math/bits"
	"strconv"
)

// MaxDims is the largest number of axes of a coordinate.
const MaxDims = 6

// Coordinate is a vector of 0 to MaxDims integers. The zero value has no axes. Coordinates compare with ==.
type Coordinate struct {
	n uint8
	v [MaxDims]int64
}

// Coord returns the coordinate of the given values. More than MaxDims values are a programmer's error and panic; input
// goes through [CoordOf].
func Coord(v ...int64) Coordinate {
	c, err := CoordOf(v)
	if err != nil {
		panic(err.Error())
	}
	return c
}

// CoordOf returns the coordinate of values that came from outside. It refuses more than MaxDims of them.
func CoordOf(v []int64) (Coordinate, error) {
	if len(v) > MaxDims {
		return Coordinate{}, fmt.Errorf("geom: a coordinate of %d dimensions: at most %d are supported", len(v), MaxDims)
	}
	c := Coordinate{n: uint8(len(v))}
	copy(c.v[:], v)
	return c, nil
}

// Fill returns the coordinate of n axes that all have the value v. n must be in [0, MaxDims].
func Fill(n int, v int64) Coordinate {
	if n < 0 || n > MaxDims {
		panic(fmt.Sprintf("geom: a coordinate of %d dimensions", n))
	}
	c := Coordinate{n: uint8(n)}
	for i := range n {
		c.v[i] = v
	}
	return c
}

// Dims returns the number of axes.
func (c Coordinate) Dims() int { return int(c.n) }

// At returns the value on an axis in [0, Dims()).
func (c Coordinate) At(axis int) int64 { return c.v[:c.n][axis] }

// With returns a copy with another value on one axis.
func (c Coordinate) With(axis int, v int64) Coordinate {
	c.v[:c.n][axis] = v
	return c
}

// Slice returns the values in a new slice.
func (c Coordinate) Slice() []int64 { return append(make([]int64, 0, c.n), c.v[:c.n]...) }

// String returns "(1, 2, 3)".
func (c Coordinate) String() string {
	b := make([]byte, 0, 32)
	b = append(b, '(')
	for i := range int(c.n) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, c.v[i], 10)
	}
	return string(append(b, ')'))
}

// Product multiplies all values; that of no axes is 1. A product outside int64 is an error, and so is a negative value,
// because products are taken of shapes.
func (c Coordinate) Product() (int64, error) {
	p, zero := uint64(1), false
	for i := range int(c.n) {
		v := c.v[i]
		switch {
		case v < 0:
			return 0, fmt.Errorf("geom: shape %v is negative on axis %d", c, i)
		case v == 0:
			zero = true
		}
	}
	if zero {
		return 0, nil
	}
	for i := range int(c.n) {
		hi, lo := bits.Mul64(p, uint64(c.v[i]))
		if hi != 0 || int64(lo) < 0 {
			return 0, fmt.Errorf("geom: the product of shape %v does not fit 64 bits", c)
		}
		p = lo
	}
	return int64(p), nil
}

// Add returns the sum, axis by axis. It wraps like int64: regions are checked where a grid is made. Both must have the
// same number of axes.
func (c Coordinate) Add(d Coordinate) Coordinate {
	mustMatch(c, d)
	for i := range int(c.n) {
		c.v[i] += d.v[i]
	}
	return c
}

// Sub returns the difference, axis by axis; see Add.
func (c Coordinate) Sub(d Coordinate) Coordinate {
	mustMatch(c, d)
	for i := range int(c.n) {
		c.v[i] -= d.v[i]
	}
	return c
}

func mustMatch(c, d Coordinate) {
	if c.n != d.n {
		panic(fmt.Sprintf("geom: %v and %v have different numbers of dimensions", c, d))
	}
}
