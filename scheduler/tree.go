package scheduler

import (
	"encoding/binary"
	"math/bits"
)

// tree is a set of groups of 64 blocks: a 64-ary tree of bitmaps with one bit per group at the bottom. A bit says that some
// block of the group may be in a state that is looked for; which one, the state bytes themselves say. The lowest block is found
// with a few bit scans, and the tree of 10^8 blocks takes 200 kB, lazily zero.
type tree struct{ levels [][]uint64 }

func newTree(blocks int64) *tree {
	t := &tree{}
	n := (blocks + 63) / 64 // groups
	for {
		n = (n + 63) / 64
		t.levels = append(t.levels, make([]uint64, n))
		if n <= 1 {
			return t
		}
	}
}

// set puts the group of a block into the set.
func (t *tree) set(block int64) {
	i := uint64(block) / 64
	for _, level := range t.levels {
		w := &level[i/64]
		old := *w
		*w = old | 1<<(i%64)
		if old != 0 {
			return
		}
		i /= 64
	}
}

// clear takes a group out of the set.
func (t *tree) clear(group int64) {
	i := uint64(group)
	for _, level := range t.levels {
		w := &level[i/64]
		*w &^= 1 << (i % 64)
		if *w != 0 {
			return
		}
		i /= 64
	}
}

// lowest returns the lowest group of the set, -1 if it is empty.
func (t *tree) lowest() int64 {
	top := len(t.levels) - 1
	if len(t.levels[top]) == 0 || t.levels[top][0] == 0 {
		return -1
	}
	i := uint64(0)
	for l := top; l >= 0; l-- {
		i = i*64 + uint64(bits.TrailingZeros64(t.levels[l][i]))
	}
	return int64(i)
}

// pop returns the lowest block of the set in the given state, -1 if there is none. The caller then changes its state.
func (t *tree) pop(state []byte, want byte) int64 {
	for group := t.lowest(); group >= 0; group = t.lowest() {
		if block := t.popOf(group, state, want); block >= 0 {
			return block
		}
	}
	return -1
}

// popOf is pop within a group. One that turns out to hold no more leaves the set.
func (t *tree) popOf(group int64, state []byte, want byte) int64 {
	at, more := findByte(state[group*64:group*64+64], want)
	if !more {
		t.clear(group)
	}
	if at < 0 {
		return -1
	}
	return group*64 + int64(at)
}

// findByte returns the first position of a byte in a group of 64, -1 if it is not there, and whether it is there once more.
func findByte(group []byte, want byte) (first int, more bool) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	pattern := ones * uint64(want)
	_ = group[63]
	first = -1
	for i := 0; i < 64; i += 8 {
		x := binary.LittleEndian.Uint64(group[i:]) ^ pattern
		// The lowest bit of hit marks the lowest zero byte of x; marks above it may be wrong, so they are not trusted.
		hit := (x - ones) &^ x & highs
		if hit == 0 {
			continue
		}
		if first >= 0 {
			return first, true
		}
		at := bits.TrailingZeros64(hit) / 8
		first = i + at
		x |= 0xff << (8 * at)
		if (x-ones)&^x&highs != 0 {
			return first, true
		}
	}
	return first, false
}
