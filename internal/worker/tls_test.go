package worker

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
)

// certificate is one as a run has it.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "other", "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := dir.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return c, api.Fingerprint(c.Certificate[0])
}

// overTLS is a script that speaks TLS, and its fingerprint.
func overTLS(t *testing.T) (*script, Config, string) {
	t.Helper()
	c, fingerprint := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS13}), testTask("func"))
	dir := t.TempDir()
	s.joined.Task.RunDir = dir
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(testSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, Config{RunDir: dir, Identity: Identity{Tag: "3"}, Node: "n1", Log: io.Discard, JoinTimeout: soon}, fingerprint
}

func pin(t *testing.T, dir, fingerprint string, addresses ...string) {
	t.Helper()
	data, err := json.Marshal(rundir.Discovery{Version: rundir.DiscoveryVersion, Epoch: 2, RunID: testRun, Addresses: addresses, Fingerprint: fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "discovery.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerServesOverTLSAndComesBack(t *testing.T) {
	c, cfg, fingerprint := overTLS(t)
	pin(t, cfg.RunDir, fingerprint, c.listener.Addr().String())
	client, s := connectTo(t, c, cfg)
	s.conn.Close() // as it is when a network breaks: without a word
	s = c.next()
	acquire(t, client, 1)
	s.acquire()
}

func TestOnlyTheCertificateOfTheRunIsTaken(t *testing.T) {
	c, cfg, fingerprint := overTLS(t)
	other, _, foreign := overTLS(t)
	pin(t, cfg.RunDir, fingerprint, other.listener.Addr().String())
	cfg.JoinTimeout = 300 * time.Millisecond
	var exit *ExitError
	err := start(t, cfg).wait()
	if !errors.As(err, &exit) || exit.Status != StatusNoAnswer {
		t.Fatalf("got %v, want status %d", err, StatusNoAnswer)
	}
	for _, want := range []string{"somebody else listens at " + other.listener.Addr().String(), fingerprint, foreign, "give another address with the key addresses of [run]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if len(other.joins) > 0 {
		t.Errorf("the stranger was told %+v", other.joins)
	}

	// The next address is tried.
	pin(t, cfg.RunDir, fingerprint, other.listener.Addr().String(), c.listener.Addr().String())
	cfg.JoinTimeout = soon
	w := start(t, cfg)
	c.next().drain()
	if got := w.status(); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
}

func TestWhereThereIsAFingerprintNothingIsSaidWithoutTLS(t *testing.T) {
	_, fingerprint := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var said atomic.Bool
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			head := make([]byte, 1)
			_, _ = io.ReadFull(conn, head)
			said.Store(said.Load() || !bytes.Equal(head, []byte{0x16}))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			conn.Close()
		}
	}()
	_, cfg := overTCP(t, testTask("func"))
	pin(t, cfg.RunDir, fingerprint, l.Addr().String())
	cfg.JoinTimeout = 300 * time.Millisecond
	if err := start(t, cfg).wait(); err == nil || !strings.Contains(err.Error(), "somebody else listens at "+l.Addr().String()+": it does not speak TLS") {
		t.Errorf("got %v", err)
	}
	if said.Load() {
		t.Error("it was spoken to in plain")
	}
}

func TestTheAddressThatWasRightIsTriedFirstNextTime(t *testing.T) {
	p := places{addresses: []string{"a", "b", "c"}}
	for answers, want := range map[string][]string{"": {"a", "b", "c"}, "b": {"b", "a", "c"}, "c": {"c", "a", "b"}, "gone": {"a", "b", "c"}} {
		p.answers = answers
		if got := p.inOrder(); !slices.Equal(got, want) {
			t.Errorf("after %q: got %v, want %v", answers, got, want)
		}
	}
	c, cfg := overTCP(t, testTask("func"))
	writeDiscovery(t, cfg.RunDir, 2, "127.0.0.1:1", c.listener.Addr().String())
	client, s := connectTo(t, c, cfg)
	if got := client.places.answers; got != c.listener.Addr().String() {
		t.Errorf("%q is remembered", got)
	}
	s.conn.Close()
	c.next().send(func(dst []byte) []byte { return wire.AppendDrain(dst, wire.Drain{}) })
}
