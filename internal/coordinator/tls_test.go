package coordinator

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/testenv"
	"example.org/daisy/internal/wire"
	"example.org/daisy/internal/worker"
)

// ownAddress is one of this machine under which others reach it.
func ownAddress(t *testing.T) string {
	t.Helper()
	interfaces, err := netInterfaces()
	if err != nil {
		t.Fatal(err)
	}
	ips := plausible(interfaces)
	if len(ips) == 0 {
		testenv.Unavailable(t, "this machine has only loopback addresses, so that listening for other machines is not tested")
	}
	return ips[0].String()
}

// newListening is a coordinator with a run directory, that listens there.
func newListening(t *testing.T, host string) (*Coordinator, *rundir.Dir, rundir.Discovery) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	c := listening(t, dir, Config{}, host)
	where, err := rundir.ReadDiscovery(dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	return c, dir, where
}

func listening(t *testing.T, dir *rundir.Dir, cfg Config, host string) *Coordinator {
	t.Helper()
	cfg.Job, cfg.RunDir, cfg.Listen, cfg.Unlimited = benchJob(t, 3, ""), dir, true, true
	cfg.Job.Listen = host
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAWorkerJoinsOverTLSWhereOtherMachinesCanComeIn(t *testing.T) {
	host := ownAddress(t)
	c, dir, where := newListening(t, host)
	if len(where.Fingerprint) != 64 || len(where.Addresses) != 1 || where.Addresses[0] != c.Addr().String() || !strings.HasPrefix(c.Addr().String(), net.JoinHostPort(host, "")) {
		t.Errorf("discovery: %+v, want a fingerprint and the address %s", where, host)
	}
	worked := make(chan error, 1)
	go func() {
		worked <- worker.Run(t.Context(), worker.Config{
			RunDir: dir.Path(), Identity: worker.Identity{Name: "w"},
			Funcs: map[string]worker.Func{"noop": func(context.Context, *worker.Block) error { return nil }},
		})
	}()
	result, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-worked; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	if task := result.Stats.Tasks[0]; task.Success != task.Blocks {
		t.Errorf("%d of %d blocks succeeded: %s", task.Success, task.Blocks, result.Reason)
	}
}

// plain asks without TLS and without a proof.
func plain(t *testing.T, address string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + api.PathStream)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestPlainHTTPIsAnsweredOnLoopbackOnly(t *testing.T) {
	host := ownAddress(t)
	c, _, where := newListening(t, "0.0.0.0")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Run(t.Context())
	}()
	_, port, err := net.SplitHostPort(c.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	outside, loop := net.JoinHostPort(host, port), net.JoinHostPort("127.0.0.1", port)
	if status, text := plain(t, outside); status != http.StatusUpgradeRequired || !strings.Contains(text, "use TLS, with the certificate whose SHA-256 is in discovery.json") {
		t.Errorf("%s answers %d: %s", outside, status, text)
	}
	if status, text := plain(t, loop); status != http.StatusUnauthorized {
		t.Errorf("%s answers %d: %s", loop, status, text)
	}
	for _, address := range []string{outside, loop} {
		conn, err := api.Dial(t.Context(), address, where.Fingerprint, time.Minute)
		if err != nil {
			t.Errorf("TLS with %s: %v", address, err)
			continue
		}
		conn.Close()
	}
	var state api.State
	client := api.Client{Key: c.key(), Addresses: []string{outside}, Fingerprint: where.Fingerprint}
	if err := client.Get(t.Context(), api.PathState, nil, &state); err != nil {
		t.Errorf("the control interface over TLS: %v", err)
	}
	client.Fingerprint = strings.Repeat("0", 64)
	if err := client.Get(t.Context(), api.PathState, nil, &state); !errors.As(err, new(*api.StrangerError)) {
		t.Errorf("with another fingerprint: %v, want a stranger", err)
	}
	c.Stop(engine.StopNow, "enough")
	<-ended
}

func TestAResumedRunHasTheSameCertificate(t *testing.T) {
	c, dir, first := newListening(t, "0.0.0.0")
	c.Stop(engine.StopNow, "enough")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir, err := rundir.Open(dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	again := listening(t, dir, Config{Resume: true}, "0.0.0.0")
	second, err := rundir.ReadDiscovery(dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	if second.Epoch != first.Epoch+1 || second.Fingerprint != first.Fingerprint || second.Fingerprint == "" {
		t.Errorf("epoch %d has the fingerprint %q, epoch %d had %q", second.Epoch, second.Fingerprint, first.Epoch, first.Fingerprint)
	}
	again.Stop(engine.StopNow, "enough")
	if _, err := again.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOnLoopbackThereIsNoCertificate(t *testing.T) {
	c, dir, where := newListening(t, "localhost")
	c.Stop(engine.StopNow, "enough")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir.Path() + "/certificate.pem"); where.Fingerprint != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("fingerprint %q, file: %v", where.Fingerprint, err)
	}
}

func TestListeningForOthersTakesARunDirectoryAndAnAddressOfThisMachine(t *testing.T) {
	for host, want := range map[string]string{"0.0.0.0": "takes a run directory", "192.0.2.254": "no network interface of this machine has that address"} {
		j := benchJob(t, 1, "")
		j.Listen = host
		if _, err := New(Config{Job: j, Listen: true, Unlimited: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen on %s: got %v, want %q", host, err, want)
		}
	}
}

// secured gives the run in a bubble a port that speaks TLS.
func secured(t *testing.T, c *Coordinator) (*pipePort, string) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.RunDir = dir
	var fingerprint string
	if c.listener.tls, fingerprint, err = c.certified(); err != nil {
		t.Fatal(err)
	}
	c.cfg.RunDir = nil
	return openPort(t, c.listener), fingerprint
}

// insecure is a client of TLS that trusts anybody.
func insecure(conn net.Conn, change func(*tls.Config)) *tls.Conn {
	config := &tls.Config{InsecureSkipVerify: true}
	if change != nil {
		change(config)
	}
	return tls.Client(conn, config)
}

func TestNoOlderTLSAndNoResumptionOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		port, _ := secured(t, c)
		go func() { _ = c.http.Serve(c.listener) }()
		t.Cleanup(func() { _ = c.http.Close() })
		old := insecure(port.dial(t), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
		if err := old.HandshakeContext(t.Context()); err == nil {
			t.Error("TLS 1.2 was taken")
		}
		cache := tls.NewLRUClientSessionCache(8)
		for range 2 {
			conn := insecure(port.dial(t), func(c *tls.Config) { c.ClientSessionCache, c.ServerName = cache, "daisy" })
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: daisy\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusNotFound {
				t.Errorf("%v, %v", resp, err)
			}
			if s := conn.ConnectionState(); s.DidResume || s.Version != tls.VersionTLS13 {
				t.Errorf("resumed: %v, version %x", s.DidResume, s.Version)
			}
			_ = conn.NetConn().Close()
		}
		if _, has := cache.Get("daisy"); has {
			t.Error("the client was given a ticket")
		}
	})
}

func TestWhoDoesNotEndTheHandshakeHasHisTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		port, _ := secured(t, c)
		conn := port.dial(t)
		if _, err := conn.Write([]byte{0x16, 3, 1, 0, 200}); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, conn, sniffTimeout)
		synctest.Wait()
		if n := len(c.listener.strangers); n != 0 {
			t.Errorf("%d are still among the strangers", n)
		}
	})
}

func TestAnAnswerOverTLSMayTakeLongerThanTheHandshakeMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1)) // whose loop does not run, so that a join is not answered
		port, _ := secured(t, c)
		go func() { _ = c.http.Serve(c.listener) }()
		t.Cleanup(func() { _ = c.http.Close() })
		resp := overTLS(t, c, insecure(port.dial(t), nil), http.MethodPost, api.PathJoin, joinOf("w"))
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("got %s, want that it is busy", resp.Status)
		}
	})
}

// A tapped connection counts what is written to it and read from it.
type tapped struct {
	net.Conn
	in, out atomic.Int64
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.in.Add(int64(n))
	return n, err
}

func (c *tapped) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.out.Add(int64(n))
	return n, err
}

func joinOf(name string) []byte {
	return encode(api.JoinRequest{Protocol: wire.Version, Name: name, Nonce: 1, Slots: 1})
}

// overTLS sends a worker's request and gives the answer.
func overTLS(t *testing.T, c *Coordinator, conn *tls.Conn, method, path string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, "http://daisy"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Upgrade", api.Upgrade)
	c.key().SignRequest(req, body)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// secureStream joins, opens a stream over TLS and says hello.
func secureStream(t *testing.T, c *Coordinator, port *pipePort, name string) (*tls.Conn, *tapped) {
	t.Helper()
	var taps tapped
	taps.Conn = port.dial(t)
	resp := overTLS(t, c, insecure(&taps, nil), http.MethodPost, api.PathJoin, joinOf(name))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("join: %s", resp.Status)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = taps.Close()
	taps.Conn = port.dial(t)
	conn := insecure(&taps, nil)
	if resp := overTLS(t, c, conn, http.MethodGet, api.PathStream, nil); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("stream: %s", resp.Status)
	}
	if _, err := conn.Write(wire.AppendHello(nil, wire.Hello{Worker: name, Nonce: 1, Epoch: c.epoch})); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := wire.NewReader(conn).Next(); err != nil || kind != wire.KindWelcome {
		t.Fatalf("%v, %v, want a welcome", kind, err)
	}
	return conn, &taps
}

func TestTheBytesOfTLSAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		port, _ := secured(t, c)
		go func() { _ = c.http.Serve(c.listener) }()
		t.Cleanup(func() { _ = c.http.Close() })
		loops(t, c)
		conn, taps := secureStream(t, c, port, "w")
		if _, err := conn.Write(wire.AppendAcquire(nil, wire.Acquire{Request: 1, Max: 1})); err != nil {
			t.Fatal(err)
		}
		if kind, _, err := wire.NewReader(conn).Next(); err != nil || kind != wire.KindBlocks {
			t.Fatalf("%v, %v, want blocks", kind, err)
		}
		_ = taps.Close()
		time.Sleep(time.Second) // no heartbeat comes so soon
		synctest.Wait()
		if in, out := c.listener.in.Load(), c.listener.out.Load(); in != taps.out.Load() || out != taps.in.Load() {
			t.Errorf("counted %d in and %d out; the worker wrote %d and read %d", in, out, taps.out.Load(), taps.in.Load())
		}
	})
}

// That nothing of it goes on, the end of the bubble checks.
func TestAWorkerThatDoesNotReadItsTLSIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		port, _ := secured(t, c)
		go func() { _ = c.http.Serve(c.listener) }()
		t.Cleanup(func() { _ = c.http.Close() })
		loops(t, c)
		_, _ = secureStream(t, c, port, "w")
		s := c.session(1)
		began := time.Now()
		if err := s.w.Send(wire.AppendHeartbeat); err != nil { // which a pipe does not take
			t.Fatal(err)
		}
		_ = s.w.Close()
		if d := time.Since(began); d > wire.WriteTimeout || d < wire.WriteTimeout/2 {
			t.Errorf("after %v, want about %v", d, wire.WriteTimeout)
		}
		synctest.Wait()
		if c.session(1) != nil {
			t.Error("the session goes on")
		}
	})
}

func TestClosingASecureConnectionWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		port, _ := secured(t, c)
		go func() { _ = c.http.Serve(c.listener) }()
		t.Cleanup(func() { _ = c.http.Close() })
		loops(t, c)
		_, _ = secureStream(t, c, port, "w") // which reads no more
		synctest.Wait()                      // until what it has read is known to be written
		began := time.Now()
		_ = c.session(1).conn.Close()
		wantAtOnce(t, "the end of the connection", began)
	})
}

func FuzzFirstBytes(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), true)
	f.Add([]byte("POST"), false)
	f.Add([]byte{0, 0, 0, 5, 1, 2}, true)
	f.Add([]byte{0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3}, true)
	f.Add([]byte{0x16, 3, 1, 255, 255}, true)
	f.Add([]byte{0x16, 3, 1}, false)
	f.Add([]byte{}, true)
	dir, err := rundir.Create(f.TempDir(), "line", "")
	if err != nil {
		f.Fatal(err)
	}
	config, _, err := (&Coordinator{cfg: Config{RunDir: dir}}).certified()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent []byte, withTLS bool) {
		synctest.Test(t, func(t *testing.T) {
			l := listenInside()
			if withTLS {
				l.tls = config
			}
			conn := openPort(t, l).dial(t)
			go func() {
				_, _ = conn.Write(sent)
				_, _ = io.Copy(io.Discard, conn) // an alert, if it comes to that
			}()
			// Longer than anybody is listened to who says nothing.
			defer time.AfterFunc(2*sniffTimeout, func() { _ = l.Close() }).Stop()
			accepted, err := l.Accept()
			isHTTP := len(sent) > 0 && sent[0] >= 'A' && sent[0] <= 'Z'
			if (err == nil) != isHTTP {
				t.Fatalf("%q: let in: %v (%v), want %v", sent, err == nil, err, isHTTP)
			}
			if err == nil {
				got := make([]byte, len(sent))
				if _, err := io.ReadFull(accepted, got); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%q came as %q (%v)", sent, got, err)
				}
				_ = accepted.Close()
			}
			_ = l.Close()
			if n := len(l.strangers); n != 0 {
				t.Errorf("%d are still among the strangers", n)
			}
			_ = conn.Close()
		})
	})
}
