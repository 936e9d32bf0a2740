package daisy_test

import (
	"context"
	"strings"
	"testing"

	"example.org/daisy"
)

// line is a task of n blocks in one dimension.
func line(id string, n int64, process daisy.Func) daisy.Task {
	block := daisy.Region(daisy.Coord(0), daisy.Coord(1))
	return daisy.Task{ID: id, TotalWrite: daisy.Region(daisy.Coord(0), daisy.Coord(n)), Read: block, Write: block, Process: process}
}

func nothing(context.Context, daisy.Block) error { return nil }

// wantRefused runs a pipeline that starts nothing, for a reason in which all of these stand.
func wantRefused(t *testing.T, p daisy.Part, reasons ...string) {
	t.Helper()
	result, err := daisy.Run(t.Context(), p)
	if err == nil || result != nil {
		t.Fatalf("the run has ended with %+v and error %v", result, err)
	}
	for _, reason := range reasons {
		if !strings.Contains(err.Error(), reason) {
			t.Errorf("the error does not say %q: %v", reason, err)
		}
	}
}

func TestABlockThatWritesOutsideWhatItReadsIsRefusedByTheseNames(t *testing.T) {
	t.Parallel()
	region := func(begin, shape int64) daisy.Roi { return daisy.Region(daisy.Coord(begin), daisy.Coord(shape)) }
	for _, blocks := range []daisy.Task{
		{TotalWrite: region(0, 50), Read: region(0, 1), Write: region(0, 100)},
		{TotalRead: region(0, 50), Read: region(0, 1), Write: region(0, 100)},
		{TotalWrite: region(0, 1000), Read: region(0, 100), Write: region(1, 100)},
		{TotalWrite: region(0, 1000), Read: region(1, 100), Write: region(0, 100)},
	} {
		blocks.ID, blocks.Process = "work", nothing
		wantRefused(t, blocks, `task "work"`, "Read "+blocks.Read.String()+" does not contain Write "+blocks.Write.String(), "make Read as large as Write")
	}
}

func TestAShapeOfNothingIsRefusedAsOne(t *testing.T) {
	t.Parallel()
	work := line("work", 4, nothing)
	work.Write.Shape = daisy.Coord(0)
	wantRefused(t, work, `task "work"`, "write region of a block", "at least 1")
}
