package main

import (
	"fmt"
	"os"
)

// step does one block of a task. Each step reads files that earlier tasks have finished and writes whole chunks or
// files of its own, so the blocks of a task can run in any order, at the same time, and again.
type step func(block) error

// steps are the tasks of nuclei.toml by name.
func (p project) steps() map[string]step {
	return map[string]step{"smooth": p.smooth, "label": p.label, "stitch": p.stitch, "relabel": p.relabel}
}

// smooth reads the block and 7 voxels around it, clamped at the border of the volume, and writes the block.
func (p project) smooth(b block) error {
	in, err := openArray[uint8](p.source())
	if err != nil {
		return err
	}
	out, err := openArray[uint8](p.smoothed())
	if err != nil {
		return err
	}
	if err := b.check(out.extent(), out.chunks); err != nil {
		return err
	}
	want := b.Write.grow(gaussContext)
	inside := want.intersect(in.extent())
	if !b.Read.contains(inside) {
		return fmt.Errorf("smooth needs %v to write %v but may read only %v: the task's context must be at least %d",
			inside, b.Write, b.Read, gaussContext)
	}
	values, err := in.read(inside)
	if err != nil {
		return err
	}
	return out.write(b.Write, intGauss(extend(values, inside, want)))
}

// label finds the components inside the block and writes their ids, as voxels and as a list.
func (p project) label(b block) error {
	in, err := openArray[uint8](p.smoothed())
	if err != nil {
		return err
	}
	out, err := openArray[int64](p.labelsBlocks())
	if err != nil {
		return err
	}
	if err := b.check(out.extent(), out.chunks); err != nil {
		return err
	}
	values, err := in.read(b.Write)
	if err != nil {
		return err
	}
	labels, ids := labelBlock(values, b.Write, out.shape)
	if err := out.write(b.Write, labels); err != nil {
		return err
	}
	return writeFile(p.blockIDs(b.Index), encodeIDs(ids))
}

// stitch is one block that covers the volume: it joins what touches across blocks and numbers the components.
func (p project) stitch(b block) error {
	labels, err := openArray[int64](p.labelsBlocks())
	if err != nil {
		return err
	}
	if b.Write != labels.extent() {
		return fmt.Errorf("stitch takes one block over the whole volume %v, not %v: set block.shape to the array's shape",
			labels.extent(), b.Write)
	}
	var ids []int64
	grid := labels.grid()
	for z := range grid[0] {
		for y := range grid[1] {
			for x := range grid[2] {
				path := p.blockIDs(point{z, y, x})
				text, err := os.ReadFile(path)
				if err != nil {
					return fmt.Errorf("the ids of a block that label has not done: %w", err)
				}
				found, err := decodeIDs(text)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				ids = append(ids, found...)
			}
		}
	}
	j := newJoins(ids)
	if err := j.joinFaces(labels); err != nil {
		return err
	}
	of, _, err := j.numbers()
	if err != nil {
		return err
	}
	return writeFile(p.numbers(), encodeNumbers(of))
}

// relabel replaces the ids of the block by the final numbers.
func (p project) relabel(b block) error {
	in, err := openArray[int64](p.labelsBlocks())
	if err != nil {
		return err
	}
	out, err := openArray[int32](p.labels())
	if err != nil {
		return err
	}
	if err := b.check(out.extent(), out.chunks); err != nil {
		return err
	}
	// Read for each block: it is small, and a table kept in memory could be older than the file.
	text, err := os.ReadFile(p.numbers())
	if err != nil {
		return fmt.Errorf("the table of stitch: %w", err)
	}
	of, err := decodeNumbers(text)
	if err != nil {
		return fmt.Errorf("%s: %w", p.numbers(), err)
	}
	ids, err := in.read(b.Write)
	if err != nil {
		return err
	}
	labels := newVoxels[int32](ids.shape)
	for i, id := range ids.data {
		if id == 0 {
			continue
		}
		number, known := of[id]
		if !known {
			return fmt.Errorf("id %d of %v is not in %s: the table is of another run; start over with `nuclei prepare --fresh`",
				id, b.Write, p.numbers())
		}
		labels.data[i] = number
	}
	return out.write(b.Write, labels)
}
