package scheduler

import "slices"

// Roots are the blocks that wait for nothing: those of level 0 that no upstream block touches. They lie in a few boxes and are
// walked, never listed or marked.

// rootBoxes returns disjoint boxes that hold every block of a grid that lies in none of the given boxes.
func rootBoxes(l *lattice, taken []box) []box {
	if l.n == 0 {
		return nil
	}
	free := []box{{hi: l.shape}}
	for _, t := range taken {
		var rest []box
		for _, f := range free {
			rest = subtract(rest, f, t, l.dims)
		}
		free = rest
	}
	slices.SortFunc(free, func(a, b box) int {
		for i := range l.dims {
			if a.lo[i] != b.lo[i] {
				if a.lo[i] < b.lo[i] {
					return -1
				}
				return 1
			}
		}
		return 0
	})
	return free
}

// subtract appends f without t, cut into boxes.
func subtract(out []box, f, t box, dims int) []box {
	for i := range dims {
		if t.hi[i] <= f.lo[i] || t.lo[i] >= f.hi[i] {
			return append(out, f)
		}
	}
	for i := range dims {
		if f.lo[i] < t.lo[i] {
			cut := f
			cut.hi[i] = t.lo[i]
			out = append(out, cut)
			f.lo[i] = t.lo[i]
		}
		if t.hi[i] < f.hi[i] {
			cut := f
			cut.lo[i] = t.hi[i]
			out = append(out, cut)
			f.hi[i] = t.hi[i]
		}
	}
	return out
}

// rootWalk visits the roots in C order, box after box.
type rootWalk struct {
	boxes  []box
	at     int   // box
	k      point // position of the row
	next   int64 // flat index of the next root in the row
	rowEnd int64 // flat end of the row
	step   int64 // distance of roots in a row
	begun  bool
}

// countRoots returns how many roots a walk visits.
func countRoots(l *lattice, boxes []box) int64 {
	n := int64(0)
	for _, b := range boxes {
		c := int64(1)
		for i := range l.dims {
			lo, hi := firstInStride(b.lo[i], l.stride[i]), b.hi[i]
			c *= max(0, (hi-lo+l.stride[i]-1)/l.stride[i])
		}
		n += c
	}
	return n
}

// firstInStride returns the lowest position from lo on with the highest offset, that of level 0.
func firstInStride(lo, stride int64) int64 { return lo + (stride-1-lo%stride+stride)%stride }

// block returns the next root, -1 at the end.
func (w *rootWalk) block(l *lattice) int64 {
	for w.next >= w.rowEnd {
		if !w.advance(l) {
			return -1
		}
	}
	b := w.next
	w.next += w.step
	return b
}

// advance goes to the next row with a root.
func (w *rootWalk) advance(l *lattice) bool {
	last := l.dims - 1
	for w.at < len(w.boxes) {
		b := &w.boxes[w.at]
		inside := true
		if !w.begun {
			w.begun = true
			for i := range l.dims {
				w.k[i] = firstInStride(b.lo[i], l.stride[i])
				inside = inside && w.k[i] < b.hi[i]
			}
		} else {
			inside = false
			for i := last - 1; i >= 0; i-- {
				if w.k[i] += l.stride[i]; w.k[i] < b.hi[i] {
					inside = true
					break
				}
				w.k[i] = firstInStride(b.lo[i], l.stride[i])
			}
		}
		if inside {
			w.step = l.stride[last]
			w.next = l.flat(&w.k)
			w.rowEnd = w.next - w.k[last] + b.hi[last]
			return true
		}
		w.at++
		w.begun = false
	}
	w.next, w.rowEnd = 0, 0
	return false
}

// passOver moves on within a row while whole words of a bitmap are as given.
func (w *rootWalk) passOver(b Bitmap, word uint64) {
	for w.next%64 < w.step && w.next+64 <= w.rowEnd && b[w.next/64] == word {
		w.next += (64 - w.next%64 + w.step - 1) / w.step * w.step
	}
}
