package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/daisy"
	"example.org/daisy/internal/rundir"
)

func TestACancelledLibraryRunIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{}, 20)
	result, err := daisy.Run(ctx, line("work", 20, func(ctx context.Context, b daisy.Block) error {
		began <- struct{}{}
		if b.Index.At(0) == 0 {
			cancel()
		}
		<-ctx.Done()
		return ctx.Err()
	}), daisy.Workers(2), daisy.Grace(time.Second))
	if !errors.Is(err, daisy.ErrIncomplete) || result == nil || result.State != daisy.Interrupted {
		t.Fatalf("%+v, %v", result, err)
	}
	if w := result.Task("work"); w.State != daisy.Abandoned || w.Success != 0 || w.Abandoned != 20 || len(began) > 2 {
		t.Errorf("%d blocks began; %+v", len(began), w)
	}
}

func TestALibraryRunStopsAfterTooManyFailures(t *testing.T) {
	t.Parallel()
	work := line("work", 20, func(context.Context, daisy.Block) error { return errors.New("no good") })
	work.MaxRetries = -1
	result, err := daisy.Run(t.Context(), work, daisy.Workers(1), daisy.MaxFailures(3))
	if !errors.Is(err, daisy.ErrIncomplete) || result == nil || result.State != daisy.Stopped {
		t.Fatalf("%+v, %v", result, err)
	}
	w := result.Task("work")
	if w.Failed != 3 || w.Abandoned != 17 || len(w.Failures) != 3 || w.Failures[0].Message != "no good" {
		t.Errorf("%+v", w)
	}
	wantText(t, err.Error(), "no good", "max_failures")
}

func TestAPanicKillsItsWorkerAndNotTheProgram(t *testing.T) {
	t.Parallel()
	result, err := daisy.Run(t.Context(), line("work", 4, func(_ context.Context, b daisy.Block) error {
		if b.Index.At(0) == 2 {
			panic("the ground is gone")
		}
		return nil
	}), daisy.Workers(2))
	if !errors.Is(err, daisy.ErrIncomplete) || result == nil {
		t.Fatalf("%+v, %v", result, err)
	}
	w := result.Task("work")
	if w.Success != 3 || w.Failed != 1 || w.Lost != 5 || w.Processed != 3 || w.Retries != 0 {
		t.Errorf("%+v", w.Counts)
	}
	if len(w.Failures) != 1 {
		t.Fatalf("failures: %+v", w.Failures)
	}
	wantText(t, w.Failures[0].Message, "killed its worker 5 times", "the ground is gone")
	wantText(t, w.Failures[0].Tail, "library_test.go")
}

func TestAFunctionThatIgnoresItsTimeIsWrittenOffAndNamed(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var hung sync.WaitGroup
	hung.Add(1)
	var notices transcript
	notices.changed = make(chan struct{})
	work := line("work", 3, func(_ context.Context, b daisy.Block) error {
		if b.Index.At(0) == 1 {
			defer hung.Done()
			<-release
		}
		return nil
	})
	work.Timeout, work.MaxRetries = 50*time.Millisecond, -1
	result, err := daisy.Run(t.Context(), work, daisy.Workers(1), daisy.Grace(200*time.Millisecond),
		daisy.Notices(func(s string) { _, _ = io.WriteString(&notices, s+"\n") }))
	close(release)
	hung.Wait()
	if !errors.Is(err, daisy.ErrIncomplete) || result == nil {
		t.Fatalf("%+v, %v", result, err)
	}
	w := result.Task("work")
	if w.Success != 2 || w.Failed != 1 || w.TimedOut != 1 || len(w.Failures) != 1 {
		t.Fatalf("%+v", w)
	}
	wantText(t, w.Failures[0].Message, "timed out", "ignores its context", "written off")
}

func TestAnObserverSeesTheEnd(t *testing.T) {
	t.Parallel()
	var seen []daisy.Snapshot
	first := make(chan struct{})
	var once sync.Once
	result, err := daisy.Run(t.Context(), daisy.Sequence(line("work", 5, func(ctx context.Context, _ daisy.Block) error {
		select {
		case <-first: // the run is observed while it goes on
		case <-ctx.Done():
		}
		return nil
	}), line("after", 5, func(context.Context, daisy.Block) error { return nil })),
		daisy.Workers(2), daisy.Observe(time.Millisecond, func(s daisy.Snapshot) {
			seen = append(seen, s)
			once.Do(func() { close(first) })
		}))
	if err != nil {
		t.Fatal(err)
	}
	if seen[0].State != daisy.Running {
		t.Errorf("first the run is %q", seen[0].State)
	}
	last := seen[len(seen)-1]
	if last.State != daisy.Done || len(last.Tasks) != 2 || last.Tasks[0].Counts != result.Tasks[0].Counts || last.Tasks[1].Success != 5 {
		t.Errorf("the last that was seen is %+v", last)
	}
	for _, s := range seen {
		for _, ts := range s.Tasks {
			if sum := ts.Waiting + ts.Ready + ts.Leased + ts.Success + ts.Skipped + ts.Failed + ts.Orphaned + ts.Abandoned; sum != ts.Total {
				t.Errorf("%d blocks are counted of %d: %+v", sum, ts.Total, ts)
			}
		}
	}
}

func TestALibraryRunSkipsWhatIsMarkedAsDone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var calls atomic.Int32
	for range 2 {
		result, err := daisy.Run(t.Context(), line("work", 6, func(context.Context, daisy.Block) error {
			calls.Add(1)
			return nil
		}), daisy.Tracking(dir), daisy.Workers(2))
		if err != nil || result.State != daisy.Done {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	if n := calls.Load(); n != 6 {
		t.Errorf("6 blocks were worked on %d times", n)
	}
}

func TestAWrongPipelineIsRefusedWithAllItsFaults(t *testing.T) {
	t.Parallel()
	good := func(context.Context, daisy.Block) error { return nil }
	bad := line("bad", 4, good)
	bad.Write = daisy.Region(daisy.Coord(0), daisy.Coord(0))
	result, err := daisy.Run(t.Context(), daisy.Parallel(line("twice", 4, good), bad, line("twice", 4, good)))
	if err == nil || result != nil {
		t.Fatalf("%+v, %v", result, err)
	}
	wantText(t, err.Error(), "bad")
	if _, err := daisy.Run(t.Context(), daisy.Sequence(line("twice", 4, good), line("twice", 4, good))); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a task id given twice: %v", err)
	}
	if _, err := daisy.Run(t.Context(), line("work", 4, nil)); err == nil || !strings.Contains(err.Error(), "Process") {
		t.Errorf("no function: %v", err)
	}
}

// A relay passes connections on to a coordinator and can cut them.
type relay struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	conns  []net.Conn
	served sync.WaitGroup
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, to: to}
	r.served.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", r.to)
			if err != nil {
				_ = from.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			r.served.Go(func() { pass(from, to) })
			r.served.Go(func() { pass(to, from) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		r.served.Wait()
	})
	return r
}

func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// cut ends every connection.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func TestAClientThatLosesItsConnectionKeepsItsBlock(t *testing.T) {
	t.Parallel()
	clientDone := make(chan error, 1)
	started := func(dir string) {
		go func() { clientDone <- clientOverRelay(t, dir) }()
	}
	result, err := daisy.Run(t.Context(), line("work", 4, nil), daisy.Directory(t.TempDir()), daisy.WithoutWorkers(started))
	if clientErr := <-clientDone; clientErr != nil {
		t.Error(clientErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, statsOf(t, result.Directory), map[string]counts{"work": {State: "done", Blocks: 4, Success: 4, Processed: 4}})
}

// clientOverRelay works through the run in a directory and loses its connection with every block in its hands.
func clientOverRelay(t testing.TB, dir string) error {
	found, err := rundir.ReadDiscovery(dir)
	if err != nil {
		return err
	}
	r := newRelay(t, found.Addresses[0])
	d, err := rundir.Open(dir)
	if err != nil {
		return err
	}
	found.Addresses = []string{r.listener.Addr().String()}
	if err := d.WriteDiscovery(found); err != nil {
		return err
	}
	c, err := daisy.Connect(t.Context(), dir, daisy.ClientOptions{Name: "wanderer"})
	if err != nil {
		return err
	}
	blocks := 0
	for b := range c.Blocks(t.Context()) {
		blocks++
		if b.Attempt != 1 {
			return fmt.Errorf("block %v has attempt %d", b.Index, b.Attempt)
		}
		r.cut()
		if err := b.Context().Err(); err != nil {
			return fmt.Errorf("block %v was taken away: %w", b.Index, err)
		}
		if err := b.Release(nil); err != nil {
			return err
		}
	}
	if err := c.Err(); err != nil {
		return err
	}
	if blocks != 4 {
		return fmt.Errorf("it had %d blocks", blocks)
	}
	return c.Close(t.Context())
}
