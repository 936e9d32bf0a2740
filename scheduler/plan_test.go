package scheduler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
	. "example.org/daisy/scheduler"
)

func TestWavesOfASmallPipelineAreExact(t *testing.T) {
	p := mustPipeline([]Task{
		{ID: "a", Grid: mustGrid(geom.Coord(4), 10, 5, true)},
		{ID: "b", Grid: mustGrid(geom.Coord(4), 10, 0, false)},
	}, Edge{"a", "b"})
	got, exact := Waves(p, 100)
	want := []Wave{{1, []int64{2, 0}}, {1, []int64{2, 2}}, {1, []int64{0, 2}}}
	if diff := cmp.Diff(want, got); diff != "" || !exact {
		t.Errorf("exact: %v (-want +got):\n%s", exact, diff)
	}
}

func TestWavesOfALargePipelineAreEstimatedFromItsLevels(t *testing.T) {
	p := mustPipeline([]Task{
		{ID: "a", Grid: mustGrid(geom.Coord(1000, 1000), 10, 5, true)},
		{ID: "b", Grid: mustGrid(geom.Coord(100), 10, 0, false)},
		{ID: "c", Grid: mustGrid(geom.Coord(1000, 1001), 10, 0, false)},
	}, Edge{"a", "c"})
	got, exact := Waves(p, 1000)
	want := []Wave{{1, []int64{250000, 100, 0}}, {3, []int64{250000, 0, 0}}, {1, []int64{0, 0, 1001000}}}
	if diff := cmp.Diff(want, got); diff != "" || exact {
		t.Errorf("exact: %v (-want +got):\n%s", exact, diff)
	}
}

func TestWavesOfManyLevelsStayFew(t *testing.T) {
	// A context as large as the volume: one block after the other.
	p := Single(Task{ID: "a", Grid: mustGrid(geom.Coord(1_000_000), 1, 1_000_000, true)})
	got, exact := Waves(p, 1000)
	if diff := cmp.Diff([]Wave{{1_000_000, []int64{1}}}, got); diff != "" || exact {
		t.Errorf("exact: %v (-want +got):\n%s", exact, diff)
	}
}

func TestWavesLeaveOutWhatIsDone(t *testing.T) {
	g := mustGrid(geom.Coord(100), 1, 0, false)
	done := NewBitmap(100)
	for i := range int64(75) {
		done.Set(i)
	}
	for _, limit := range []int64{1000, 10} {
		got, _ := Waves(Single(Task{ID: "a", Grid: g, Done: done}), limit)
		if diff := cmp.Diff([]Wave{{1, []int64{25}}}, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
}
