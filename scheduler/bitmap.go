package scheduler

import "math/bits"

// Bitmap holds one bit per block, by flat block index: block b is bit b%64 of word b/64.
type Bitmap []uint64

// NewBitmap returns a bitmap of n clear bits, n >= 0.
func NewBitmap(n int64) Bitmap { return make(Bitmap, (n+63)/64) }

// Get reports whether bit i is set. Bits past the end, and those of a nil bitmap, are clear.
func (b Bitmap) Get(i int64) bool {
	w := uint64(i) / 64
	return w < uint64(len(b)) && b[w]>>(uint64(i)%64)&1 != 0
}

// Set sets bit i, which must be inside.
func (b Bitmap) Set(i int64) { b[i/64] |= 1 << (uint64(i) % 64) }

// Clear clears bit i, which must be inside.
func (b Bitmap) Clear(i int64) { b[i/64] &^= 1 << (uint64(i) % 64) }

// Count returns the number of set bits.
func (b Bitmap) Count() int64 {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return int64(n)
}

// countRange counts the set bits in [from, to); those of a nil bitmap are clear.
func (b Bitmap) countRange(from, to int64) (n int64) {
	if b == nil {
		return 0
	}
	for from < to {
		step := min(64-from%64, to-from)
		n += int64(bits.OnesCount64(b[from/64] & rangeMask(from%64, step)))
		from += step
	}
	return n
}

// setRange sets the bits [from, to).
func (b Bitmap) setRange(from, to int64) {
	for from < to {
		step := min(64-from%64, to-from)
		b[from/64] |= rangeMask(from%64, step)
		from += step
	}
}

// rangeMask returns n >= 1 bits from a position on, both in one word.
func rangeMask(at, n int64) uint64 { return ^uint64(0) >> (64 - n) << at }

// union returns the bits that are in one of two bitmaps of the same size, of which either may be nil. It may be one of them.
func union(a, b Bitmap) Bitmap {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	u := make(Bitmap, len(a))
	for i := range u {
		u[i] = a[i] | b[i]
	}
	return u
}
