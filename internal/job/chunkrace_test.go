package job

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.org/daisy/geom"
)

// graph is the brute-force model: all blocks of all tasks, and what each waits for, directly and by way of others.
type graph struct {
	tasks []Task
	first []int // number of the first block of each task
	waits [][]bool
}

func newGraph(tasks []Task) *graph {
	g := &graph{tasks: tasks}
	at, n := map[string]int{}, 0
	for i, t := range tasks {
		at[t.ID] = i
		g.first = append(g.first, n)
		n += int(t.Grid.Len())
	}
	direct := make([][]int, n)
	for i, t := range tasks {
		for b := range t.Grid.Len() {
			v := g.first[i] + int(b)
			t.Grid.LevelUpstream(b, func(up int64) bool {
				direct[v] = append(direct[v], g.first[i]+int(up))
				return true
			})
			for _, name := range t.After {
				k := at[name]
				for c := range tasks[k].Grid.Len() {
					if tasks[k].Grid.WriteRoi(c).Intersects(t.Grid.ReadRoi(b)) {
						direct[v] = append(direct[v], g.first[k]+int(c))
					}
				}
			}
		}
	}
	g.waits = make([][]bool, n)
	for v := range n {
		seen := make([]bool, n)
		stack := []int{v}
		for len(stack) > 0 {
			u := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, w := range direct[u] {
				if !seen[w] {
					seen[w] = true
					stack = append(stack, w)
				}
			}
		}
		g.waits[v] = seen
	}
	return g
}

func (g *graph) ordered(i int, b int64, k int, c int64) bool {
	v, w := g.first[i]+int(b), g.first[k]+int(c)
	return g.waits[v][w] || g.waits[w][v]
}

// shareChunk goes through the chunks of the array one by one.
func shareChunk(out *Volume, a, b geom.Roi) bool {
	n := out.Shape.Dims()
	at := geom.Fill(n, 0)
	var visit func(axis int) bool
	visit = func(axis int) bool {
		if axis == n {
			chunk := geom.Roi{Offset: at, Shape: out.Chunks}.Intersect(geom.Roi{Offset: geom.Fill(n, 0), Shape: out.Shape})
			return chunk.Intersects(a) && chunk.Intersects(b)
		}
		for v := int64(0); v < out.Shape.At(axis); v += out.Chunks.At(axis) {
			at = at.With(axis, v)
			if visit(axis + 1) {
				return true
			}
		}
		return false
	}
	return visit(0)
}

// races tells whether two blocks, one of each task, share a chunk and are not ordered.
func (g *graph) races(i, k int) bool {
	for b := range g.tasks[i].Grid.Len() {
		for c := range g.tasks[k].Grid.Len() {
			if (i != k || b != c) && g.racingPair(i, b, k, c) {
				return true
			}
		}
	}
	return false
}

func (g *graph) racingPair(i int, b int64, k int, c int64) bool {
	return !g.ordered(i, b, k, c) && shareChunk(g.tasks[i].Output, g.tasks[i].Grid.WriteRoi(b), g.tasks[k].Grid.WriteRoi(c))
}

// drawGrid makes a grid of up to a few blocks an axis, anywhere around the origin.
func drawGrid(t *rapid.T, dims int, longest int64, levels bool) *geom.Grid {
	for {
		var offset, extent, shape, low, high geom.Coordinate
		offset = geom.Fill(dims, 0)
		extent, shape, low, high = offset, offset, offset, offset
		for a := range dims {
			offset = offset.With(a, rapid.Int64Range(-5, 8).Draw(t, "begin"))
			extent = extent.With(a, rapid.Int64Range(1, longest).Draw(t, "extent"))
			shape = shape.With(a, rapid.Int64Range(1, 6).Draw(t, "shape"))
			low = low.With(a, rapid.Int64Range(0, 7).Draw(t, "low"))
			high = high.With(a, rapid.Int64Range(0, 7).Draw(t, "high"))
		}
		if rapid.Bool().Draw(t, "no context") {
			low, high = geom.Fill(dims, 0), geom.Fill(dims, 0)
		}
		write := geom.Roi{Offset: geom.Fill(dims, 0), Shape: shape}
		g, err := geom.NewGrid(geom.GridSpec{
			TotalRead: geom.Roi{Offset: offset, Shape: extent}.Grow(low, high), Read: write.Grow(low, high), Write: write,
			Fit: geom.Fit(rapid.IntRange(0, 2).Draw(t, "fit")), ReadWriteConflict: levels && rapid.Bool().Draw(t, "conflict"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if g.Len() > 0 {
			return g
		}
	}
}

func drawVolume(t *rapid.T, dims int, longest int64) *Volume {
	v := &Volume{Path: "/out", Shape: geom.Fill(dims, 0), Chunks: geom.Fill(dims, 0)}
	for a := range dims {
		v.Shape = v.Shape.With(a, rapid.Int64Range(1, longest+8).Draw(t, "array"))
		v.Chunks = v.Chunks.With(a, rapid.Int64Range(1, 12).Draw(t, "chunk"))
	}
	return v
}

func TestARaceWithinATaskIsFoundExactlyIfABruteForceFindsOne(t *testing.T) {
	longest := []int64{0, 40, 12, 7}
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.IntRange(1, 3).Draw(t, "dims")
		task := Task{ID: "a", Grid: drawGrid(t, dims, longest[dims], true), Output: drawVolume(t, dims, longest[dims])}
		g := newGraph([]Task{task})
		ls := lines(task.Grid, task.Output)
		p, q, found := racingBlocks(ls)
		if want := g.races(0, 0); found != want {
			t.Fatalf("found a race: %v (%v and %v), brute force: %v", found, p, q, want)
		}
		if !found {
			return
		}
		b, c := task.Grid.Flat(geom.Coord(p...)), task.Grid.Flat(geom.Coord(q...))
		if b < 0 || c < 0 || !g.racingPair(0, b, 0, c) {
			t.Fatalf("blocks %v and %v do not race", p, q)
		}
		races := func(shape []int64) bool {
			spec := task.Grid.Spec()
			write := geom.Roi{Offset: geom.Fill(dims, 0), Shape: geom.Coord(shape...)}
			spec.Write, spec.Read = write, write.Grow(task.Grid.ContextLow(), task.Grid.ContextHigh())
			fits := []geom.Fit{spec.Fit}
			if spec.Fit == geom.Valid { // whoever takes the advice may take "shrink" with it
				fits = append(fits, geom.Shrink)
			}
			return slices.ContainsFunc(fits, func(fit geom.Fit) bool {
				spec.Fit = fit
				grid, err := geom.NewGrid(spec)
				if err != nil {
					t.Fatal(err)
				}
				return newGraph([]Task{{ID: "a", Grid: grid, Output: task.Output}}).races(0, 0)
			})
		}
		shapes := safeShapes(ls, 1<<16, func(_ int, m line) bool { _, races := m.race(); return !races })
		for _, shape := range shapes {
			if races(shape) {
				t.Fatalf("block shape %v is said to be safe and is not", shape)
			}
		}
		safe := shapes[len(shapes)-1]
		for a := range safe {
			smaller := append([]int64(nil), safe...)
			if smaller[a]--; smaller[a] >= task.Grid.BlockShape().At(a) && !races(smaller) {
				t.Fatalf("block shape %v is said to be the smallest safe one, but %v is safe", safe, smaller)
			}
		}
	})
}

// drawTasks makes two tasks with one output, perhaps with others between them.
func drawTasks(t *rapid.T, levels bool) []Task {
	dims := rapid.IntRange(1, 2).Draw(t, "dims")
	longest := []int64{0, 30, 9}[dims]
	out := drawVolume(t, dims, longest)
	task := func(id string, after ...string) Task {
		return Task{ID: id, After: after, Grid: drawGrid(t, dims, longest, levels)}
	}
	var tasks []Task
	switch rapid.SampledFrom([]string{"apart", "chain", "long chain", "backwards", "diamond"}).Draw(t, "form") {
	case "apart":
		tasks = []Task{task("a"), task("b"), task("m")}
	case "chain":
		tasks = []Task{task("a"), task("b", "a")}
	case "long chain":
		tasks = []Task{task("a"), task("b", "m"), task("m", "a")}
	case "backwards":
		tasks = []Task{task("a", "b"), task("b")}
	case "diamond":
		tasks = []Task{task("a"), task("b", "m", "n"), task("m", "a"), task("n", "a")}
	}
	tasks[0].Output, tasks[1].Output = out, out
	return tasks
}

func TestARaceBetweenTasksIsFoundExactlyIfABruteForceFindsOneWithoutLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := drawTasks(t, false)
		g := newGraph(tasks)
		r, found := racingPair(tasks, 0, 1)
		want := g.races(0, 1)
		if want && !found || found && !want && len(r.paths) < 2 {
			t.Fatalf("found a race: %v (%v and %v), brute force: %v", found, r.p, r.q, want)
		}
		if !found || len(r.paths) > 1 {
			return
		}
		b, c := tasks[r.up].Grid.Flat(geom.Coord(r.p...)), tasks[r.down].Grid.Flat(geom.Coord(r.q...))
		if b < 0 || c < 0 || !g.racingPair(r.up, b, r.down, c) {
			t.Fatalf("blocks %v and %v do not race", r.p, r.q)
		}
	})
}

func TestNoRaceBetweenTasksIsMissedWithLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := drawTasks(t, true)
		if _, found := racingPair(tasks, 0, 1); !found && newGraph(tasks).races(0, 1) {
			t.Fatal("a race was missed")
		}
	})
}

// A seen array is one as two tasks see it: each by some of its axes, in an order of its own.
type seenArray struct {
	names []string
	whole *Volume
}

func drawSeenArray(t *rapid.T, longest int64) seenArray {
	n := rapid.IntRange(1, 3).Draw(t, "axes")
	return seenArray{[]string{"z", "y", "x"}[:n], drawVolume(t, n, longest)}
}

// view is the array by the axes at these positions.
func (s seenArray) view(axes []int) *Volume {
	v := &Volume{Path: s.whole.Path, Shape: geom.Fill(len(axes), 0), Chunks: geom.Fill(len(axes), 0)}
	for a, k := range axes {
		v.Shape, v.Chunks = v.Shape.With(a, s.whole.Shape.At(k)), v.Chunks.With(a, s.whole.Chunks.At(k))
		v.Axes = append(v.Axes, s.names[k])
	}
	return v
}

// region is what a block of a task with this view writes into the array: axes that it does not cover from end to end.
func (s seenArray) region(v *Volume, r geom.Roi) geom.Roi {
	all := geom.Roi{Offset: geom.Fill(len(s.names), 0), Shape: s.whole.Shape}
	for k, name := range s.names {
		if a := slices.Index(v.Axes, name); a >= 0 {
			all.Offset, all.Shape = all.Offset.With(k, r.Offset.At(a)), all.Shape.With(k, r.Shape.At(a))
		}
	}
	return all
}

func TestARaceBetweenTasksThatSeeTheArrayByOtherAxesIsFoundExactlyIfABruteForceFindsOne(t *testing.T) {
	const longest = 9
	rapid.Check(t, func(t *rapid.T) {
		array := drawSeenArray(t, longest)
		axes := make([]int, len(array.names))
		for i := range axes {
			axes[i] = i
		}
		apart := rapid.Bool().Draw(t, "apart")
		var tasks []Task
		for _, id := range []string{"a", "b"} {
			picked := rapid.Permutation(axes).Draw(t, "axes")
			if apart { // linked tasks have the same number of axes
				picked = picked[:rapid.IntRange(1, len(picked)).Draw(t, "covered")]
			}
			tasks = append(tasks, Task{ID: id, Grid: drawGrid(t, len(picked), longest, false), Output: array.view(picked)})
		}
		if !apart {
			tasks[1].After = []string{"a"}
		}
		g := newGraph(tasks)
		races := func(b, c int64) bool {
			return !g.ordered(0, b, 1, c) && shareChunk(array.whole,
				array.region(tasks[0].Output, tasks[0].Grid.WriteRoi(b)), array.region(tasks[1].Output, tasks[1].Grid.WriteRoi(c)))
		}
		want := false
		for b := range tasks[0].Grid.Len() {
			for c := range tasks[1].Grid.Len() {
				want = want || races(b, c)
			}
		}
		r, found := racingPair(tasks, 0, 1)
		if found != want {
			t.Fatalf("found a race: %v (%v and %v), brute force: %v", found, r.p, r.q, want)
		}
		if found && !races(tasks[0].Grid.Flat(geom.Coord(r.p...)), tasks[1].Grid.Flat(geom.Coord(r.q...))) {
			t.Fatalf("blocks %v and %v do not race", r.p, r.q)
		}
	})
}

// squares are two unrelated tasks of two axes that write the same chunks.
func squares(t *testing.T) []Task {
	t.Helper()
	block := geom.Roi{Offset: geom.Fill(2, 0), Shape: geom.Fill(2, 32)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Fill(2, 0), Shape: geom.Fill(2, 64)}, Read: block, Write: block})
	if err != nil {
		t.Fatal(err)
	}
	out := Volume{Path: "/out", Shape: geom.Fill(2, 64), Chunks: geom.Fill(2, 32)}
	tasks := []Task{{ID: "a", Grid: g}, {ID: "b", Grid: g}}
	for i := range tasks {
		v := out
		tasks[i].Output = &v
	}
	return tasks
}

func TestAnArrayIsOneHoweverItsPathIsSpelled(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, err := range []error{os.Mkdir("out.zarr", 0o777), os.Mkdir("other.zarr", 0o777), os.Symlink("out.zarr", "link.zarr"), os.Symlink(dir, "here")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, one := range map[string]bool{
		"out.zarr": true, dir + "/./out.zarr": true, dir + "/out.zarr/": true, dir + "/other.zarr/../out.zarr": true,
		dir + "/link.zarr": true, dir + "/here/out.zarr": true, "./link.zarr/": true, "here/here/link.zarr": true,
		dir + "/other.zarr": false, dir + "/none.zarr": false,
	} {
		tasks := squares(t)
		tasks[0].Output.Path, tasks[1].Output.Path = dir+"/out.zarr", path
		if errs := chunkRaces(tasks); (len(errs) == 1) != one {
			t.Errorf("output %s: %v", path, errs)
		}
	}
	tasks := squares(t)
	tasks[0].Output.Path, tasks[1].Output.Path = dir+"/none.zarr", dir+"/x/../none.zarr/"
	if errs := chunkRaces(tasks); len(errs) != 1 {
		t.Errorf("an array that is not there yet, spelled in two ways: %v", errs)
	}
}

func TestTasksOfWhichOnlyOneNamesItsAxesMustBeOrderedAsAWhole(t *testing.T) {
	tasks := squares(t)
	tasks[0].Output.Axes = []string{"y", "x"}
	errs := chunkRaces(tasks)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), `task "a" covers the axes (y, x) and task "b" (its last 2, without names)`) {
		t.Fatalf("got %v", errs)
	}
	tasks[1].After = []string{"a"}
	if errs := chunkRaces(tasks); len(errs) != 1 {
		t.Errorf("blocks that wait for one block each: %v", errs)
	}
	whole := geom.Roi{Offset: geom.Fill(2, 0), Shape: geom.Fill(2, 64)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: whole, Read: whole, Write: whole})
	if err != nil {
		t.Fatal(err)
	}
	tasks[1].Grid = g
	if errs := chunkRaces(tasks); len(errs) > 0 {
		t.Errorf("a block that waits for all: %v", errs)
	}
}

func TestAxesWithoutNamesAreTheSameFromTheLastOneOn(t *testing.T) {
	lineFrom := func(begin int64) Task {
		block := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(32)}
		g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(begin), Shape: geom.Coord(32)}, Read: block, Write: block})
		if err != nil {
			t.Fatal(err)
		}
		return Task{ID: "b", Grid: g, Output: &Volume{Path: "/out", Shape: geom.Coord(64), Chunks: geom.Coord(32)}}
	}
	spec := squares(t)[0].Grid.Spec()
	spec.TotalRead.Shape = geom.Coord(64, 32) // the chunks at the begin of the last axis
	g, err := geom.NewGrid(spec)
	if err != nil {
		t.Fatal(err)
	}
	first := squares(t)[0]
	first.Grid = g
	for begin, races := range map[int64]bool{0: true, 32: false} {
		for _, tasks := range [][]Task{{first, lineFrom(begin)}, {lineFrom(begin), first}} {
			if errs := chunkRaces(tasks); (len(errs) == 1) != races {
				t.Errorf("from %d on: %v", begin, errs)
			}
		}
	}
	linked := []Task{first, lineFrom(0)}
	linked[1].After = []string{"a"}
	if errs := chunkRaces(linked); len(errs) > 0 {
		t.Errorf("tasks that cannot be linked, which the check of edges reports: %v", errs)
	}
}

func TestABlockThatSeesTheAxesInAnotherOrderMustWaitForAllThatItSharesAChunkWith(t *testing.T) {
	tasks := squares(t)
	tasks[0].Output.Axes, tasks[1].Output.Axes, tasks[1].After = []string{"y", "x"}, []string{"x", "y"}, []string{"a"}
	reading := func(low, high int64) []error {
		spec := tasks[0].Grid.Spec()
		spec.TotalRead, spec.Read = spec.TotalRead.Grow(geom.Fill(2, low), geom.Fill(2, high)), spec.Write.Grow(geom.Fill(2, low), geom.Fill(2, high))
		g, err := geom.NewGrid(spec)
		if err != nil {
			t.Fatal(err)
		}
		tasks[1].Grid = g
		return chunkRaces(tasks)
	}
	for _, c := range []struct {
		low, high int64
		want      string // "" if none
	}{
		{0, 0, `block (1, 0), writing [32:64, 0:32], of task "a" and block (0, 1), writing [0:32, 32:64], of task "b"`},
		{32, 0, `block (1, 0), writing [32:64, 0:32], of task "a" and block (0, 1), writing [0:32, 32:64], of task "b"`},
		{0, 32, `block (0, 1), writing [0:32, 32:64], of task "a" and block (1, 0), writing [32:64, 0:32], of task "b"`},
		{32, 32, ""},
	} {
		errs := reading(c.low, c.high)
		if len(errs) > 1 || (len(errs) == 1) != (c.want != "") || len(errs) == 1 && !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("a context of %d and %d: %v, want %q", c.low, c.high, errs, c.want)
		}
	}
}

func TestTheFirstMultipleInAnIntervalIsThatOfASearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Uint64Range(1, 200).Draw(t, "m")
		a := rapid.Uint64Range(0, 300).Draw(t, "a")
		low := rapid.Uint64Range(0, m-1).Draw(t, "low")
		high := rapid.Uint64Range(low, m-1).Draw(t, "high")
		got, ok := firstMultiple(a, m, low, high)
		for x := range m + 1 {
			if v := a * x % m; low <= v && v <= high {
				if !ok || got != x {
					t.Fatalf("got %d %v, want %d", got, ok, x)
				}
				return
			}
		}
		if ok {
			t.Fatalf("got %d, want none", got)
		}
	})
}

// A grid of 10^12 blocks costs no more than one of ten.
func TestRacesInHugeGridsAreFoundAtOnce(t *testing.T) {
	for _, test := range []struct{ begin, step, chunk, want int64 }{
		{0, 64, 64, -1},
		{0, 65, 64, 0},
		{1, 64, 64, 0},
		{0, 1 << 20, 1<<40 + 1, 0},
		{0, 1<<20 + 1, 1 << 20, 0},
		{1, 999_999_999_999, 1_000_000_000_000, 1},
		{0, 64, 1 << 62, 0},
	} {
		t.Run(fmt.Sprintf("%d+%d/%d", test.begin, test.step, test.chunk), func(t *testing.T) {
			large := int64(1) << 55
			block := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(test.step)}
			g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(test.begin), Shape: geom.Coord(large)}, Read: block, Write: block, Fit: geom.Shrink})
			if err != nil {
				t.Fatal(err)
			}
			task := Task{ID: "a", Grid: g, Output: &Volume{Path: "/out", Shape: geom.Coord(1 << 62), Chunks: geom.Coord(test.chunk)}}
			p, _, found := racingBlocks(lines(g, task.Output))
			got := int64(-1)
			if found {
				got = p[0]
			}
			if got != test.want {
				t.Errorf("first race at block %d, want %d", got, test.want)
			}
			after := task
			after.ID, after.After = "b", []string{"a"}
			tasks := []Task{task, after}
			if errs := chunkRaces(tasks); (len(errs) > 0) != (test.want >= 0) {
				t.Errorf("races %v", errs)
			}
		})
	}
}

func TestChunkRaceAllowSilencesTheCheck(t *testing.T) {
	block := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(10)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(100)}, Read: block, Write: block})
	if err != nil {
		t.Fatal(err)
	}
	out := &Volume{Path: "/out", Shape: geom.Coord(100), Chunks: geom.Coord(64)}
	tasks := []Task{{ID: "a", Grid: g, Output: out}, {ID: "b", Grid: g, Output: out}}
	errs := chunkRaces(tasks)
	if len(errs) != 3 { // each within itself, and both with each other
		t.Fatalf("got %d errors, want 3: %v", len(errs), errs)
	}
	if text := errs[1].Error(); !strings.Contains(text, `task "a" and block (0), writing [0:10], of task "b"`) && !strings.Contains(errs[2].Error(), `of task "b"`) {
		t.Errorf("no error names both tasks: %v", errs)
	}
	tasks[0].ChunkRace = true
	if errs := chunkRaces(tasks); len(errs) != 1 {
		t.Errorf("got %v, want the race of task b alone", errs)
	}
}
