package coordinator

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/daisy/internal/wire"
)

const (
	// sniffTimeout is how long a new connection may take to send its first byte.
	sniffTimeout = 10 * time.Second
	// maxStrangers is how many TCP connections there may be that have not shown the secret, so that nobody can use up the
	// descriptors of this process without it.
	maxStrangers = 64
	// roomWithin is how long one more waits to be let in: hundreds of workers that start together are let in at the rate at
	// which their requests are checked, which takes less.
	roomWithin = 100 * time.Millisecond
	// tlsHandshake is the first byte of TLS: the type of its first record.
	tlsHandshake = 0x16
)

// listener is the one way in: connections from the TCP port and pipes of workers in this process. It looks at the first
// byte of each TCP connection: HTTP goes on, TLS too if there is a certificate, 0x00 (a frame of daisy) if there is somebody for it,
// anything else is closed.
type listener struct {
	tcp    net.Listener
	tls    *tls.Config // nil: no TLS
	conns  chan net.Conn
	ctx    context.Context // done once the listener is closed
	cancel context.CancelFunc
	sniffs sync.WaitGroup
	// strangers has one for each TCP connection that has not shown the secret.
	strangers chan struct{}
	// daisy, if not nil, serves clients of daisy of this machine and user until they end.
	daisy func(net.Conn)
	// daisy1 is told of a client of daisy 1.x.
	daisy1  func()
	quiet   quietConns
	in, out atomic.Int64 // bytes
}

// alike are errors of one operation without those whose cause has been said.
func alike(errs []error) error {
	var said []syscall.Errno
	var list []error
	for _, err := range errs {
		var cause syscall.Errno
		if errors.As(err, &cause) && slices.Contains(said, cause) {
			continue
		}
		said, list = append(said, cause), append(list, err)
	}
	return errors.Join(list...)
}

// bind opens the port. low..high are the ports to try, 0 = any free one.
func bind(host string, low, high int) (net.Listener, error) {
	var errs []error
	for port := low; port <= max(low, high); port++ {
		tcp, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return tcp, nil
		}
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			return nil, fmt.Errorf("cannot listen on %s: no network interface of this machine has that address (give another one with the key listen of [run], \"0.0.0.0\" for all): %w", host, err)
		}
		errs = append(errs, err)
	}
	ports := fmt.Sprintf("port %d", low)
	if high > low {
		ports = fmt.Sprintf("any port from %d to %d", low, high)
	}
	return nil, fmt.Errorf("cannot listen on %s, %s (give other ports with the key port of [run]): %w", host, ports, alike(errs))
}

// listenOn takes connections from an open port, with TLS unless config is nil, once it is started.
func listenOn(tcp net.Listener, config *tls.Config) *listener {
	l := listenInside()
	l.tcp, l.tls = tcp, config
	return l
}

func (l *listener) start() { l.sniffs.Go(l.accept) }

// listenInside makes a listener that only dial reaches.
func listenInside() *listener {
	l := &listener{conns: make(chan net.Conn), strangers: make(chan struct{}, maxStrangers)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *listener) accept() {
	var pause time.Duration
	for {
		c, err := l.tcp.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Too many open files, or the like: wait for it to get better.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
				continue
			case <-l.ctx.Done():
				return
			}
		}
		pause = 0
		if l.daisy != nil && loopback(c.RemoteAddr()) && loopback(c.LocalAddr()) {
			l.sniffs.Go(func() { l.sniffClient(c) })
			continue
		}
		if !l.hasRoom() {
			_ = c.Close()
			continue
		}
		l.sniffs.Go(func() { l.sniff(c) })
	}
}

// hasRoom waits for a place among those who have not shown the secret.
func (l *listener) hasRoom() bool {
	select {
	case l.strangers <- struct{}{}:
		return true
	case <-l.ctx.Done():
		return false
	case <-time.After(roomWithin):
		return false
	}
}

// sniff decides by the first byte what a connection is.
func (l *listener) sniff(c net.Conn) {
	counted := &countedConn{Conn: c, l: l, r: bufio.NewReaderSize(c, 4096)}
	stop := context.AfterFunc(l.ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(sniffTimeout))
	l.letIn(counted)
}

// letIn takes a connection to whom its first byte is for.
func (l *listener) letIn(counted *countedConn) {
	c := counted.Conn
	first, err := counted.r.Peek(1)
	var conn net.Conn = counted
	switch {
	case err == nil && first[0] >= 'A' && first[0] <= 'Z':
		_ = c.SetReadDeadline(time.Time{})
	case err == nil && first[0] == tlsHandshake && l.tls != nil:
		var ok bool
		if conn, ok = l.handshake(counted); !ok {
			return
		}
	default:
		_ = counted.Close()
		return
	}
	select {
	case l.conns <- conn:
	case <-l.ctx.Done():
		_ = conn.Close()
	}
}

// dial is the way in for workers of this process.
func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := wire.Pipe()
	select {
	case l.conns <- ours:
		return theirs, nil
	case <-l.ctx.Done():
		return nil, errors.New("the run is over")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener for the HTTP server.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.cancel()
	var err error
	if l.tcp != nil {
		err = l.tcp.Close()
	}
	l.sniffs.Wait()
	return err
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr {
	if l.tcp != nil {
		return l.tcp.Addr()
	}
	return inside{}
}

type inside struct{}

func (inside) Network() string { return "pipe" }
func (inside) String() string  { return "in this process" }

// countedConn counts bytes and gives the sniffed byte back.
type countedConn struct {
	net.Conn
	l *listener
	r *bufio.Reader // nil once it is empty
	// sink, if not nil, takes what TLS writes: of a session, which waits for no peer.
	sink atomic.Pointer[wire.Writer]
	// told: it is no longer among the strangers.
	told atomic.Bool
}

// known takes it from among the strangers: its peer has shown the secret, or it has ended.
func (c *countedConn) known() {
	if !c.told.Swap(true) {
		<-c.l.strangers
	}
}

func (c *countedConn) Close() error {
	c.known()
	return c.Conn.Close()
}

func (c *countedConn) Read(p []byte) (int, error) {
	if c.r != nil {
		if c.r.Buffered() > 0 {
			n, err := c.r.Read(p[:min(len(p), c.r.Buffered())])
			c.l.in.Add(int64(n))
			return n, err
		}
		c.r = nil
	}
	n, err := c.Conn.Read(p)
	c.l.in.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	to := io.Writer(c.Conn)
	if sink := c.sink.Load(); sink != nil {
		to = sink
	}
	n, err := to.Write(p)
	c.l.out.Add(int64(n))
	return n, err
}
