package job

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
	"example.org/daisy/scheduler"
)

// cut is a grid over [begin, end) on one axis, total read, with blocks of size that read low and high more.
func cut(t *testing.T, begin, end, size, low, high int64, fit geom.Fit, conflict bool) *geom.Grid {
	t.Helper()
	one := func(offset, shape int64) geom.Roi {
		return geom.Roi{Offset: geom.Coord(offset), Shape: geom.Coord(shape)}
	}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: one(begin, end-begin), Read: one(-low, low+size+high), Write: one(0, size), Fit: fit, ReadWriteConflict: conflict})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// chain is a pipeline in which each task needs the one before it.
func chain(t *testing.T, grids ...*geom.Grid) *scheduler.Pipeline {
	t.Helper()
	var tasks []scheduler.Task
	var edges []scheduler.Edge
	for i, g := range grids {
		tasks = append(tasks, scheduler.Task{ID: fmt.Sprint("t", i), Grid: g})
		if i > 0 {
			edges = append(edges, scheduler.Edge{Upstream: fmt.Sprint("t", i-1), Downstream: fmt.Sprint("t", i)})
		}
	}
	p, err := scheduler.NewPipeline(tasks, edges)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stayedOf gives for each task a letter a block: s if it is what it was, c if not.
func stayedOf(p *scheduler.Pipeline, before ...*geom.Grid) (letters []string) {
	for i, same := range Grown(p, before) {
		word := ""
		for b := range p.Tasks()[i].Grid.Len() {
			if same.Get(b) {
				word += "s"
			} else {
				word += "c"
			}
		}
		letters = append(letters, word)
	}
	return letters
}

func TestWhichBlocksAreWhatTheyWereInAGrownVolume(t *testing.T) {
	plain := func(end, size int64) *geom.Grid { return cut(t, 0, end, size, 0, 0, geom.Shrink, false) }
	// what writes [0, end) and reads 3 more on each side
	wide := func(end int64) *geom.Grid { return cut(t, -3, end+3, 10, 3, 3, geom.Shrink, false) }
	for name, c := range map[string]struct {
		before, now []*geom.Grid
		want        []string
	}{
		"nothing has grown":                        {[]*geom.Grid{plain(50, 10)}, []*geom.Grid{plain(50, 10)}, []string{"sssss"}},
		"by whole blocks":                          {[]*geom.Grid{plain(50, 10)}, []*geom.Grid{plain(80, 10)}, []string{"sssssccc"}},
		"a block that was cut off is another":      {[]*geom.Grid{plain(45, 10)}, []*geom.Grid{plain(80, 10)}, []string{"sssscccc"}},
		"valid: a block that did not fit was none": {[]*geom.Grid{cut(t, 0, 45, 10, 0, 0, geom.Valid, false)}, []*geom.Grid{cut(t, 0, 80, 10, 0, 0, geom.Valid, false)}, []string{"sssscccc"}},
		"overhang: what stuck out":                 {[]*geom.Grid{cut(t, 0, 45, 10, 0, 0, geom.Overhang, false)}, []*geom.Grid{cut(t, 0, 80, 10, 0, 0, geom.Overhang, false)}, []string{"sssscccc"}},
		"at the begin":                             {[]*geom.Grid{cut(t, 20, 50, 10, 0, 0, geom.Shrink, false)}, []*geom.Grid{plain(50, 10)}, []string{"ccsss"}},
		"what read beyond the edge that moved":     {[]*geom.Grid{wide(50)}, []*geom.Grid{wide(70)}, []string{"sssscccc"[:7]}},
		"what was made from a new block": {
			[]*geom.Grid{plain(50, 10), plain(50, 25)}, []*geom.Grid{plain(60, 10), plain(60, 25)}, []string{"sssssc", "ssc"}},
		"what was made from one that is done again": {
			[]*geom.Grid{wide(50), plain(50, 5), plain(50, 25)}, []*geom.Grid{wide(60), plain(60, 5), plain(60, 25)}, []string{"sssscc", "sssssssscccc", "scc"}},
		"all that was made from a task that did not exist": {
			[]*geom.Grid{nil, plain(50, 10)}, []*geom.Grid{plain(20, 10), plain(50, 10)}, []string{"cc", "ccsss"}},
		// levels: even blocks after odd ones; 4, the last, reads beyond the edge; 3 ran before it, 5 is new
		"conflicts: what ran after its changed neighbour": {
			[]*geom.Grid{cut(t, -3, 53, 10, 3, 3, geom.Shrink, true)}, []*geom.Grid{cut(t, -3, 63, 10, 3, 3, geom.Shrink, true)}, []string{"sssscc"}},
		"conflicts: all ran in another order": {
			[]*geom.Grid{cut(t, 7, 43, 10, 3, 3, geom.Shrink, true)}, []*geom.Grid{cut(t, -3, 43, 10, 3, 3, geom.Shrink, true)}, []string{"cccc"}},
		"conflicts: the block before the last runs after it": {
			[]*geom.Grid{cut(t, -3, 43, 10, 3, 3, geom.Shrink, true)}, []*geom.Grid{cut(t, -3, 53, 10, 3, 3, geom.Shrink, true)}, []string{"ssccc"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, stayedOf(chain(t, c.now...), c.before...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A block is a function of what it reads: the voxels of its input that exist, and where they end. What Grown keeps must be what
// a run over all of the grown volume gives.
func TestWhatIsKeptIsWhatARunOverTheGrownVolumeGives(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fit := []geom.Fit{geom.Valid, geom.Overhang, geom.Shrink}[rng.IntN(3)]
		var before, now []*geom.Grid
		end := 20 + rng.Int64N(40)
		more := rng.Int64N(30)
		begin := int64(0)
		if rng.IntN(2) == 0 {
			begin = -12 * rng.Int64N(3) // a multiple of all sizes below
		}
		for range 1 + rng.IntN(3) {
			size, low, high, conflict := 3+rng.Int64N(12), rng.Int64N(6), rng.Int64N(6), rng.IntN(2) == 0
			if begin != 0 {
				size = []int64{3, 4, 6, 12}[rng.IntN(4)]
			}
			before = append(before, cut(t, -low, end+high, size, low, high, fit, conflict))
			now = append(now, cut(t, begin-low, end+more+high, size, low, high, fit, conflict))
		}
		p := chain(t, now...)
		same := Grown(p, before)
		old, fresh := voxels(before, 0, end), voxels(now, begin, end+more)
		for i, g := range now {
			for b := range g.Len() {
				if !same[i].Get(b) {
					continue
				}
				w := g.WriteRoi(b)
				for x := w.Begin().At(0); x < w.End().At(0); x++ {
					if old[i][x] == "" || old[i][x] != fresh[i][x] {
						t.Fatalf("seed %d, task %d: block %d %v is kept, and at %d there was %q, and is %q", seed, i, b, w, x, old[i][x], fresh[i][x])
					}
				}
			}
		}
	}
}

var hashSeed = maphash.MakeSeed()

// voxels gives what each task has written where, in the order of its levels. The first reads a volume of [begin, end).
func voxels(grids []*geom.Grid, begin, end int64) (written []map[int64]string) {
	input := map[int64]string{}
	for x := begin; x < end; x++ {
		input[x] = fmt.Sprint(x)
	}
	for _, g := range grids {
		output := map[int64]string{}
		for level := range g.Levels() {
			for b := range g.Len() {
				if g.Level(b) != level {
					continue
				}
				r, w := g.ReadRoi(b), g.WriteRoi(b)
				text := ""
				for x := r.Begin().At(0); x < r.End().At(0); x++ {
					text += input[x] + ","
					if g.Spec().ReadWriteConflict {
						text += output[x] + ","
					}
				}
				sum := fmt.Sprint(maphash.String(hashSeed, text))
				for x := w.Begin().At(0); x < w.End().At(0); x++ {
					output[x] = sum
				}
			}
		}
		written, input = append(written, output), output
	}
	return written
}
