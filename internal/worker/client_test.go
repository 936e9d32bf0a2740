package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
	"example.org/daisy/scheduler"
)

func marshal(t testing.TB, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// connectTo connects a client to the script.
func connectTo(t testing.TB, c *script, cfg Config) (*Client, *stream) {
	t.Helper()
	type connected struct {
		client *Client
		err    error
	}
	got := make(chan connected, 1)
	go func() {
		client, err := Connect(context.Background(), cfg)
		got <- connected{client, err}
	}()
	s := c.next()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.client.Close(ctx)
	})
	return r.client, s
}

func acquire(t testing.TB, c *Client, max int) <-chan []Block {
	got := make(chan []Block, 1)
	go func() {
		blocks, err := c.Acquire(context.Background(), max)
		if err != nil && !errors.Is(err, ErrNoMore) {
			t.Error(err)
		}
		got <- blocks
	}()
	return got
}

func flats(blocks []Block) []int64 {
	var n []int64
	for _, b := range blocks {
		n = append(n, b.Flat)
	}
	return n
}

func TestOutcomesAreNumberedAsInTheScheduler(t *testing.T) {
	for o, want := range map[wire.Outcome]scheduler.Outcome{
		wire.Success: scheduler.Success, wire.Skipped: scheduler.Skipped, wire.Failed: scheduler.Failed, wire.TimedOut: scheduler.TimedOut,
		wire.OutOfMemory: scheduler.OutOfMemory, wire.Lost: scheduler.Lost, wire.Returned: scheduler.Returned, wire.Recalled: scheduler.Recalled,
	} {
		if scheduler.Outcome(o) != want || o.String() != want.String() {
			t.Errorf("%v: got %d, want %d", o, o, want)
		}
	}
}

func TestAWorkerIntroducesItself(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	cfg.Slots, cfg.Version = 2, "v1"
	client, s := connectTo(t, c, cfg)
	want := api.JoinRequest{Protocol: 1, Version: "v1", Tag: "3", Nonce: client.nonce, Slots: 2, Node: "n1", PID: os.Getpid(), PIDSpace: process.Space()}
	if diff := cmp.Diff([]api.JoinRequest{want}, c.joins); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wire.Hello{Worker: "3.0", Nonce: client.nonce, Epoch: 2}, s.hello); diff != "" {
		t.Error(diff)
	}
}

func TestAReleaseAndTheNextRequestLeaveInOneWrite(t *testing.T) {
	c, cfg := overTCP(t, testTask("func")) // over loopback a read gets whole what one small write gave
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 7)
	b := (<-got)[0]
	client.mu.Lock()
	client.dirty = true // the timer stays out of it
	client.mu.Unlock()
	if err := client.Release(b, Result{Outcome: wire.Success}); err != nil {
		t.Fatal(err)
	}
	acquire(t, client, 1)
	s.release()
	if !s.in.Buffered() {
		t.Error("the request did not come with the release")
	}
	s.acquire()
}

// holding5 connects a client that has got blocks 1 to 5 and sends nothing by its timer.
func holding5(t *testing.T, c *script, cfg Config) (*Client, *stream, []Block) {
	t.Helper()
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 5)
	s.grant(s.acquire().Request, 1, 2, 3, 4, 5)
	blocks := <-got
	client.mu.Lock()
	client.dirty = true
	client.mu.Unlock()
	return client, s, blocks
}

func TestSuccessesOneAfterAnotherGoInOneMessageAndInOrder(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s, blocks := holding5(t, c, cfg)
	for i, r := range []Result{
		{Outcome: wire.Success, Wall: 10}, {Outcome: wire.Success, Wall: 20}, {Outcome: wire.Success, Wall: 30, CPU: 7},
		{Outcome: wire.Failed, Message: "no"}, {Outcome: wire.Success, Wall: 40},
	} {
		if err := client.Release(blocks[i], r); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, client, 1)
	want := wire.Successes{Seq: 1, Epoch: 2, Ended: []wire.Ended{{Lease: 1, WallNanos: 10}, {Lease: 2, WallNanos: 20}}}
	var got wire.Successes
	if err := wire.DecodeSuccesses(s.expect(wire.KindSuccesses), &got); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	for i, want := range []wire.Outcome{wire.Success, wire.Failed, wire.Success} {
		if r := s.release(); r.Seq != uint64(i+3) || r.Lease != uint64(i+3) || r.Outcome != want {
			t.Errorf("got %+v, want number %d, %v", r, i+3, want)
		}
	}
	s.acquire()
}

func TestSuccessesThatWereNotSentAreSentAfterAReconnect(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s, blocks := holding5(t, c, cfg)
	for _, b := range blocks[:3] {
		if err := client.Release(b, Result{Outcome: wire.Success, Wall: 10}); err != nil {
			t.Fatal(err)
		}
	}
	s.conn.Close()
	again := c.next()
	for seq := range uint64(3) {
		if r := again.release(); r.Seq != seq+1 || r.Lease != seq+1 {
			t.Errorf("got %+v, want number %d", r, seq+1)
		}
	}
	again.acknowledge(3)
	for _, b := range blocks[3:] {
		if err := client.Release(b, Result{Outcome: wire.Success, Wall: 10}); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, client, 1)
	var got wire.Successes
	if err := wire.DecodeSuccesses(again.expect(wire.KindSuccesses), &got); err != nil || got.Seq != 4 || len(got.Ended) != 2 {
		t.Errorf("got %+v (%v), want 4 and 5", got, err)
	}
}

func TestAfterAReconnectNothingIsLost(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	a, b := acquire(t, client, 1), acquire(t, client, 1)
	s.grant(s.acquire().Request, 1)
	s.grant(s.acquire().Request, 2)
	first, second := (<-a)[0], (<-b)[0]
	if err := client.Release(first, Result{Outcome: wire.Success}); err != nil {
		t.Fatal(err)
	}
	s.release() // comes, but is not acknowledged
	waiting := acquire(t, client, 1)
	s.acquire()
	s.conn.Close()

	again := c.next()
	if diff := cmp.Diff([]wire.Held{{Epoch: 2, Lease: 1, Task: 3, Block: 1, Attempt: 1}, {Epoch: 2, Lease: 2, Task: 3, Block: 2, Attempt: 1}}, sortedByLease(again.hello.Held)); diff != "" {
		t.Error(diff)
	}
	if again.hello.Nonce != s.hello.Nonce || again.hello.Worker != "3.0" {
		t.Errorf("got %+v", again.hello)
	}
	if r := again.release(); r.Seq != 1 || r.Lease != first.Lease || r.Outcome != wire.Success {
		t.Errorf("got %+v, want the release again", r)
	}
	request := again.acquire().Request
	again.acknowledge(1)
	again.grant(request, 5)
	if got := flats(<-waiting); !slices.Equal(got, []int64{5}) {
		t.Errorf("got %v, want the wait to have survived", got)
	}
	if err := client.Release(second, Result{Outcome: wire.Success}); err != nil {
		t.Error(err)
	}
	if r := again.release(); r.Seq != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestANewCoordinatorGivesWhatIsInHandAnotherName(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	killed := make(chan uint64, 2)
	cfg.OnKill = func(b Block) { killed <- b.Lease }
	client, s := connectTo(t, c, cfg)
	var blocks []Block
	for lease := range uint64(4) {
		got := acquire(t, client, 1)
		s.grant(s.acquire().Request, lease+1)
		blocks = append(blocks, (<-got)...)
	}
	for _, b := range blocks[:2] {
		if err := client.Release(b, Result{Outcome: wire.Success}); err != nil {
			t.Fatal(err)
		}
		s.release() // comes, and its coordinator dies
	}
	c.set(func(j *api.JoinResponse) { j.Epoch = 3 })
	s.conn.Close()

	again := c.unwelcomed()
	var held []uint64
	for _, h := range again.hello.Held {
		held = append(held, h.Block)
	}
	if !slices.Equal(held, []uint64{1, 2, 3, 4}) { // results first: their slots are free
		t.Errorf("it has blocks %v", held)
	}
	// The first result and the third block are its own still, under numbers that others had.
	again.send(func(dst []byte) []byte {
		return wire.AppendWelcome(dst, wire.Welcome{Epoch: 3, Gone: []uint64{2, 4}, Kept: []wire.Kept{{Epoch: 2, Lease: 1, Now: 4, Attempt: 1}, {Epoch: 2, Lease: 3, Now: 2, Attempt: 1}}})
	})
	if got := <-killed; got != 4 {
		t.Errorf("the block of lease %d is killed", got)
	}
	if r := again.release(); r.Epoch != 3 || r.Lease != 4 || r.Seq != 1 {
		t.Errorf("the first result comes as %+v", r)
	}
	if err := client.Release(blocks[2], Result{Outcome: wire.Success}); err != nil {
		t.Error(err)
	}
	if r := again.release(); r.Epoch != 3 || r.Lease != 2 || r.Seq != 3 {
		t.Errorf("the third block is released as %+v, want no copy of the second result before", r)
	}
	if err := client.Release(blocks[3], Result{Outcome: wire.Success}); !errors.Is(err, ErrReclaimed) {
		t.Errorf("a block that was taken away is released with %v", err)
	}
}

func TestABlockThatIsNotItsOwnAnyMoreIsFoundByItsNewName(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	killed := make(chan Block, 2)
	cfg.OnKill = func(b Block) { killed <- b }
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 7)
	b := (<-got)[0]
	c.set(func(j *api.JoinResponse) { j.Epoch = 3 })
	s.conn.Close()
	again := c.unwelcomed()
	again.send(func(dst []byte) []byte {
		return wire.AppendWelcome(dst, wire.Welcome{Epoch: 3, Kept: []wire.Kept{{Epoch: 2, Lease: 7, Now: 9, Attempt: 4}}})
	})
	again.send(func(dst []byte) []byte { return wire.AppendKillBlock(dst, wire.KillBlock{Lease: 7}) }) // of nobody here
	got = acquire(t, client, 1)
	again.grant(again.acquire().Request, 8)
	<-got
	if len(killed) > 0 {
		t.Errorf("block %+v is killed by its old name", <-killed)
	}
	// The connection breaks: now it goes by the new name, and by the new number of its attempt.
	again.conn.Close()
	third := c.next()
	want := []wire.Held{{Epoch: 3, Lease: 8, Task: 3, Block: 8, Attempt: 1}, {Epoch: 3, Lease: 9, Task: 3, Block: 7, Attempt: 4}}
	if diff := cmp.Diff(want, sortedByLease(third.hello.Held)); diff != "" {
		t.Error(diff)
	}
	third.send(func(dst []byte) []byte { return wire.AppendKillBlock(dst, wire.KillBlock{Lease: 9}) })
	if k := <-killed; k.Epoch != b.Epoch || k.Lease != b.Lease { // whoever runs it knows it by its first name
		t.Errorf("block %+v is killed, want %+v", k, b)
	}
}

func TestANewCoordinatorHearsOnlyOfTheLastAttemptAtABlock(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	grant := func(lease, block uint64, attempt uint32) Block {
		got := acquire(t, client, 1)
		request := s.acquire().Request
		s.send(func(dst []byte) []byte {
			return wire.AppendBlocks(dst, wire.Blocks{Request: request, Task: 3, Grants: []wire.Grant{{Lease: lease, Block: block, Attempt: attempt}}})
		})
		return (<-got)[0]
	}
	release := func(b Block, o wire.Outcome) {
		if err := client.Release(b, Result{Outcome: o, Message: "no"}); err != nil {
			t.Fatal(err)
		}
		s.release()
	}
	release(grant(1, 5, 1), wire.Failed) // and it gets the block again
	grant(2, 5, 2)
	release(grant(3, 6, 1), wire.Failed) // and again, to the end
	release(grant(4, 6, 2), wire.Success)
	release(grant(5, 7, 1), wire.Recalled)
	c.set(func(j *api.JoinResponse) { j.Epoch = 3 })
	s.conn.Close()
	again := c.next(2, 4)
	want := []wire.Held{{Epoch: 2, Lease: 4, Task: 3, Block: 6, Attempt: 2}, {Epoch: 2, Lease: 2, Task: 3, Block: 5, Attempt: 2}}
	if diff := cmp.Diff(want, again.hello.Held); diff != "" {
		t.Error(diff)
	}
}

func sortedByLease(held []wire.Held) []wire.Held {
	slices.SortFunc(held, func(a, b wire.Held) int { return int(a.Lease) - int(b.Lease) })
	return held
}

func TestLeasesThatTheWelcomeDeniesAreKilled(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	killed := make(chan Block, 2)
	cfg.OnKill = func(b Block) { killed <- b }
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 2)
	s.grant(s.acquire().Request, 1, 2)
	blocks := <-got
	s.conn.Close()
	again := c.next(2)
	select {
	case b := <-killed:
		if b.Lease != 2 {
			t.Errorf("got %d, want 2", b.Lease)
		}
	case <-time.After(soon):
		t.Fatal("nothing was killed")
	}
	if err := client.Release(blocks[1], Result{Outcome: wire.Success}); !errors.Is(err, ErrReclaimed) {
		t.Errorf("got %v, want %v", err, ErrReclaimed)
	}
	if err := client.Release(blocks[0], Result{Outcome: wire.Success}); err != nil {
		t.Error(err)
	}
	if r := again.release(); r.Lease != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestARefusedResultIsNotSentAgain(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 1)
	if err := client.Release((<-got)[0], Result{Outcome: wire.Success}); err != nil {
		t.Fatal(err)
	}
	s.release()
	s.send(func(dst []byte) []byte {
		return wire.AppendRefused(dst, wire.Refused{Lease: 1, Message: "already reclaimed"})
	})
	s.drain() // is read after the refusal
	if err := client.Close(context.Background()); err != nil {
		t.Error(err)
	}
	s.leaving()
	s.ended()
}

func TestRecalledAndDrainedBlocksThatNoSlotBeganAreGivenBack(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	client.batch = batch{size: 8, mean: time.Millisecond} // short blocks
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 1, 2, 3, 4)
	b := (<-got)[0]
	s.send(func(dst []byte) []byte { return wire.AppendRecall(dst, wire.Recall{Leases: []uint64{1, 3}}) })
	if r := s.release(); r.Lease != 3 || r.Outcome != wire.Recalled {
		t.Errorf("got %+v: block 1 has begun, 3 has not", r)
	}
	if got := flats(<-acquire(t, client, 1)); !slices.Equal(got, []int64{2}) {
		t.Errorf("got %v, want the next in order", got)
	}
	s.drain()
	s.leaving()
	if r := s.release(); r.Lease != 4 || r.Outcome != wire.Recalled {
		t.Errorf("got %+v", r)
	}
	if _, err := client.Acquire(context.Background(), 1); !errors.Is(err, ErrNoMore) {
		t.Errorf("got %v, want %v", err, ErrNoMore)
	}
	if err := client.Release(b, Result{Outcome: wire.Success}); err != nil {
		t.Error(err)
	}
	if r := s.release(); r.Lease != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestABlockThatHasWaitedTooLongForTheEndIsGivenBack(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	long := 20 * time.Second // was the longest, of many short ones
	client.batch = batch{size: 8, mean: time.Millisecond, measured: fitsFrom, longest: long}
	left := func(d time.Duration) {
		s.send(func(dst []byte) []byte { return wire.AppendTimeLeft(dst, wire.TimeLeft{LeftNanos: int64(d)}) })
	}
	left(time.Second)
	left(long*6/5 + fitsMargin + time.Minute) // more, after all
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 1, 2, 3, 4)
	<-got
	if got := flats(<-acquire(t, client, 1)); !slices.Equal(got, []int64{2}) {
		t.Errorf("with time enough: got %v", got)
	}
	left(long*6/5 + fitsMargin - time.Second)
	s.send(func(dst []byte) []byte { return wire.AppendRecall(dst, wire.Recall{Leases: []uint64{4}}) })
	s.release() // by now it knows
	if _, err := client.Acquire(context.Background(), 1); !errors.Is(err, ErrNoMore) {
		t.Errorf("got %v, want %v", err, ErrNoMore)
	}
	if m := s.leaving(); m.Reason != wire.LeaveDone {
		t.Errorf("it leaves by reason %v", m.Reason)
	}
	if r := s.release(); r.Lease != 3 || r.Outcome != wire.Recalled {
		t.Errorf("got %+v", r)
	}
}

func TestWhileFewBlocksAreMeasuredAllFit(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	client.batch = batch{size: 8, mean: time.Millisecond, measured: fitsFrom - 1, longest: time.Hour}
	s.send(func(dst []byte) []byte { return wire.AppendTimeLeft(dst, wire.TimeLeft{LeftNanos: 1}) })
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 1, 2)
	<-got
	if got := flats(<-acquire(t, client, 1)); !slices.Equal(got, []int64{2}) {
		t.Errorf("got %v", got)
	}
}

func TestShortBlocksAreAskedForInBatchesThatGrow(t *testing.T) {
	var b batch
	if got := b.next(); got != 1 {
		t.Errorf("first: got %d, want 1", got)
	}
	b.took(time.Millisecond)
	var got []int
	for range 8 {
		got = append(got, b.next())
	}
	if want := []int{2, 4, 8, 16, 32, 64, 100, 100}; !slices.Equal(got, want) {
		t.Errorf("blocks of 1 ms: got %v, want %v", got, want)
	}
	for range 100 {
		b.took(time.Second)
	}
	if got := b.next(); got != 1 {
		t.Errorf("blocks of 1 s: got %d, want 1", got)
	}
}

func TestLongBlocksThatNobodyWaitsForAreGivenBackAtOnce(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 1)
	s.grant(s.acquire().Request, 1, 2)
	<-got
	if r := s.release(); r.Lease != 2 || r.Outcome != wire.Recalled {
		t.Errorf("got %+v", r)
	}
}

func TestABlockOutsideTheGridIsRefused(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	acquire(t, client, 1)
	s.grant(s.acquire().Request, 100)
	if r := s.release(); r.Outcome != wire.Failed || r.Message != `block 100 is outside the grid of task "predict", which has 100` {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acquire() // the wait goes on
}

func TestMalformedMessagesCostTheConnectionOnly(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	got := acquire(t, client, 1)
	s.acquire()
	s.send(func(dst []byte) []byte { return append(wire.AppendKillBlock(dst, wire.KillBlock{}), 0, 0, 0, 2, 1, 99) })
	again := c.next()
	again.grant(again.acquire().Request, 4)
	if got := flats(<-got); !slices.Equal(got, []int64{4}) {
		t.Errorf("got %v", got)
	}
}

func TestAWaitThatIsGivenUpTakesNoBlock(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := client.Acquire(ctx, 1)
		ended <- err
	}()
	request := s.acquire().Request
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.grant(request, 3)
	if r := s.release(); r.Lease != 3 || r.Outcome != wire.Recalled {
		t.Errorf("got %+v", r)
	}
}

func TestAnOlderEpochIsRefused(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	log := &lockedBuffer{}
	cfg.Log = log
	client, s := connectTo(t, c, cfg)
	c.set(func(j *api.JoinResponse) { j.Epoch = 1 })
	s.conn.Close()
	for len(c.streams) == 0 && !strings.Contains(log.String(), "older epoch 1") {
		pauseBriefly()
	}
	if len(c.streams) > 0 {
		t.Fatal("the worker opened a stream to the older epoch")
	}
	c.set(func(j *api.JoinResponse) { j.Epoch = 3 })
	again := c.next()
	if again.hello.Epoch != 3 {
		t.Errorf("got %+v", again.hello)
	}
	acquire(t, client, 1)
	again.acquire()
}

func TestANewDiscoveryFileIsFollowedAndAnOldOneIsNot(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	_, s := connectTo(t, c, cfg)
	c.server.Close()
	next, _ := overTCP(t, testTask("func"))
	next.set(func(j *api.JoinResponse) { j.Epoch = 3 })
	writeDiscovery(t, cfg.RunDir, 3, "127.0.0.1:1", next.listener.Addr().String())
	s.conn.Close()
	if got := next.next(); got.hello.Nonce != s.hello.Nonce {
		t.Errorf("got %+v, want the same process", got.hello)
	}
}

func TestRefusalsAndTheirExitStatus(t *testing.T) {
	for code, want := range map[string]int{"version": StatusRefused, "epoch": StatusRefused, "twin": StatusRefused, "unknown_tag": StatusRefused, "excluded": StatusRefused, "ended": 0} {
		c, cfg := overTCP(t, testTask("func"))
		c.refuseWith(&api.Error{Code: code, Message: "for a reason"})
		w := start(t, cfg)
		err := w.wait()
		var exit *ExitError
		switch {
		case want == 0 && err != nil:
			t.Errorf("%s: got %v", code, err)
		case want != 0 && (!errors.As(err, &exit) || exit.Status != want || !strings.Contains(err.Error(), "for a reason")):
			t.Errorf("%s: got %v, want status %d", code, err, want)
		}
	}
}

func TestWithoutAnAnswerTheLogSaysWhatWasTried(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // an address at which nobody listens
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, cfg := overTCP(t, testTask("func"))
	writeDiscovery(t, cfg.RunDir, 2, l.Addr().String(), other.Listener.Addr().String())
	cfg.JoinTimeout = 300 * time.Millisecond
	w := start(t, cfg)
	var exit *ExitError
	if err := w.wait(); !errors.As(err, &exit) || exit.Status != StatusNoAnswer || !strings.Contains(err.Error(), l.Addr().String()) ||
		!strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "somebody else listens at "+other.Listener.Addr().String()+": the answer (HTTP status 404) does not prove") {
		t.Errorf("got %v", err)
	}
}

func TestFilesThatAreNotThereYetAreWaitedFor(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	discovery := filepath.Join(cfg.RunDir, "discovery.json")
	text, err := os.ReadFile(discovery)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(discovery)
	w := start(t, cfg)
	if err := os.WriteFile(discovery, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.next().drain()
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
	os.Remove(discovery)
	cfg.JoinTimeout = 100 * time.Millisecond
	if got := start(t, cfg).status(); got != StatusNoAnswer {
		t.Errorf("status: got %d, want %d", got, StatusNoAnswer)
	}
}

func TestASignalBeforeTheJoinEndsTheWait(t *testing.T) {
	_, cfg := overTCP(t, testTask("func"))
	os.Remove(filepath.Join(cfg.RunDir, "discovery.json"))
	w := start(t, cfg)
	w.cancel()
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

func TestABusyCoordinatorIsAskedAgainAndItsRetryAfterIsCapped(t *testing.T) {
	for _, tc := range []struct {
		header string
		want   time.Duration
	}{{"3600", maxRetryAfter}, {"999999999999", 0}, {"1", time.Second}, {"soon", 0}} {
		resp := &http.Response{Header: http.Header{"Retry-After": {tc.header}}}
		for range 20 {
			if got := backoffAfter(time.Millisecond, time.Second, 3, resp); got < tc.want || got > tc.want+8*time.Millisecond {
				t.Errorf("Retry-After %s: got %v, want about %v", tc.header, got, tc.want)
			}
		}
	}
}

func TestAStopRightAfterTheWelcomeIsObeyed(t *testing.T) {
	c, cfg := overPipe(t, testTask("func"))
	w := start(t, cfg)
	s := c.unwelcomed()
	s.send(func(dst []byte) []byte {
		return wire.AppendStop(wire.AppendWelcome(dst, wire.Welcome{Epoch: 2}), wire.Stop{Message: "now"})
	})
	for kind := wire.KindHello; kind != wire.KindLeaving; { // a slot may have asked for a block meanwhile
		var err error
		if kind, _, err = s.in.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

// Where many blocks have failed while there was no coordinator, what is told of them may be more than a connection takes at once.
func TestFailuresThatHadMuchToSayAreDeliveredTogether(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	client, s := connectTo(t, c, cfg)
	const n = 100
	var numbers []uint64
	for i := range uint64(n) {
		numbers = append(numbers, i)
	}
	got := acquire(t, client, n)
	s.grant(s.acquire().Request, numbers...)
	blocks := <-got
	c.refuseWith(&api.Error{Code: "busy", Message: "not now"})
	s.conn.Close()
	tail := strings.Repeat("x", wire.MaxText)
	if n*len(tail) <= wire.MaxPending {
		t.Fatal("all of it has room, and this test shows nothing")
	}
	for _, b := range blocks {
		if err := client.Release(b, Result{Outcome: wire.Failed, Message: "no such file", Tail: tail}); err != nil {
			t.Fatal(err)
		}
	}
	c.refuseWith(nil)
	again := c.next()
	for i := range n {
		r := again.release()
		if r.Seq != uint64(i+1) || r.Outcome != wire.Failed || r.Message != "no such file" {
			t.Fatalf("got %d, %v, %q", r.Seq, r.Outcome, r.Message)
		}
		if whole := r.Tail == tail; i == 0 && !whole || i == n-1 && r.Tail != "" {
			t.Errorf("result %d has %d bytes of output", i+1, len(r.Tail))
		}
	}
}
