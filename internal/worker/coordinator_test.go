package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
)

const (
	testSecret = "0123456789abcdef0123456789abcdef"
	realSoon   = 20 * time.Second
)

var testKey = api.Key{Run: testRun, Secret: testSecret}

// testRun is another one in each process: a block's strays are found by it, and would be those of the same test beside this one.
var testRun = "run" + strings.ToLower(rand.Text()[:8])

// soon bounds every wait of a test; it is never waited for when all is well.
var soon = realSoon

// A script plays the coordinator: the test says what it answers, message by message.
type script struct {
	t        testing.TB
	listener net.Listener
	server   *http.Server

	mu     sync.Mutex
	joined api.JoinResponse // the answer to a join
	refuse *api.Error       // instead of it
	joins  []api.JoinRequest

	streams chan *stream
}

// A stream is one connection of the worker, after its Hello.
type stream struct {
	t     testing.TB
	conn  net.Conn
	in    *wire.Reader
	out   *wire.Writer
	hello wire.Hello
}

// testTask is a task of blocks of 10 along one axis: 100 blocks, context 1.
func testTask(runner string, argv ...string) api.TaskSpec {
	return api.TaskSpec{
		Index: 3, ID: "predict",
		TotalRead: geom.Roi{Offset: geom.Coord(-1), Shape: geom.Coord(1002)},
		Read:      geom.Roi{Offset: geom.Coord(-1), Shape: geom.Coord(12)},
		Write:     geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(10)},
		Fit:       "valid", Runner: runner, Argv: argv, Dir: os.TempDir(), CPUMilli: 2000, MemoryBytes: 1 << 30,
	}
}

func newScript(t testing.TB, l net.Listener, task api.TaskSpec) *script {
	c := &script{t: t, listener: l, streams: make(chan *stream, 16), joined: api.JoinResponse{
		Worker: "3.0", Epoch: 2, Task: task, HeartbeatSeconds: 3600, AbandonSeconds: 7200, HintSeconds: 7200, GraceSeconds: 10,
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.PathJoin, c.join)
	mux.HandleFunc("GET "+api.PathStream, c.stream)
	c.server = &http.Server{Handler: mux}
	go c.server.Serve(l) // ends with the listener
	t.Cleanup(func() { c.server.Close() })
	return c
}

// overTCP is a script with a run directory that leads to it.
func overTCP(t testing.TB, task api.TaskSpec) (*script, Config) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newScript(t, l, task)
	dir := t.TempDir()
	task.RunDir = dir
	c.joined.Task.RunDir = dir
	writeDiscovery(t, dir, 2, l.Addr().String())
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(testSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, Config{RunDir: dir, Identity: Identity{Tag: "3"}, Node: "n1", Log: io.Discard, JoinTimeout: soon}
}

func writeDiscovery(t testing.TB, dir string, epoch uint64, addresses ...string) {
	data, err := json.Marshal(rundir.Discovery{Version: rundir.DiscoveryVersion, Epoch: epoch, RunID: testRun, Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, "new")
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(dir, "discovery.json")); err != nil {
		t.Fatal(err)
	}
}

// overPipe is a script in the same process.
func overPipe(t testing.TB, task api.TaskSpec) (*script, Config) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return newScript(t, l, task), Config{
		Dial: l.dial, RunID: testRun, Secret: testSecret, Identity: Identity{Tag: "3"}, Node: "n1", Log: io.Discard, JoinTimeout: soon,
	}
}

type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// set changes what the script answers to joins.
func (c *script) set(change func(*api.JoinResponse)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.joined)
}

func (c *script) refuseWith(e *api.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = e
}

func (c *script) join(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	var req api.JoinRequest
	if err := json.Unmarshal(body, &req); err != nil {
		c.t.Error(err)
	}
	if !testKey.CheckRequest(r, body) {
		c.t.Errorf("the join has no proof: %v", r.Header)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joins = append(c.joins, req)
	if c.refuse != nil {
		prove(w, r, http.StatusForbidden, marshal(c.t, c.refuse))
		return
	}
	prove(w, r, http.StatusOK, marshal(c.t, c.joined))
}

// prove answers as the coordinator of the run.
func prove(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set(api.HeaderProof, testKey.ProveAnswer(r, status, body))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (c *script) stream(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != api.Upgrade || !testKey.CheckRequest(r, nil) {
		c.t.Errorf("the upgrade has the wrong headers: %v", r.Header)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		c.t.Error(err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	// The first frames may follow in the same segment.
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + api.Upgrade + "\r\n" +
		api.HeaderProof + ": " + testKey.ProveAnswer(r, http.StatusSwitchingProtocols, nil) + "\r\n\r\n"
	if _, err := conn.Write(append([]byte(head), wire.AppendHeartbeat(nil)...)); err != nil {
		return
	}
	s := &stream{t: c.t, conn: conn, in: wire.NewReader(buffered.Reader), out: wire.NewWriter(conn)}
	kind, payload, err := s.in.Next()
	if err != nil || kind != wire.KindHello {
		conn.Close()
		return
	}
	if s.hello, err = wire.DecodeHello(payload); err != nil {
		c.t.Error(err)
	}
	c.streams <- s
}

// next waits for the worker's next connection, and welcomes it.
func (c *script) next(gone ...uint64) *stream {
	c.t.Helper()
	s := c.unwelcomed()
	c.mu.Lock()
	epoch := c.joined.Epoch
	c.mu.Unlock()
	s.send(func(dst []byte) []byte { return wire.AppendWelcome(dst, wire.Welcome{Epoch: epoch, Gone: gone}) })
	return s
}

func (c *script) unwelcomed() *stream {
	c.t.Helper()
	select {
	case s := <-c.streams:
		return s
	case <-time.After(soon):
		c.t.Fatal("the worker does not connect")
		return nil
	}
}

func (s *stream) send(frame func([]byte) []byte) {
	s.t.Helper()
	if err := s.out.Send(frame); err != nil {
		s.t.Fatal(err)
	}
}

// expect reads the next message but heartbeats.
func (s *stream) expect(want wire.Kind) []byte {
	s.t.Helper()
	_ = s.conn.SetReadDeadline(time.Now().Add(soon))
	for {
		kind, payload, err := s.in.Next()
		if err != nil {
			s.t.Fatalf("waiting for %v: %v", want, err)
		}
		if kind == wire.KindHeartbeat && want != wire.KindHeartbeat {
			continue
		}
		if kind != want {
			s.t.Fatalf("got %v %x, want %v", kind, payload, want)
		}
		return payload
	}
}

func (s *stream) acquire() wire.Acquire {
	s.t.Helper()
	m, err := wire.DecodeAcquire(s.expect(wire.KindAcquire))
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *stream) release() wire.Release {
	s.t.Helper()
	m, err := wire.DecodeRelease(s.expect(wire.KindRelease))
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *stream) leaving() wire.Leaving {
	s.t.Helper()
	m, err := wire.DecodeLeaving(s.expect(wire.KindLeaving))
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// grant hands out blocks; each has its number as lease.
func (s *stream) grant(request uint64, blocks ...uint64) {
	s.t.Helper()
	m := wire.Blocks{Request: request, Task: 3}
	for _, b := range blocks {
		m.Grants = append(m.Grants, wire.Grant{Lease: b, Block: b, Attempt: 1})
	}
	s.send(func(dst []byte) []byte { return wire.AppendBlocks(dst, m) })
}

func (s *stream) acknowledge(seq uint64) {
	s.t.Helper()
	s.send(func(dst []byte) []byte { return wire.AppendAcknowledged(dst, wire.Acknowledged{Seq: seq}) })
}

func (s *stream) kill(lease uint64) {
	s.t.Helper()
	s.send(func(dst []byte) []byte { return wire.AppendKillBlock(dst, wire.KillBlock{Lease: lease}) })
}

func (s *stream) stop() {
	s.t.Helper()
	s.send(func(dst []byte) []byte { return wire.AppendStop(dst, wire.Stop{Message: "enough"}) })
}

func (s *stream) drain() {
	s.t.Helper()
	s.send(func(dst []byte) []byte { return wire.AppendDrain(dst, wire.Drain{Message: "enough"}) })
}

// ended waits until the worker has closed the connection.
func (s *stream) ended() {
	s.t.Helper()
	_ = s.conn.SetReadDeadline(time.Now().Add(soon))
	for {
		kind, _, err := s.in.Next()
		if err == io.EOF || errors.Is(err, syscall.ECONNRESET) { // reset: it closed with bytes of ours unread
			return
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if kind != wire.KindHeartbeat {
			s.t.Fatalf("got %v, want the end of the connection", kind)
		}
	}
}

// A running worker, its log and its end.
type running struct {
	t      testing.TB
	cancel context.CancelFunc
	abort  chan struct{}
	now    func() // closes abort
	log    *lockedBuffer
	ended  chan struct{}
	err    error // once ended
}

func start(t testing.TB, cfg Config) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, abort: make(chan struct{}), log: &lockedBuffer{}, ended: make(chan struct{})}
	r.now = sync.OnceFunc(func() { close(r.abort) })
	cfg.Log, cfg.Abort = r.log, r.abort
	go func() {
		defer close(r.ended)
		r.err = Run(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		r.now()
		<-r.ended // also so that nothing of it meets the next test's processes
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(soon):
		r.t.Fatal("the worker does not end")
		return nil
	}
}

// status is the exit status of daisy-worker for the worker's end.
func (r *running) status() int {
	r.t.Helper()
	err := r.wait()
	if err == nil {
		return 0
	}
	exit, ok := err.(*ExitError)
	if !ok {
		r.t.Fatalf("got %T %v, want an *ExitError", err, err)
	}
	return exit.Status
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// script1 is a shell command.
func script1(format string, args ...any) []string {
	return []string{"sh", "-c", fmt.Sprintf(format, args...)}
}
