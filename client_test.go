package daisy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.org/daisy"
)

// joined runs 4 blocks with one client and gives the ID that the client had, and those of the workers in the reports.
func joined(t *testing.T, o daisy.ClientOptions) (id string, reported []string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	client := func(dir string) error {
		c, err := daisy.Connect(ctx, dir, o)
		if err != nil {
			return err
		}
		id = c.ID()
		for b := range c.Blocks(ctx) {
			if err := b.Release(nil); err != nil {
				return err
			}
		}
		return errors.Join(c.Err(), c.Close(ctx))
	}
	left := make(chan struct{})
	started := func(dir string) {
		go func() {
			defer close(left)
			if err := client(dir); err != nil {
				cancel(err) // nobody else works for the run
			}
		}()
	}
	result, err := daisy.Run(ctx, line("work", 4, nil), daisy.Directory(t.TempDir()), daisy.WithoutWorkers(started))
	<-left
	if err := errors.Join(err, context.Cause(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, w := range statsOf(t, result.Directory).Workers {
		reported = append(reported, w.ID)
	}
	return id, reported
}

func TestAClientHasTheNameThatTheReportsGiveIt(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]daisy.ClientOptions{"wanderer": {Name: "wanderer"}, fmt.Sprint(os.Getpid()): {}} {
		id, reported := joined(t, o)
		if !strings.Contains(id, name) || len(reported) != 1 || reported[0] != id {
			t.Errorf("the client's ID is %q, the reports have %q, want one with %q", id, reported, name)
		}
	}
}
