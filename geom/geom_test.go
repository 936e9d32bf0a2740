package geom_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "example.org/daisy/geom"
)

func roi(begin, end int64) Roi { return Roi{Offset: Coord(begin), Shape: Coord(end - begin)} }

func TestCoordinatesAndRegionsReadAsPeopleWriteThem(t *testing.T) {
	if got, want := Coord(1, -2, 3).String(), "(1, -2, 3)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (Roi{Coord(0, 4), Coord(10, 16)}).String(), "[0:10, 4:20]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if two := Fill(2, 1).With(1, 2); Coord(1, 2) != two || Coord(1, 0) == Coord(1) {
		t.Error("coordinates do not compare by value and number of axes")
	}
}

func TestAProductThatDoesNotFitIsAnError(t *testing.T) {
	for _, c := range []struct {
		shape Coordinate
		want  int64
		ok    bool
	}{
		{Coord(2, 3, 4), 24, true},
		{Coord(math.MaxInt64, 1), math.MaxInt64, true},
		{Coord(math.MaxInt64, 0, 5), 0, true},
		{Coord(1<<32, 1<<31), 0, false},
		{Coord(1<<32, 1<<32), 0, false},
		{Coord(-1, 0), 0, false},
	} {
		if got, err := c.shape.Product(); got != c.want || (err == nil) != c.ok {
			t.Errorf("%v: got %d, %v", c.shape, got, err)
		}
	}
}

func TestRegionsAreHalfOpen(t *testing.T) {
	a := roi(0, 10)
	for _, c := range []struct {
		b                    Roi
		intersects, contains bool
	}{
		{roi(10, 20), false, false}, {roi(9, 20), true, false}, {roi(0, 10), true, true}, {roi(3, 3), false, true}, {roi(-5, 0), false, false},
		{Roi{Coord(0, 0), Coord(1, 1)}, false, false},
	} {
		if got := a.Intersects(c.b); got != c.intersects {
			t.Errorf("%v intersects %v: got %v", a, c.b, got)
		}
		if got := a.Contains(c.b); got != c.contains {
			t.Errorf("%v contains %v: got %v", a, c.b, got)
		}
	}
	if got, want := a.Grow(Coord(2), Coord(-3)), roi(-2, 7); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := roi(math.MaxInt64-5, math.MaxInt64).Grow(Coord(0), Coord(100)).End().At(0); got != math.MaxInt64 {
		t.Errorf("an end past int64 is %d", got)
	}
	if _, err := (Roi{Coord(0, 0), Coord(1<<40, 1<<40)}).Volume(); err == nil {
		t.Error("a volume of 2^80 was given as a number")
	}
}

func TestGridsThatWouldOverflowAreRefused(t *testing.T) {
	one := func(shape ...int64) Roi { return Roi{Fill(len(shape), 0), Coord(shape...)} }
	for _, c := range []struct {
		name string
		spec GridSpec
		want string
	}{
		{"number of blocks", GridSpec{TotalRead: one(1<<40, 1<<40), Read: one(1, 1), Write: one(1, 1)}, "more than 2^63-1"},
		{"end of the total", GridSpec{TotalRead: Roi{Coord(math.MaxInt64 - 10), Coord(100)}, Read: one(1), Write: one(1)}, "range of coordinates"},
		{"begin of a block", GridSpec{TotalRead: one(100), Read: Roi{Coord(math.MinInt64), Coord(1)}, Write: Roi{Coord(math.MinInt64), Coord(1)}}, "range of coordinates"},
		{"shape", GridSpec{TotalRead: one(math.MaxInt64), Read: one(math.MaxInt64), Write: one(math.MaxInt64)}, "range of coordinates"},
		{"seven dimensions and all else", GridSpec{TotalRead: one(0), Read: one(-1), Write: one(0), Fit: 9}, "fit Fit(9)"},
	} {
		if _, err := NewGrid(c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
	}
	if _, err := CoordOf(make([]int64, 7)); err == nil {
		t.Error("seven dimensions were accepted")
	}
}

func TestAContextThatLeavesNothingToWriteIsRefused(t *testing.T) {
	grid := func(total int64) error {
		_, err := NewGrid(GridSpec{TotalRead: Roi{Coord(3, 5), Coord(100, total)}, Read: Roi{Coord(0, 0), Coord(12, 12)}, Write: Roi{Coord(0, 4), Coord(12, 2)}})
		return err
	}
	want := "geom: context 4 below and 6 above on axis 1 leave nothing to write of the 10 that are read in total: " +
		"make the context smaller or the total region larger"
	if err := grid(10); err == nil || err.Error() != want {
		t.Errorf("nothing is left: got %v, want %q", err, want)
	}
	if err := grid(11); err != nil {
		t.Errorf("one is left: %v", err)
	}
}

// drawGrid draws a small grid: any fit, contexts lopsided and larger than a block, negative and unaligned offsets.
func drawGrid(t *rapid.T) *Grid {
	d := rapid.IntRange(1, 4).Draw(t, "dims")
	spec := GridSpec{Fit: rapid.SampledFrom([]Fit{Valid, Overhang, Shrink}).Draw(t, "fit"), ReadWriteConflict: rapid.Bool().Draw(t, "conflict")}
	var offset, shape, low, high, at, width []int64
	for range d {
		w := rapid.Int64Range(1, 5).Draw(t, "width")
		width = append(width, w)
		low = append(low, rapid.Int64Range(0, 2*w).Draw(t, "low"))
		high = append(high, rapid.Int64Range(0, 2*w).Draw(t, "high"))
		at = append(at, rapid.Int64Range(-9, 9).Draw(t, "template"))
		offset = append(offset, rapid.Int64Range(-30, 30).Draw(t, "offset"))
		shape = append(shape, rapid.Int64Range(1, []int64{30, 12, 7, 5}[d-1]).Draw(t, "shape"))
	}
	spec.Write = Roi{Coord(at...), Coord(width...)}
	spec.Read = spec.Write.Grow(Coord(low...), Coord(high...))
	spec.TotalRead = Roi{Coord(offset...), Coord(shape...)}.Grow(Coord(low...), Coord(high...))
	g, err := NewGrid(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestWhatIsUnwrittenIsWhatNoBlockReachesAtTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		if g.Len() == 0 { // each axis is for itself: on one that blocks fit into, the others do not count
			return
		}
		reached := g.TotalWrite().Offset
		for b := range g.Len() {
			for i := range g.Dims() {
				reached = reached.With(i, max(reached.At(i), g.WriteRoi(b).End().At(i)))
			}
		}
		for i := range g.Dims() {
			if got, want := g.Unwritten().At(i), max(0, g.TotalWrite().End().At(i)-reached.At(i)); got != want {
				t.Fatalf("axis %d: %d unwritten, want %d", i, got, want)
			}
		}
	})
}

func TestTheBlocksThatMeetARegionAreTheBoxThatIsGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		r := Roi{Fill(g.Dims(), 0), Fill(g.Dims(), 0)}
		for i := range g.Dims() {
			r.Offset = r.Offset.With(i, rapid.Int64Range(-50, 50).Draw(t, "begin"))
			r.Shape = r.Shape.With(i, rapid.Int64Range(0, 40).Draw(t, "length"))
		}
		write, read := g.WriteBlocks(r), g.ReadBlocks(r)
		in := func(b Box, k Coordinate) bool {
			for i := range k.Dims() {
				if k.At(i) < b.Begin.At(i) || k.At(i) >= b.End.At(i) {
					return false
				}
			}
			return true
		}
		n, m := int64(0), int64(0)
		for b := range g.Len() {
			k := g.Index(b)
			if got, want := in(write, k), g.WriteRoi(b).Intersects(r); got != want {
				t.Fatalf("block %v writes %v, in the box of %v: %v", k, g.WriteRoi(b), r, got)
			} else if want {
				n++
			}
			if got, want := in(read, k), g.ReadRoi(b).Intersects(r); got != want {
				t.Fatalf("block %v reads %v, in the box of %v: %v", k, g.ReadRoi(b), r, got)
			} else if want {
				m++
			}
		}
		if write.Len() != n || read.Len() != m {
			t.Fatalf("boxes of %d and %d blocks, want %d and %d", write.Len(), read.Len(), n, m)
		}
	})
}

func TestBlocksOfOneLevelDoNotTouchAndIdsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrid(t)
		ids := map[uint64]bool{}
		for a := range g.Len() {
			id, ok := g.ID(a)
			if back, found := g.BlockOfID(id); !ok || !found || back != a || ids[id] {
				t.Fatalf("block %d has id %d, which leads to block %d", a, id, back)
			}
			ids[id] = true
			for i := range g.Dims() {
				if c := g.CellIndex(a).At(i); c < 0 || c >= g.TrackingShape().At(i) {
					t.Fatalf("cell %v of block %d is outside %v", g.CellIndex(a), a, g.TrackingShape())
				}
			}
			for b := range g.Len() {
				if a != b && g.Spec().ReadWriteConflict && g.Level(a) == g.Level(b) && g.ReadRoi(a).Intersects(g.WriteRoi(b)) {
					t.Fatalf("blocks %v and %v of level %d touch", g.Index(a), g.Index(b), g.Level(a))
				}
			}
			g.LevelUpstream(a, func(u int64) bool {
				found := false
				g.LevelDownstream(u, func(d int64) bool { found = found || d == a; return true })
				if !found || g.Level(u) != g.Level(a)-1 {
					t.Fatalf("block %v waits for %v, which does not lead to it", g.Index(a), g.Index(u))
				}
				return true
			})
		}
		for id := range uint64(300) {
			if b, ok := g.BlockOfID(id); ok != ids[id] || ok && (b < 0 || b >= g.Len()) {
				t.Fatalf("id %d leads to block %d %v", id, b, ok)
			}
		}
	})
}

func TestIdsAtTheEndOf64BitsAreExactOrRefused(t *testing.T) {
	if id, ok := Cantor(Coord(math.MaxInt64)); !ok || id != math.MaxInt64 {
		t.Errorf("got %d %v", id, ok)
	}
	if _, ok := Cantor(Fill(2, math.MaxInt64)); ok {
		t.Error("an id past 64 bits was given")
	}
	if _, ok := Cantor(Coord()); ok {
		t.Error("an index of no axes has an id")
	}
	g, err := NewGrid(GridSpec{TotalRead: Roi{Coord(0, 0), Coord(8_000_000_000, 1)}, Read: Roi{Coord(0, 0), Coord(1, 1)}, Write: Roi{Coord(0, 0), Coord(1, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g.ID(g.Len() - 1); ok {
		t.Error("the last block has an id of 64 bits")
	}
	if b, ok := g.BlockOfID(math.MaxUint64); ok {
		t.Errorf("the largest id leads to block %d", b)
	}
}

func TestJSONIsAListOrAnObjectAndNothingElse(t *testing.T) {
	r := Roi{Coord(-1, 2), Coord(3, 4)}
	data, err := json.Marshal(r)
	if want := `{"offset":[-1,2],"shape":[3,4]}`; err != nil || string(data) != want {
		t.Errorf("got %s %v, want %s", data, err, want)
	}
	var back Roi
	if err := json.Unmarshal(data, &back); err != nil || back != r {
		t.Errorf("%v became %v: %v", r, back, err)
	}
	for _, bad := range []string{`null`, `{}`, `{"offset":[1]}`, `{"offset":[1],"shape":[1,2]}`, `{"offset":[1],"shape":[1],"x":1}`, `[1]`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("region %s was accepted", bad)
		}
	}
	var c Coordinate
	for _, bad := range []string{`null`, `[1.5]`, `["1"]`, `[null]`, `[1,2,3,4,5,6,7]`, `[9223372036854775808]`, `{}`, `1`} {
		if err := json.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("coordinate %s was accepted", bad)
		}
	}
	if diff := cmp.Diff("shrink", Shrink.String()); diff != "" {
		t.Error(diff)
	}
}

func FuzzRegionsFromJSON(f *testing.F) {
	for _, seed := range []string{`{"offset":[1,-2],"shape":[3,4]}`, `{"offset":[],"shape":[]}`, `{"offset":[1e3],"shape":[9223372036854775807]}`, `[1,2,3]`, `null`,
		`{"offset":null,"shape":[1]}`, `{"shape":[1],"offset":[1,2,3,4,5,6,7]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Coordinate
		if json.Unmarshal(data, &c) == nil {
			again, _ := json.Marshal(c)
			var back Coordinate
			if err := json.Unmarshal(again, &back); err != nil || back != c {
				t.Fatalf("%s became %v, then %s, then %v: %v", data, c, again, back, err)
			}
		}
		var r Roi
		if json.Unmarshal(data, &r) == nil {
			again, _ := json.Marshal(r)
			var back Roi
			if err := json.Unmarshal(again, &back); err != nil || back != r {
				t.Fatalf("%s became %v, then %s, then %v: %v", data, r, again, back, err)
			}
			// What was read may be any region: nothing that looks at it may panic, and no grid may be made of nonsense.
			_, _ = r.Volume()
			_, _, _ = r.Empty(), r.Intersects(r), r.String()
			if g, err := NewGrid(GridSpec{TotalRead: r, Read: r, Write: r, Fit: Overhang, ReadWriteConflict: true}); err == nil && g.Len() != 1 {
				t.Fatalf("%v is %d blocks of itself", r, g.Len())
			}
		}
	})
}
