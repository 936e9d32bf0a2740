package coordinator

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
)

// clientTask is lineTask for clients of daisy.
func clientTask(t testing.TB, id string, n int64, after ...string) job.Task {
	t.Helper()
	task := lineTask(t, id, n, 10, after...)
	task.Runner = job.Runner{Kind: job.RunnerClients}
	task.MaxRetries, task.MaxLost = 1, 5
	return task
}

// A daisyClient is a client of daisy as the coordinator sees it: the codec at the other end of a connection.
type daisyClient struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// visit connects a client within the bubble.
func visit(t *testing.T, c *Coordinator) *daisyClient {
	t.Helper()
	ours, theirs := net.Pipe()
	go c.serveClient(theirs)
	t.Cleanup(func() { _ = ours.Close() })
	return &daisyClient{t, ours, bufio.NewReader(ours)}
}

func (d *daisyClient) say(m daisywire.Message) {
	d.t.Helper()
	synctest.Wait() // so that the engine is free
	if _, err := d.conn.Write(daisywire.Append(nil, daisywire.Released, &m)); err != nil {
		d.t.Fatal(err)
	}
}

// hear reads the next message.
func (d *daisyClient) hear() (daisywire.Message, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(d.r, head); err != nil {
		return daisywire.Message{}, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(d.r, payload); err != nil {
		return daisywire.Message{}, err
	}
	return daisywire.Decode(payload, daisywire.Released)
}

func (d *daisyClient) ask(task string, worker ...uint64) {
	d.t.Helper()
	m := daisywire.Message{Kind: daisywire.AcquireBlock, TaskID: task}
	if len(worker) > 0 {
		m.HasWorker, m.Worker = true, worker[0]
	}
	d.say(m)
}

// block is the answer to ask, which must be one.
func (d *daisyClient) block() daisywire.Block {
	d.t.Helper()
	m, err := d.hear()
	if err != nil || m.Kind != daisywire.SendBlock {
		d.t.Fatalf("the answer is %s %q, %v; want a block", m.Kind, m.Error, err)
	}
	return m.Block
}

func (d *daisyClient) acquire(task string, worker ...uint64) daisywire.Block {
	d.t.Helper()
	d.ask(task, worker...)
	return d.block()
}

func (d *daisyClient) release(b daisywire.Block) {
	d.t.Helper()
	b.Status = daisywire.Success
	d.say(daisywire.Message{Kind: daisywire.ReleaseBlock, Block: b})
}

// work does all that there is, and returns how many blocks that were. A block that it is to fail first is failed once.
func (d *daisyClient) work(task string, worker uint64) (done int) {
	d.t.Helper()
	for {
		d.ask(task, worker)
		m, err := d.hear()
		switch {
		case errors.Is(err, io.EOF) || err == nil && m.Kind == daisywire.RequestShutdown:
			_ = d.conn.Close()
			return done
		case err != nil || m.Kind != daisywire.SendBlock:
			d.t.Errorf("the answer is %s %q, %v; want a block or the end", m.Kind, m.Error, err)
			return done
		}
		d.release(m.Block)
		done++
	}
}

// rowsOf are the workers of a run that is over: "client-0 left 3/1" for 3 blocks processed, 1 of them failed.
func rowsOf(c *Coordinator) (rows []string) {
	views, _, _ := c.engine.EndedRows(0, 1000, nil)
	for _, v := range views {
		rows = append(rows, fmt.Sprintf("%s %s %d/%d", v.ID, v.End, v.Processed, v.WorkerSnapshot.Failed))
	}
	slices.Sort(rows)
	return rows
}

func TestBlocksOfClientsCountAsThoseOfWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 4))
		ended := loops(t, c)
		one, other, nameless := visit(t, c), visit(t, c), visit(t, c)
		one.release(one.acquire("a", 7))
		bad := one.acquire("a", 7)
		one.say(daisywire.Message{Kind: daisywire.BlockFailed, Block: bad, Error: "Traceback (most recent call last):\nValueError: no\n"})
		synctest.Wait()
		page := got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks, "")
		if b := page.Blocks[bad.SpatialID]; b.Message == nil || *b.Message != "ValueError: no" || b.LastEnd == nil || *b.LastEnd != "failed" {
			t.Errorf("of the failed block is said %+v", b)
		}
		again := other.acquire("a", 7)
		if again.SpatialID != bad.SpatialID {
			t.Errorf("block %d is retried, want %d", again.SpatialID, bad.SpatialID)
		}
		other.release(again)
		nameless.release(nameless.acquire("a"))
		nameless.release(nameless.acquire("a"))
		<-ended
		c.closeSessions()
		if n, _ := c.engine.Tally(0); n.Success != 4 || n.Processed != 5 || n.Retries != 1 || n.Failed+n.Lost != 0 {
			t.Errorf("%+v", n)
		}
		if got, want := rowsOf(c), []string{"client left 2/0", "client-7 left 2/1", "client-7+2 left 1/0"}; !slices.Equal(got, want) {
			t.Errorf("the workers are %q, want %q", got, want)
		}
		for _, d := range []*daisyClient{one, other, nameless} {
			if m, err := d.hear(); !errors.Is(err, io.EOF) {
				t.Errorf("at the end a client hears %s, %v", m.Kind, err)
			}
		}
	})
}

func TestAClientIsToldWhenItsTaskHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 1), clientTask(t, "b", 1, "a"))
		ended := loops(t, c)
		works, waits, next := visit(t, c), visit(t, c), visit(t, c)
		b := works.acquire("a")
		waits.ask("a")
		next.ask("b") // there is none before that of a is done
		synctest.Wait()
		works.release(b)
		if m, err := waits.hear(); err != nil || m.Kind != daisywire.RequestShutdown {
			t.Errorf("who waits hears %s, %v", m.Kind, err)
		}
		works.ask("a")
		if m, err := works.hear(); err != nil || m.Kind != daisywire.RequestShutdown {
			t.Errorf("who asks hears %s, %v", m.Kind, err)
		}
		late := visit(t, c)
		late.ask("a")
		if m, err := late.hear(); err != nil || m.Kind != daisywire.RequestShutdown {
			t.Errorf("who comes too late hears %s, %v", m.Kind, err)
		}
		next.release(next.block())
		<-ended
		if state := c.engine.State(); state != engine.RunDone {
			t.Errorf("the run is %v", state)
		}
	})
}

func TestBlocksForClientsAreForNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 1), lineTask(t, "b", 1, 10))
		loops(t, c)
		for task, why := range map[string]string{
			"b": `task "b" of this run starts its own workers`,
			"x": `there is no task "x" in this run; it has "a", "b"`,
			"":  `there is no task "" in this run`,
		} {
			d := visit(t, c)
			d.ask(task)
			if m, err := d.hear(); err != nil || m.Kind != daisywire.BlockFailed || !strings.Contains(m.Error, why) {
				t.Errorf("a client of task %q hears %s %q, %v", task, m.Kind, m.Error, err)
			}
		}
		answer, err := c.introduce(t.Context(), &engine.Join{Name: "w", Nonce: 1, Slots: 1, Task: "a"})
		if err != nil || answer.refusal == nil || answer.refusal.Message != `task "a" is for clients of daisy that come by themselves` {
			t.Errorf("a worker for task a gets %+v, %v", answer, err)
		}
		p := join(t, c, "any", 1)
		g := p.acquire(1)
		p.say(released(c, 1, g[0], 0))
		p.say([]byte{})
		time.Sleep(time.Minute)
		for f := range drained(p) {
			t.Errorf("a worker that takes any task got %v", f.kind)
		}
		d := visit(t, c)
		d.release(d.acquire("a"))
	})
}

// drained are the frames that have come, but for signs of life.
func drained(p *peer) func(func(frame) bool) {
	return func(yield func(frame) bool) {
		for {
			select {
			case f, open := <-p.frames:
				if !open {
					return
				}
				if len(f.payload) > 0 && f.kind != 34 && !yield(f) {
					return
				}
			default:
				return
			}
		}
	}
}

func TestTheStateTellsWhatClientsNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 1))
		loops(t, c)
		s := got[api.State](t, c, http.MethodGet, api.PathState, "").Tasks[0]
		if s.Waits == nil || *s.Waits != "no client of daisy has connected: start one with the DAISY_CONTEXT of this task" {
			t.Errorf("the task waits for %v", s.Waits)
		}
		visit(t, c).say(daisywire.Message{Kind: daisywire.Register, TaskID: "a", Worker: 1})
		synctest.Wait()
		s = got[api.State](t, c, http.MethodGet, api.PathState, "").Tasks[0]
		if s.Waits == nil || *s.Waits != "its workers have not asked for a block" {
			t.Errorf("with a client that says nothing the task waits for %v", s.Waits)
		}
	})
}

// Nobody starts it again when its task has something to do.
func TestAClientThatHasToWaitForAnotherTaskIsNotSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := clientTask(t, "a", 2), clientTask(t, "b", 2, "a")
		before.MaxWorkers, before.Timeout, after.MaxWorkers = 1, 0, 1
		c := newRun(t, before, after)
		ended := loops(t, c)
		waits, works := visit(t, c), visit(t, c)
		waits.ask("b", 1)
		heard := make(chan error, 1)
		go func() {
			m, err := waits.hear()
			if err == nil && m.Kind != daisywire.SendBlock {
				err = fmt.Errorf("it hears %s", m.Kind)
			}
			heard <- err
		}()
		for range 2 {
			b := works.acquire("a", 2)
			time.Sleep(5 * time.Hour)
			works.release(b)
		}
		if err := <-heard; err != nil {
			t.Error(err)
		}
		_ = waits.conn.Close()
		works.work("a", 2)
		visit(t, c).work("b", 3)
		<-ended
	})
}
