package daisy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/api"
	"example.org/daisy/internal/worker"
)

// leased is a block of a client, with a minute of time, that runs in a loop with a context.
func leased(t *testing.T, loop context.Context) *LeasedBlock {
	t.Helper()
	one := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(1)}
	task, err := worker.NewTask(api.TaskSpec{ID: "a", TotalRead: one, Read: one, Write: one, Fit: "valid", TimeoutSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	return new(Client).start(loop, &worker.Block{Task: task, Epoch: 1, Lease: 7})
}

func TestTheTimeOfALeasedBlockIsUpWhetherOrNotItsContextWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range []bool{true, false} {
			for after, want := range map[time.Duration]error{59 * time.Second: nil, 61 * time.Second: errTimeUp} {
				b := leased(t, t.Context())
				if asked {
					b.Context()
				}
				time.Sleep(after)
				synctest.Wait()
				if got := b.end(context.Canceled); got != want {
					t.Errorf("asked for: %v, after %v: it had ended because of %v, want %v", asked, after, got, want)
				}
			}
		}
	})
}

func TestAContextThatIsAskedForLateKnowsWhatHappenedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the loop is over")
		for name, c := range map[string]struct {
			happens func(b *LeasedBlock, endLoop context.CancelCauseFunc)
			want    error
		}{
			"nothing":      {func(*LeasedBlock, context.CancelCauseFunc) {}, nil},
			"taken back":   {func(b *LeasedBlock, _ context.CancelCauseFunc) { b.client.takenBack(*b.lease) }, ErrReclaimed},
			"another is":   {func(b *LeasedBlock, _ context.CancelCauseFunc) { b.client.takenBack(worker.Block{Epoch: 1, Lease: 8}) }, nil},
			"time is up":   {func(*LeasedBlock, context.CancelCauseFunc) { time.Sleep(time.Minute) }, errTimeUp},
			"loop is over": {func(_ *LeasedBlock, endLoop context.CancelCauseFunc) { endLoop(gone) }, gone},
		} {
			loop, endLoop := context.WithCancelCause(t.Context())
			b := leased(t, loop)
			c.happens(b, endLoop)
			ctx := b.Context()
			synctest.Wait()
			if got := context.Cause(ctx); got != c.want {
				t.Errorf("%s: the context ended because of %v, want %v", name, got, c.want)
			}
			b.end(context.Canceled)
			endLoop(nil)
		}
	})
}

func TestAReleasedBlockIsForgottenByItsClient(t *testing.T) {
	c := new(Client)
	var blocks []*LeasedBlock
	for range 4 {
		b := leased(t, t.Context())
		blocks = append(blocks, c.start(t.Context(), b.lease))
	}
	for _, i := range []int{1, 3, 0} {
		c.forget(blocks[i])
	}
	if left := c.all(); len(left) != 1 || left[0] != blocks[2] {
		t.Errorf("%d blocks are left, want the third one", len(left))
	}
}
