package coordinator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
)

// openPort listens where the job says, and writes the discovery file. Where other machines can come in, it speaks TLS.
func (c *Coordinator) openPort() error {
	j := c.cfg.Job
	tcp, err := c.sameAgain()
	if tcp == nil && err == nil {
		tcp, err = listenAs(j)
	}
	if err != nil {
		return err
	}
	where := rundir.Discovery{Epoch: c.epoch, Started: c.began, PID: os.Getpid()}
	where.Host, _ = os.Hostname() // a machine without a name has the name ""
	var secure *tls.Config
	bound := tcp.Addr().(*net.TCPAddr)
	if !bound.IP.IsLoopback() {
		if secure, where.Fingerprint, err = c.certified(); err != nil {
			_ = tcp.Close()
			return err
		}
	}
	c.listener = listenOn(tcp, secure)
	if forClients(j) {
		c.listener.daisy, c.listener.daisy1 = c.serveClient, c.meetDaisy1
	}
	c.listener.start()
	if c.cfg.RunDir == nil {
		return nil
	}
	if forClients(j) {
		if err := c.cfg.RunDir.WritePort(bound.Port); err != nil {
			_ = c.listener.Close()
			return err
		}
	}
	interfaces, err := netInterfaces()
	var reachable bool
	if err == nil {
		where.Addresses, reachable = addresses(j.Addresses, bound, where.Host, interfaces)
		err = c.cfg.RunDir.WriteDiscovery(where)
	}
	if err != nil {
		_ = c.listener.Close()
		return err
	}
	if !reachable {
		c.cfg.Notice(fmt.Sprintf("no network interface of this machine is up, so that workers on other machines have no way to it (it listens on %s); say how they reach it with the key addresses of [run]", bound))
	}
	return nil
}

// sameAgain opens the port of an earlier coordinator of the run, whose DAISY_CONTEXT may be in somebody's shell; nil if that cannot be, or
// need not.
func (c *Coordinator) sameAgain() (net.Listener, error) {
	j := c.cfg.Job
	if !c.cfg.Resume || !forClients(j) || j.PortHigh != 0 {
		return nil, nil
	}
	port, err := c.cfg.RunDir.Port()
	if err != nil || port == 0 {
		return nil, err
	}
	tcp, err := listenOnPort(j, port, port)
	if err != nil {
		c.cfg.Notice(fmt.Sprintf("port %d, on which the run was reached before, is another program's now: clients of daisy need the DAISY_CONTEXT that is told below", port))
		return nil, nil //nolint:nilerr // another port is as good
	}
	return tcp, nil
}

// listenAs opens the port that the coordinator of a job has.
func listenAs(j *job.Job) (net.Listener, error) { return listenOnPort(j, j.PortLow, j.PortHigh) }

func listenOnPort(j *job.Job, low, high int) (net.Listener, error) {
	host := j.Listen
	if host == "" {
		host = "127.0.0.1"
	}
	return bind(host, low, high)
}

// Reach opens the port that the coordinator of a job would have, and gives the addresses ("host:port") by which its workers would try to
// reach it, in their order: to try from another machine whether they can. The caller closes the port.
func Reach(j *job.Job) (tcp net.Listener, found []string, err error) {
	if tcp, err = listenAs(j); err != nil {
		return nil, nil, err
	}
	host, _ := os.Hostname()
	interfaces, err := netInterfaces()
	if err != nil {
		return nil, nil, errors.Join(err, tcp.Close())
	}
	found, _ = addresses(j.Addresses, tcp.Addr().(*net.TCPAddr), host, interfaces)
	return tcp, found, nil
}

// certified is TLS with the certificate of the run, and the fingerprint by which workers know it.
func (c *Coordinator) certified() (*tls.Config, string, error) {
	if c.cfg.RunDir == nil {
		return nil, "", errors.New("listening for other machines takes a run directory, which has the certificate and tells workers about it; listen on 127.0.0.1, or give one")
	}
	certificate, err := c.cfg.RunDir.Certificate()
	if err != nil {
		return nil, "", err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS13,
		// A worker connects rarely, and a ticket would let in whoever stole it without a look at the certificate.
		SessionTicketsDisabled: true,
	}, api.Fingerprint(certificate.Certificate[0]), nil
}

// handshake makes a connection one of TLS. It is closed if that fails.
func (l *listener) handshake(c *countedConn) (net.Conn, bool) {
	secure := tls.Server(c, l.tls)
	_ = c.SetDeadline(time.Now().Add(sniffTimeout))
	if err := secure.HandshakeContext(l.ctx); err != nil {
		_ = c.Close()
		return nil, false
	}
	_ = c.SetDeadline(time.Time{})
	return api.TLSConn{Conn: secure}, true
}

// underlying is the connection of the port below one that the HTTP server has accepted, nil for a pipe.
func underlying(conn any) *countedConn {
	switch conn := conn.(type) {
	case *countedConn:
		return conn
	case api.TLSConn:
		counted, _ := conn.NetConn().(*countedConn)
		return counted
	default:
		return nil
	}
}

// private answers plain HTTP only if it does not leave this machine.
func private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if plain, ok := r.Context().Value(connKey{}).(*countedConn); ok && !(loopback(plain.LocalAddr()) && loopback(plain.RemoteAddr())) {
			w.Header().Set("Upgrade", "TLS/1.3")
			turnAway(w, http.StatusUpgradeRequired, "tls", "plain HTTP is answered on loopback addresses only: use TLS, with the certificate whose SHA-256 is in discovery.json of the run directory")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback is true for what is no address of TCP, too: those are of this process.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
