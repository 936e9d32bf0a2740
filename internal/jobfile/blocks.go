package jobfile

import (
	"fmt"
	"strings"

	"example.org/daisy/geom"
	"example.org/daisy/internal/array"
	"example.org/daisy/internal/job"
)

// farthest bounds offsets and extents, so that sums of a few of them stay within int64; grids end far below it anyway.
const farthest = int64(1) << 58

// template is one block: what it reads and writes, anywhere.
type template struct{ read, write geom.Roi }

// readBlocks reads what describes the grid: the total region, a block, fit and conflict.
func (t table) readBlocks(task *job.Task) {
	fit := geom.Valid
	if s, ok := t.choice("fit", "valid", "overhang", "shrink"); ok {
		fit, _ = geom.ParseFit(s)
	}
	conflict := true
	t.boolean("read_write_conflict", &conflict)
	total, key, isWrite, okTotal := t.total(task)
	b, okBlock := t.block()
	if !okTotal || !okBlock {
		return
	}
	if total.Dims() != b.write.Dims() {
		blockKey := "block"
		if !t.has("block") {
			blockKey = "write_roi"
		}
		t.fail(blockKey, "%d dimensions, but %s has %d; both have the same", b.write.Dims(), key, total.Dims())
		return
	}
	low, high := b.write.Offset.Sub(b.read.Offset), b.read.End().Sub(b.write.End())
	totalRead := total
	if isWrite {
		totalRead = total.Grow(low, high)
	} else {
		for axis := range total.Dims() {
			if left := total.Shape.At(axis) - low.At(axis) - high.At(axis); left < 1 {
				t.fail(t.contextKey(), "%d voxels below and %d above leave nothing to write of the %d that are read in total on axis %d; allowed is a smaller context or a larger %s",
					low.At(axis), high.At(axis), total.Shape.At(axis), axis, key)
				return
			}
		}
	}
	grid, err := geom.NewGrid(geom.GridSpec{TotalRead: totalRead, Read: b.read, Write: b.write, Fit: fit, ReadWriteConflict: conflict})
	if err != nil {
		t.fail(key, "%s", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "geom: "), "\n", "; "))
		return
	}
	task.Grid = grid
}

// contextKey is the key that gives the context.
func (t table) contextKey() string {
	if t.has("read_roi") {
		return "read_roi"
	}
	return "block"
}

// total is the total region, the key that gives it, and whether it is what is written.
func (t table) total(task *job.Task) (total geom.Roi, key string, isWrite, ok bool) {
	const allowed = "give exactly one of array, total, total_write"
	for _, k := range []string{"array", "total", "total_write"} {
		if !t.has(k) {
			continue
		}
		if key != "" {
			t.fail(k, "the region is given by %s already; %s", key, allowed)
			return total, key, false, false
		}
		key = k
	}
	isRead := false
	if how, given := t.choice("array_is", "write", "read"); given {
		isRead = how == "read"
	}
	axes, okAxes := t.strings("axes")
	if key != "array" {
		for _, k := range []string{"array_is", "axes"} {
			if t.has(k) {
				t.fail(k, "there is no array; %s belongs to the key array", k)
			}
		}
	}
	switch key {
	case "":
		t.fail("total", "missing; %s", allowed)
		return total, key, false, false
	case "array":
		a, ok := t.openArray(task, axes)
		if !ok || t.has("axes") && !okAxes {
			return total, key, false, false
		}
		return geom.Roi{Offset: geom.Fill(a.Shape.Dims(), 0), Shape: a.Shape}, key, !isRead, true
	default:
		total, ok = t.region(key)
		return total, key, key == "total_write", ok
	}
}

// openArray reads the metadata of array, along axes if they are named.
func (t table) openArray(task *job.Task, axes []string) (*array.Array, bool) {
	path, ok := t.file("array")
	if !ok {
		return nil, false
	}
	task.ArrayPath = path
	a, err := array.Open(path)
	if err != nil {
		t.fail("array", "%v", err)
		return nil, false
	}
	if axes != nil {
		selected, err := a.Select(axes)
		if err != nil {
			t.fail("axes", "%v; allowed are names of axes of the array, or total_write in place of array", err)
			return nil, false
		}
		a = selected
	} else if space := a.SpaceAxes(); len(space) > 0 && len(space) < a.Shape.Dims() {
		if a, err = a.Select(space); err != nil {
			t.fail("array", "%v", err)
			return nil, false
		}
	}
	for axis := range a.Shape.Dims() {
		if n := a.Shape.At(axis); n < 1 || n > farthest {
			t.fail("array", "the array has shape %v; allowed are extents from 1 to 2^58", a.Shape)
			return nil, false
		}
	}
	task.Input = volume(a)
	return a, true
}

// region reads { offset = [..], shape = [..] }.
func (t table) region(key string) (geom.Roi, bool) {
	const wanted = "a region { offset = [..], shape = [..] }"
	r, ok := t.table(key, wanted)
	if !ok {
		return geom.Roi{}, false
	}
	r.unknown("region")
	for _, k := range []string{"offset", "shape"} {
		if !r.has(k) {
			t.fail(key, "%s is missing; wanted %s", k, wanted)
			ok = false
		}
	}
	offset, okOffset := r.integers("offset", -farthest)
	shape, okShape := r.integers("shape", 1)
	if !ok || !okOffset || !okShape {
		return geom.Roi{}, false
	}
	if len(offset) != len(shape) {
		t.fail(key, "offset has %d dimensions, shape has %d; both have the same", len(offset), len(shape))
		return geom.Roi{}, false
	}
	for axis := range shape {
		if offset[axis] > farthest || shape[axis] > farthest {
			t.fail(key, "the region [%d, +%d) on axis %d lies too far out; allowed is within 2^58 of 0", offset[axis], shape[axis], axis)
			return geom.Roi{}, false
		}
	}
	return geom.Roi{Offset: coordinate(offset), Shape: coordinate(shape)}, true
}

// block reads a block from block, or from read_roi and write_roi.
func (t table) block() (template, bool) {
	const allowed = "give block = { shape = [..], context = .. }, or read_roi and write_roi"
	hasRoi := t.has("read_roi") || t.has("write_roi")
	switch {
	case t.has("block") && hasRoi:
		key := "read_roi"
		if !t.has(key) {
			key = "write_roi"
		}
		t.fail(key, "the block is given by block already; %s", allowed)
		return template{}, false
	case t.has("block"):
		return t.shapeAndContext()
	case !hasRoi:
		t.fail("block", "missing; %s", allowed)
		return template{}, false
	case !t.has("read_roi"):
		t.fail("read_roi", "missing beside write_roi; %s", allowed)
		return template{}, false
	case !t.has("write_roi"):
		t.fail("write_roi", "missing beside read_roi; %s", allowed)
		return template{}, false
	}
	read, okRead := t.region("read_roi")
	write, okWrite := t.region("write_roi")
	if !okRead || !okWrite {
		return template{}, false
	}
	if read.Dims() != write.Dims() {
		t.fail("write_roi", "%d dimensions, but read_roi has %d; both have the same", write.Dims(), read.Dims())
		return template{}, false
	}
	if !read.Contains(write) {
		t.fail("write_roi", "%v is not inside read_roi, %v; a block reads at least what it writes", write, read)
		return template{}, false
	}
	return template{read, write}, true
}

func (t table) shapeAndContext() (template, bool) {
	b, ok := t.table("block", "a table { shape = [..], context = .. }")
	if !ok {
		return template{}, false
	}
	b.unknown("block")
	if !b.has("shape") {
		t.fail("block", "shape is missing; wanted { shape = [..], context = .. }")
		return template{}, false
	}
	shape, ok := b.integers("shape", 1)
	if !ok {
		return template{}, false
	}
	for axis, n := range shape {
		if n > farthest {
			b.failItem("shape", axis, "%d on axis %d is too large; allowed is 2^58 or less", n, axis)
			return template{}, false
		}
	}
	low, high, ok := b.context(len(shape))
	if !ok {
		return template{}, false
	}
	write := geom.Roi{Offset: geom.Fill(len(shape), 0), Shape: coordinate(shape)}
	return template{read: write.Grow(low, high), write: write}, true
}

// context reads n | [..] | { low = .., high = .. }, where low and high are a number or a list.
func (t table) context(dims int) (low, high geom.Coordinate, ok bool) {
	none := geom.Fill(dims, 0)
	switch t.m["context"].(type) {
	case nil:
		return none, none, true
	case map[string]any:
		c, _ := t.table("context", "")
		c.unknown("context")
		low, okLow := c.margin("low", dims)
		high, okHigh := c.margin("high", dims)
		return low, high, okLow && okHigh
	default:
		both, ok := t.margin("context", dims)
		return both, both, ok
	}
}

// margin reads a number for all axes or one for each; 0 if it is missing.
func (t table) margin(key string, dims int) (geom.Coordinate, bool) {
	none := geom.Fill(dims, 0)
	v, ok := t.m[key]
	if !ok {
		return none, true
	}
	const most = farthest
	switch v.(type) {
	case int64, outOfRange:
		n, ok := t.integer(key, 0, most)
		return geom.Fill(dims, n), ok
	}
	if _, isList := items(v); !isList {
		wanted := "an integer or a list of integers"
		if key == "context" {
			wanted = "an integer, a list of integers, or { low = .., high = .. }"
		}
		t.want(key, wanted)
		return none, false
	}
	list, ok := t.integers(key, 0)
	if !ok {
		return none, false
	}
	if len(list) != dims {
		t.fail(key, "%d numbers for a block of %d dimensions; allowed is one number for all axes or one for each", len(list), dims)
		return none, false
	}
	for axis, n := range list {
		if n > most {
			t.failItem(key, axis, "%d on axis %d is too large; allowed is 2^58 or less", n, axis)
			return none, false
		}
	}
	return coordinate(list), true
}

// coordinate is a list whose length was checked.
func coordinate(v []int64) geom.Coordinate {
	c, err := geom.CoordOf(v)
	if err != nil {
		panic(fmt.Sprintf("jobfile: %v", err))
	}
	return c
}
