package daisy

import (
	"context"
	"testing"
)

// BenchmarkLibrary runs blocks that do nothing on 16 functions in this process.
func BenchmarkLibrary(b *testing.B) {
	const side = 100
	n := int64(1_000_000)
	noop := Task{
		ID: "noop", TotalRead: Region(Coord(0, 0, 0), Coord(n/side/side, side, side)),
		Read: Region(Coord(0, 0, 0), Coord(1, 1, 1)), Write: Region(Coord(0, 0, 0), Coord(1, 1, 1)),
		NoReadWriteConflict: true,
		Process:             func(context.Context, Block) error { return nil },
	}
	for b.Loop() {
		if _, err := Run(b.Context(), noop, Workers(16)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}
