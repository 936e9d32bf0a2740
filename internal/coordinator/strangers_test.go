package coordinator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

// A pipePort is a TCP port made of pipes, whose time is that of the bubble.
type pipePort struct {
	arrivals chan net.Conn
	errs     chan error // for the next calls of Accept
	once     sync.Once
	closed   chan struct{}
}

// openPort gives the listener a port.
func openPort(t *testing.T, l *listener) *pipePort {
	t.Helper()
	p := &pipePort{arrivals: make(chan net.Conn), errs: make(chan error, 100), closed: make(chan struct{})}
	l.tcp = p
	l.sniffs.Go(l.accept)
	t.Cleanup(func() { _ = l.Close() })
	return p
}

func (p *pipePort) Accept() (net.Conn, error) {
	select {
	case err := <-p.errs:
		return nil, err
	default:
	}
	select {
	case c := <-p.arrivals:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipePort) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipePort) Addr() net.Addr { return inside{} }

func (p *pipePort) dial(t *testing.T) net.Conn {
	ours, theirs := net.Pipe()
	p.arrivals <- theirs
	t.Cleanup(func() { _ = ours.Close() })
	return ours
}

// wantClosed waits for the end of a connection that is to be closed so late.
func wantClosed(t *testing.T, conn net.Conn, late time.Duration) {
	t.Helper()
	began := time.Now()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d bytes (%v), want the end", n, err)
	}
	if d := time.Since(began); d != late {
		t.Errorf("closed after %v, want %v", d, late)
	}
}

func TestStrangersAreLimitedAndTheNewestIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listenInside()
		port := openPort(t, l)
		var idle []net.Conn
		for range maxStrangers {
			idle = append(idle, port.dial(t))
		}
		wantClosed(t, port.dial(t), roomWithin)

		// Who sends something that looks like a request is a stranger all the same.
		if _, err := io.WriteString(idle[0], "GET"); err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		wantClosed(t, port.dial(t), roomWithin)

		accepted.(*countedConn).known()
		_ = accepted.Close() // counts once
		_ = port.dial(t)     // has the place
		wantClosed(t, port.dial(t), roomWithin)

		_ = idle[1].Close()
		synctest.Wait()
		last := port.dial(t)
		wantClosed(t, idle[2], sniffTimeout-3*roomWithin) // those who say nothing have their time
		wantClosed(t, last, 3*roomWithin)
	})
}

func TestManyWorkersThatComeAtOnceAreLetInOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		port := openPort(t, c.listener)
		served := make(chan error, 1)
		go func() { served <- c.http.Serve(c.listener) }()
		loops(t, c)
		var workers sync.WaitGroup
		for i := range 3 * maxStrangers {
			workers.Go(func() {
				conn := port.dial(t)
				req, err := http.NewRequest(http.MethodGet, "http://daisy"+api.PathStream, nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Upgrade", api.Upgrade)
				c.key().SignRequest(req, nil)
				if err := req.Write(conn); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), req)
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || !c.key().CheckAnswer(resp, req, nil) {
					t.Errorf("connection %d: %v, %v; want a proven upgrade", i, resp, err)
				}
			})
		}
		workers.Wait()
		_ = c.http.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func TestAcceptingGoesOnWhenThereAreDescriptorsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listenInside()
		port := openPort(t, l)
		for range 50 {
			port.errs <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		_ = port.dial(t) // takes the accept that waits since the beginning
		conn := port.dial(t)
		if _, err := io.WriteString(conn, "GET"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); err != nil {
			t.Error(err)
		}
	})
}

// ask sends a request of a stranger or a worker to the coordinator.
func ask(t *testing.T, c *Coordinator, method, path string, body any, change func(*http.Request)) (*http.Request, *http.Response, []byte) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if body == nil {
		text = nil
	}
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequest(method, "http://daisy"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c.key().SignRequest(req, text)
	if change != nil {
		change(req)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return req, resp, answer
}

func TestOnlyWhoKnowsTheSecretIsAnsweredWithAProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, lineTask(t, "a", 1, 1))
		go func() { _ = c.http.Serve(c.listener) }()
		loops(t, c)
		t.Cleanup(func() {
			time.Sleep(time.Second) // the server lingers after what was too long
			_ = c.http.Close()
		})
		good := api.JoinRequest{Protocol: wire.Version, Name: "w", Nonce: 1, Slots: 1}
		old := good
		old.Protocol = wire.Version + 1
		for name, tc := range map[string]struct {
			method, path string
			body         any
			change       func(*http.Request)
			status       int
			proven       bool
		}{
			"a worker":              {http.MethodPost, api.PathJoin, good, nil, 200, true},
			"one of another time":   {http.MethodPost, api.PathJoin, old, nil, 409, true},
			"one that says nothing": {http.MethodPost, api.PathJoin, api.JoinRequest{}, nil, 409, true},
			"no upgrade":            {http.MethodGet, api.PathStream, nil, nil, 426, true},
			"another secret": {http.MethodPost, api.PathJoin, good, func(r *http.Request) {
				api.Key{Run: c.runID, Secret: "guess"}.SignRequest(r, nil)
			}, 401, false},
			"another run": {http.MethodPost, api.PathJoin, good, func(r *http.Request) {
				text, _ := json.Marshal(good)
				api.Key{Run: "other", Secret: c.secret}.SignRequest(r, text)
			}, 401, false},
			"a stream with the proof of a join": {http.MethodGet, api.PathStream, nil, func(r *http.Request) {
				join := r.Clone(t.Context())
				join.Method, join.URL.Path = http.MethodPost, api.PathJoin
				c.key().SignRequest(join, nil)
				r.Header = join.Header
			}, 401, false},
			"no proof":   {http.MethodPost, api.PathJoin, good, func(r *http.Request) { r.Header.Del(api.HeaderProof) }, 401, false},
			"no path":    {http.MethodGet, "/", nil, nil, 404, false},
			"a long one": {http.MethodPost, api.PathJoin, strings.Repeat("x", maxJoinBody), nil, 400, false},
		} {
			req, resp, answer := ask(t, c, tc.method, tc.path, tc.body, tc.change)
			if resp.StatusCode != tc.status || c.key().CheckAnswer(resp, req, answer) != tc.proven || resp.Close == tc.proven {
				t.Errorf("%s: status %d, closed %v, proof %q; want %d, proven: %v: %s", name, resp.StatusCode, resp.Close, resp.Header.Get(api.HeaderProof), tc.status, tc.proven, answer)
			}
			if !tc.proven && resp.Header.Get(api.HeaderProof) != "" {
				t.Errorf("%s: a stranger got a proof", name)
			}
		}
	})
}
