package geom_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "example.org/daisy/geom"
)

// goldenRows reads a file of JSON lines recorded from the Python package daisy; its README says what the fields mean.
func goldenRows[T any](t *testing.T, name string) []T {
	t.Helper()
	dir := os.Getenv("DAISY_GOLDEN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "scheduler", "testdata", "golden")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []T
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s, row %d: %v", name, len(rows), err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil || len(rows) == 0 {
		t.Fatalf("%s: %d rows, %v", name, len(rows), err)
	}
	return rows
}

// goldenRoi is [offset, shape].
type goldenRoi [2][]int64

func (r goldenRoi) roi() (Roi, error) {
	o, err := CoordOf(r[0])
	if err != nil {
		return Roi{}, err
	}
	s, err := CoordOf(r[1])
	return Roi{Offset: o, Shape: s}, err
}

func asGolden(r Roi) goldenRoi { return goldenRoi{r.Offset.Slice(), r.Shape.Slice()} }

type goldenTask struct {
	TotalRoi goldenRoi `json:"total_roi"`
	ReadRoi  goldenRoi `json:"read_roi"`
	WriteRoi goldenRoi `json:"write_roi"`
	Fit      string    `json:"fit"`
	Conflict bool      `json:"read_write_conflict"`
}

func (g goldenTask) grid() (*Grid, error) {
	var spec GridSpec
	var err error
	for _, r := range []struct {
		to   *Roi
		from goldenRoi
	}{{&spec.TotalRead, g.TotalRoi}, {&spec.Read, g.ReadRoi}, {&spec.Write, g.WriteRoi}} {
		if *r.to, err = r.from.roi(); err != nil {
			return nil, err
		}
	}
	if spec.Fit, err = ParseFit(g.Fit); err != nil {
		return nil, err
	}
	spec.ReadWriteConflict = g.Conflict
	return NewGrid(spec)
}

// goldenBlock is one block by id, with the ids that it waits for (Up) and that wait for it (Down) in its own task.
type goldenBlock struct {
	ID          uint64
	Read, Write goldenRoi
	Level       int
	Up, Down    []uint64
}

func TestGoldenBlocksHaveTheRecordedRegionsLevelsAndNeighbours(t *testing.T) {
	type row struct {
		Case       int
		Task       goldenTask
		NumBlocks  int64     `json:"num_blocks"`
		NumLevels  int       `json:"num_levels"`
		Stride     []int64   `json:"level_stride_blocks"`
		GridShape  []int64   `json:"grid_shape"`
		TotalWrite goldenRoi `json:"total_write_roi"`
		Blocks     []goldenBlock
		Roots      []uint64
	}
	for _, r := range goldenRows[row](t, "blocks.jsonl") {
		g, err := r.Task.grid()
		if err != nil {
			t.Errorf("case %d: %v", r.Case, err)
			continue
		}
		got := row{Case: r.Case, Task: r.Task, NumBlocks: g.Len(), NumLevels: g.Levels(), Stride: g.LevelStride().Slice(),
			GridShape: g.Shape().Slice(), TotalWrite: asGolden(g.TotalWrite()), Roots: []uint64{}}
		id := func(b int64) uint64 {
			id, ok := g.ID(b)
			if back, found := g.BlockOfID(id); !ok || !found || back != b {
				t.Errorf("case %d: block %d has id %d %v, which leads back to %d %v", r.Case, b, id, ok, back, found)
			}
			return id
		}
		for b := range g.Len() {
			if flat := g.Flat(g.Index(b)); flat != b {
				t.Errorf("case %d: block %d is at %v, which is block %d", r.Case, b, g.Index(b), flat)
			}
			block := goldenBlock{ID: id(b), Read: asGolden(g.ReadRoi(b)), Write: asGolden(g.WriteRoi(b)), Level: g.Level(b), Up: []uint64{}, Down: []uint64{}}
			g.LevelUpstream(b, func(u int64) bool { block.Up = append(block.Up, id(u)); return true })
			g.LevelDownstream(b, func(d int64) bool { block.Down = append(block.Down, id(d)); return true })
			slices.Sort(block.Up)
			slices.Sort(block.Down)
			if len(block.Up) == 0 {
				got.Roots = append(got.Roots, block.ID)
			}
			got.Blocks = append(got.Blocks, block)
		}
		slices.Sort(got.Roots)
		byID := func(a, b goldenBlock) int { return int(int64(a.ID) - int64(b.ID)) }
		slices.SortFunc(got.Blocks, byID)
		slices.SortFunc(r.Blocks, byID)
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("case %d %+v (-want +got):\n%s", r.Case, r.Task, diff)
		}
	}
}

// What daisy takes without a word, and we take too: a grid without a block is well-formed, and the names of tasks are not
// geometry.
var goldenAccepted = map[string]bool{
	"total smaller than one block": true,
	"empty task id":                true,
	"task id with slash":           true,
}

func TestGoldenIllFormedTasksAreRefusedWithAReason(t *testing.T) {
	type row struct {
		Case  int
		Label string
		Task  goldenTask
	}
	for _, r := range goldenRows[row](t, "refusals.jsonl") {
		g, err := r.Task.grid()
		switch {
		case goldenAccepted[r.Label] && err != nil:
			t.Errorf("case %d, %s: refused: %v", r.Case, r.Label, err)
		case !goldenAccepted[r.Label] && err == nil:
			t.Errorf("case %d, %s: accepted with %d blocks", r.Case, r.Label, g.Len())
		case err != nil:
			t.Logf("%s: %v", r.Label, err)
		}
	}
}

func TestGoldenIdsAreCantorNumbers(t *testing.T) {
	type row struct {
		Case  int
		Index []int64
		Exact string
		Fits  bool `json:"fits_u64"`
	}
	for _, r := range goldenRows[row](t, "ids.jsonl") {
		id, ok := Cantor(Coord(r.Index...))
		if ok != r.Fits {
			t.Errorf("case %d: Cantor(%v) fits 64 bits: got %v, want %v", r.Case, r.Index, ok, r.Fits)
		}
		if got := strconv.FormatUint(id, 10); ok && got != r.Exact {
			t.Errorf("case %d: Cantor(%v) = %s, want %s", r.Case, r.Index, got, r.Exact)
		}
	}
}
