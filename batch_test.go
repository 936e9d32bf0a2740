package daisy_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy"
)

func TestAFunctionTakesAsManyShortBlocksAsBatchAllows(t *testing.T) {
	for name, c := range map[string]struct {
		opts     []daisy.Option
		from, to int64 // blocks that the two functions have in hand at some time at most
	}{
		"as they like": {nil, 100, 2 * 256},
		"4":            {[]daisy.Option{daisy.Batch(4)}, 5, 2 * 4},
		"1":            {[]daisy.Option{daisy.Batch(1)}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				short := line("short", 2000, func(context.Context, daisy.Block) error { time.Sleep(time.Millisecond); return nil })
				most := int64(0)
				look := func(s daisy.Snapshot) { most = max(most, s.Tasks[0].Leased) }
				if _, err := daisy.Run(t.Context(), short, append(c.opts, daisy.Workers(2), daisy.Observe(3*time.Millisecond, look))...); err != nil {
					t.Fatal(err)
				}
				if most < c.from || most > c.to {
					t.Errorf("up to %d blocks were in hand, want %d to %d", most, c.from, c.to)
				}
			})
		})
	}
}

func TestANegativeBatchIsRefused(t *testing.T) {
	if result, err := daisy.Run(t.Context(), line("work", 1, nothing), daisy.Batch(-1)); result != nil || err == nil || !strings.Contains(err.Error(), "Batch") {
		t.Errorf("%+v, %v", result, err)
	}
}

// A block that is not as short as those before it, among those that its function has taken with it.
func TestOneBlockOfABatchDoesToTheOthersWhatItWouldDoWithoutOne(t *testing.T) {
	const blocks, odd = 400, 50
	for name, c := range map[string]struct {
		first func(ctx context.Context, others <-chan struct{}) error // what the odd block does at its first attempt
		want  daisy.Counts
	}{
		"it waits until all others are done, which go to another function": {
			func(ctx context.Context, others <-chan struct{}) error {
				select {
				case <-others:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, daisy.Counts{Processed: blocks},
		},
		"it fails":                   {func(context.Context, <-chan struct{}) error { return errors.New("odd") }, daisy.Counts{Processed: blocks + 1, Retries: 1}},
		"it panics":                  {func(context.Context, <-chan struct{}) error { panic("odd") }, daisy.Counts{Processed: blocks, Lost: 1}},
		"its time is up":             {func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return ctx.Err() }, daisy.Counts{Processed: blocks, Retries: 1, TimedOut: 1}},
		"it does not heed its limit": {func(context.Context, <-chan struct{}) error { time.Sleep(time.Hour); return nil }, daisy.Counts{Processed: blocks, Retries: 1, TimedOut: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				others, left := make(chan struct{}), atomic.Int64{}
				left.Store(blocks - 1)
				work := line("work", blocks, func(ctx context.Context, b daisy.Block) error {
					if b.Index.At(0) == odd {
						if b.Attempt == 1 {
							return c.first(ctx, others)
						}
						return nil
					}
					time.Sleep(time.Millisecond)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if left.Add(-1) == 0 {
						close(others)
					}
					return nil
				})
				work.Timeout = time.Minute
				result, err := daisy.Run(t.Context(), work, daisy.Workers(2))
				if err != nil {
					t.Fatal(err)
				}
				c.want.Total, c.want.Success = blocks, blocks
				if got := result.Task("work").Counts; got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				time.Sleep(2 * time.Hour) // those who were left behind
			})
		})
	}
}

func TestTheTimeThatAFunctionWaitsForABlockIsNoneOfTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Blocks that lie side by side come one after the other: 1 and 3 at first, 4 after 3, and 0 and 2 after 1. So one function has nothing to
		// do from 2 s to 4 s.
		work := line("work", 5, func(_ context.Context, b daisy.Block) error {
			if b.Index.At(0) >= 3 {
				time.Sleep(time.Second)
			} else {
				time.Sleep(4 * time.Second)
			}
			return nil
		})
		work.Read, work.Timeout = daisy.Region(daisy.Coord(-1), daisy.Coord(3)), 5*time.Second
		result, err := daisy.Run(t.Context(), work, daisy.Workers(2))
		if err != nil {
			t.Fatal(err)
		}
		if got := result.Task("work"); got.Success != 5 || got.TimedOut != 0 {
			t.Errorf("got %+v, want 5 blocks that succeeded at once", got.Counts)
		}
	})
}
