package e2e

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy"
	"example.org/daisy/internal/api"
)

// misbehaving is what every mode must count for the job in which block 0 of "work" always fails, 1 fails once, 2 times out
// once, 3 kills its worker once, and each block of "after" needs the one of "work" at its place.
var misbehaving = map[string]counts{
	"work":  {State: "done", Blocks: 12, Success: 11, Failed: 1, Processed: 15, Retries: 4, Reclaimed: 2, TimedOut: 1, Lost: 1},
	"after": {State: "done", Blocks: 12, Success: 11, Orphaned: 1, Processed: 11},
}

func TestTheSameJobGivesTheSameCountsInEveryMode(t *testing.T) {
	t.Parallel()
	modes := map[string]func(t testing.TB) api.Stats{
		"local command": func(t testing.TB) api.Stats { return misbehaveLocally(t, "command") },
		"local stream":  func(t testing.TB) api.Stats { return misbehaveLocally(t, "stream") },
		"in-process":    misbehaveInProcess,
		"client":        misbehaveWithClients,
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantCounts(t, mode(t), misbehaving)
		})
	}
}

// wantCounts compares the counts of tasks.
func wantCounts(t testing.TB, s api.Stats, want map[string]counts) {
	t.Helper()
	got := map[string]counts{}
	for _, ts := range s.Tasks {
		got[ts.ID] = countsOf(ts)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func misbehaveLocally(t testing.TB, kind string) api.Stats {
	user := code(kind, "misbehave")
	_, dir := runJob(t, 1, job("resources = { cpu = 2 }",
		blocks("work", 12)+user+`timeout = "1s"`,
		blocks("after", 12)+user+`after = ["work"]`))
	return statsOf(t, dir)
}

// misbehavingPipeline is the job on the library.
func misbehavingPipeline(process daisy.Func) *daisy.Pipeline {
	work, after := line("work", 12, process), line("after", 12, process)
	work.Timeout = time.Second
	return daisy.Sequence(work, after)
}

// line is a task of n blocks in one dimension.
func line(id string, n int64, process daisy.Func) daisy.Task {
	block := daisy.Region(daisy.Coord(0), daisy.Coord(1))
	return daisy.Task{ID: id, TotalRead: daisy.Region(daisy.Coord(0), daisy.Coord(n)), Read: block, Write: block, Process: process}
}

func misbehaveInProcess(t testing.TB) api.Stats {
	p := misbehavingPipeline(func(ctx context.Context, b daisy.Block) error {
		return misbehave(ctx, b.Task, int(b.Index.At(0)), b.Attempt, func() { panic("this block kills its worker") })
	})
	result, err := daisy.Run(t.Context(), p, daisy.Workers(2), daisy.Directory(t.TempDir()))
	if result == nil || result.State != daisy.Failed {
		t.Fatalf("the run is %+v, error %v", result, err)
	}
	return statsOf(t, result.Directory)
}

// misbehaveWithClients keeps two clients running until the run is over: one that was killed is started again.
func misbehaveWithClients(t testing.TB) api.Stats {
	ctx, over := context.WithCancel(t.Context())
	clients := make(chan struct{}, 2)
	started := func(runDirectory string) {
		for range 2 {
			go func() {
				defer func() { clients <- struct{}{} }()
				for ctx.Err() == nil {
					cmd := exec.CommandContext(ctx, self(), runDirectory)
					cmd.Env = append(os.Environ(), "E2E_ROLE=client")
					if cmd.Run() == nil {
						return // nothing left to do
					}
				}
			}()
		}
	}
	result, err := daisy.Run(t.Context(), misbehavingPipeline(nil), daisy.Directory(t.TempDir()), daisy.WithoutWorkers(started))
	over()
	<-clients
	<-clients
	if result == nil || result.State != daisy.Failed {
		t.Fatalf("the run is %+v, error %v", result, err)
	}
	return statsOf(t, result.Directory)
}

// wellBehaved is what every mode counts for two tasks without bad blocks.
var wellBehaved = map[string]counts{
	"first": {State: "done", Blocks: 5, Success: 5, Processed: 5},
	"then":  {State: "done", Blocks: 5, Success: 5, Processed: 5},
}

func TestAJobWithoutBadBlocksGivesTheSameCountsInEveryMode(t *testing.T) {
	t.Parallel()
	local := func(launcher, kind string) func(t testing.TB) api.Stats {
		return func(t testing.TB) api.Stats {
			user := code(kind, "misbehave")
			_, dir := runJob(t, 0, job("resources = { cpu = 2 }",
				blocks("first", 5)+user, blocks("then", 5)+user+`after = ["first"]`), "--launcher", launcher)
			return statsOf(t, dir)
		}
	}
	good := func(context.Context, daisy.Block) error { return nil }
	library := func(t testing.TB, process daisy.Func, opts ...daisy.Option) api.Stats {
		p := daisy.Sequence(line("first", 5, process), line("then", 5, process))
		result, err := daisy.Run(t.Context(), p, append(opts, daisy.Directory(t.TempDir()))...)
		if err != nil {
			t.Fatal(err)
		}
		return statsOf(t, result.Directory)
	}
	modes := map[string]func(t testing.TB) api.Stats{
		"serial command": local("serial", "command"),
		"serial stream":  local("serial", "stream"),
		"local command":  local("local", "command"),
		"local stream":   local("local", "stream"),
		"in-process":     func(t testing.TB) api.Stats { return library(t, good, daisy.Workers(2)) },
		"client": func(t testing.TB) api.Stats {
			ended := make(chan int, 1)
			s := library(t, nil, daisy.WithoutWorkers(func(dir string) { go func() { ended <- client(dir) }() }))
			if status := <-ended; status != 0 {
				t.Errorf("the client ended with status %d", status)
			}
			return s
		},
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantCounts(t, mode(t), wellBehaved)
		})
	}
}
