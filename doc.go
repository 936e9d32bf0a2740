// Package daisy runs a function over a volume too large for one process, block by block.
//
// A Task covers a region with blocks; each block reads one region and writes a smaller one. A Pipeline puts tasks in order.
// Run works out which blocks may run now, hands them to workers, tries again what failed, and ends with honest counts:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"example.org/daisy"
//	)
//
//	func main() {
//		smooth := daisy.Task{
//			ID:         "smooth",
//			TotalWrite: daisy.Region(daisy.Coord(0, 0), daisy.Coord(512, 512)),
//			Read:       daisy.Region(daisy.Coord(-8, -8), daisy.Coord(80, 80)), // a context of 8
//			Write:      daisy.Region(daisy.Coord(0, 0), daisy.Coord(64, 64)),
//			Process: func(ctx context.Context, b daisy.Block) error {
//				fmt.Println("read", b.Read, "write", b.Write)
//				return nil
//			},
//			NoReadWriteConflict: true, // it writes another array than it reads
//		}
//		label := daisy.Task{
//			ID:         "label",
//			TotalWrite: smooth.TotalWrite,
//			Read:       smooth.Write,
//			Write:      smooth.Write,
//			Process:    func(ctx context.Context, b daisy.Block) error { return nil },
//		}
//		result, err := daisy.Run(context.Background(), daisy.Sequence(smooth, label), daisy.Workers(4))
//		if err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println(result.Task("label").Success, "blocks labelled")
//	}
//
// # Blocks that fail
//
// An attempt fails when the function returns an error, and its block is tried again (Task.MaxRetries times). A block that
// failed for good orphans what depends on it; the rest goes on. An attempt that takes longer than Task.Timeout is given up: its context ends,
// and its result no longer counts. A panic ends the worker, and a new one takes its place. Since a block can run more than
// once, it should write whole chunks, or to a temporary name and rename.
//
// # Workers of one's own
//
// With WithoutWorkers a run waits for clients: programs that Connect to its run directory and loop over Client.Blocks. They can
// also join a run of daisy-submit.
package daisy
