package scheduler_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
	. "example.org/daisy/scheduler"
)

// goldenRow is one pipeline recorded from the Python package daisy, with the geometric answer; the README beside the files says
// what the fields mean. Where daisy deviates, the geometric answer is what we expect.
type goldenRow struct {
	Case  int
	Label string
	Tasks []struct {
		ID       string     `json:"task_id"`
		TotalRoi [2][]int64 `json:"total_roi"`
		ReadRoi  [2][]int64 `json:"read_roi"`
		WriteRoi [2][]int64 `json:"write_roi"`
		Fit      string     `json:"fit"`
		Conflict bool       `json:"read_write_conflict"`
	}
	Edges  [][2]string
	Blocks []struct {
		Task string
		ID   uint64
		Up   []goldenKey
		Down []goldenKey
	}
	Scenarios []struct {
		Name       string
		MaxRetries int `json:"max_retries"`
		Fail, Skip []goldenKey
		Waves      [][]goldenKey
		Counts     map[string]goldenCounts
	}
}

// goldenKey is a block, [task, id] in the file.
type goldenKey struct {
	Task string
	ID   uint64
}

func (k *goldenKey) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&k.Task, &k.ID})
}

func compareKeys(a, b goldenKey) int {
	if c := strings.Compare(a.Task, b.Task); c != 0 {
		return c
	}
	return int(int64(a.ID) - int64(b.ID))
}

type goldenCounts struct{ Total, Completed, Skipped, Failed, Orphaned int64 }

func goldenRows(t *testing.T, name string) []goldenRow {
	t.Helper()
	dir := os.Getenv("DAISY_GOLDEN_DIR")
	if dir == "" {
		dir = filepath.Join("testdata", "golden")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var rows []goldenRow
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var row goldenRow
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

func (r goldenRow) pipeline(t *testing.T, maxRetries int) *Pipeline {
	t.Helper()
	roi := func(r [2][]int64) geom.Roi { return geom.Roi{Offset: geom.Coord(r[0]...), Shape: geom.Coord(r[1]...)} }
	var tasks []Task
	for _, g := range r.Tasks {
		fit, err := geom.ParseFit(g.Fit)
		if err != nil {
			t.Fatal(err)
		}
		grid, err := geom.NewGrid(geom.GridSpec{TotalRead: roi(g.TotalRoi), Read: roi(g.ReadRoi), Write: roi(g.WriteRoi), Fit: fit, ReadWriteConflict: g.Conflict})
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, Task{ID: g.ID, Grid: grid, MaxRetries: maxRetries})
	}
	var edges []Edge
	for _, e := range r.Edges {
		edges = append(edges, Edge{Upstream: e[0], Downstream: e[1]})
	}
	p, err := NewPipeline(tasks, edges)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var goldenPipelines = []string{"pipelines_minimal.jsonl", "pipelines.jsonl.gz"}

func TestGoldenDependenciesAreTheGeometricOnes(t *testing.T) {
	for _, file := range goldenPipelines {
		for _, r := range goldenRows(t, file) {
			p := r.pipeline(t, 0)
			type links struct{ Up, Down []goldenKey }
			want, got := map[string]links{}, map[string]links{}
			name := func(task string, id uint64) string { return fmt.Sprintf("%s/%d", task, id) }
			for _, b := range r.Blocks {
				slices.SortFunc(b.Up, compareKeys)
				slices.SortFunc(b.Down, compareKeys)
				want[name(b.Task, b.ID)] = links{b.Up, b.Down}
			}
			for i, task := range p.Tasks() {
				for block := range task.Grid.Len() {
					key := func(task int, block int64) goldenKey {
						t := p.Tasks()[task]
						id, _ := t.Grid.ID(block)
						return goldenKey{t.ID, id}
					}
					l := links{[]goldenKey{}, []goldenKey{}}
					Dependencies(p, i, block, func(task int, b int64) { l.Up = append(l.Up, key(task, b)) })
					Dependents(p, i, block, func(task int, b int64) { l.Down = append(l.Down, key(task, b)) })
					slices.SortFunc(l.Up, compareKeys)
					slices.SortFunc(l.Down, compareKeys)
					k := key(i, block)
					got[name(k.Task, k.ID)] = l
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s case %d %s (-want +got):\n%s", file, r.Case, r.Label, diff)
			}
		}
	}
}

func TestGoldenRunsHaveTheRecordedWavesAndCounts(t *testing.T) {
	for _, file := range goldenPipelines {
		for _, r := range goldenRows(t, file) {
			for _, sc := range r.Scenarios {
				p := r.pipeline(t, sc.MaxRetries)
				waves, counts := goldenRun(t, p, sc.Fail, sc.Skip)
				for _, w := range sc.Waves {
					slices.SortFunc(w, compareKeys)
				}
				if diff := cmp.Diff(sc.Waves, waves); diff != "" {
					t.Errorf("%s case %d %s, %s: waves (-want +got):\n%s", file, r.Case, r.Label, sc.Name, diff)
				}
				if diff := cmp.Diff(sc.Counts, counts); diff != "" {
					t.Errorf("%s case %d %s, %s: counts (-want +got):\n%s", file, r.Case, r.Label, sc.Name, diff)
				}
			}
		}
	}
}

// goldenRun takes all that is ready, then returns all of it in the order taken, and so on. Blocks in skip are found done by their
// check as soon as they are taken, and may open further blocks of the same wave.
func goldenRun(t *testing.T, p *Pipeline, fail, skip []goldenKey) ([][]goldenKey, map[string]goldenCounts) {
	t.Helper()
	s, err := New(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	type taken struct {
		lease Lease
		key   goldenKey
	}
	waves := [][]goldenKey{}
	for {
		var wave []taken
		for i, task := range p.Tasks() {
			for {
				h, ok := s.Acquire(i, Holder{})
				if !ok {
					if s.Work(1000) {
						continue
					}
					if h, ok = s.Acquire(i, Holder{}); !ok {
						break
					}
				}
				id, _ := task.Grid.ID(h.Block)
				key := goldenKey{task.ID, id}
				if slices.Contains(skip, key) {
					s.Release(h.Lease, Ending{Outcome: Skipped})
					continue
				}
				wave = append(wave, taken{h.Lease, key})
			}
		}
		if len(wave) == 0 {
			break
		}
		keys := []goldenKey{}
		for _, w := range wave {
			keys = append(keys, w.key)
			outcome := Success
			if slices.Contains(fail, w.key) {
				outcome = Failed
			}
			s.Release(w.lease, Ending{Outcome: outcome})
		}
		for s.Work(1000) {
		}
		slices.SortFunc(keys, compareKeys)
		waves = append(waves, keys)
	}
	if !s.Ended() {
		t.Error("nothing is ready or leased, and the run has not ended")
	}
	counts := map[string]goldenCounts{}
	for i, task := range p.Tasks() {
		c := s.Tally(i)
		counts[task.ID] = goldenCounts{Total: c.Total, Completed: c.Success + c.Skipped, Skipped: c.Skipped, Failed: c.Failed, Orphaned: c.Orphaned}
	}
	return waves, counts
}
