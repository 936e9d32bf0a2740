package tracking

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.org/daisy/geom"
	"github.com/google/go-cmp/cmp"
)

type goldenRoi [2][]int64 // offset, shape

type goldenTask struct {
	Total goldenRoi `json:"total_roi"`
	Read  goldenRoi `json:"read_roi"`
	Write goldenRoi `json:"write_roi"`
	Fit   string    `json:"fit"`
}

func (g goldenTask) grid(t *testing.T) *geom.Grid {
	t.Helper()
	roi := func(r goldenRoi) geom.Roi {
		offset, err1 := geom.CoordOf(r[0])
		shape, err2 := geom.CoordOf(r[1])
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return geom.Roi{Offset: offset, Shape: shape}
	}
	fit, err := geom.ParseFit(g.Fit)
	if err != nil {
		t.Fatal(err)
	}
	return mustGrid(t, geom.GridSpec{TotalRead: roi(g.Total), Read: roi(g.Read), Write: roi(g.Write), Fit: fit})
}

func mustGrid(t testing.TB, spec geom.GridSpec) *geom.Grid {
	t.Helper()
	grid, err := geom.NewGrid(spec)
	if err != nil {
		t.Fatal(err)
	}
	return grid
}

func goldenFile(t *testing.T, name string) []byte {
	t.Helper()
	dir := os.Getenv("DAISY_GOLDEN_DIR")
	if dir == "" {
		dir = filepath.Join("testdata", "golden")
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func goldenRows[T any](t *testing.T, name string) []T {
	t.Helper()
	var rows []T
	lines := bufio.NewScanner(bytes.NewReader(goldenFile(t, name)))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s, row %d: %v", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", name)
	}
	return rows
}

// goldenGroups gives the files of each directory in an archive.
func goldenGroups(t *testing.T, name string) map[string]map[string][]byte {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(goldenFile(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]map[string][]byte{}
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return groups
		}
		if err != nil {
			t.Fatal(err)
		}
		group, file, _ := strings.Cut(h.Name, "/")
		if groups[group] == nil {
			groups[group] = map[string][]byte{}
		}
		if groups[group][file], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "group")
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// snapshot gives the files below dir.
func snapshot(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func mustOpen(t testing.TB, dir string, g *geom.Grid, options ...Option) *Store {
	t.Helper()
	s, err := Open(dir, g, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// doneIDs gives the spatial ids of the blocks that the group says are done.
func doneIDs(t *testing.T, s *Store, g *geom.Grid) []uint64 {
	t.Helper()
	bits, err := s.Done()
	if err != nil {
		t.Fatal(err)
	}
	ids := []uint64{}
	for b := range g.Len() {
		if bits[b/64]>>(b%64)&1 == 1 {
			id, ok := g.ID(b)
			if !ok {
				t.Fatalf("block %d has no id", b)
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

type markerRow struct {
	Dir         string
	Task        goldenTask
	Hash        string
	HashedBytes string   `json:"hashed_bytes_hex"`
	DoneIDs     []uint64 `json:"done_ids"`
	Failures    map[string]uint32
	Cells       map[string]struct{ Linear int64 }
	DoneBytes   string   `json:"done_bytes_hex"`
	DoneAfter   string   `json:"done_bytes_after_resume_hex"`
	FailAfter   string   `json:"failures_bytes_after_resume_hex"`
	Resumed     []uint64 `json:"resume_processed_ids"`
	Shape       []int64  `json:"grid_shape"`
	Masked      []uint64 `json:"masked_ids"`
	Tracked     bool     `json:"resource_tracking"`
	// Stats has the arrays of a group with resource tracking.
	Stats struct {
		Wall  []float64 `json:"wall_seconds"`
		CPU   []float64 `json:"cpu_seconds"`
		RSS   []uint64  `json:"peak_rss_bytes"`
		Read  []uint64  `json:"io_read_bytes"`
		Write []uint64  `json:"io_write_bytes"`
	}
}

func TestGoldenGroupsOfDaisyAreReadAndContinued(t *testing.T) {
	groups := goldenGroups(t, "markers.tar.gz")
	for _, row := range goldenRows[markerRow](t, "markers.jsonl") {
		t.Run(row.Dir, func(t *testing.T) {
			g := row.Task.grid(t)
			if got := Hash(g); got != row.Hash {
				t.Errorf("hash %s, want %s", got, row.Hash)
			}
			if got := hex.EncodeToString(hashedBytes(groupPrefix, g.Spec())); row.HashedBytes != "" && got != row.HashedBytes {
				t.Errorf("hashed bytes %s, want %s", got, row.HashedBytes)
			}
			dir := unpack(t, groups[row.Dir])
			s := mustOpen(t, dir, g)
			if diff := cmp.Diff(row.Shape, s.cells.array.Slice()); diff != "" {
				t.Errorf("shape (-want +got):\n%s", diff)
			}
			slices.Sort(row.DoneIDs)
			if diff := cmp.Diff(row.DoneIDs, doneIDs(t, s, g)); diff != "" {
				t.Errorf("done ids (-want +got):\n%s", diff)
			}
			for id, cell := range row.Cells {
				if got := s.cells.cell(blockOf(t, g, id)); got != cell.Linear {
					t.Errorf("block id %s has cell %d, want %d", id, got, cell.Linear)
				}
				if got, err := s.FailureCount(blockOf(t, g, id)); err != nil || got != row.Failures[id] {
					t.Errorf("block id %s failed %d times (%v), want %d", id, got, err, row.Failures[id])
				}
			}
			for _, id := range row.Masked {
				if slices.Contains(doneIDs(t, s, g), id) {
					t.Errorf("masked block id %d is done", id)
				}
			}
			// A second run does the rest.
			for _, id := range row.Resumed {
				s.MarkDone(blockOf(t, g, strconv.FormatUint(id, 10)))
			}
			mustClose(t, s)
			after := snapshot(t, dir)
			chunk := strings.TrimPrefix(chunkPath("", s.cells), "/")
			if row.DoneAfter != "" {
				if got := hex.EncodeToString(after["done/"+chunk]); got != row.DoneAfter {
					t.Errorf("done after the second run %s, want %s", got, row.DoneAfter)
				}
				if got := hex.EncodeToString(after["failures/"+chunk]); got != row.FailAfter {
					t.Errorf("failures after the second run %s, want %s", got, row.FailAfter)
				}
			}
			for name, data := range groups[row.Dir] {
				if !strings.HasSuffix(name, chunk) && !bytes.Equal(after[name], data) {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

func blockOf(t *testing.T, g *geom.Grid, id string) int64 {
	t.Helper()
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	block, ok := g.BlockOfID(n)
	if !ok {
		t.Fatalf("no block has the id %s", id)
	}
	return block
}

func TestGoldenGroupsAreWrittenByteForByteAsDaisyWritesThem(t *testing.T) {
	groups := goldenGroups(t, "markers.tar.gz")
	for _, row := range goldenRows[markerRow](t, "markers.jsonl") {
		t.Run(row.Dir, func(t *testing.T) {
			g := row.Task.grid(t)
			dir := filepath.Join(t.TempDir(), "group")
			var options []Option
			if row.Tracked {
				options = append(options, WithResources())
			}
			s, err := Open(dir, g, options...)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range row.DoneIDs {
				block := blockOf(t, g, strconv.FormatUint(id, 10))
				s.MarkDone(block)
				if row.Tracked {
					at, of := s.cells.cell(block), row.Stats
					s.SetResources(block, Resources{float32(of.Wall[at]), float32(of.CPU[at]), of.RSS[at], of.Read[at], of.Write[at]})
				}
			}
			for id, n := range row.Failures {
				for range n {
					s.AddFailure(blockOf(t, g, id))
				}
			}
			mustClose(t, s)
			if diff := cmp.Diff(groups[row.Dir], snapshot(t, dir)); diff != "" {
				t.Errorf("files (-daisy +ours):\n%s", diff)
			}
		})
	}
}

// olderArray is the one fault of which nothing is in doubt: only daisy 2.0.0 does not read it.
const olderArray = "old_array_layout"

type faultRow struct {
	Name      string
	Task      goldenTask
	Exception []string
	Processed []uint64 `json:"processed_ids"`
}

// faultyGroup makes a group of the archive with what archives cannot hold: a file in its place, and a directory in the chunk's.
func faultyGroup(t *testing.T, row faultRow, files map[string][]byte) (dir string, chunkDir bool) {
	t.Helper()
	dir = unpack(t, files)
	if files == nil && row.Exception != nil {
		if err := os.WriteFile(dir, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range row.Exception {
		chunkDir = chunkDir || strings.Contains(text, "Is a directory")
	}
	if chunkDir {
		if err := os.MkdirAll(filepath.Join(dir, "done", "c", "0"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir, chunkDir
}

func TestGoldenFaultyGroupsAreRefusedAndSoundOnesRead(t *testing.T) {
	groups := goldenGroups(t, "marker_faults.tar.gz")
	for _, row := range goldenRows[faultRow](t, "marker_faults.jsonl") {
		t.Run(row.Name, func(t *testing.T) {
			g := row.Task.grid(t)
			files := groups[row.Name]
			dir, chunkDir := faultyGroup(t, row, files)
			doubt := whyUncertain(files, Hash(g), g.TrackingShape().Slice())
			if files == nil && row.Exception == nil {
				doubt = "" // an empty directory, or none
			}
			if chunkDir {
				doubt = "the chunk is a directory"
			}
			s, err := Open(dir, g)
			if row.Name == olderArray {
				if err != nil || s.Older() == "" {
					t.Fatalf("the older layout is not read: %v", err)
				}
				mustClose(t, s)
				return
			}
			if doubt == "" {
				if err != nil {
					t.Fatal(err)
				}
				want := []uint64{}
				for b := range g.Len() {
					if id, _ := g.ID(b); !slices.Contains(row.Processed, id) {
						want = append(want, id)
					}
				}
				if row.Exception != nil {
					t.Fatalf("daisy refuses it: %v", row.Exception)
				}
				if diff := cmp.Diff(want, doneIDs(t, s, g)); diff != "" {
					t.Errorf("done ids (-daisy +ours):\n%s", diff)
				}
				mustClose(t, s)
				return
			}
			if err == nil {
				t.Fatalf("it was accepted, although %s", doubt)
			}
			var layout *LayoutError
			var unreadable *UnreadableError
			if !errors.As(err, &layout) && !errors.As(err, &unreadable) {
				t.Errorf("error %T %v is of no kind that says so", err, err)
			}
			if !strings.Contains(err.Error(), "rm -r '"+dir+"'") {
				t.Errorf("the way out is missing in %v", err)
			}
			if files != nil {
				if diff := cmp.Diff(files, snapshot(t, dir)); diff != "" {
					t.Errorf("it was changed (-before +after):\n%s", diff)
				}
			}
		})
	}
}

// whyUncertain is an independent reading of what a group must say, over the files as plain data.
func whyUncertain(files map[string][]byte, hash string, shape []int64) string {
	object := func(name string) map[string]any {
		var v map[string]any
		if json.Unmarshal(files[name], &v) != nil {
			return nil
		}
		return v
	}
	group := object("zarr.json")
	attributes, _ := group["attributes"].(map[string]any)
	if group["node_type"] != "group" || group["zarr_format"] != 3.0 || attributes["daisy_task_hash"] != hash {
		return "the group's file does not say for which blocks it is"
	}
	for name, want := range map[string]struct {
		kind string
		size int
	}{"done": {"uint8", 1}, "failures": {"uint32", 4}} {
		prefix, cells, found := name+"/", 1, false
		for file := range files {
			found = found || strings.HasPrefix(file, prefix)
		}
		if !found && name == "failures" {
			continue // no history
		}
		for _, n := range shape {
			cells *= int(n)
		}
		array := object(prefix + "zarr.json")
		grid, _ := array["chunk_grid"].(map[string]any)
		regular, _ := grid["configuration"].(map[string]any)
		codecs, _ := array["codecs"].([]any)
		if array["node_type"] != "array" || array["zarr_format"] != 3.0 || array["data_type"] != want.kind || array["fill_value"] != 0.0 ||
			fmt.Sprint(array["shape"]) != fmt.Sprint(shape) || fmt.Sprint(regular["chunk_shape"]) != fmt.Sprint(shape) ||
			len(codecs) != 1 || codecs[0].(map[string]any)["name"] != "bytes" {
			return name + " has other metadata"
		}
		for file, data := range files {
			if strings.HasPrefix(file, prefix+"c") && (file != prefix+"c"+strings.Repeat("/0", len(shape)) || len(data) != cells*want.size) {
				return file + " is not the one chunk, or has another size"
			}
		}
	}
	return ""
}

func TestFaultMessagesNameTheFileTheCauseAndTheWayOut(t *testing.T) {
	groups := goldenGroupsHere(t)
	g := mustGrid(t, lineSpec(50, 10, 0, 0))
	messages := map[string]string{
		"wrong_hash": "tracking DIR was written for another layout of blocks (total, read or write region or fit differ): stored hash " + strings.Repeat("0", 64) +
			", this task's 677010714291ff384272f4da21d6fb1c38a6ac84dd5d58c79b50d2a264538cbe. Its marks say nothing about this task's blocks. " +
			"If the volume has only grown, daisy-submit migrate keeps those that still hold. Give another tracking folder, or forget the marks and start fresh: rm -r 'DIR'",
		"hash_missing":                          "tracking DIR cannot be trusted: DIR/zarr.json: it has no attribute daisy_task_hash, so nobody knows for which blocks its marks are. Give another tracking folder, or forget the marks and start fresh: rm -r 'DIR'",
		"hash_is_number":                        "DIR/zarr.json: its attribute daisy_task_hash is 5, not a hash.",
		"group_json_missing":                    "DIR/zarr.json: the file is missing, so nobody knows for which blocks the marks in the folder are.",
		"group_json_not_json":                   "DIR/zarr.json: it is not a JSON object:",
		"group_json_empty":                      "DIR/zarr.json: it is not a JSON object: EOF.",
		"zarr_format_2":                         "DIR/zarr.json: its zarr_format is 2, and 3 is needed.",
		"done_shape_differs":                    "DIR/done/zarr.json: its shape is [4], and the task needs [5].",
		"done_dtype_differs":                    `DIR/done/zarr.json: its data type is "int8", and "uint8" is needed.`,
		"done_is_bool":                          `DIR/done/zarr.json: its data type is "bool", and "uint8" is needed.`,
		"done_json_missing":                     "DIR/done/zarr.json: the file is missing.",
		"done_chunk_short":                      "DIR/done/c/0: it has 2 bytes, and 5 are needed.",
		"done_in_two_chunks":                    "DIR/done/zarr.json: its chunks have the shape [3], and one chunk of [5] is needed.",
		"done_is_zstd":                          `DIR/done/zarr.json: it has 2 codecs {"name":"bytes"}, {"name":"zstd","configuration":{"level":0,"checksum":false}}, and only the codec "bytes" is read.`,
		"done_chunk_is_directory":               "DIR/done/c/0: it is not a file.",
		"hash_in_capitals":                      "was written for another layout of blocks (total, read or write region or fit differ): stored hash 677010714291FF38",
		"zarr_python_group_no_hash_no_done":     "DIR/zarr.json: it has no attribute daisy_task_hash,",
		"zarr_python_group_no_hash_wrong_shape": "DIR/zarr.json: it has no attribute daisy_task_hash,",
	}
	for _, row := range goldenRows[faultRow](t, "marker_faults.jsonl") {
		doubt := whyUncertain(groups[row.Name], Hash(g), g.TrackingShape().Slice())
		if doubt != "" && messages[row.Name] == "" && row.Name != olderArray {
			t.Errorf("no message is known of %s", row.Name)
		}
	}
	for name, want := range messages {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, groups[name])
			if name == "done_chunk_is_directory" {
				if err := os.MkdirAll(filepath.Join(dir, "done", "c", "0"), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(dir, g)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if got := strings.ReplaceAll(err.Error(), dir, "DIR"); !strings.Contains(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// goldenGroupsHere reads the faults in testdata, whatever DAISY_GOLDEN_DIR says.
func goldenGroupsHere(t *testing.T) map[string]map[string][]byte {
	t.Setenv("DAISY_GOLDEN_DIR", "")
	return goldenGroups(t, "marker_faults.tar.gz")
}

func failureBytes(counts ...uint32) []byte {
	var b []byte
	for _, n := range counts {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}
