package daisy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"example.org/daisy"
)

func TestTheFirstHundredFailuresOfEachTaskAreKept(t *testing.T) {
	t.Parallel()
	const blocks, kept = 130, 100
	bad := func(_ context.Context, b daisy.Block) error { return fmt.Errorf("no good at %v", b.Index) }
	work, more := line("work", blocks, bad), line("more", blocks, bad)
	work.MaxRetries, more.MaxRetries = -1, -1
	result, err := daisy.Run(t.Context(), daisy.Parallel(work, more), daisy.Workers(4))
	if !errors.Is(err, daisy.ErrIncomplete) || result == nil {
		t.Fatalf("%+v, %v", result, err)
	}
	for _, id := range []string{"work", "more"} {
		r := result.Task(id)
		if r.Failed != blocks || len(r.Failures) != kept {
			t.Errorf("%s: %d blocks have failed and %d failures are kept, want %d and %d", id, r.Failed, len(r.Failures), blocks, kept)
		}
		seen := map[daisy.Coordinate]bool{}
		for _, f := range r.Failures {
			if seen[f.Block.Index] || f.Block.Task != id || f.Message != fmt.Sprintf("no good at %v", f.Block.Index) {
				t.Errorf("%s: a failure is %+v", id, f)
			}
			seen[f.Block.Index] = true
		}
	}
}
