package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// Clients of daisy that come by themselves. To the engine each connection is a worker that nobody launched, with a slot for each block that it has at once, so that blocks
// are counted, timed, retried and tracked as any other. What such a worker would say by itself, its coordinator says for it: heartbeats as
// long as the connection lives, and its end as soon as it does not.

// forClients reports whether any task is for clients of daisy.
func forClients(j *job.Job) bool {
	for i := range j.Tasks {
		if j.Tasks[i].Runner.Kind == job.RunnerClients {
			return true
		}
	}
	return false
}

// ClientContext is the value of DAISY_CONTEXT for clients of a task, "" where it is for none.
func (c *Coordinator) ClientContext(task string) string {
	t := c.cfg.Job.Task(task)
	tcp, listens := c.listener.Addr().(*net.TCPAddr)
	if t == nil || t.Runner.Kind != job.RunnerClients || !listens {
		return ""
	}
	host := tcp.IP.String()
	switch {
	case tcp.IP.IsUnspecified():
		host = "127.0.0.1"
	case tcp.IP.To4() == nil:
		host = "[" + host + "]" // the client puts the port behind it
	}
	return daisywire.ContextOf(host, strconv.Itoa(tcp.Port), task, "0", t.ResourceTracking).String()
}

// tellClients says how scripts find this coordinator.
func (c *Coordinator) tellClients() {
	for i := range c.specs {
		if value := c.ClientContext(c.specs[i].ID); value != "" {
			c.cfg.Notice(fmt.Sprintf("task %s waits for clients of daisy on this machine: export %s=%s", c.specs[i].ID, daisywire.Variable, value))
		}
	}
}

// meetDaisy1 says what to do with a client of daisy 1.x, once.
func (c *Coordinator) meetDaisy1() {
	if !c.saidDaisy1.Swap(true) {
		c.refused("a client was dropped: " + daisywire.ErrDaisy1.Error())
	}
}

// mostRefusals is how many clients that were dropped are spoken of one by one.
const mostRefusals = 20

// serveClient serves a connection of a client of daisy until it ends. conn is of this machine and of this user.
func (c *Coordinator) serveClient(conn net.Conn) {
	ctx, drop := context.WithCancelCause(context.Background())
	cl := &client{c: c, drop: drop, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	if c.sessions == nil {
		c.mu.Unlock()
		_ = conn.Close()
		return
	}
	c.readers.Add(1)
	c.clients[cl] = struct{}{}
	c.mu.Unlock()
	defer c.readers.Done()
	err := daisywire.Serve(ctx, conn, cl)
	drop(nil)
	c.mu.Lock()
	delete(c.clients, cl)
	c.mu.Unlock()
	c.inbox.call(func() { // behind the end of its worker: who takes the name then is no twin
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range cl.names {
			delete(c.clientNames, name)
		}
	})
	cl.mu.Lock()
	told := cl.noMore // that one stays nevertheless is nobody's fault
	cl.mu.Unlock()
	if err != nil && !told && !errors.Is(err, errOver) {
		who := "a client of daisy"
		if cl.worker != "" {
			who = "worker " + cl.worker
		}
		c.refused(fmt.Sprintf("%s was dropped: %v", who, err))
	}
}

// refused says that somebody was refused, as long as it is not too often.
func (c *Coordinator) refused(text string) {
	switch n := c.refusals.Add(1); {
	case n > mostRefusals:
		return
	case n == mostRefusals:
		text += "; further ones are not spoken of"
	}
	c.inbox.call(func() { c.cfg.Notice(text) })
}

// A client is one connection of a client of daisy. It is the server that its session asks, and the blocks of it.
type client struct {
	c    *Coordinator
	drop context.CancelCauseFunc

	// Of its session:
	worker string   // its name
	names  []string // the same, and others that it could not have
	id     engine.SessionID
	seq    uint64
	lost   bool // it had blocks when its connection ended
	asked  bool // a request is open
	asks   uint64

	mu     sync.Mutex
	given  []scheduler.Handout // by the engine, and not taken yet
	noMore bool
	wake   chan struct{} // capacity 1: given or noMore has changed
}

// Join implements daisywire.Server: it makes the connection a worker of the engine. The name says the worker id that the client gives; where
// that is another's, as of all that were started with one DAISY_CONTEXT, a number behind it tells them apart.
func (cl *client) Join(ctx context.Context, who daisywire.Client) (daisywire.Blocks, error) {
	c := cl.c
	task := c.pipeline.Index(who.Task)
	if task < 0 {
		return nil, fmt.Errorf("there is no task %q in this run; it has %s", who.Task, c.taskNames())
	}
	if c.cfg.Job.Task(who.Task).Runner.Kind != job.RunnerClients {
		return nil, fmt.Errorf("task %q of this run starts its own workers; give it run = { clients = \"daisy\" } if you want to", who.Task)
	}
	name := "client"
	if who.HasWorker {
		name += "-" + strconv.FormatUint(who.Worker, 10)
	}
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	join := engine.Join{Nonce: binary.LittleEndian.Uint64(nonce[:]) | 1, Task: who.Task, Slots: 1, Node: hostname(), Client: true}
	for {
		join.Name = c.nameClient(cl, name)
		answer, err := c.introduce(ctx, &join)
		switch {
		case err != nil:
			return nil, err
		case answer.refusal == nil:
			cl.worker = answer.worker
			cl.attach(join.Nonce)
			return cl, nil
		case answer.refusal.Code == "ended":
			return nil, daisywire.ErrNoMore
		case answer.refusal.Code != "twin": // a worker that came by itself may have any name
			return nil, errors.New(answer.refusal.Message)
		}
	}
}

// nameClient gives a client a name that no other has now: "client-7", "client-7+2". Names come back, so that there are never more than clients
// at once, and one that was started again has the name that it had.
func (c *Coordinator) nameClient(cl *client, base string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := base
	for n := 2; c.clientNames[name]; n++ {
		name = base + "+" + strconv.Itoa(n)
	}
	c.clientNames[name] = true
	cl.names = append(cl.names, name)
	return name
}

// attach opens a session of the engine. Heartbeats and the effects of the engine reach it from here on.
func (cl *client) attach(nonce uint64) {
	c := cl.c
	c.mu.Lock()
	c.lastID++
	cl.id = c.lastID
	if c.sessions != nil {
		c.sessions[cl.id] = &session{id: cl.id, client: cl}
	}
	c.mu.Unlock()
	c.inbox.put(engine.Event{Kind: engine.EventAttach, Session: cl.id, Worker: cl.worker, Nonce: nonce})
}

// take is what an effect of the engine means for a client. Called by the owner of the engine only.
func (cl *client) take(f *engine.Effect) {
	switch f.Kind {
	case engine.EffectBlocks:
		cl.mu.Lock()
		cl.given = append(cl.given, f.Handouts...)
		cl.mu.Unlock()
	case engine.EffectDrain, engine.EffectStop:
		cl.mu.Lock()
		cl.noMore = true
		cl.mu.Unlock()
	case engine.EffectKillBlock:
		cl.drop(errors.New("its block was taken away: it had timed out, or the task has ended"))
		return
	case engine.EffectClose:
		cl.drop(errors.New(f.Text))
		return
	default: // a client knows nothing of acknowledgements, and has no block in stock that could be recalled
		return
	}
	select {
	case cl.wake <- struct{}{}:
	default:
	}
}

// Acquire implements daisywire.Blocks.
func (cl *client) Acquire(ctx context.Context) (daisywire.Grant, error) {
	if !cl.asked {
		cl.asked = true
		cl.asks++
		cl.c.work([]engine.Event{{Kind: engine.EventAcquire, Session: cl.id, Request: cl.asks, N: 1}})
	}
	for {
		cl.mu.Lock()
		given, noMore := cl.given, cl.noMore
		if len(given) > 0 {
			cl.given = nil
		}
		cl.mu.Unlock()
		switch {
		case len(given) > 0:
			cl.asked = false
			return cl.grant(&given[0]), nil
		case noMore:
			return daisywire.Grant{}, daisywire.ErrNoMore
		}
		select {
		case <-cl.wake:
		case <-ctx.Done():
			return daisywire.Grant{}, context.Cause(ctx)
		}
	}
}

func (cl *client) grant(h *scheduler.Handout) daisywire.Grant {
	grid := cl.c.pipeline.Tasks()[h.Task].Grid
	id, _ := grid.ID(h.Block) // the job was checked: all fit
	return daisywire.Grant{
		Lease: uint64(h.Lease), SpatialID: id, Read: grid.ReadRoi(h.Block), Write: grid.WriteRoi(h.Block),
		Timeout: time.Duration(cl.c.spec(h.Task).TimeoutSeconds * float64(time.Second)),
	}
}

// Release implements daisywire.Blocks.
func (cl *client) Release(e daisywire.End) {
	cl.seq++
	event := engine.Event{Kind: engine.EventRelease, Session: cl.id, Seq: cl.seq, Epoch: cl.c.epoch, Lease: scheduler.Lease(e.Lease), Use: useOf(&e)}
	switch e.Outcome {
	case daisywire.Succeeded:
		event.Outcome = scheduler.Success
	case daisywire.Broke:
		event.Outcome = scheduler.Failed
		message, tail := daisywire.Summary(e.Error)
		event.Failure = &engine.Failure{Message: message, Tail: tail}
	case daisywire.TimedOut:
		event.Outcome, cl.lost = scheduler.TimedOut, true
	case daisywire.Lost:
		event.Outcome, cl.lost = scheduler.Lost, true
		event.Failure = &engine.Failure{Message: "its client " + cl.worker + " ended the connection, or was dropped"}
	}
	cl.c.work([]engine.Event{event})
}

// Leave implements daisywire.Blocks: the end of the connection is that of the worker.
func (cl *client) Leave() {
	c := cl.c
	why := engine.LeaveDone
	if cl.lost {
		why = engine.LeaveLost
	}
	c.inbox.put(engine.Event{Kind: engine.EventLeaving, Session: cl.id, Leave: why})
	c.inbox.call(func() { // from here on the engine gives it nothing more
		cl.mu.Lock()
		defer cl.mu.Unlock()
		for _, h := range cl.given { // nobody has seen them
			cl.seq++
			c.inbox.put(engine.Event{Kind: engine.EventRelease, Session: cl.id, Seq: cl.seq, Epoch: c.epoch, Lease: h.Lease, Outcome: scheduler.Recalled})
		}
		cl.given = nil
		c.inbox.put(engine.Event{Kind: engine.EventDetach, Session: cl.id, Gone: true})
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sessions, cl.id)
	})
}

// useOf is what a client has measured, as far as it can be believed: a time that is no number, or longer than the client had the block, is
// none.
func useOf(e *daisywire.End) engine.Use {
	use := engine.Use{WallNanos: e.Took.Nanoseconds()}
	s := e.Stats
	if s == nil {
		return use
	}
	if wall := nanos(s.WallSeconds); wall > 0 {
		use.WallNanos = min(wall, use.WallNanos)
	}
	use.CPUNanos = nanos(s.CPUSeconds)
	use.PeakRSSBytes, use.ReadBytes, use.WrittenBytes = bytesOf(s.PeakRSSBytes), bytesOf(s.IOReadBytes), bytesOf(s.IOWriteBytes)
	use.GPU = engine.GPU(s.GPU())
	return use
}

// nanos is a number of seconds, 0 for what cannot be one.
func nanos(seconds float64) int64 {
	if !(seconds > 0 && seconds < 1e9) {
		return 0
	}
	return int64(math.Round(seconds * 1e9))
}

// bytesOf is a number of bytes, 0 for more than any machine has.
func bytesOf(n uint64) int64 {
	if n > 1<<60 {
		return 0
	}
	return int64(n)
}
