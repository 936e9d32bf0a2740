package job

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/geom"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// A Selection names a part of the blocks of a job. The zero value is all of them.
type Selection struct {
	// Only names tasks: all others count as done.
	Only []string
	// Roi is a region: blocks that write into it, and everything that they need.
	Roi    geom.Roi
	HasRoi bool
	// Limit is a number of blocks of each task that nothing depends on, the first ones of its grid, and everything that
	// they need; 0 = no limit.
	Limit int64
}

// IsAll reports whether nothing is left out.
func (s Selection) IsAll() bool { return len(s.Only) == 0 && !s.HasRoi && s.Limit == 0 }

// Select leaves out what is not selected, as a skip_mask does: those blocks are skipped and count as there for what depends on
// them. It returns how many blocks are left, without those that a skip_mask leaves out.
func (j *Job) Select(s Selection) (left int64, err error) {
	p, err := j.Pipeline()
	if err != nil {
		return 0, err
	}
	tasks := p.Tasks()
	chosen := make([]bool, len(tasks))
	var errs []error
	for _, id := range s.Only {
		if i := p.Index(id); i >= 0 {
			chosen[i] = true
		} else {
			errs = append(errs, fmt.Errorf("there is no task %q%s", id, Nearest(id, j.TaskIDs())))
		}
	}
	if s.HasRoi {
		for i := range tasks {
			if d := tasks[i].Grid.Dims(); d != s.Roi.Dims() {
				errs = append(errs, fmt.Errorf("the region has %s, and the blocks of task %q have %d; give a range for each",
					units.Plural(int64(s.Roi.Dims()), "dimension"), tasks[i].ID, d))
				break // as the others, most likely
			}
		}
	}
	if errs != nil {
		return 0, errors.Join(errs...)
	}
	taken := make([]scheduler.Bitmap, len(tasks))
	for i := range tasks {
		taken[i] = scheduler.NewBitmap(tasks[i].Grid.Len())
	}
	needs := make([]bool, len(tasks))
	for i := range tasks {
		needs[i] = len(p.Upstream(i)) > 0
	}
	type block struct {
		task int
		at   int64
	}
	var todo []block
	take := func(task int, at int64) {
		if len(s.Only) > 0 && !chosen[task] || taken[task].Get(at) {
			return
		}
		taken[task].Set(at)
		if (s.HasRoi || s.Limit > 0) && (needs[task] || tasks[task].Grid.Levels() > 1) {
			todo = append(todo, block{task, at})
		}
	}
	for i := range tasks {
		grid, n := tasks[i].Grid, tasks[i].Grid.Len()
		isEnd := len(p.Downstream(i)) == 0
		if len(s.Only) > 0 {
			isEnd = chosen[i]
		}
		if s.Limit > 0 && !isEnd {
			continue // what the end needs of it is taken with that
		}
		of := int64(0)
		each := func(at int64) bool {
			take(i, at)
			of++
			return s.Limit == 0 || of < s.Limit
		}
		if s.HasRoi {
			eachOf(grid.WriteBlocks(s.Roi), func(k geom.Coordinate) bool { return each(grid.Flat(k)) })
			continue
		}
		for at := range n {
			if !each(at) {
				break
			}
		}
	}
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		scheduler.Dependencies(p, b.task, b.at, take)
	}
	for i := range tasks {
		mask := scheduler.NewBitmap(tasks[i].Grid.Len())
		for w := range mask {
			mask[w] = ^taken[i][w]
		}
		if rest := tasks[i].Grid.Len() % 64; rest > 0 {
			mask[len(mask)-1] &= 1<<rest - 1
		}
		t := j.Task(tasks[i].ID)
		t.Unselected = slices.Clone(mask)
		for w := range t.Mask {
			mask[w] |= t.Mask[w]
		}
		t.Mask = mask
		left += tasks[i].Grid.Len() - mask.Count()
	}
	return left, nil
}

// eachOf calls yield with each position of a box, in C order, until it returns false.
func eachOf(b geom.Box, yield func(geom.Coordinate) bool) {
	if b.Empty() {
		return
	}
	for k := b.Begin; yield(k); {
		axis := k.Dims() - 1
		for ; axis >= 0; axis-- {
			if k = k.With(axis, k.At(axis)+1); k.At(axis) < b.End.At(axis) {
				break
			}
			k = k.With(axis, b.Begin.At(axis))
		}
		if axis < 0 {
			return
		}
	}
}

// ParseRoi reads a region: "begin:end" of each axis, joined by commas.
func ParseRoi(text string) (geom.Roi, error) {
	var begin, shape []int64
	for i, part := range strings.Split(text, ",") {
		low, high, ok := strings.Cut(strings.TrimSpace(part), ":")
		from, err1 := strconv.ParseInt(low, 10, 64)
		to, err2 := strconv.ParseInt(high, 10, 64)
		switch {
		case !ok || err1 != nil || err2 != nil:
			return geom.Roi{}, fmt.Errorf("%q is no range of axis %d; wanted is begin:end, as in 0:512", part, i)
		case to <= from || to-from < 0:
			return geom.Roi{}, fmt.Errorf("the range %q of axis %d is empty", part, i)
		case i == geom.MaxDims:
			return geom.Roi{}, fmt.Errorf("more than %d axes", geom.MaxDims)
		}
		begin, shape = append(begin, from), append(shape, to-from)
	}
	return geom.Roi{Offset: geom.Coord(begin...), Shape: geom.Coord(shape...)}, nil
}

// roiText is what ParseRoi reads.
func roiText(r geom.Roi) string {
	parts := make([]string, r.Dims())
	for i := range parts {
		parts[i] = fmt.Sprintf("%d:%d", r.Offset.At(i), r.Offset.At(i)+r.Shape.At(i))
	}
	return strings.Join(parts, ",")
}

// Flags are the options of the command line that name the selection, one "flag value" each.
func (s Selection) Flags() (flags [][2]string) {
	for _, id := range s.Only {
		flags = append(flags, [2]string{"--only", id})
	}
	if s.HasRoi {
		flags = append(flags, [2]string{"--roi", roiText(s.Roi)})
	}
	if s.Limit > 0 {
		flags = append(flags, [2]string{"--limit", strconv.FormatInt(s.Limit, 10)})
	}
	return flags
}

// String is the selection as options of the command line.
func (s Selection) String() string {
	if s.IsAll() {
		return "all blocks"
	}
	var texts []string
	for _, f := range s.Flags() {
		texts = append(texts, f[0]+" "+f[1])
	}
	return strings.Join(texts, " ")
}

// SetFlag takes in one of Flags. It is false for another flag.
func (s *Selection) SetFlag(flag, value string) (known bool, err error) {
	switch flag {
	case "--only":
		s.Only = append(s.Only, value)
	case "--roi":
		s.HasRoi = true
		s.Roi, err = ParseRoi(value)
	case "--limit":
		s.Limit, err = strconv.ParseInt(value, 10, 64)
	default:
		return false, nil
	}
	return true, err
}
