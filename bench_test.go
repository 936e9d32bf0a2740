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

// BenchmarkLibrary runs blocks that do nothing on 16 functions in this process, which take as many at once as they like.
func BenchmarkLibrary(b *testing.B) { benchmarkFunctions(b, 0) }

// BenchmarkLibraryBatch16 is the same with at most 16 at once.
func BenchmarkLibraryBatch16(b *testing.B) { benchmarkFunctions(b, 16) }

// BenchmarkLibraryBatch1 is the same with one after another.
func BenchmarkLibraryBatch1(b *testing.B) { benchmarkFunctions(b, 1) }

func benchmarkFunctions(b *testing.B, batch int) {
	const n = 1_000_000
	for b.Loop() {
		if _, err := Run(b.Context(), noops(n), Workers(16), Batch(batch)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkLibraryClient runs them on 16 loops over the blocks of a client in this process, which takes them 16 at a time over TCP.
func BenchmarkLibraryClient(b *testing.B) {
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
