package job

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/daisy/geom"
	"example.org/daisy/internal/units"
)

// Chunk races. Two blocks that write into one chunk (or shard) read, change and write it as a whole; if they may run at the
// same time, the changes of one are lost. They may if neither waits for the other.
//
// Within a task every question is one of single axes. With levels of stride s per axis (s = 1 without
// read_write_conflict) two blocks that share a chunk are unordered exactly if two blocks i and i+s of some axis share one:
//   - Blocks i and i+s, equal on the other axes, are of one level, and those never wait for each other.
//   - If no such pair shares a chunk, blocks that share one are less than s apart on every axis, so two of one level are the same.
//     Of different levels, the later one waits for the other: a step to the level before moves an axis, if it moves it, by +1 or
//     by 1-s within the grid, each axis for itself; every block less than s away with the right offset is reached so, because at
//     each point at least one of the moves that are left stays inside.
//
// Between tasks the downstream block waits for what it reads, for what the blocks between read, and so on: a box of blocks for each
// path between the tasks, again each axis for itself. The order that levels add to that is left out here, so a race may be
// seen where levels happen to order the blocks, but none is missed.
//
// Two tasks may cover different axes of one array, or the same in another order. What blocks share goes by the axes of the array,
// what they wait for by the axes of the blocks. An axis that a task does not cover it is taken to write from end to end.

// axisScan bounds the positions of one axis that are looked at, from both ends. The pattern of blocks and chunks repeats, so that
// only an axis of more positions, with a pattern that long, is not judged as a whole.
const axisScan = 1 << 19

// line is one axis of a task's blocks and of its output array.
type line struct {
	begin, step, n     int64 // the total write region's begin; block shape; number of blocks
	low, high, stride  int64
	conflict           bool
	fit                geom.Fit
	writeEnd           int64 // of the total write region
	readBegin, readEnd int64 // of the total read region
	chunk, extent      int64 // of the output array
}

// span is a half-open interval of voxels, or of positions in a grid.
type span struct{ begin, end int64 }

func (s span) empty() bool     { return s.begin >= s.end }
func (s span) and(t span) span { return span{max(s.begin, t.begin), min(s.end, t.end)} }

func lines(g *geom.Grid, out *Volume) []line {
	ls := make([]line, g.Dims())
	for a := range ls {
		ls[a] = line{
			begin: g.TotalWrite().Offset.At(a), step: g.BlockShape().At(a), n: g.Shape().At(a),
			low: g.ContextLow().At(a), high: g.ContextHigh().At(a), stride: g.LevelStride().At(a), conflict: g.Spec().ReadWriteConflict,
			fit: g.Spec().Fit, writeEnd: g.TotalWrite().End().At(a),
			readBegin: g.TotalRead().Offset.At(a), readEnd: g.TotalRead().End().At(a),
		}
		if out != nil {
			// A grid ends below 2^60; what is larger is as good as this, and sums stay within int64.
			const large = int64(1) << 61
			ls[a].chunk, ls[a].extent = min(out.Chunks.At(a), large), min(out.Shape.At(a), large)
		}
	}
	return ls
}

// withStep is the line with another block shape.
func (l line) withStep(step int64) line {
	l.step = step
	extent := l.writeEnd - l.begin
	l.n = extent / step
	if l.fit != geom.Valid && extent%step != 0 {
		l.n++
	}
	l.stride = 1
	if l.conflict {
		l.stride = max(1, min(l.n, (max(l.low, l.high)+2*step-1)/step))
	}
	return l
}

func (l line) write(i int64) span {
	s := span{l.begin + i*l.step, l.begin + (i+1)*l.step}
	if l.fit == geom.Shrink {
		s.end = min(s.end, l.writeEnd)
	}
	return s
}

func (l line) read(i int64) span {
	s := span{l.begin + i*l.step - l.low, l.begin + (i+1)*l.step + l.high}
	if l.fit == geom.Shrink {
		s = s.and(span{l.readBegin, l.readEnd})
	}
	return s
}

// covered is what all blocks write together.
func (l line) covered() span {
	if l.n == 0 {
		return span{}
	}
	return span{l.begin, l.write(l.n - 1).end}
}

// blocksIn are the positions whose write regions meet s.
func (l line) blocksIn(s span) span {
	s = s.and(l.covered())
	if s.empty() {
		return span{}
	}
	return span{(s.begin - l.begin) / l.step, (s.end-1-l.begin)/l.step + 1}
}

func (l line) array() span { return span{0, l.extent} }

// hull is the voxels of all chunks that s meets, as far as the array goes.
func (l line) hull(s span) span {
	s = s.and(l.array())
	if s.empty() {
		return span{}
	}
	return span{s.begin / l.chunk * l.chunk, ((s.end-1)/l.chunk + 1) * l.chunk}.and(l.array())
}

// race is the first position i whose block shares a chunk with that at i+stride.
func (l line) race() (int64, bool) {
	if l.n <= l.stride {
		return 0, false
	}
	// The last voxel of block i is at last + i*step, the first of block i+stride is gap further; both must lie in the array
	// and in one chunk.
	last, gap := l.begin+l.step-1, (l.stride-1)*l.step+1
	from, to := int64(0), l.n-1-l.stride
	if last < 0 {
		from = (-last + l.step - 1) / l.step
	}
	if room := l.extent - 1 - gap - last; room < 0 {
		return 0, false
	} else {
		to = min(to, room/l.step)
	}
	most := l.chunk - 1 - gap // the highest place of the first voxel within its chunk
	if from > to || most < 0 {
		return 0, false
	}
	at := (last + from*l.step) % l.chunk
	if at <= most {
		return from, true
	}
	x, ok := firstMultiple(uint64(l.step), uint64(l.chunk), uint64(l.chunk-at), uint64(l.chunk-at+most))
	if !ok || x > uint64(to-from) {
		return 0, false
	}
	return from + int64(x), true
}

// firstMultiple is the smallest x ≥ 0 with low ≤ a·x mod m ≤ high, where 0 ≤ low ≤ high < m < 2^63: Euclid's algorithm on the
// interval, in O(log m).
func firstMultiple(a, m, low, high uint64) (uint64, bool) {
	if low == 0 {
		return 0, true
	}
	if a %= m; a == 0 {
		return 0, false
	}
	if x := (low + a - 1) / a; x*a <= high {
		return x, true
	}
	// No multiple of a lies in [low, high], so the interval is shorter than a; find the first turn y of m for which one lies
	// in [m·y+low, m·y+high].
	y, ok := firstMultiple(m%a, a, (a-high%a)%a, (a-low%a)%a)
	if !ok {
		return 0, false
	}
	hi, lo := bits.Mul64(m, y)
	lo, carry := bits.Add64(lo, low+a-1, 0)
	x, _ := bits.Div64(hi+carry, lo, a)
	return x, true
}

// holds tells whether a block shape satisfies safe: as the fit is, and with "shrink" in place of "valid", which would otherwise be
// satisfied by a few large blocks that leave most of the axis unwritten.
func (l line) holds(step int64, safe func(line) bool) bool {
	if !safe(l.withStep(step)) {
		return false
	}
	if l.fit == geom.Valid {
		l.fit = geom.Shrink
		return safe(l.withStep(step))
	}
	return true
}

// safeStep is the smallest block shape from the present one on that holds; false if there is none. Where more than tries would have
// to be tried, it is one that holds for certain: a multiple of the chunk, or one block for all.
func (l line) safeStep(tries int64, safe func(line) bool) (int64, bool) {
	most := max(l.step, l.writeEnd-l.begin)
	for step := l.step; step < most && tries > 0; step++ {
		if l.holds(step, safe) {
			return step, true
		}
		tries--
	}
	whole := (l.step + l.chunk - 1) / l.chunk * l.chunk
	if tries == 0 && whole < most && l.holds(whole, safe) {
		return whole, true
	}
	return most, l.holds(most, safe)
}

// safeStepBelow is the present block shape if that holds, else the whole chunks in it; false if those do not hold, or there are none.
func (l line) safeStepBelow(safe func(line) bool) (int64, bool) {
	if l.holds(l.step, safe) {
		return l.step, true
	}
	whole := l.step / l.chunk * l.chunk
	return whole, whole > 0 && l.holds(whole, safe)
}

// chunkRaces looks at each task with an output, and at each two with one output. Errors are *Error.
func chunkRaces(tasks []Task) []error {
	var errs []error
	var before []int // the tasks so far that can race
	folders := make([]folder, len(tasks))
	for i, t := range tasks {
		if t.Grid == nil || t.Grid.Len() == 0 || t.Output == nil || t.ChunkRace || t.Output.Shape.Dims() != t.Grid.Dims() {
			continue
		}
		if text := raceWithin(&t); text != "" {
			errs = append(errs, &Error{At: i, Task: t.ID, Key: "output", Text: text})
		}
		folders[i] = folderAt(t.Output.Path)
		for _, k := range before {
			if !folders[k].is(folders[i]) {
				continue
			}
			if text := raceBetween(tasks, k, i); text != "" {
				errs = append(errs, &Error{At: i, Task: t.ID, Key: "output", Text: text})
			}
		}
		before = append(before, i)
	}
	return errs
}

// A folder is that of an array, however its path is spelled.
type folder struct {
	path string
	info os.FileInfo
}

func folderAt(path string) folder {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	info, _ := os.Stat(path) // nil if there is none
	return folder{path, info}
}

func (f folder) is(g folder) bool {
	return f.path == g.path || f.info != nil && g.info != nil && os.SameFile(f.info, g.info)
}

// sameAxes gives for each axis of up's view of an array the axis of down's view that is the same axis of the array, -1 if there is
// none: by their names or, as views without names are of the last axes, from the last one on. Where only one view has names
// nothing is known, so that every axis is one that the other does not cover.
func sameAxes(up, down *Volume) []int {
	at := make([]int, up.Shape.Dims())
	for a := range at {
		switch {
		case up.Axes != nil && down.Axes != nil:
			at[a] = slices.Index(down.Axes, up.Axes[a])
		case up.Axes == nil && down.Axes == nil:
			at[a] = max(-1, a+down.Shape.Dims()-up.Shape.Dims())
		default:
			at[a] = -1
		}
	}
	return at
}

// sameOrder: both views are of the same axes in the same order.
func sameOrder(up, down *Volume) bool {
	if up.Shape.Dims() != down.Shape.Dims() {
		return false
	}
	for a, d := range sameAxes(up, down) {
		if a != d {
			return false
		}
	}
	return true
}

const allowRace = `or chunk_race = "allow" if the blocks never write a shared chunk`

// raceWithin describes a race of two blocks of one task, "" if there is none.
func raceWithin(t *Task) string {
	ls := lines(t.Grid, t.Output)
	first, second, found := racingBlocks(ls)
	if !found {
		return ""
	}
	text := fmt.Sprintf("%s and %s may run at the same time, as neither waits for the other, and both write the %s %s of %s; %s",
		blockText(t.Grid, first), blockText(t.Grid, second), unitOf(t.Output), sharedChunk(ls, ls, first, second), t.Output.Path,
		advice(ls, "", safeShapes(ls, 1<<16, func(_ int, m line) bool { _, races := m.race(); return !races })))
	for _, l := range ls {
		if l.begin%l.chunk != 0 {
			text += fmt.Sprintf(" (the total write region begins at %v, within a %[2]s of shape %[3]v; whole %[2]ss are safe from the begin of one on)", t.Grid.TotalWrite().Offset, unitOf(t.Output), t.Output.Chunks)
			break
		}
	}
	return text + ", " + allowRace
}

// racingBlocks finds the positions of two unordered blocks of one task that share a chunk.
func racingBlocks(ls []line) (first, second []int64, found bool) {
	first, second = make([]int64, len(ls)), make([]int64, len(ls))
	for a, l := range ls { // on the other axes both blocks are at the first position that writes into the array
		in := l.blocksIn(l.array())
		if in.empty() {
			return nil, nil, false
		}
		first[a], second[a] = in.begin, in.begin
	}
	for a, l := range ls {
		if i, found := l.race(); found {
			first[a], second[a] = i, i+l.stride
			return first, second, true
		}
	}
	return nil, nil, false
}

// safeShapes are block shapes that are safe on every axis, near the present one: the next one below, if there is one, and the
// smallest from the present one on; none if there is no such. tries is for each axis.
func safeShapes(ls []line, tries int64, safe func(axis int, l line) bool) [][]int64 {
	below, above := make([]int64, len(ls)), make([]int64, len(ls))
	hasBelow := true
	for a, l := range ls {
		onAxis := func(m line) bool { return safe(a, m) }
		var ok bool
		if above[a], ok = l.safeStep(tries, onAxis); !ok {
			return nil
		}
		if below[a], ok = l.safeStepBelow(onAxis); !ok {
			hasBelow = false
		}
	}
	if !hasBelow || slices.Equal(below, above) {
		return [][]int64{above}
	}
	return [][]int64{below, above}
}

// advice names safe block shapes, of a task if whose is not "", and what "valid" would leave of the volume with them.
func advice(ls []line, whose string, shapes [][]int64) string {
	texts := make([]string, len(shapes))
	for i, shape := range shapes {
		texts[i] = list(shape)
		rest := make([]int64, len(ls))
		for a, l := range ls {
			if l.fit == geom.Valid {
				rest[a] = (l.writeEnd - l.begin) % shape[a]
			}
		}
		if left := units.AtEnd(rest); left != "" {
			texts[i] += fmt.Sprintf(" (with fit = \"shrink\": \"valid\" would leave unwritten %s)", left)
		}
	}
	if len(texts) == 1 {
		return fmt.Sprintf("the smallest safe block shape%s is %s", whose, texts[0])
	}
	return fmt.Sprintf("safe block shapes%s are %s", whose, strings.Join(texts, " and "))
}

// A pair is two unordered blocks of two tasks, by position, that share a chunk. paths lead from the first to the second; without
// any the tasks are unrelated.
type pair struct {
	up, down int
	p, q     []int64
	paths    []path
}

// racingPair finds such blocks of the tasks at two positions.
func racingPair(tasks []Task, first, second int) (pair, bool) {
	r := pair{up: first, down: second, paths: pathsBetween(tasks, first, second)}
	if len(r.paths) == 0 {
		if r.paths = pathsBetween(tasks, second, first); len(r.paths) > 0 {
			r.up, r.down = second, first
		}
	}
	up, down := &tasks[r.up], &tasks[r.down]
	if len(r.paths) > 0 && up.Grid.Dims() != down.Grid.Dims() {
		return r, false // no edge can link them, which is reported elsewhere
	}
	v := newViews(up, down)
	var found bool
	if r.p, r.q, found = v.sharing(); !found {
		return r, false
	}
	for k, path := range r.paths {
		p, q := slices.Clone(r.p), slices.Clone(r.q)
		if !path.uncovered(v, p, q) {
			return r, false
		}
		if k == 0 {
			r.p, r.q = p, q
		}
	}
	return r, true
}

// views are the blocks of two tasks and how their axes lie to those of the array that both write.
type views struct {
	up, down []line
	at, from []int // for each axis of up that of down which is the same axis of the array, and the other way round; -1 if there is none
}

func newViews(up, down *Task) views {
	return views{
		up: lines(up.Grid, up.Output), down: lines(down.Grid, down.Output),
		at: sameAxes(up.Output, down.Output), from: sameAxes(down.Output, up.Output),
	}
}

// touched are the voxels of all chunks that blocks write on axis a of ls; with a -1 those along other, which are all.
func touched(ls []line, a int, other line) span {
	if a < 0 {
		return other.array()
	}
	return ls[a].hull(ls[a].covered())
}

// sharing finds two blocks that write into the first chunk that both tasks write into.
func (v views) sharing() (p, q []int64, found bool) {
	p, q = make([]int64, len(v.up)), make([]int64, len(v.down))
	first := func(l line, s span) (int64, bool) {
		s = l.hull(l.covered()).and(s)
		return l.blocksIn(l.hull(span{s.begin, s.begin + 1})).begin, !s.empty()
	}
	for a, l := range v.up {
		if p[a], found = first(l, touched(v.down, v.at[a], l)); !found {
			return nil, nil, false
		}
	}
	for a, l := range v.down {
		if q[a], found = first(l, touched(v.up, v.from[a], l)); !found {
			return nil, nil, false
		}
	}
	return p, q, true
}

// raceBetween describes a race of a block of one task with one of another, "" if there is none.
func raceBetween(tasks []Task, first, second int) string {
	r, found := racingPair(tasks, first, second)
	if !found {
		return ""
	}
	up, down := &tasks[r.up], &tasks[r.down]
	us, ds := lines(up.Grid, up.Output), lines(down.Grid, down.Output)
	file := up.Output.Path
	if file != down.Output.Path {
		file += fmt.Sprintf(" (which is %s, too)", down.Output.Path)
	}
	what := fmt.Sprintf("a %s of %s, of which task %q covers the axes %s and task %q %s", unitOf(up.Output), file, up.ID, axesText(up.Output), down.ID, axesText(down.Output))
	same := sameOrder(up.Output, down.Output)
	if same {
		what = fmt.Sprintf("the %s %s of %s", unitOf(up.Output), sharedChunk(us, ds, r.p, r.q), file)
	}
	var remedy string
	switch apart := len(r.paths) == 0; {
	case !same && apart:
		remedy = "let both cover the same axes in the same order and one come after the other"
	case !same:
		remedy = "let both cover the same axes in the same order"
	case apart:
		remedy = fmt.Sprintf("no block shape is safe, so let one task come after the other (after = [%q])", tasks[first].ID)
	default:
		remedy = fmt.Sprintf("no block shape is safe, so let task %q read all of the chunks that it writes into", down.ID)
	}
	remedy += ", give each an output of its own"
	if same && len(r.paths) > 0 {
		if shapes := safeShapesAfter(r.paths[0], us, ds); shapes != nil {
			remedy = advice(ds, fmt.Sprintf(" of task %q", down.ID), shapes)
		}
	}
	return fmt.Sprintf("%s of task %q and %s of task %q may run at the same time, as neither waits for the other, and both write %s; %s, %s",
		blockText(up.Grid, r.p), up.ID, blockText(down.Grid, r.q), down.ID, what, remedy, allowRace)
}

func axesText(v *Volume) string {
	if v.Axes == nil {
		return fmt.Sprintf("(its last %d, without names)", v.Shape.Dims())
	}
	return "(" + strings.Join(v.Axes, ", ") + ")"
}

// safeShapesAfter are shapes of downstream blocks that wait by way of the path for all that they share a chunk with, and do not race
// with each other; none if there are no such.
func safeShapesAfter(w path, up, down []line) [][]int64 {
	most := int64(1)
	for _, l := range down {
		most = max(most, l.n)
	}
	return safeShapes(down, max(1, axisScan/most), func(a int, m line) bool {
		_, races := m.race()
		_, _, bad := w.axisUncovered(a, up[a], m)
		return !races && !bad
	})
}

// path is the tasks between an upstream and a downstream task, nearest to the downstream one first: their lines by axis.
type path [][]line

// pathsBetween returns up to 64 chains of tasks that lead from task down to task up; none if it is not downstream of it.
func pathsBetween(tasks []Task, up, down int) []path {
	const most = 64
	var paths []path
	at := map[string]int{}
	for i, t := range tasks {
		at[t.ID] = i
	}
	leads := map[int]bool{up: true} // memo: whether up is upstream of a task
	onWay := map[int]bool{}
	var isUpstream func(int) bool
	isUpstream = func(i int) bool {
		if known, ok := leads[i]; ok {
			return known
		}
		if onWay[i] {
			return false // a cycle, reported elsewhere
		}
		onWay[i] = true
		defer delete(onWay, i)
		for _, name := range tasks[i].After {
			if k, ok := at[name]; ok && isUpstream(k) {
				leads[i] = true
				return true
			}
		}
		leads[i] = false
		return false
	}
	var walk func(i int, between path, depth int)
	walk = func(i int, between path, depth int) {
		if len(paths) == most || depth > len(tasks) {
			return
		}
		for _, name := range tasks[i].After {
			k, ok := at[name]
			switch {
			case !ok || !isUpstream(k):
			case k == up:
				paths = append(paths, slices.Clone(between))
			case tasks[k].Grid != nil && tasks[k].Grid.Dims() == tasks[down].Grid.Dims():
				walk(k, append(between[:len(between):len(between)], lines(tasks[k].Grid, nil)), depth+1)
			}
		}
	}
	if up != down {
		walk(down, nil, 0)
	}
	return paths
}

// uncovered finds two blocks that share a chunk although the downstream one does not wait for the upstream one by way of this path:
// it changes p and q, which share one, into them. false if there are none.
func (w path) uncovered(v views, p, q []int64) bool {
	for a := range v.up {
		if v.at[a] == a {
			if i, j, bad := w.axisUncovered(a, v.up[a], v.down[a]); bad {
				p[a], q[a] = i, j
				return true
			}
		} else if w.crossUncovered(a, v, p, q) {
			return true
		}
	}
	return false
}

// crossUncovered is uncovered on an axis of the blocks that is not the same axis of the array in both tasks. There the positions that
// downstream blocks share at and those that they wait by vary each for itself, so that blocks at both ends must wait for all.
func (w path) crossUncovered(axis int, v views, p, q []int64) bool {
	up, down := v.up[axis], v.down[axis]
	sharing := up.blocksIn(touched(v.down, v.at[axis], up))
	waiting := down.blocksIn(touched(v.up, v.from[axis], down))
	for _, j := range []int64{waiting.begin, waiting.end - 1} {
		i, bad := unwaited(sharing, w.waits(axis, up, down, j))
		if !bad {
			continue
		}
		p[axis], q[axis] = i, j
		// Along the axis of the array that each of these lies on, take blocks of the other task that share a chunk.
		if d := v.at[axis]; d >= 0 {
			q[d] = v.down[d].blocksIn(up.hull(up.write(i))).begin
		}
		if u := v.from[axis]; u >= 0 {
			p[u] = v.up[u].blocksIn(down.hull(down.write(j))).begin
		}
		return true
	}
	return false
}

func (w path) axisUncovered(axis int, up, down line) (i, j int64, bad bool) {
	in := down.blocksIn(down.array())
	for j := in.begin; j < in.end; j++ {
		if j == in.begin+axisScan && in.end-j > axisScan {
			j = in.end - axisScan
		}
		sharing := up.blocksIn(down.hull(down.write(j)))
		if sharing.empty() {
			continue
		}
		if i, bad := unwaited(sharing, w.waits(axis, up, down, j)); bad {
			return i, j, true
		}
	}
	return 0, 0, false
}

// waits are the upstream positions on an axis that the downstream one at j waits for by way of this path.
func (w path) waits(axis int, up, down line, j int64) span {
	reach := down.read(j)
	for _, between := range w {
		l := between[axis]
		blocks := l.blocksIn(reach)
		if blocks.empty() {
			return span{}
		}
		reach = span{l.read(blocks.begin).begin, l.read(blocks.end - 1).end}
	}
	return up.blocksIn(reach)
}

// unwaited is a position of sharing, which is not empty, that is not in waits; false if all are.
func unwaited(sharing, waits span) (int64, bool) {
	switch {
	case waits.empty() || sharing.begin < waits.begin:
		return sharing.begin, true
	case sharing.end > waits.end:
		return sharing.end - 1, true
	default:
		return 0, false
	}
}

func unitOf(v *Volume) string {
	if v.Sharded {
		return "shard"
	}
	return "chunk"
}

func blockText(g *geom.Grid, index []int64) string {
	at, err := geom.CoordOf(index)
	if err != nil {
		return fmt.Sprint(index)
	}
	return fmt.Sprintf("block %v, writing %v,", at, g.WriteRoi(g.Flat(at)))
}

// sharedChunk is the first chunk that two blocks share, by its position in the array's grid of chunks.
func sharedChunk(us, ds []line, p, q []int64) string {
	at := make([]int64, len(us))
	for a := range at {
		both := us[a].hull(us[a].write(p[a])).and(ds[a].hull(ds[a].write(q[a])))
		at[a] = both.begin / us[a].chunk
	}
	return "(" + strings.Trim(list(at), "[]") + ")"
}

func list(v []int64) string {
	parts := make([]string, len(v))
	for i := range v {
		parts[i] = strconv.FormatInt(v[i], 10)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
