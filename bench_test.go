package daisy

import (
	"context"
	"errors"
	"testing"
)

// noops is n blocks without conflict in 3-D that take no time.
func noops(n int64) Task {
	const side = 100
	one := Region(Coord(0, 0, 0), Coord(1, 1, 1))
	return Task{
		ID: "noop", TotalRead: Region(Coord(0, 0, 0), Coord(n/side/side, side, side)), Read: one, Write: one,
		NoReadWriteConflict: true,
		Process:             func(context.Context, Block) error { return nil },
	}
}

// BenchmarkLibrary runs blocks that do nothing on 16 functions in this process.
func BenchmarkLibrary(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		if _, err := Run(b.Context(), noops(n), Workers(16)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkLibraryBatch16 runs them on 16 loops over the blocks of a client in this process, which takes them 16 at a time.
func BenchmarkLibraryBatch16(b *testing.B) {
	const n, loops, batch = 1_000_000, 16, 16
	for b.Loop() {
		ctx, cancel := context.WithCancelCause(b.Context())
		client := func(dir string) error {
			c, err := Connect(ctx, dir, ClientOptions{Slots: loops, Batch: batch})
			if err != nil {
				return err
			}
			ended := make(chan error, loops)
			for range loops {
				go func() {
					for block := range c.Blocks(ctx) {
						if err := block.Release(nil); err != nil {
							ended <- err
							return
						}
					}
					ended <- c.Err()
				}()
			}
			for range loops {
				err = errors.Join(err, <-ended)
			}
			return errors.Join(err, c.Close(ctx))
		}
		left := make(chan struct{})
		_, err := Run(ctx, noops(n), Workers(loops), Directory(b.TempDir()), WithoutWorkers(func(dir string) {
			go func() {
				defer close(left)
				if err := client(dir); err != nil {
					cancel(err) // nobody else works for the run
				}
			}()
		}))
		<-left
		if err := errors.Join(err, context.Cause(ctx)); err != nil {
			b.Fatal(err)
		}
		cancel(nil)
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}
