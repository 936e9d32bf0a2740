package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// joins is a union-find over the ids of components. The root of a set is always its smallest id, which is the place of
// the whole component's first voxel in C order (see labelBlock).
type joins map[int64]int64

func newJoins(ids []int64) joins {
	j := make(joins, len(ids))
	for _, id := range ids {
		j[id] = id
	}
	return j
}

// root returns the smallest id joined with this one, and shortens the way there for later calls.
func (j joins) root(id int64) int64 {
	for j[id] != id {
		j[id] = j[j[id]]
		id = j[id]
	}
	return id
}

// join makes one component of the two voxels' on either side of a border between blocks; 0 is background. An id that
// no block announced is an error.
func (j joins) join(a, b int64) error {
	if a == 0 || b == 0 {
		return nil
	}
	for _, id := range []int64{a, b} {
		if _, known := j[id]; !known {
			return fmt.Errorf("id %d is in the labels of the blocks but in no block's list of ids", id)
		}
	}
	a, b = j.root(a), j.root(b)
	j[max(a, b)] = min(a, b)
	return nil
}

// numbers gives each id the final number of its component: 1, 2, ... in the order of the roots, so by first voxel.
func (j joins) numbers() (of map[int64]int32, components int, err error) {
	of = make(map[int64]int32, len(j))
	for _, id := range slices.Sorted(maps.Keys(j)) {
		if root := j.root(id); root != id {
			of[id] = of[root] // the root is smaller, so it has its number already
			continue
		}
		if components == math.MaxInt32 {
			return nil, 0, fmt.Errorf("more than %d components: too many for int32", math.MaxInt32)
		}
		components++
		of[id] = int32(components)
	}
	return of, components, nil
}

// joinFaces joins along all planes between blocks. Only the two layers of voxels at each plane are looked at, one pair
// of layers at a time: memory is two faces of the volume, whatever its depth.
func (j joins) joinFaces(labels array[int64]) error {
	for axis := range labels.shape {
		for plane := labels.chunks[axis]; plane < labels.shape[axis]; plane += labels.chunks[axis] {
			face := labels.extent()
			face.Shape[axis] = 1
			face.Offset[axis] = plane - 1
			below, err := labels.read(face)
			if err != nil {
				return err
			}
			face.Offset[axis] = plane
			above, err := labels.read(face)
			if err != nil {
				return err
			}
			for i, id := range below.data {
				if err := j.join(id, above.data[i]); err != nil {
					return fmt.Errorf("%s, at %v: %w", labels.path, face, err)
				}
			}
		}
	}
	return nil
}

// encodeIDs writes one id a line.
func encodeIDs(ids []int64) []byte {
	var text bytes.Buffer
	for _, id := range ids {
		fmt.Fprintln(&text, id)
	}
	return text.Bytes()
}

// decodeIDs is the inverse of encodeIDs; ids are positive.
func decodeIDs(text []byte) ([]int64, error) {
	var ids []int64
	for number, line := range lines(text) {
		id, err := strconv.ParseInt(line, 10, 64)
		if err != nil || id <= 0 {
			return nil, fmt.Errorf("line %d: %q is not an id (a whole number above 0)", number, line)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// encodeNumbers writes the table of stitch, in the order of the ids: a line for each id, "id number".
func encodeNumbers(of map[int64]int32) []byte {
	var text bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintln(&text, id, of[id])
	}
	return text.Bytes()
}

// decodeNumbers is the inverse of encodeNumbers; ids and numbers are positive, ids stand once.
func decodeNumbers(text []byte) (map[int64]int32, error) {
	of := make(map[int64]int32)
	for number, line := range lines(text) {
		left, right, _ := strings.Cut(line, " ")
		id, err1 := strconv.ParseInt(left, 10, 64)
		final, err2 := strconv.ParseInt(right, 10, 32)
		if err1 != nil || err2 != nil || id <= 0 || final <= 0 || of[id] != 0 {
			return nil, fmt.Errorf("line %d: %q is not a new id and its number (whole numbers above 0)", number, line)
		}
		of[id] = int32(final)
	}
	return of, nil
}

// lines yields line numbers, from 1, and lines without their ends.
func lines(text []byte) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range bytes.Lines(text) {
			number++
			if !yield(number, string(bytes.TrimSuffix(line, []byte("\n")))) {
				return
			}
		}
	}
}
