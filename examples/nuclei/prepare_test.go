package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runPrepare(t *testing.T, p project, fresh bool) string {
	t.Helper()
	var out strings.Builder
	if err := prepare(p, fresh, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func present(t *testing.T, path string) bool {
	t.Helper()
	there, err := exists(path)
	if err != nil {
		t.Fatal(err)
	}
	return there
}

func TestPrepareMakesEmptyArraysThatAZarrReaderKnows(t *testing.T) {
	p := newProject(t)
	if got := runPrepare(t, p, false); strings.Count(got, "made, empty, 60 x 256 x 256 voxels") != 3 {
		t.Errorf("got\n%s", got)
	}
	got, err := os.ReadFile(filepath.Join(p.labels(), ".zarray"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "shape": [
    60,
    256,
    256
  ],
  "chunks": [
    32,
    32,
    32
  ],
  "dtype": "<i4",
  "fill_value": 0,
  "order": "C",
  "filters": null,
  "dimension_separator": "/",
  "compressor": null,
  "zarr_format": 2
}
`
	if string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestPrepareKeepsResultsUnlessToldToStartOver(t *testing.T) {
	p := newProject(t)
	runPrepare(t, p, false)
	chunk, mark, run := filepath.Join(p.smoothed(), "0", "0", "0"), filepath.Join(p.tracking(), "mark"), p.path("out/runs/1/log")
	for _, path := range []string{chunk, mark, run} {
		write(t, path, "x")
	}
	if got, want := runPrepare(t, p, false), p.path("out")+": the arrays are there already and are kept\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, path := range []string{chunk, mark, run} {
		if !present(t, path) {
			t.Errorf("%s is gone", path)
		}
	}
	if got := runPrepare(t, p, true); !strings.HasPrefix(got, p.path("out")+": removed, as --fresh says") {
		t.Errorf("got %q", got)
	}
	for _, path := range []string{chunk, mark, run} {
		if present(t, path) {
			t.Errorf("%s is still there after --fresh", path)
		}
	}
	if !present(t, filepath.Join(p.smoothed(), ".zarray")) {
		t.Error("--fresh made no arrays")
	}
}

func TestPrepareRemovesDoneMarksWhoseArraysAreGone(t *testing.T) {
	p := newProject(t)
	runPrepare(t, p, false)
	write(t, filepath.Join(p.tracking(), "mark"), "x")
	if err := os.RemoveAll(p.labels()); err != nil {
		t.Fatal(err)
	}
	got := runPrepare(t, p, false)
	if want := p.tracking() + ": removed, because " + p.labels() + " is missing: all blocks will run again\n"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q first", got, want)
	}
	if present(t, p.tracking()) {
		t.Error("the done marks are still there")
	}
}

func TestPrepareRefusesArraysOfAnotherForm(t *testing.T) {
	p := newProject(t)
	runPrepare(t, p, false)
	file := filepath.Join(p.smoothed(), ".zarray")
	write(t, file, "{}")
	err := prepare(p, false, &strings.Builder{})
	if want := file + " is not as this program makes it; start over with `nuclei prepare --fresh`"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
