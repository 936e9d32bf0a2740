package coordinator

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
)

// Everything here runs in a bubble: its time passes only while all goroutines wait, so that "at once" means that no time has
// passed, and whoever is not woken sleeps until the next heartbeat, seconds later.

// lineTask has n blocks of so many voxels in one dimension.
func lineTask(t testing.TB, id string, n, voxels int64, after ...string) job.Task {
	t.Helper()
	one := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(voxels)}
	grid, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(n * voxels)}, Read: one, Write: one})
	if err != nil {
		t.Fatal(err)
	}
	return job.Task{ID: id, After: after, Grid: grid, Runner: job.Runner{Kind: job.RunnerFunc}, Slots: 1, MaxLost: 1, MaxWorkerRestarts: 1}
}

// newRun is a coordinator whose loop does not run yet: without a launcher, and with nothing kept on disk.
func newRun(t *testing.T, tasks ...job.Task) *Coordinator {
	t.Helper()
	return newRunIn(t, nil, tasks...)
}

// newRunIn is newRun with a run directory, unless that is nil.
func newRunIn(t *testing.T, dir *rundir.Dir, tasks ...job.Task) *Coordinator {
	t.Helper()
	d := job.Defaults
	c, err := New(Config{Unlimited: true, RunDir: dir, Job: &job.Job{
		Name: "line", Tasks: tasks, Grace: d.Grace, ReconnectGrace: d.ReconnectGrace, HeartbeatTimeout: d.HeartbeatTimeout,
		HintAfter: d.HintAfter, IdleTimeout: -1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// loops runs the loop until the end of the test; what it gives is closed when the loop has ended.
func loops(t *testing.T, c *Coordinator) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.loop()
	}()
	t.Cleanup(func() {
		c.Stop(engine.StopNow, "the test is over")
		<-ended
		c.closeSessions()
		_ = c.listener.Close()
	})
	synctest.Wait()
	return ended
}

// A peer is a worker at the other end of a connection.
type peer struct {
	t      *testing.T
	conn   net.Conn
	frames chan frame // closed with the connection
}

type frame struct {
	at      time.Time
	kind    wire.Kind
	payload []byte
}

// join lets a worker in whose connection is welcome.
func join(t *testing.T, c *Coordinator, name string, slots int) *peer {
	t.Helper()
	return joinFrom(t, c, "", name, slots)
}

// joinFrom does it on a node.
func joinFrom(t *testing.T, c *Coordinator, node, name string, slots int) *peer {
	t.Helper()
	got := make(chan joinAnswer, 1)
	c.mu.Lock()
	c.lastJoin++
	id := c.lastJoin
	c.joins[id] = got
	c.mu.Unlock()
	c.inbox.put(engine.Event{Kind: engine.EventJoin, Request: id, Join: &engine.Join{Name: name, Nonce: 1, Slots: slots, Node: node}})
	if a := <-got; a.refusal != nil {
		t.Fatal(a.refusal.Message)
	}
	p := connect(t, c)
	p.say(wire.AppendHello(nil, wire.Hello{Worker: name, Nonce: 1, Epoch: c.epoch}))
	p.want(wire.KindWelcome)
	return p
}

// connect opens a connection and says nothing.
func connect(t *testing.T, c *Coordinator) *peer {
	t.Helper()
	ours, theirs := net.Pipe()
	p := &peer{t: t, conn: ours, frames: make(chan frame, 10_000)}
	if !c.startSession(theirs, nil, switching) {
		t.Fatal("the run takes no connections")
	}
	if _, err := io.ReadFull(ours, make([]byte, len(switching))); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.frames)
		r := wire.NewReader(ours)
		for {
			kind, payload, err := r.Next()
			if err != nil {
				return
			}
			p.frames <- frame{time.Now(), kind, bytes.Clone(payload)}
		}
	}()
	return p
}

// say sends frames once everybody else sleeps, so that the reader of the connection finds the engine free.
func (p *peer) say(frames []byte) {
	p.t.Helper()
	synctest.Wait()
	if _, err := p.conn.Write(frames); err != nil {
		p.t.Fatal(err)
	}
}

// want waits for the next frame; heartbeats and acknowledgements may come before any other.
func (p *peer) want(kind wire.Kind) frame {
	p.t.Helper()
	for f := range p.frames {
		switch f.kind {
		case kind:
			return f
		case wire.KindHeartbeat, wire.KindAcknowledged:
		default:
			p.t.Fatalf("got %v, want %v", f.kind, kind)
		}
	}
	p.t.Fatalf("the connection was closed; %v was to come", kind)
	return frame{}
}

// acquire asks for n blocks and waits for what is given.
func (p *peer) acquire(n int) []wire.Grant {
	p.t.Helper()
	p.say(wire.AppendAcquire(nil, wire.Acquire{Request: 1, Max: uint32(n)}))
	return p.granted()
}

func (p *peer) granted() []wire.Grant {
	p.t.Helper()
	var blocks wire.Blocks
	if err := wire.DecodeBlocks(p.want(wire.KindBlocks).payload, &blocks); err != nil {
		p.t.Fatal(err)
	}
	return blocks.Grants
}

// released is a Release of a block.
func released(c *Coordinator, seq int, g wire.Grant, outcome wire.Outcome) []byte {
	return wire.AppendRelease(nil, wire.Release{Seq: uint64(seq), Epoch: c.epoch, Lease: g.Lease, Outcome: outcome})
}

// wantAtOnce checks that no time has passed since then.
func wantAtOnce(t *testing.T, what string, since time.Time) {
	t.Helper()
	if d := time.Since(since); d != 0 {
		t.Errorf("%s took %v, want it at once", what, d)
	}
}

// armed is when the loop wakes by itself.
func armed(c *Coordinator) time.Time {
	c.owned.Lock()
	defer c.owned.Unlock()
	return c.began.Add(c.owned.armed)
}

func TestAnAcknowledgementThatNothingFollowsGoesOutSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 9, 1))
		loops(t, c)
		first, second := join(t, c, "first", 2), join(t, c, "second", 2)
		of1, of2 := append(first.acquire(1), first.acquire(1)...), append(second.acquire(1), second.acquire(1)...)
		for seq := range 2 { // again and again
			began := time.Now()
			first.say(released(c, seq+1, of1[seq], wire.Success))
			<-time.After(lazyDelay / 2)
			second.say(released(c, seq+1, of2[seq], wire.Success))
			// The one that comes later does not put off the earlier one, but goes with it.
			for name, p := range map[string]*peer{"first": first, "second": second} {
				if d := p.want(wire.KindAcknowledged).at.Sub(began); d != lazyDelay {
					t.Errorf("the %s acknowledgement came after %v, want %v", name, d, lazyDelay)
				}
			}
		}
	})
}

func TestADeadlineThatAReaderBringsForwardWakesTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := lineTask(t, "a", 2, 1)
		task.Timeout = time.Minute
		c := newRun(t, task)
		c.cfg.Job.HeartbeatTimeout, c.cfg.Job.AbandonAfter = time.Hour, 10*time.Hour
		loops(t, c)
		p := join(t, c, "w", 1)
		<-time.After(time.Minute) // what follows from its joining is over
		synctest.Wait()
		began := time.Now()
		if a := armed(c); a.Before(began.Add(2 * task.Timeout)) {
			t.Fatalf("the loop wakes after %v anyway", a.Sub(began))
		}
		p.acquire(1)
		const slack = 10 * time.Second // that the engine leaves to the worker's own timer
		if d := p.want(wire.KindKillBlock).at.Sub(began); d != task.Timeout+slack {
			t.Errorf("the block was ended after %v, want %v", d, task.Timeout+slack)
		}
	})
}

func TestAnEndThatAReaderFindsEndsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		ended := loops(t, c)
		p := join(t, c, "w", 1)
		p.say(released(c, 1, p.acquire(1)[0], wire.Success))
		p.want(wire.KindDrain)
		p.want(wire.KindAcknowledged)
		synctest.Wait() // nothing is missing but the end of the worker, and no deadline comes nearer with it
		began := time.Now()
		c.work([]engine.Event{{Kind: engine.EventDetach, Session: 1}}) // as a reader that finds it in the inbox
		<-ended
		wantAtOnce(t, "the end of the loop", began)
		if c.outcome != engine.RunDone {
			t.Errorf("the run is %v: %s", c.outcome, c.why)
		}
	})
}

func TestALastWorkerThatHangsUpEndsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		ended := loops(t, c)
		p := join(t, c, "w", 1)
		began := time.Now()
		p.say(released(c, 1, p.acquire(1)[0], wire.Success))
		p.want(wire.KindDrain)
		_ = p.conn.Close()
		<-ended
		wantAtOnce(t, "the end of the loop", began)
		if c.outcome != engine.RunDone {
			t.Errorf("the run is %v: %s", c.outcome, c.why)
		}
	})
}

func TestBulkWorkThatAReaderBeginsIsFinishedWithoutAnotherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300_000 // ten times what one application of events does
		c := newRun(t, lineTask(t, "first", 1, n), lineTask(t, "then", n, 1, "first"))
		loops(t, c)
		p := join(t, c, "w", 1)
		began := time.Now()
		p.say(released(c, 1, p.acquire(1)[0], wire.Failed)) // all of "then" is orphaned
		p.want(wire.KindDrain)
		wantAtOnce(t, "the end of all blocks", began)
	})
}

func TestBulkWorkOfTheLoopIsFinishedWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300_000
		task := lineTask(t, "a", n, 1)
		task.Mask = make([]uint64, (n+63)/64) // all blocks but the last
		for i := range n - 1 {
			task.Mask[i/64] |= 1 << (i % 64)
		}
		c := newRun(t, task)
		loops(t, c)
		p := join(t, c, "w", 1)
		began := time.Now()
		if g := p.acquire(1); g[0].Block != n-1 {
			t.Errorf("block %d was handed out", g[0].Block)
		}
		wantAtOnce(t, "skipping", began)
	})
}

func TestReadersGoBackToTheirConnectionsAfterAFewTurns(t *testing.T) {
	c := newRun(t, lineTask(t, "a", 1, 1)) // whose loop does not run
	turns := 0
	whileOwned(c, 3*turnsOfReader, func() { turns++ })
	c.work(nil)
	if turns != turnsOfReader {
		t.Errorf("a reader worked for %d turns, want %d", turns, turnsOfReader)
	}
}

func TestWhatAReaderLeavesIsDoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		loops(t, c)
		began := time.Now()
		done := make(chan struct{})
		turns := 0
		whileOwned(c, 3*turnsOfReader, func() {
			if turns++; turns == 3*turnsOfReader {
				close(done)
			}
		})
		c.work(nil)
		<-done
		wantAtOnce(t, "all of it", began)
	})
}

// whileOwned has f called in each of the next n turns, whoever makes them, and wakes nobody: as events do that a reader adds
// while another is at it.
func whileOwned(c *Coordinator, n int, f func()) {
	c.inbox.mu.Lock()
	defer c.inbox.mu.Unlock()
	c.inbox.calls = append(c.inbox.calls, func() {
		f()
		if n > 1 {
			whileOwned(c, n-1, f)
		}
	})
}

func TestWhatComesWhileAnotherIsAtItIsTakenAtOnce(t *testing.T) {
	for name, owner := range map[string]func(c *Coordinator, f func()){
		"the loop": func(c *Coordinator, f func()) { c.inbox.call(f) },
		"a reader": func(c *Coordinator, f func()) {
			whileOwned(c, 1, f)
			c.work(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRun(t, lineTask(t, "a", 1, 1))
				ended := loops(t, c)
				began := time.Now()
				owner(c, func() { c.work([]engine.Event{{Kind: engine.EventStop, Stop: engine.StopNow, Text: "enough"}}) })
				<-ended
				wantAtOnce(t, "the end of the run", began)
			})
		})
	}
}

// Between a reader's failing to get the engine and its putting its events into the inbox, the owner may have looked there for
// the last time.
func TestNothingIsLeftWhenAllReadersHaveGone(t *testing.T) {
	c := newRun(t, lineTask(t, "a", 1, 1)) // whose loop does not run
	for range 20_000 {
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() { c.work([]engine.Event{{Kind: engine.EventHeartbeat, Session: 1}}) })
		}
		readers.Wait()
		if !c.inbox.empty() && len(c.inbox.wake) == 0 {
			t.Fatal("events wait, and nobody was woken for them")
		}
	}
}

func TestWhoeverAsksTheLoopWakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 7, 1))
		loops(t, c)
		began := time.Now()
		var s engine.Snapshot
		if err := c.Snapshot(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		wantAtOnce(t, "the snapshot", began)
		if len(s.Tasks) != 1 || s.Tasks[0].Tally.Total != 7 {
			t.Errorf("got %+v", s.Tasks)
		}
	})
}

func TestEveryWorkerHearsOfTheCoordinatorAtFixedIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		loops(t, c)
		first, second := join(t, c, "first", 1), join(t, c, "second", 1)
		for i := range 5 {
			want := c.began.Add(time.Duration(i+1) * job.Defaults.HeartbeatTimeout / 3)
			for _, p := range []*peer{first, second} {
				if at := p.want(wire.KindHeartbeat).at; !at.Equal(want) {
					t.Errorf("heartbeat %d came %v too late", i, at.Sub(want))
				}
				p.say(wire.AppendHeartbeat(nil))
			}
		}
	})
}

func TestAMalformedFrameCostsItsSenderTheConnectionAndNobodyElseAnything(t *testing.T) {
	for name, bad := range map[string][]byte{
		"noise":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"what no worker sends":   wire.AppendDrain(nil, wire.Drain{}),
		"a frame that is cut":    wire.AppendAcquire(nil, wire.Acquire{Request: 1, Max: 1})[:6],
		"another hello":          wire.AppendHello(nil, wire.Hello{Worker: "bad", Nonce: 1, Epoch: 1}),
		"good and bad in one go": append(wire.AppendHeartbeat(nil), wire.AppendStop(nil, wire.Stop{})...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRun(t, lineTask(t, "a", 2, 1))
				loops(t, c)
				good, wrong := join(t, c, "good", 1), join(t, c, "bad", 1)
				held := wrong.acquire(1)
				wrong.say(bad)
				if name == "a frame that is cut" {
					_ = wrong.conn.Close()
				}
				for f := range wrong.frames {
					t.Errorf("%v came", f.kind)
				}
				if g := good.acquire(1); g[0].Block == held[0].Block {
					t.Errorf("block %d was handed out twice", held[0].Block)
				}
			})
		})
	}
}

func TestAConnectionThatDoesNotSayWhoItIsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		loops(t, c)
		began := time.Now()
		for f := range connect(t, c).frames {
			if f.kind != wire.KindHeartbeat {
				t.Errorf("%v came", f.kind)
			}
		}
		if d := time.Since(began); d != helloTimeout {
			t.Errorf("closed after %v, want %v", d, helloTimeout)
		}
	})
}

func TestManyEventsThatCameTogetherAreAllTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		ended := loops(t, c)
		began := time.Now()
		c.inbox.put(append(make([]engine.Event, 3*applyAtOnce), engine.Event{Kind: engine.EventStop, Stop: engine.StopNow, Text: "enough"})...)
		<-ended
		wantAtOnce(t, "the end of the run", began)
		if c.outcome != engine.RunStopped || c.why != "enough" {
			t.Errorf("the run is %v: %s", c.outcome, c.why)
		}
	})
}

func TestABurstInOneWriteIsTakenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3*applyAtOnce + 1
		c := newRun(t, lineTask(t, "a", n, 1))
		loops(t, c)
		p := join(t, c, "w", n)
		var asks, returns []byte
		for i := range n {
			asks = wire.AppendAcquire(asks, wire.Acquire{Request: uint64(i) + 1, Max: 1})
		}
		began := time.Now()
		p.say(asks)
		for i := range n {
			returns = append(returns, released(c, i+1, p.granted()[0], wire.Success)...)
		}
		p.say(returns)
		p.want(wire.KindDrain)
		wantAtOnce(t, "all of it", began)
	})
}

// Blocks of a Go function may take no time to speak of, so that a tenth of a second of them would be more than a frame holds.
func TestWhoAsksForAnyNumberOfBlocksGetsWhatAFrameHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1<<20, 1))
		loops(t, c)
		p := join(t, c, "w", 1)
		first := p.acquire(1)
		p.say(wire.AppendRelease(nil, wire.Release{Seq: 1, Epoch: c.epoch, Lease: first[0].Lease, WallNanos: 1}))
		if got := p.acquire(1 << 30); len(got) != wire.MaxGrants {
			t.Errorf("%d blocks, want %d", len(got), wire.MaxGrants)
		}
	})
}
