package tracking

import (
	"errors"
	"fmt"
	"path/filepath"

	"example.org/daisy/geom"
)

// Migrate puts a group for the blocks of to in the place of the marks in dir, which are of the blocks of from; see Before. It copies what is
// known of the blocks for which kept, by their index in to, is true; the others begin anew. The blocks of from are some of those of to. What was there is kept, in
// backup. It is locked meanwhile. Whoever looks sees the one or the other, or a *CutShortError. Errors are as those of Open.
func Migrate(dir string, from, to *geom.Grid, kept func(block int64) bool) (backup string, err error) {
	s, err := newStore(osDisk{flock}, dir, to)
	if err != nil {
		return "", err
	}
	if s.lock, err = s.disk.Lock(s.dir, ""); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.lock.Release()) }()
	return s.replace(from, kept)
}

// next is what is whole and about to take a group's place.
const next = "next"

// replace is Migrate of a group whose lock is held.
func (s *Store) replace(from *geom.Grid, kept func(block int64) bool) (backup string, err error) {
	offset, err := offsetIn(s.grid, from)
	if err != nil {
		return "", fmt.Errorf("tracking %s: %w", s.dir, err)
	}
	old, err := newStore(s.disk, s.dir, from)
	if err != nil {
		return "", err
	}
	old.resources = make([]arrayFile, len(resourceArrays))
	defer old.closeArrays()
	if err := old.openToRead(); err != nil {
		return "", err
	}
	temp := beside(s.dir, "new")
	defer func() {
		if err != nil {
			_ = s.disk.RemoveAll(temp)
		}
	}()
	if err := buildGroup(s.disk, temp, Hash(s.grid), s.cells, old.kept()); err != nil {
		return "", err
	}
	for i, name := range old.names() {
		from := old.all()[i]
		if !from.exists() {
			continue
		}
		to := arrayFile{}
		if err := to.open(s.disk, temp, name, s.cells); err != nil {
			return "", err
		}
		err := copyCells(&to, from, arrays[name].cell, &s.cells, &old.cells, offset, kept)
		if err := errors.Join(err, to.sync(), to.close()); err != nil {
			return "", err
		}
	}
	return s.takePlace(temp)
}

// kept are the arrays that there are, and those that every group has.
func (s *Store) kept() []string {
	names := []string{doneArray, failuresArray}
	for i := range s.resources {
		if s.resources[i].exists() {
			names = append(names, resourceArrays[i])
		}
	}
	return names
}

// takePlace puts a folder that is whole in the place of the group. The two renames are no single step: what
// is found between them is a *CutShortError, never a beginning.
func (s *Store) takePlace(temp string) (backup string, err error) {
	r, err := readRoot(s.disk, s.dir)
	if err != nil {
		return "", err
	}
	parent, next := filepath.Dir(s.dir), beside(s.dir, next)
	backup = s.dir + ".before-" + r.hash[:min(8, len(r.hash))]
	for n, name := 2, backup; isThere(s.disk, backup); n++ {
		backup = fmt.Sprintf("%s-%d", name, n)
	}
	if err := s.disk.RemoveAll(next); err != nil {
		return "", explain("remove", next, err)
	}
	for _, step := range [][2]string{{temp, next}, {s.dir, backup}, {next, s.dir}} {
		if err := s.disk.Rename(step[0], step[1]); err != nil {
			if step[0] == next {
				_ = s.disk.Rename(backup, s.dir)
			}
			if isThere(s.disk, s.dir) {
				_ = s.disk.RemoveAll(next)
			}
			return "", explain("make", step[1], err)
		}
		if err := syncDir(s.disk, parent); err != nil {
			return "", err
		}
	}
	return backup, nil
}

func isThere(d Disk, path string) bool {
	_, err := d.Lstat(path)
	return err == nil
}

// offsetIn is where block 0 of small is in large. The grids have the same blocks, and large has those of small.
func offsetIn(large, small *geom.Grid) (geom.Coordinate, error) {
	if large.BlockShape() != small.BlockShape() {
		return geom.Coordinate{}, fmt.Errorf("blocks of %v are not blocks of %v", small.BlockShape(), large.BlockShape())
	}
	offset := geom.Fill(large.Dims(), 0)
	for axis := range large.Dims() {
		step := large.BlockShape().At(axis)
		apart := small.TotalWrite().Offset.At(axis) - large.TotalWrite().Offset.At(axis)
		if apart < 0 || apart%step != 0 || apart/step+small.Shape().At(axis) > large.Shape().At(axis) {
			return geom.Coordinate{}, fmt.Errorf("the blocks of %v are not among those of %v", small.TotalWrite(), large.TotalWrite())
		}
		offset = offset.With(axis, apart/step)
	}
	return offset, nil
}

// copyCells copies the cells of the blocks that are kept, which begin at offset in the grid of to, row by row.
func copyCells(to, from *arrayFile, size int64, at, was *cells, offset geom.Coordinate, kept func(block int64) bool) error {
	if was.blocks == 0 {
		return nil
	}
	last := was.grid.Dims() - 1
	row := was.grid.At(last)
	buffer := make([]byte, size*min(row, maxWrite))
	for first := int64(0); first < was.blocks; {
		n := min(row-first%row, maxWrite)
		b := buffer[:size*n]
		if err := from.readAt(b, size*was.cell(first)); err != nil {
			return err
		}
		block := at.moved(was, first, offset)
		some := false
		for i := range n {
			if kept(block + i) {
				some = true
			} else {
				clear(b[size*i : size*(i+1)])
			}
		}
		if some {
			if err := to.writeAt(b, size*at.cell(block)); err != nil {
				return err
			}
		}
		first += n
	}
	return nil
}

// moved is the block of c at the position of a block of another grid, which begins at offset in that of c.
func (c *cells) moved(other *cells, block int64, offset geom.Coordinate) int64 {
	moved, stride := int64(0), int64(1)
	for axis := c.grid.Dims() - 1; axis >= 0; axis-- {
		n := other.grid.At(axis)
		moved += (block%n + offset.At(axis)) * stride
		block /= n
		stride *= c.grid.At(axis)
	}
	return moved
}
