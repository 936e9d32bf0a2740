package array_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
	"example.org/daisy/internal/array"
)

var micrometers = []string{"micrometer", "micrometer", "micrometer"}

func TestRealVolumesAreRead(t *testing.T) {
	zyx, space := []string{"z", "y", "x"}, []bool{true, true, true}
	nuclei := []float64{0.29, 0.26, 0.26}
	for _, want := range []struct {
		open string
		array.Array
	}{
		{"nuclei.v2.zarr", array.Array{Path: "testdata/nuclei.v2.zarr/0", Format: "zarr v2", Shape: geom.Coord(60, 256, 256), Chunks: geom.Coord(32, 32, 32),
			InnerChunks: geom.Coord(32, 32, 32), Axes: zyx, Space: space, VoxelSize: nuclei, Units: micrometers, DType: "|u1"}},
		{"nuclei.v2.zarr/0", array.Array{Path: "testdata/nuclei.v2.zarr/0", Format: "zarr v2", Shape: geom.Coord(60, 256, 256), Chunks: geom.Coord(32, 32, 32),
			InnerChunks: geom.Coord(32, 32, 32), Axes: zyx, Space: space, VoxelSize: nuclei, Units: micrometers, DType: "|u1"}},
		{"nuclei.v3.zarr", array.Array{Path: "testdata/nuclei.v3.zarr/0", Format: "zarr v3", Shape: geom.Coord(60, 256, 256), Chunks: geom.Coord(32, 32, 32),
			InnerChunks: geom.Coord(32, 32, 32), Axes: zyx, Space: space, VoxelSize: nuclei, Units: micrometers, DType: "uint8"}},
		{"nuclei.v3.zarr/1/", array.Array{Path: "testdata/nuclei.v3.zarr/1/", Format: "zarr v3", Shape: geom.Coord(30, 128, 128), Chunks: geom.Coord(32, 32, 32),
			InnerChunks: geom.Coord(32, 32, 32), Axes: zyx, Space: space, VoxelSize: []float64{0.58, 0.52, 0.52}, Translation: []float64{0.145, 0.13, 0.13},
			Units: micrometers, DType: "uint8"}},
		{"nuclei16-crop.v3.zarr", array.Array{Path: "testdata/nuclei16-crop.v3.zarr/0", Format: "zarr v3", Shape: geom.Coord(60, 128, 128), Chunks: geom.Coord(32, 32, 32),
			InnerChunks: geom.Coord(32, 32, 32), Axes: zyx, Space: space, VoxelSize: nuclei, Translation: []float64{0, 16.64, 16.64}, Units: micrometers, DType: "uint16"}},
		{"labels.v3.zarr", array.Array{Path: "testdata/labels.v3.zarr/0", Format: "zarr v3", Shape: geom.Coord(60, 256, 256), Chunks: geom.Coord(64, 128, 128),
			InnerChunks: geom.Coord(32, 32, 32), Sharded: true, Axes: zyx, Space: space, VoxelSize: nuclei, Units: micrometers, DType: "uint8"}},
		{"cell2d.v2.zarr", array.Array{Path: "testdata/cell2d.v2.zarr/0", Format: "zarr v2", Shape: geom.Coord(660, 550), Chunks: geom.Coord(64, 64),
			InnerChunks: geom.Coord(64, 64), Axes: zyx[1:], Space: space[1:], VoxelSize: []float64{0.107, 0.107}, Units: micrometers[1:], DType: "|u1"}},
	} {
		t.Run(want.open, func(t *testing.T) {
			got, err := array.Open("testdata/" + want.open)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want.Array, *got, cmp.Comparer(func(a, b geom.Coordinate) bool { return a == b })); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// write makes files below a new folder: path, text, path, text …
func write(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestN5IsTurnedIntoCOrder(t *testing.T) {
	dir := write(t, "attributes.json", `{"dimensions":[256,128,60],"blockSize":[64,32,16],"dataType":"uint16","compression":{"type":"gzip"},
		"axes":["x","y","z"],"resolution":[4,4,40],"offset":[1,2,3],"units":["nm","nm","nm"]}`)
	got, err := array.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := array.Array{Path: dir, Format: "n5", Shape: geom.Coord(60, 128, 256), Chunks: geom.Coord(16, 32, 64), InnerChunks: geom.Coord(16, 32, 64), DType: "uint16",
		Axes: []string{"z", "y", "x"}, VoxelSize: []float64{40, 4, 4}, Translation: []float64{3, 2, 1}, Units: []string{"nm", "nm", "nm"}}
	if d := cmp.Diff(want, *got, cmp.Comparer(func(a, b geom.Coordinate) bool { return a == b })); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestATransposeBeforeShardsTurnsTheInnerChunks(t *testing.T) {
	dir := write(t, "zarr.json", `{"zarr_format":3,"node_type":"array","shape":[100,200,300],"data_type":"uint8",
		"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[20,40,60]}},
		"codecs":[{"name":"transpose","configuration":{"order":[2,0,1]}},{"name":"sharding_indexed","configuration":{"chunk_shape":[30,10,20]}}]}`)
	got, err := array.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := geom.Coord(10, 20, 30); got.InnerChunks != want || !got.Sharded || got.Chunks != geom.Coord(20, 40, 60) {
		t.Errorf("inner chunks %v in shards %v, want %v", got.InnerChunks, got.Chunks, want)
	}
}

func TestAxesAreSelectedByName(t *testing.T) {
	dir := write(t,
		".zgroup", `{"zarr_format":2}`,
		".zattrs", `{"multiscales":[{"axes":[{"name":"t","type":"time"},{"name":"c","type":"channel"},{"name":"y","type":"space"},{"name":"x","type":"space"}],
			"datasets":[{"path":"s0/data","coordinateTransformations":[{"type":"scale","scale":[1,1,2,3]},{"type":"translation","translation":[0,0,10,20]}]}],
			"coordinateTransformations":[{"type":"scale","scale":[5,1,10,10]}]}]}`,
		"s0/data/.zarray", `{"zarr_format":2,"shape":[7,3,100,200],"chunks":[1,3,10,20],"dtype":"<f4"}`)
	a, err := array.Open(filepath.Join(dir, "s0", "data"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]float64{5, 1, 20, 30}, a.VoxelSize); d != "" {
		t.Errorf("voxel size: -want +got\n%s", d)
	}
	if d := cmp.Diff([]float64{0, 0, 100, 200}, a.Translation); d != "" {
		t.Errorf("translation: -want +got\n%s", d)
	}
	if d := cmp.Diff([]string{"y", "x"}, a.SpaceAxes()); d != "" {
		t.Errorf("space axes: -want +got\n%s", d)
	}
	xt, err := a.Select([]string{"x", "t"})
	if err != nil {
		t.Fatal(err)
	}
	if xt.Shape != geom.Coord(200, 7) || xt.Chunks != geom.Coord(20, 1) {
		t.Errorf("got shape %v and chunks %v", xt.Shape, xt.Chunks)
	}
	if last := a.Last(2); last.Shape != geom.Coord(100, 200) || last.Axes[0] != "y" {
		t.Errorf("got the last axes %v of shape %v", last.Axes, last.Shape)
	}
	for _, axes := range [][]string{{"z"}, {"x", "x"}, {}} {
		if _, err := a.Select(axes); err == nil {
			t.Errorf("axes %q were accepted", axes)
		}
	}
}

func TestWhatIsNoArrayIsRefusedWithAReason(t *testing.T) {
	v3 := func(rest string) []string {
		return []string{"zarr.json", `{"zarr_format":3,"node_type":"array",` + rest + `}`}
	}
	for _, test := range []struct {
		files []string
		want  string // DIR stands for the folder
	}{
		{nil, "DIR holds no array: looked for zarr.json (Zarr v3), .zarray and .zgroup (Zarr v2) and attributes.json (N5)"},
		{[]string{".zgroup", `{"zarr_format":2}`, "raw/.zarray", "{}", "labels/.zarray", "{}", "notes/readme", ""},
			"DIR is a zarr v2 group, not an array or an OME-Zarr image; in it are labels, raw"},
		{[]string{"zarr.json", `{"zarr_format":3,"node_type":"group"}`}, "DIR is a zarr v3 group, not an array or an OME-Zarr image, and holds none"},
		{[]string{"attributes.json", `{"n5":"4.0.0"}`}, "DIR is a n5 group, not an array or an OME-Zarr image, and holds none"},
		{[]string{"zarr.json", `{"zarr_format":3`}, "DIR/zarr.json: not JSON: unexpected end of JSON input"},
		{[]string{"zarr.json", `{"zarr_format":2}`}, "DIR/zarr.json: zarr_format is 2; zarr.json belongs to format 3"},
		{[]string{"zarr.json", `{"zarr_format":3}`}, `DIR/zarr.json: node_type is ""; it must be "array" or "group"`},
		{v3(`"shape":[4],"chunk_grid":{"name":"rectilinear"}`), `DIR/zarr.json: chunk_grid is "rectilinear"; only "regular" is supported`},
		{v3(`"shape":[4],"chunk_grid":{"name":"regular"}`), "DIR/zarr.json: chunk_grid has no chunk_shape of integers"},
		{v3(`"shape":[1.5],"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[1]}}`), `DIR/zarr.json: "shape" is a number 1.5, not what the format has there`},
		{v3(`"shape":[4],"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[1,2]}}`), "DIR/zarr.json: the array has 1 axes but its chunks have 2"},
		{v3(`"shape":[4],"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[0]}}`), "DIR/zarr.json: chunk shape [0] has an extent below 1"},
		{v3(`"shape":[],"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[]}}`), "DIR/zarr.json: the array has no axes; 1 to 6 are supported"},
		{v3(`"shape":[4],"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},"codecs":[{"name":"sharding_indexed"}]`),
			"DIR/zarr.json: codec sharding_indexed: the array has 1 axes but its chunks have 0"},
		{[]string{".zarray", `{"zarr_format":2,"shape":[-4],"chunks":[1]}`}, "DIR/.zarray: shape [-4] has a negative extent"},
		{[]string{".zarray", `{"zarr_format":2,"shape":[1,1,1,1,1,1,1],"chunks":[1,1,1,1,1,1,1]}`}, "DIR/.zarray: the array has 7 axes; at most 6 are supported"},
		{[]string{".zgroup", `{"zarr_format":2}`, ".zattrs", `{"multiscales":[{"datasets":[{"path":"../../etc"}]}]}`},
			`DIR/.zgroup: .zattrs: multiscales: the dataset path "../../etc" leads out of the image`},
		{[]string{".zgroup", `{"zarr_format":2}`, ".zattrs", `{"multiscales":[{"datasets":[]}]}`}, "DIR/.zgroup: .zattrs: multiscales: no datasets"},
		{[]string{".zgroup", `{"zarr_format":2}`, ".zattrs", `{"multiscales":[{"datasets":[{"path":"0"}]}]}`},
			`level "0" of the image DIR: DIR/0 holds no array: looked for zarr.json (Zarr v3), .zarray and .zgroup (Zarr v2) and attributes.json (N5)`},
	} {
		dir := write(t, test.files...)
		_, err := array.Open(dir)
		if err == nil {
			t.Errorf("%q was accepted", test.files)
			continue
		}
		if got := strings.ReplaceAll(err.Error(), dir, "DIR"); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestAPipeInPlaceOfMetadataDoesNotHang(t *testing.T) {
	dir := write(t)
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zarr.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := array.Open(dir); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v", err)
	}
}

func FuzzMetadata(f *testing.F) {
	for _, name := range []string{"zarr.json", ".zarray", ".zgroup", ".zattrs", "attributes.json"} {
		for _, pattern := range []string{"testdata/*/" + name, "testdata/*/*/" + name} {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				f.Fatal(err)
			}
			for _, path := range paths {
				data, err := os.ReadFile(path)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(name, data)
			}
		}
	}
	f.Add("attributes.json", []byte(`{"dimensions":[256,128,60],"blockSize":[64,32,16],"axes":[1]}`))
	f.Add(".zattrs", []byte(`{"multiscales":[{"axes":["z"],"datasets":[{"path":"0","coordinateTransformations":[{"type":"scale","scale":[null]}]}]}]}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		switch name {
		case "zarr.json", ".zarray", ".zgroup", "attributes.json":
		case ".zattrs":
		default:
			return
		}
		dir := t.TempDir()
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.WriteFile(filepath.Join(dir, name), data, 0o644))
		if name == ".zattrs" {
			must(os.WriteFile(filepath.Join(dir, ".zgroup"), []byte(`{"zarr_format":2}`), 0o644))
		}
		must(os.Mkdir(filepath.Join(dir, "0"), 0o755))
		must(os.WriteFile(filepath.Join(dir, "0", ".zarray"), []byte(`{"zarr_format":2,"shape":[5,6,7],"chunks":[1,2,3],"dtype":"|u1"}`), 0o644))
		for _, path := range []string{dir, filepath.Join(dir, "0")} {
			a, err := array.Open(path)
			if err != nil {
				continue
			}
			n := a.Shape.Dims()
			if n < 1 || n > geom.MaxDims || a.Chunks.Dims() != n || a.InnerChunks.Dims() != n {
				t.Errorf("shape %v, chunks %v, inner chunks %v", a.Shape, a.Chunks, a.InnerChunks)
			}
			for axis := range n {
				if a.Shape.At(axis) < 0 || a.Chunks.At(axis) < 1 || a.InnerChunks.At(axis) < 1 {
					t.Errorf("shape %v, chunks %v, inner chunks %v", a.Shape, a.Chunks, a.InnerChunks)
				}
			}
			for _, l := range []int{len(a.Axes), len(a.Space), len(a.Units), len(a.VoxelSize), len(a.Translation)} {
				if l != 0 && l != n {
					t.Errorf("a list of %d for %d axes: %+v", l, n, a)
				}
			}
			a.Last(1)
		}
	})
}
