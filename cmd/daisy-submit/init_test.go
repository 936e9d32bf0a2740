package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// arrayIn makes the metadata of a Zarr v2 array.
func arrayIn(t *testing.T, dir, name, shape, chunks string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	meta := `{"zarr_format":2,"shape":` + shape + `,"chunks":` + chunks + `,"dtype":"|u1"}`
	if err := os.WriteFile(filepath.Join(dir, name, ".zarray"), []byte(meta), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAFirstJobFileCanBePlannedAndRunAsItIs(t *testing.T) {
	wantHelp(t, "init", "0", "2", "3")
	path := filepath.Join(t.TempDir(), "job.toml")
	if status, out, said := call("init", "-o", path); status != exitOK || said != "" || !strings.Contains(out, "daisy-submit plan "+path) {
		t.Fatalf("status %d: %s%s", status, out, said)
	}
	p := planOf(t, path)
	if len(p.Tasks) != 1 || p.Blocks != 8 || len(p.Warnings) != 0 {
		t.Errorf("got %+v", p)
	}
	if status, _, said := call("run", path, "--launcher", "serial"); status != exitOK {
		t.Errorf("status %d: %s", status, said)
	}
	if status, out, _ := call("run-block", path, "blocks", "0"); status != exitOK || out != "block 0,0,0 reads 0,0,0 128,128,128, writes 0,0,0 128,128,128\n" {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestEveryKeyThatIsCommentedOutIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.toml")
	if status, _, said := call("init", "-o", path); status != exitOK {
		t.Fatal(said)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`(?m)^# (\w+ = )`)
	if n := len(keys.FindAll(text, -1)); n != 8 {
		t.Errorf("%d keys are commented out", n)
	}
	if err := os.WriteFile(path, keys.ReplaceAll(text, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := planOf(t, path); p.Launcher != "serial" || p.Name != "segment" || p.Tasks[0].MaxWorkers != 2 {
		t.Errorf("got %+v", p)
	}
}

func TestAJobFileOfAnArrayCoversItInWholeChunks(t *testing.T) {
	for name, c := range map[string]struct{ shape, chunks, block string }{
		"small chunks": {"[1000, 1000, 1000]", "[50, 64, 100]", "[150, 128, 100]"},
		"large chunks": {"[1000, 1000, 1000]", "[500, 1, 1000]", "[500, 128, 1000]"},
		"one block":    {"[10, 20]", "[64, 64]", "[10, 20]"},
		"one axis":     {"[5000000]", "[1000]", "[2097000]"},
	} {
		dir := t.TempDir()
		arrayIn(t, dir, `ra"w.zarr`, c.shape, c.chunks)
		path := filepath.Join(dir, "job.toml")
		if status, _, said := call("init", filepath.Join(dir, `ra"w.zarr`), "-o", path); status != exitOK {
			t.Errorf("%s: status %d, %s", name, status, said)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\narray = \"ra\\\"w.zarr\"\n") || !strings.Contains(string(text), "shape = "+c.block) {
			t.Errorf("%s: want blocks of %s in\n%s", name, c.block, text)
		}
		if p := planOf(t, path); p.Tasks[0].Unwritten != nil || len(p.Warnings) != 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestAnImageIsCoveredAlongItsAxesOfSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.toml")
	image, err := filepath.Abs("../../internal/array/testdata/nuclei.v3.zarr")
	if err != nil {
		t.Fatal(err)
	}
	if status, _, said := call("init", image, "-o", path); status != exitOK {
		t.Fatal(said)
	}
	p := planOf(t, path)
	if p.Tasks[0].Input == nil || p.Tasks[0].Input.VoxelSize == nil || len(p.Tasks[0].Grid) != 3 {
		t.Errorf("got %+v", p.Tasks[0])
	}
	if text, _ := os.ReadFile(path); !strings.Contains(string(text), `"`+image+`"`) || !strings.Contains(string(text), "Voxels are") {
		t.Errorf("got\n%s", text)
	}
}

func TestNothingIsOverwrittenAndNothingIsLeftOfWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "job.toml")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	arrayIn(t, dir, "empty.zarr", "[0, 5]", "[1, 1]")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"there":      {[]string{"-o", path}, "is there already"},
		"no folder":  {[]string{"-o", filepath.Join(dir, "a", "b.toml")}, "the folder of"},
		"no array":   {[]string{filepath.Join(dir, "raw"), "-o", filepath.Join(dir, "new.toml")}, "raw"},
		"no extent":  {[]string{filepath.Join(dir, "empty.zarr"), "-o", filepath.Join(dir, "new.toml")}, "no job can be made of this"},
		"two arrays": {[]string{"a", "b"}, "takes one argument"},
	} {
		status, _, said := call(append([]string{"init"}, c.args...)...)
		if status != exitUsage || !strings.Contains(said, c.want) {
			t.Errorf("%s: status %d, want %q: %s", name, status, c.want, said)
		}
	}
	if text, _ := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("it was overwritten: %s", text)
	}
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if d := cmp.Diff([]string{"empty.zarr", "job.toml"}, names); d != "" {
		t.Error(d)
	}
}
