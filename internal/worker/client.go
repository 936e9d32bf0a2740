package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/daisy/internal/wire"
)

const (
	// flushDelay is for how long a release may wait for company.
	flushDelay = time.Millisecond
	// saidAtOnce is how many successes go into one message.
	saidAtOnce = 256
	// closeTimeout is for how long the last words may take.
	closeTimeout = 2 * time.Second
)

// A Client speaks to the coordinator for all slots of a worker. Its methods may be called from several goroutines.
type Client struct {
	cfg   Config
	nonce uint64
	birth time.Time // of the worker's clock

	// heard is when the last frame came, answered when anybody at all answered (a refused connection too); on the worker's clock.
	heard, answered atomic.Int64

	looking  sync.Mutex
	lastLook look // guarded by looking

	life   context.Context // ends when the client ends
	end    context.CancelFunc
	owned  sync.WaitGroup
	ended  chan struct{} // closed when the connection will not come back
	gone   chan struct{} // closed when nothing is left to be delivered and the worker leaves
	places places        // of whoever makes connections
	runID  string

	mu       sync.Mutex
	worker   string // its id in the reports
	slots    int
	epoch    uint64
	patience patience
	away     time.Duration // how much longer to wait for the next coordinator with blocks that run, as this one has said
	freeAt   time.Duration // when the last of them ended, on the worker's clock
	tasks    map[uint32]*Task
	task     *Task

	link    *link // nil while there is no connection
	open    int   // requests of this connection without an answer
	request uint64
	waiting []*waiter
	queue   queue[*heldBlock] // handed out, not yet acquired by a slot
	batch   batch
	until   time.Duration // on the worker's clock, when its batch system ends it; 0 = not known, or never

	held    held
	seq     uint64
	unacked queue[undelivered] // in the order of their Seq
	unsaid  int                // how many at its end have not been queued to be sent yet: plain successes, which go together
	// successes is memory for the message of these.
	successes []wire.Ended

	leaving  bool
	reason   wire.LeaveReason
	farewell string
	settled  bool
	endsAt   time.Time // by the last word of its batch system; zero = none came
	failure  error     // why it ended, nil = told to or asked to

	flusher *time.Timer
	dirty   bool // a release waits for flusher
}

// patience is what the coordinator said about time.
type patience struct {
	heartbeat, abandon, hint, grace time.Duration
}

// An undelivered is a release that the coordinator has not acknowledged.
type undelivered struct {
	wire.Release
	held *heldBlock
}

// A waiter is a call of Acquire that waits.
type waiter struct {
	max   int
	got   []*heldBlock
	ready chan struct{}
}

// Connect joins the coordinator and opens the stream. Its error is an *ExitError.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, slots: cfg.Slots, nonce: rand.Uint64() | 1, birth: time.Now(),
		ended: make(chan struct{}), gone: make(chan struct{}),
		tasks: map[uint32]*Task{},
	}
	// The client outlives ctx, which bounds the first join only.
	c.life, c.end = context.WithCancel(context.Background())
	c.flusher = time.AfterFunc(time.Hour, c.flushLate)
	c.flusher.Stop()
	first, err := c.firstLink(ctx)
	if err != nil {
		c.end()
		return nil, err
	}
	c.runID = c.places.runID
	c.sayWhere()
	c.attach(first)
	c.lastLook = c.look()
	c.owned.Go(func() { c.serve(first) })
	c.owned.Go(c.beat)
	c.owned.Go(c.watchClock)
	return c, nil
}

// clock is the time since the client's birth; it never goes back.
func (c *Client) clock() time.Duration { return time.Since(c.birth) }

// WorkerID is the worker's name in the reports.
func (c *Client) WorkerID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.worker
}

// Slots is how many blocks it may run at once.
func (c *Client) Slots() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots
}

// RunID is the run's id.
func (c *Client) RunID() string { return c.runID }

// Task is what the worker serves now; a reassignment changes it.
func (c *Client) Task() *Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.task
}

// Grace is how long running blocks get when they are to be stopped.
func (c *Client) Grace() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.patience.grace
}

// Ended is closed when the client has lost its coordinator for good; Err says why.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// Err is why the client ended: nil if it was told to leave, else an *ExitError.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Acquire waits for 1 to max blocks. It gives ErrNoMore once the worker leaves, an *ExitError when the coordinator is gone,
// and the context's cause when ctx ends. A block that was acquired counts as started.
func (c *Client) Acquire(ctx context.Context, max int) ([]Block, error) {
	got, _, err := c.take(ctx, max, nil)
	if err != nil {
		return nil, err
	}
	blocks := make([]Block, len(got))
	for i, h := range got {
		blocks[i] = h.block()
	}
	return blocks, nil
}

// take is Acquire, in the memory of into if that suffices. atOnce: it did not wait.
func (c *Client) take(ctx context.Context, max int, into []*heldBlock) (got []*heldBlock, atOnce bool, err error) {
	if max < 1 {
		return nil, false, fmt.Errorf("acquire %d blocks: at least 1 is needed", max)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	if err := c.noMoreLocked(); err != nil {
		c.mu.Unlock()
		return nil, false, err
	}
	if c.queue.len() > 0 && c.tooLateLocked() {
		l := c.saidLocked()
		c.mu.Unlock()
		l.flush()
		return nil, false, ErrNoMore
	}
	if c.queue.len() > 0 {
		got = c.takeLocked(max, into)
		var flush *link
		if !c.batch.tiny() { // else the timer or the next request takes the release along
			flush = c.saidLocked()
			c.dirty = false
		}
		c.mu.Unlock()
		flush.flush()
		return got, true, nil
	}
	w := &waiter{max: max, ready: make(chan struct{})}
	c.waiting = append(c.waiting, w)
	c.askLocked()
	c.dirty = false
	l := c.saidLocked()
	c.mu.Unlock()
	l.flush()

	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(w.got) > 0 {
		return w.got, false, nil // also when ctx has ended: they are started now, and the caller releases them
	}
	for i, other := range c.waiting {
		if other == w {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			break
		}
	}
	if err := c.noMoreLocked(); err != nil {
		return nil, false, err
	}
	return nil, false, context.Cause(ctx)
}

// noMoreLocked is why there are no more blocks, nil while there may be.
func (c *Client) noMoreLocked() error {
	switch {
	case c.failure != nil:
		return c.failure
	case c.leaving || c.life.Err() != nil:
		return ErrNoMore
	default:
		return nil
	}
}

// takeLocked takes up to max blocks from the queue, first come first.
func (c *Client) takeLocked(max int, into []*heldBlock) []*heldBlock {
	n := min(max, c.queue.len())
	got := append(into[:0], c.queue.list()[:n]...)
	c.queue.drop(n)
	for _, h := range got {
		h.taken = true
	}
	return got
}

// askLocked sends a request for each waiter that has none.
func (c *Client) askLocked() {
	if c.link == nil || c.leaving {
		return
	}
	for ; c.open < len(c.waiting); c.open++ {
		c.request++
		n := c.batch.next()
		if c.cfg.Batch > 0 {
			n = min(n, c.cfg.Batch)
		}
		m := wire.Acquire{Request: c.request, Max: uint32(max(n, c.waiting[c.open].max))}
		c.queueLocked(func(dst []byte) []byte { return wire.AppendAcquire(dst, m) })
	}
}

// queueLocked has a frame sent with the next flush, after the results before it. There must be a connection; one that fails is replaced, and
// all that counts is said again.
func (c *Client) queueLocked(frame func(dst []byte) []byte) {
	_ = c.saidLocked().out.Queue(frame)
}

// saidLocked has all results queued, and gives the connection, nil if there is none.
func (c *Client) saidLocked() *link {
	n := min(c.unsaid, c.unacked.len())
	if c.unsaid = 0; n == 0 || c.link == nil {
		return c.link
	}
	results := c.unacked.list()[c.unacked.len()-n:]
	_ = c.link.out.Queue(func(dst []byte) []byte {
		if n == 1 {
			return wire.AppendRelease(dst, results[0].Release)
		}
		m := wire.Successes{Seq: results[0].Seq, Epoch: results[0].Epoch, Ended: c.successes[:0]}
		for i := range results {
			m.Ended = append(m.Ended, wire.Ended{Lease: results[i].Lease, WallNanos: results[i].WallNanos})
		}
		c.successes = m.Ended
		return wire.AppendSuccesses(dst, m)
	})
	return c.link
}

// Release gives a block back with its result, which is sent until it is acknowledged. It leaves together with the next
// Acquire, at the latest after a millisecond. It gives ErrReclaimed for a block that is no longer the worker's own.
func (c *Client) Release(b Block, r Result) error { return c.giveBack(b.held, &r) }

func (c *Client) giveBack(h *heldBlock, r *Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.at < 0 {
		return ErrReclaimed
	}
	if r.Outcome != wire.Recalled && r.Wall > 0 {
		c.batch.took(r.Wall)
	}
	c.releaseLocked(h, r)
	if !c.dirty {
		c.dirty = true
		c.flusher.Reset(flushDelay)
	}
	return nil
}

// recalled is the result of a block that nobody here has begun.
var recalled = Result{Outcome: wire.Recalled}

func (c *Client) releaseLocked(h *heldBlock, r *Result) {
	c.held.remove(h)
	if c.away > 0 && len(c.held) == 0 {
		c.freeAt = c.clock()
	}
	c.seq++
	m := wire.Release{
		Seq: c.seq, Epoch: h.now.epoch, Lease: h.now.lease, Outcome: r.Outcome,
		WallNanos: int64(r.Wall), CPUNanos: int64(r.CPU), PeakRSSBytes: r.PeakRSSBytes, Message: r.Message, Tail: r.Tail,
		ReadBytes: r.IO.ReadBytes, WrittenBytes: r.IO.WrittenBytes, GPU: r.GPU,
	}
	plain := m == wire.Release{Seq: m.Seq, Epoch: c.epoch, Lease: m.Lease, Outcome: wire.Success, WallNanos: m.WallNanos}
	switch {
	case c.link == nil:
	case !plain:
		c.queueLocked(func(dst []byte) []byte { return wire.AppendRelease(dst, m) })
	case c.unsaid == saidAtOnce:
		c.saidLocked()
		fallthrough
	default:
		c.unsaid++
	}
	c.unacked.add(undelivered{m, h})
}

// flushLate sends what has waited for company in vain.
func (c *Client) flushLate() {
	c.mu.Lock()
	l := c.saidLocked()
	c.dirty = false
	c.mu.Unlock()
	l.flush()
}

// Leave ends acquiring: waiting calls get ErrNoMore, blocks that no slot has yet are given back, and the coordinator is
// told why. The first call counts.
func (c *Client) Leave(reason wire.LeaveReason, message string) {
	c.mu.Lock()
	c.leaveLocked(reason, message)
	l := c.saidLocked()
	c.mu.Unlock()
	l.flush()
}

// EndsSoon tells the coordinator when the worker's batch system will end it, so that it is given nothing that does not fit.
func (c *Client) EndsSoon(at time.Time) {
	c.mu.Lock()
	c.endsAt = at
	c.sayEndLocked()
	l := c.saidLocked()
	c.mu.Unlock()
	l.flush()
}

func (c *Client) sayEndLocked() {
	if c.link != nil && !c.endsAt.IsZero() {
		m := wire.Ending{LeftNanos: int64(max(time.Until(c.endsAt), 0))}
		c.queueLocked(func(dst []byte) []byte { return wire.AppendEnding(dst, m) })
	}
}

func (c *Client) leaveLocked(reason wire.LeaveReason, message string) {
	if c.leaving {
		return
	}
	c.leaving, c.reason, c.farewell = true, reason, message
	c.sayLeavingLocked()
	for _, h := range c.queue.list() {
		c.releaseLocked(h, &recalled)
	}
	c.queue.drop(c.queue.len())
	c.wakeLocked()
	c.settleLocked()
}

func (c *Client) sayLeavingLocked() {
	if c.link != nil {
		m := wire.Leaving{Reason: c.reason, Message: c.farewell}
		c.queueLocked(func(dst []byte) []byte { return wire.AppendLeaving(dst, m) })
	}
}

// wakeLocked ends every wait for blocks.
func (c *Client) wakeLocked() {
	for _, w := range c.waiting {
		close(w.ready)
	}
	c.waiting = nil
}

// settleLocked notices that the worker leaves and has nothing left to deliver.
func (c *Client) settleLocked() {
	if c.leaving && !c.settled && len(c.held) == 0 && c.unacked.len() == 0 {
		c.settled = true
		close(c.gone)
	}
}

// Close leaves if that has not happened, waits until every block is released and every release acknowledged, until the
// coordinator is given up, or until ctx ends, and ends the connection. Results that could not be delivered are left in the
// outbox of the run directory; the error says so. Blocks that are still held are forgotten.
func (c *Client) Close(ctx context.Context) error {
	c.Leave(wire.LeaveDone, "")
	c.mu.Lock()
	c.settleLocked() // blocks may have gone since
	c.mu.Unlock()
	select {
	case <-c.gone:
	case <-c.ended:
	case <-ctx.Done():
	}
	c.end()
	c.mu.Lock()
	l := c.saidLocked()
	c.mu.Unlock()
	l.close()
	c.owned.Wait()
	c.flusher.Stop()
	return c.leaveInOutbox()
}

// fail ends the client for good; with nil because the run is over.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.leaving = true
	c.wakeLocked()
	lost := c.forgetLocked(func(leaseKey) bool { return true })
	c.mu.Unlock()
	c.kill(lost)
}

// forgetLocked takes away the leases that match, and gives those that slots have.
func (c *Client) forgetLocked(match func(leaseKey) bool) []Block {
	var taken []Block
	for i := len(c.held) - 1; i >= 0; i-- { // removing moves only those that were looked at
		if h := c.held[i]; match(h.now) {
			c.held.remove(h)
			if h.taken {
				taken = append(taken, h.block())
			}
		}
	}
	c.queue.keep(slices.DeleteFunc(c.queue.list(), func(h *heldBlock) bool { return h.at < 0 }))
	c.settleLocked()
	return taken
}

func (c *Client) kill(blocks []Block) {
	if c.cfg.OnKill == nil {
		return
	}
	for _, b := range blocks {
		c.cfg.OnKill(b)
	}
}

// logf writes a line of the worker's own to its log.
func (c *Client) logf(format string, args ...any) {
	fmt.Fprintf(c.cfg.Log, "[worker] "+format+"\n", args...)
}

// beat says at every interval that the worker lives, and gives up a connection over which nothing comes.
func (c *Client) beat() {
	for {
		c.mu.Lock()
		every := c.patience.heartbeat
		// One that is taken over while it is stopped says nothing and closes nothing: there has to be time left to look for the next.
		silence := min(3*every, c.patience.abandon/2)
		c.mu.Unlock()
		timer := time.NewTimer(every)
		select {
		case <-c.life.Done():
			timer.Stop()
			return
		case <-c.ended:
			timer.Stop()
			return
		case <-timer.C:
		}
		c.mu.Lock()
		l := c.link
		c.mu.Unlock()
		if l == nil {
			continue
		}
		c.lookAtClock()
		if silent := c.clock() - time.Duration(c.heard.Load()); silent > silence {
			c.logf("nothing has come from the coordinator for %v: connecting again", silent.Round(time.Millisecond))
			l.conn.Close()
			continue
		}
		_ = l.out.Send(wire.AppendHeartbeat) // a failed connection ends its reader
	}
}

// A link is one connection.
type link struct {
	conn net.Conn
	in   *wire.Reader
	out  *wire.Writer
}

func (l *link) flush() {
	if l != nil {
		l.out.Flush()
	}
}

// close writes what is queued and ends the connection.
func (l *link) close() {
	if l != nil {
		_ = l.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
		_ = l.out.Close() // whoever is gone does not miss it
		l.conn.Close()
	}
}
