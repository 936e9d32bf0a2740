// Command library is a whole program on the daisy library: it sums a volume block by block, smooths the sums, and shows
// what happened. The volume is computed, so that it needs no files.
//
//	go run ./examples/library
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.org/daisy"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

// edge is the side of a block, side that of the volume, in voxels.
const edge, side = 16, 64

func run(ctx context.Context, out io.Writer) error {
	var mu sync.Mutex
	sums := make(map[daisy.Coordinate]int64) // of each block

	region := daisy.Region(daisy.Coord(0, 0, 0), daisy.Coord(side, side, side))
	block := daisy.Region(daisy.Coord(0, 0, 0), daisy.Coord(edge, edge, edge))

	sum := daisy.Task{
		ID: "sum", TotalWrite: region, Read: block, Write: block,
		Process: func(_ context.Context, b daisy.Block) error {
			var s int64
			begin, end := b.Read.Begin(), b.Read.End()
			for z := begin.At(0); z < end.At(0); z++ {
				for y := begin.At(1); y < end.At(1); y++ {
					for x := begin.At(2); x < end.At(2); x++ {
						s += voxel(z, y, x)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sums[b.Index] = s
			return nil
		},
	}

	// smooth reads one block more on each side: it waits for all of them.
	var total atomic.Int64
	var once sync.Once
	smooth := daisy.Task{
		ID: "smooth", TotalWrite: region, Write: block,
		Read:                daisy.Region(daisy.Coord(-edge, -edge, -edge), daisy.Coord(3*edge, 3*edge, 3*edge)),
		NoReadWriteConflict: true,
		Process: func(_ context.Context, b daisy.Block) error {
			failed := false
			once.Do(func() { failed = true })
			if failed {
				return fmt.Errorf("the first attempt of all fails, to show a retry")
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range neighbours(sums, b.Index) {
				total.Add(s)
			}
			return nil
		},
	}

	result, err := daisy.Run(ctx, daisy.Sequence(sum, smooth), daisy.Workers(4),
		daisy.Observe(100*time.Millisecond, func(s daisy.Snapshot) {
			if s.State == daisy.Running {
				return
			}
			for _, t := range s.Tasks {
				fmt.Fprintf(out, "%-6s %s: %d of %d blocks, %d retried\n", t.ID, t.State, t.Success, t.Total, t.Retries)
			}
		}))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "the run is %s; the neighbourhoods add up to %d\n", result.State, total.Load())
	return err
}

func voxel(z, y, x int64) int64 { return (z*31 + y*17 + x) % 7 }

// neighbours are the sums of the blocks around a block, itself included, as far as they are in the volume.
func neighbours(sums map[daisy.Coordinate]int64, index daisy.Coordinate) []int64 {
	var out []int64
	for z := int64(-1); z <= 1; z++ {
		for y := int64(-1); y <= 1; y++ {
			for x := int64(-1); x <= 1; x++ {
				if s, inside := sums[index.Add(daisy.Coord(z, y, x))]; inside {
					out = append(out, s)
				}
			}
		}
	}
	return out
}
