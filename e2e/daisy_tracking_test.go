package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/testenv"
)

// shared is a task that daisy 2.0.0 and our workers run by turns, in one folder.
type shared struct {
	t      testing.TB
	dir    string
	python string
	task   sharedTask
}

// sharedTask is task.json of testdata/daisy/blocks.py. Regions are [offset, shape].
type sharedTask struct {
	Total     [2][]int64 `json:"total"`
	Read      [2][]int64 `json:"read"`
	Write     [2][]int64 `json:"write"`
	Fit       string     `json:"fit"`
	Conflict  bool       `json:"conflict"`
	Fail      []int      `json:"fail"` // ids of blocks that fail until the file mended is there
	Hold      *int       `json:"hold,omitempty"`
	Resources bool       `json:"resources"`
	Mask      any        `json:"mask,omitempty"`
}

// sharedTasks: with context, lopsided and of a block and more, the arrays have more cells than there are blocks, and the first is not at 0.
var sharedTasks = map[string]sharedTask{
	"shrink, much context, conflicts, resources": {
		Total: [2][]int64{{-5, 3}, {29, 40}}, Read: [2][]int64{{-3, -12}, {13, 25}}, Write: [2][]int64{{0, 0}, {8, 10}},
		Fit: "shrink", Conflict: true, Fail: []int{4}, Resources: true,
	},
	"valid, a mask": {
		Total: [2][]int64{{100}, {63}}, Read: [2][]int64{{7}, {12}}, Write: [2][]int64{{9}, {9}},
		Fit: "valid", Fail: []int{3, 5}, Mask: []bool{false, true, false, false, false, false},
	},
	"overhang, three axes": {
		Total: [2][]int64{{0, 0, 0}, {4, 5, 6}}, Read: [2][]int64{{0, 0, 0}, {4, 2, 3}}, Write: [2][]int64{{0, 0, 0}, {4, 2, 3}},
		Fit: "overhang", Fail: []int{0},
	},
}

func newShared(t testing.TB, task sharedTask) *shared {
	s := &shared{t: t, dir: t.TempDir(), python: testenv.Python(t, testenv.Daisy, "zarr==3.1.6", "numpy"), task: task}
	code, err := os.ReadFile("testdata/daisy/blocks.py")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.dir+"/blocks.py", string(code))
	writeFile(t, s.dir+"/task.json", string(text))
	numbers := func(v []int64) string { return strings.ReplaceAll(fmt.Sprint(v), " ", ", ") }
	roi := func(r [2][]int64) string {
		return fmt.Sprintf("{ offset = %s, shape = %s }", numbers(r[0]), numbers(r[1]))
	}
	keys := fmt.Sprintf("id = \"work\"\ntotal = %s\nread_roi = %s\nwrite_roi = %s\nfit = %q\nread_write_conflict = %v\nmax_retries = 1\nresource_tracking = %v\n",
		roi(task.Total), roi(task.Read), roi(task.Write), task.Fit, task.Conflict, task.Resources)
	if task.Mask != nil {
		keys += "skip_mask = \"mask.npy\"\n"
	}
	writeFile(t, s.dir+"/job.toml", job("resources = { cpu = 1 }\ntracking = \"tracking\"",
		keys+fmt.Sprintf("run = { python = \"blocks.py:write\", interpreter = %q }\n", s.python)))
	s.call("prepare", nil)
	return s
}

// command is blocks.py with a command.
func (s *shared) command(name string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), s.python, "blocks.py", name)
	cmd.Dir = s.dir
	return cmd
}

// call runs a command of blocks.py, and reads what it prints.
func (s *shared) call(name string, into any) {
	s.t.Helper()
	cmd := s.command(name)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil && into != nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		s.t.Fatalf("blocks.py %s: %v\n%s%s", name, err, out, stderr.Bytes())
	}
}

// daisysCounts are the counts of daisy. What is skipped is completed, too.
type daisysCounts struct {
	Total     int64 `json:"total_block"`
	Completed int64 `json:"completed"`
	Skipped   int64 `json:"skipped"`
	Failed    int64 `json:"failed"`
	Orphaned  int64 `json:"orphaned"`
}

// daisy and ours do what is left to do, each in its way. They give the same counts, and the ids of the blocks that ran.
func (s *shared) daisy() (c daisysCounts, ran []string) {
	s.t.Helper()
	s.call("run", &c)
	return c, s.ran()
}

func (s *shared) ours(status int, args ...string) (c daisysCounts, ran []string) {
	s.t.Helper()
	dir := s.t.TempDir()
	wantStatus(s.t, status, s.dir, append([]string{"run", "job.toml", "--run-dir", dir + "/run"}, args...)...)
	o := countsOf(statsOf(s.t, dir+"/run").Tasks[0])
	return daisysCounts{o.Blocks, o.Success + o.Skipped, o.Skipped, o.Failed, o.Orphaned}, s.ran()
}

// ran gives the blocks that have run since it was called last, each as often as it ran.
func (s *shared) ran() []string {
	s.t.Helper()
	text, err := os.ReadFile(s.dir + "/ran")
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	_ = os.Remove(s.dir + "/ran")
	lines := strings.Fields(string(text))
	slices.Sort(lines)
	return lines
}

func (s *shared) mend() { writeFile(s.t, s.dir+"/mended", "") }

// sharedGroup is what zarr-python reads.
type sharedGroup struct {
	Hash   string
	Arrays map[string]struct {
		Type  string
		Fill  float64
		Shape []int64
		Sum   float64
		NaN   int
	}
	Done, Failures []int64
}

func TestDaisyAndWeGoOnWithEachOthersRuns(t *testing.T) {
	t.Parallel()
	for name, task := range sharedTasks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, ours := newShared(t, task), newShared(t, task)
			c1, ran1 := theirs.daisy()
			c2, ran2 := ours.ours(1)
			if c1 != c2 || c1.Failed != int64(len(task.Fail)) {
				t.Errorf("a first run counts %+v by daisy, %+v by us", c1, c2)
			}
			if diff := cmp.Diff(ran1, ran2); diff != "" {
				t.Errorf("what a first run did (-daisy +ours):\n%s", diff)
			}
			wantSameMarks(t, theirs, ours)

			theirs.mend()
			ours.mend()
			c1, ran1 = theirs.ours(0)
			c2, ran2 = ours.daisy()
			if c1 != c2 || c1.Completed != c1.Total {
				t.Errorf("the second run counts %+v by us, %+v by daisy", c1, c2)
			}
			if diff := cmp.Diff(ran1, ran2); diff != "" {
				t.Errorf("what the second run did (-ours +daisy):\n%s", diff)
			}
			wantSameMarks(t, theirs, ours)
			if _, again := theirs.daisy(); len(again) != 0 {
				t.Errorf("daisy has done again what was done: %v", again)
			}
			if _, again := ours.ours(0); len(again) != 0 {
				t.Errorf("we have done again what was done: %v", again)
			}
			var result1, result2 []int64
			theirs.call("result", &result1)
			ours.call("result", &result2)
			if !slices.Equal(result1, result2) {
				t.Error("the arrays that were written differ")
			}

			var g sharedGroup
			ours.call("arrays", &g)
			want := map[string]string{"done": "uint8", "failures": "uint32"}
			if task.Resources {
				for name, kind := range map[string]string{"wall_seconds": "float32", "cpu_seconds": "float32", "gpu_util_pct": "float32",
					"peak_rss_bytes": "uint64", "io_read_bytes": "uint64", "io_write_bytes": "uint64", "gpu_mem_bytes": "uint64"} {
					want[name] = kind
				}
			}
			for name, a := range g.Arrays {
				if a.Type != want[name] || a.Fill != 0 || len(a.Shape) != len(task.Total[0]) {
					t.Errorf("zarr-python reads %s as %+v", name, a)
				}
				if strings.HasPrefix(name, "peak") || strings.HasPrefix(name, "wall") {
					if a.Sum <= 0 || a.NaN != 0 {
						t.Errorf("%s has no values: %+v", name, a)
					}
				}
			}
			if len(g.Arrays) != len(want) {
				t.Errorf("zarr-python finds the arrays %v, want %v", g.Arrays, want)
			}
		})
	}
}

// wantSameMarks compares the groups of two folders, file by file, but for what blocks have used, which differs from run to run.
func wantSameMarks(t *testing.T, theirs, ours *shared) {
	t.Helper()
	read := func(s *shared) map[string]string {
		files := map[string]string{}
		err := filepath.WalkDir(s.dir+"/tracking/work", func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			name := strings.TrimPrefix(path, s.dir+"/tracking/work/")
			files[name] = readFile(t, path)
			if values := strings.Contains(name, "/c/"); values && !strings.HasPrefix(name, "done/") && !strings.HasPrefix(name, "failures/") {
				files[name] = fmt.Sprint(len(files[name]), " bytes")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if diff := cmp.Diff(read(theirs), read(ours)); diff != "" {
		t.Errorf("files (-begun by daisy +begun by us):\n%s", diff)
	}
}

// held waits until the block that is to be held runs.
func (s *shared) held() {
	s.t.Helper()
	for until := time.Now().Add(patience); !exists(s.dir + "/held"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatal("the block that is held never began")
		}
	}
}

// A line of 8 blocks whose fifth is being done when everything is killed.
func heldTask() sharedTask {
	hold := 4
	return sharedTask{Total: [2][]int64{{0}, {80}}, Read: [2][]int64{{0}, {10}}, Write: [2][]int64{{0}, {10}}, Fit: "valid", Fail: []int{}, Hold: &hold}
}

func TestWeGoOnWhereDaisyWasKilled(t *testing.T) {
	t.Parallel()
	s := newShared(t, heldTask())
	theirs := s.command("run")
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	s.held()
	kill(t, theirs.Process.Pid, syscall.SIGKILL)
	_ = theirs.Wait()
	if got := strings.Join(s.ran(), " "); got != "0 1 2 3 4" {
		t.Fatalf("until it was killed daisy had begun %s", got)
	}
	s.mend()
	c, ran := s.ours(0)
	if want := (daisysCounts{Total: 8, Completed: 8, Skipped: 4}); c != want || strings.Join(ran, " ") != "4 5 6 7" {
		t.Errorf("we count %+v, and did %v", c, ran)
	}
}

func TestDaisyGoesOnWhereWeWereKilledAndWeAfterIt(t *testing.T) {
	t.Parallel()
	s := newShared(t, heldTask())
	coordinator := start(t, s.dir, "run", "job.toml", "--run-dir", "one")
	s.held()
	// Marks are written once a second; what was done before is in the journal in any case.
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if marks, _ := os.ReadFile(s.dir + "/tracking/work/done/c/0"); bytes.Equal(marks, []byte{1, 1, 1, 1, 0, 0, 0, 0}) {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the marks of what was done did not come")
		}
	}
	killAll(t, coordinator, s.dir)
	s.ran()
	s.mend()
	c, ran := s.daisy()
	if want := (daisysCounts{Total: 8, Completed: 8, Skipped: 4}); c != want || strings.Join(ran, " ") != "4 5 6 7" {
		t.Errorf("daisy counts %+v, and did %v", c, ran)
	}
	// Our own run, when it is resumed, has done what its journal says, and takes the rest from the marks.
	wantStatus(t, 0, s.dir, "run", "--resume", "one")
	if got := countsOf(statsOf(t, s.dir+"/one").Tasks[0]); got.Success != 4 || got.Skipped != 4 || got.Blocks != 8 {
		t.Errorf("the resumed run counts %+v", got)
	}
	if ran := s.ran(); len(ran) != 0 {
		t.Errorf("the resumed run did %v again", ran)
	}
}
