package tracking

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func longs(values ...uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func TestAGroupWithoutResourcesGetsThemWhereTheyAreAskedForAndKeepsThem(t *testing.T) {
	g := mustGrid(t, lineSpec(30, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "f")
	s := mustOpen(t, dir, g)
	if s.HasResources() {
		t.Error("a group has resources that nobody asked for")
	}
	s.MarkDone(0)
	mustClose(t, s)
	s, err := Open(dir, g, WithResources())
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	s.SetResources(1, Resources{9, 9, 9, 9, 9, 9, 9})
	s.SetResources(1, Resources{WallSeconds: 0.5, CPUSeconds: 0.25, GPUPercent: 12.5, PeakRSSBytes: 1 << 40, ReadBytes: 7, WrittenBytes: 8, GPUMemBytes: 5})
	s.SetResources(2, Resources{WallSeconds: 1, CPUSeconds: nan, GPUPercent: nan})
	s.MarkDone(1)
	mustClose(t, s)
	s = mustOpen(t, dir, g) // without them again: they stay as they are
	s.MarkDone(2)
	mustClose(t, s)
	want := map[string][]byte{
		"done/c/0": {1, 1, 1}, "failures/c/0": failureBytes(0, 0, 0),
		"wall_seconds/c/0": floats(0, 0.5, 1), "cpu_seconds/c/0": floats(0, 0.25, nan), "peak_rss_bytes/c/0": longs(0, 1<<40, 0),
		"io_read_bytes/c/0": longs(0, 7, 0), "io_write_bytes/c/0": longs(0, 8, 0), "gpu_util_pct/c/0": floats(0, 12.5, nan), "gpu_mem_bytes/c/0": longs(0, 5, 0),
	}
	got := snapshot(t, dir)
	for name := range got {
		if strings.HasSuffix(name, "zarr.json") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
}

func TestAnArrayOfResourcesThatIsNotAsItShouldBeIsRefusedWhereItIsNeededOnly(t *testing.T) {
	g := mustGrid(t, lineSpec(30, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "f")
	s, err := Open(dir, g, WithResources())
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	file := filepath.Join(dir, "wall_seconds", "zarr.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for fill, refused := range map[string]bool{"0.0": false, "0": false, "1.0": true, `"NaN"`: true} {
		if err := os.WriteFile(file, []byte(strings.Replace(string(data), `"fill_value": 0.0`, `"fill_value": `+fill, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		mustClose(t, mustOpen(t, dir, g))
		s, err := Open(dir, g, WithResources())
		if (err != nil) != refused {
			t.Errorf("fill value %s: %v", fill, err)
		}
		if err == nil {
			mustClose(t, s)
		}
	}
}

func TestResourcesOfAFlushThatFailsAreWrittenByTheNextUnlessThereAreNewer(t *testing.T) {
	g := mustGrid(t, lineSpec(30, 10, 0, 0))
	dir := filepath.Join(t.TempDir(), "f")
	s, err := Open(dir, g, WithResources())
	if err != nil {
		t.Fatal(err)
	}
	s.SetResources(0, Resources{ReadBytes: 1})
	s.SetResources(1, Resources{ReadBytes: 2})
	s.MarkDone(0)
	file := s.resources[3].file
	if s.resources[3].file, err = os.Open(s.resources[3].path); err != nil { // cannot be written
		t.Fatal(err)
	}
	if err := s.Flush(); err == nil || !strings.Contains(err.Error(), "io_read_bytes") {
		t.Errorf("flush: %v, want an error that names the array", err)
	}
	if err := s.resources[3].close(); err != nil {
		t.Fatal(err)
	}
	s.resources[3].file = file
	use := s.pendingUse // as the next Flush takes them, which fails too
	s.pendingUse = map[int64]Resources{}
	s.SetResources(1, Resources{ReadBytes: 3})
	s.putBack(nil, map[int64]failureChange{}, use)
	mustClose(t, s)
	got := snapshot(t, dir)
	if diff := cmp.Diff(longs(1, 3, 0), got["io_read_bytes/c/0"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]byte{1, 0, 0}, got["done/c/0"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
