package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.org/daisy/geom"
	"example.org/daisy/internal/tracking"
)

// planOf is what plan --json says of a job.
func planOf(t *testing.T, path string) plan {
	t.Helper()
	status, stdout, stderr := call("plan", path, "--json")
	if status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var p plan
	if err := json.Unmarshal([]byte(stdout), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// planText is what plan prints of a job for people.
func planText(t *testing.T, path string) string {
	t.Helper()
	status, stdout, stderr := call("plan", path)
	if status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	return stdout
}

func TestARunSaysBeforeAndAfterWhatValidLeavesUnwritten(t *testing.T) {
	path := writeJob(t, `
[run]
launcher = "serial"
[[task]]
id = "cover"
total_write = { offset = [0], shape = [10] }
block = { shape = [4] }
run = { command = ["true"] }
`)
	status, stdout, stderr := call("run", path)
	if want := `daisy-submit: warning: task "cover": fit = "valid" leaves unwritten 2 voxels (20.0%): the last 2 on axis 0; fit = "shrink" covers all` + "\n"; status != exitOK || !strings.HasPrefix(stderr, want) {
		t.Errorf("status %d, want first %q:\n%s", status, want, stderr)
	}
	if want := `"cover" left unwritten the last 2 on axis 0, where no whole block fits: fit = "shrink" covers all` + "\n"; !strings.Contains(stdout, want) {
		t.Errorf("the report has no %q:\n%s", want, stdout)
	}
	if _, stdout, stderr = call("run", path, "--set", "task.cover.fit=shrink"); strings.Contains(stdout+stderr, "unwritten") {
		t.Errorf("nothing is left, and it says\n%s%s", stderr, stdout)
	}
}

func TestAPlanSaysWhatValidLeavesUnwritten(t *testing.T) {
	const task = `
[[task]]
id = %q
total_write = { offset = [0, 0, 0], shape = %s }
block = { shape = [4, 5, 10], context = 1 }
fit = %q
run = { command = ["true"] }
`
	for name, c := range map[string]struct {
		shape, fit string
		want       *planRest
		text       string
	}{
		"some":          {"[10, 20, 13]", "valid", &planRest{Voxels: 1000, Percent: 1000.0 / 26, AtEnd: []int64{2, 0, 3}}, "1,000 voxels (38.5%): the last 2 on axis 0, the last 3 on axis 2"},
		"little":        {"[100, 1005, 10001]", "valid", &planRest{Voxels: 100 * 1005, Percent: 100.0 / 10001, AtEnd: []int64{0, 0, 1}}, "100,500 voxels (less than 0.1%): the last 1 on axis 2"},
		"nothing":       {"[8, 20, 10]", "valid", nil, ""},
		"with shrink":   {"[10, 20, 13]", "shrink", nil, ""},
		"with overhang": {"[10, 20, 13]", "overhang", nil, ""},
	} {
		path := writeJob(t, fmt.Sprintf(task, "cover", c.shape, c.fit))
		got := planOf(t, path).Tasks[0].Unwritten
		if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-9, 0)); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
		text := planText(t, path)
		if want := `task "cover": fit = "valid" leaves unwritten ` + c.text + `; fit = "shrink" covers all`; c.want != nil && !strings.Contains(text, want+"\n") {
			t.Errorf("%s: there is no %q in\n%s", name, want, text)
		}
		if c.want == nil && strings.Contains(text, "unwritten") {
			t.Errorf("%s: nothing is left, but the plan is\n%s", name, text)
		}
	}
}

func TestWhatIsUnwrittenIsCountedBeyondAllNumbers(t *testing.T) {
	path := writeJob(t, `
[[task]]
id = "huge"
total_write = { offset = [0, 0], shape = [144115188075855873, 144115188075855872] }
block = { shape = [144115188075855872, 144115188075855872] }
run = { command = ["true"] }
[[task]]
id = "more"
total_write = { offset = [0, 0], shape = [144115188075855872, 144115188075855872] }
block = { shape = [144115188075855871, 100000000000000000] }
run = { command = ["true"] }
`)
	p := planOf(t, path)
	if got := p.Tasks[0].Unwritten.Voxels; got != 144115188075855872 {
		t.Errorf("%d voxels, want 144115188075855872", got)
	}
	if got := p.Tasks[1].Unwritten; got.Voxels != 1<<63-1 || int(got.Percent) != 30 || !strings.HasPrefix(got.String(), "2^63 or more voxels (30.6%)") {
		t.Errorf("got %v", got)
	}
}

func TestAPlanRoundsMemoryForPeople(t *testing.T) {
	path := writeJob(t, `
[run]
resources = { cpu = 1.5, memory = "16777217KiB" }
[[task]]
id = "work"
total = { offset = [0], shape = [1] }
block = { shape = [1] }
requires = { cpu = 0.5, memory = "1536MiB" }
run = { command = ["true"] }
`)
	if got := planText(t, path); !strings.Contains(got, "budget cpu=1.5 memory=16.0GiB\n") || !strings.Contains(got, " cpu=0.5 memory=1.5GiB ") {
		t.Errorf("the plan is\n%s", got)
	}
	if p := planOf(t, path); p.Budget != "cpu=1.5 memory=16777217KiB" {
		t.Errorf("with --json the budget is %q, want it exact", p.Budget)
	}
}

const trackedJob = `
[run]
launcher = "serial"
tracking = "tracking"
[[task]]
id = "first"
total = { offset = [0, 0], shape = [12, 20] }
block = { shape = [4, 2], context = 4 }
run = { command = ["true"] }
[[task]]
id = "then"
total = { offset = [0], shape = [3] }
block = { shape = [1] }
run = { command = ["true"] }
`

// mark opens the marks of a task of a job beside its file, and marks blocks.
func mark(t *testing.T, path, id string, grid *geom.Grid, blocks ...int64) *tracking.Store {
	t.Helper()
	s, err := tracking.Open(filepath.Join(filepath.Dir(path), "tracking", id), grid)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		s.MarkDone(b)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	return s
}

func line(t *testing.T, blocks int64) *geom.Grid {
	t.Helper()
	one := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(1)}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(blocks)}, Read: one, Write: one, ReadWriteConflict: true})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// listing is every path below a folder with its size and time.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found[path] = fmt.Sprint(info.Size(), info.ModTime(), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAPlanCountsWhatIsDoneAndOnlyLooks(t *testing.T) {
	path := writeJob(t, trackedJob)
	if text := planText(t, path); !strings.Contains(text, "done before") {
		t.Errorf("the plan is\n%s", text)
	}
	if p := planOf(t, path); p.Tasks[0].Done != 0 || p.Tasks[1].Done != 0 {
		t.Errorf("nothing is done, but %+v", p.Tasks)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "tracking")); err == nil {
		t.Error("plan made the tracking folder")
	}

	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), "tracking", "first"), 0o700); err != nil { // empty: nothing is known
		t.Fatal(err)
	}
	store := mark(t, path, "then", line(t, 3), 0, 2) // and keeps its lock, as a run would
	before := listing(t, filepath.Dir(path))
	p := planOf(t, path)
	if p.Tasks[0].Done != 0 || p.Tasks[1].Done != 2 {
		t.Errorf("2 blocks of the second task are done, but the plan says %d and %d", p.Tasks[0].Done, p.Tasks[1].Done)
	}
	if text := planText(t, path); !strings.Contains(text, " then   -           3            2  ") {
		t.Errorf("the plan is\n%s", text)
	}
	if d := cmp.Diff(before, listing(t, filepath.Dir(path))); d != "" {
		t.Errorf("plan changed files: -before +after\n%s", d)
	}
	last := int64(0)
	for _, w := range p.Waves {
		last += w.Repeat * w.Blocks["then"]
	}
	if last != 1 {
		t.Errorf("one block of the second task is to run, but the steps have %d: %+v", last, p.Waves)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMarksThatARunRefusesArePlannedWithTheSameWords(t *testing.T) {
	for name, c := range map[string]struct {
		harm   func(t *testing.T, path string)
		status int
		want   string
	}{
		"another layout": {func(t *testing.T, path string) {
			_ = mark(t, path, "first", line(t, 4)).Close()
			_ = mark(t, path, "then", line(t, 4)).Close()
		}, exitUsage, "was written for another layout"},
		"a lost description": {func(t *testing.T, path string) {
			_ = mark(t, path, "then", line(t, 3)).Close()
			if err := os.Remove(filepath.Join(filepath.Dir(path), "tracking/then/zarr.json")); err != nil {
				t.Fatal(err)
			}
		}, exitInfrastructure, "zarr.json: the file is missing"},
		"marks that were cut short": {func(t *testing.T, path string) {
			_ = mark(t, path, "then", line(t, 3)).Close()
			if err := os.Truncate(filepath.Join(filepath.Dir(path), "tracking/then/done/c/0"), 2); err != nil {
				t.Fatal(err)
			}
		}, exitInfrastructure, "it has 2 bytes, and 3 are needed"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeJob(t, trackedJob)
			c.harm(t, path)
			planStatus, planOut, planned := call("plan", path)
			runStatus, _, refused := call("run", path)
			if d := cmp.Diff(refused, planned); d != "" {
				t.Errorf("-run +plan\n%s", d)
			}
			if planStatus != c.status || runStatus != c.status || !strings.Contains(planned, c.want) || planOut != "" {
				t.Errorf("plan ends with %d, run with %d, want %d and %q:\n%s%s", planStatus, runStatus, c.status, c.want, planned, planOut)
			}
		})
	}
}
