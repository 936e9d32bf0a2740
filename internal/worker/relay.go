package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"example.org/daisy/internal/daisywire"
)

// A relay is a server of daisy 2 for the clients of one process: on the loopback interface, at a port of its own, and for nobody
// else. It has one block at a time, which goes to whoever has asked first; all others wait.
type relay struct {
	task     string
	listener *net.TCPListener
	offers   chan daisywire.Grant // received by the client that gets the block
	ends     chan relayEnd        // of the block that a client has got
	dropped  chan error           // why a client's connection was
	finished chan struct{}        // closed when there are no more blocks
	finish   sync.Once
	life     context.Context
	end      context.CancelFunc
	owned    sync.WaitGroup
}

func newRelay(task string) (*relay, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listen for the clients of a daisy worker: %w", err)
	}
	r := &relay{
		task: task, listener: l, offers: make(chan daisywire.Grant), ends: make(chan relayEnd, 1), dropped: make(chan error, 1),
		finished: make(chan struct{}),
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// variable is the entry of the environment by which clients find the relay. worker is their number in daisy's eyes.
func (r *relay) variable(worker string, measure bool) string {
	host, port, _ := net.SplitHostPort(r.listener.Addr().String()) // an address of TCP has both
	return daisywire.Variable + "=" + daisywire.ContextOf(host, port, r.task, worker, measure).String()
}

// serve takes connections until close. check says why one is none of the process's.
func (r *relay) serve(check func(net.Conn) error, logf func(string, ...any)) {
	r.owned.Go(func() {
		for {
			conn, err := r.listener.AcceptTCP()
			if err != nil {
				if r.life.Err() == nil {
					r.drop(fmt.Errorf("no more connections can be taken: %w", err))
				}
				return
			}
			if err := check(conn); err != nil {
				logf("a connection from %v to a daisy worker's port is refused: %v", conn.RemoteAddr(), err)
				conn.Close()
				continue
			}
			r.owned.Go(func() {
				c := &relayConn{TCPConn: conn, relay: r}
				if err := daisywire.Serve(r.life, c, c); err != nil && r.life.Err() == nil {
					r.drop(err)
				}
			})
		}
	})
}

// drop keeps the first reason.
func (r *relay) drop(why error) {
	select {
	case r.dropped <- why:
	default:
	}
}

// A relayEnd is the end of a block; unread: nobody has ever read that it was there.
type relayEnd struct {
	daisywire.End
	unread bool
}

// A relayConn is a connection of a client.
type relayConn struct {
	*net.TCPConn
	relay *relay
	// unread: the client has closed it with something unread. Blocks are all that it is sent, one at a time.
	unread atomic.Bool
	// sending orders writing and closing: when it is closed, the kernel has said what became of what was written.
	sending sync.Mutex
}

func (c *relayConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		c.unread.Store(true)
	}
	return n, err
}

func (c *relayConn) Write(b []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	n, err := c.TCPConn.Write(b)
	if err != nil {
		c.unread.Store(true)
	}
	return n, err
}

// Close asks first whether what was written met a client that had closed it: then the kernel has answered with a reset.
func (c *relayConn) Close() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // an error: it is closed
			if n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); err == nil && n != 0 {
				c.unread.Store(true)
			}
		})
	}
	return c.TCPConn.Close()
}

// Join is daisywire.Server.
func (c *relayConn) Join(_ context.Context, who daisywire.Client) (daisywire.Blocks, error) {
	if own := c.relay.task; who.Task != own {
		return nil, fmt.Errorf("it asks for blocks of task %q, and it was started for task %q, which DAISY_CONTEXT says too", who.Task, own)
	}
	return c, nil
}

// Acquire is daisywire.Blocks.
func (c *relayConn) Acquire(ctx context.Context) (daisywire.Grant, error) {
	select {
	case g := <-c.relay.offers:
		return g, nil
	case <-c.relay.finished:
		return daisywire.Grant{}, daisywire.ErrNoMore
	case <-ctx.Done():
		return daisywire.Grant{}, context.Cause(ctx)
	}
}

// Release is daisywire.Blocks.
func (c *relayConn) Release(e daisywire.End) {
	c.relay.ends <- relayEnd{e, e.Outcome == daisywire.Lost && c.unread.Load()}
}

// Leave is daisywire.Blocks.
func (c *relayConn) Leave() {}

// noMore tells clients that ask, now or later, that there are no more blocks.
func (r *relay) noMore() { r.finish.Do(func() { close(r.finished) }) }

// close ends all connections. No exchange goes on.
func (r *relay) close() {
	r.end()
	r.listener.Close()
	r.owned.Wait()
}

// grantOf is the block as a client gets it. It is told no timeout: its process is ended from outside, as that of every runner.
func grantOf(b *Block) daisywire.Grant {
	return daisywire.Grant{SpatialID: b.ID, Read: b.Read, Write: b.Write}
}

// errNoID is for a block that no client of daisy can be told of.
var errNoID = errors.New("daisy's number of the block has more than 64 bits, which its clients cannot hold")
