package launchertest

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

// patience is how long the suite waits for what must happen.
const patience = 60 * time.Second

// A desk is where the workers of a test report.
type desk struct {
	listener net.Listener
	arrivals chan *station
}

// A station is the connection to one worker. It ends with the process and not before.
type station struct {
	hello
	conn net.Conn
	from *json.Decoder
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{listener: listener, arrivals: make(chan *station, 1000)}
	var conns []net.Conn
	var greeting sync.WaitGroup
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
			greeting.Go(func() {
				s := &station{conn: conn, from: json.NewDecoder(conn)}
				if s.from.Decode(&s.hello) == nil {
					d.arrivals <- s
				}
			})
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-accepting
		for _, c := range conns {
			c.Close()
		}
		greeting.Wait()
	})
	return d
}

func (d *desk) address() string { return d.listener.Addr().String() }

// next waits for the next worker to report.
func (d *desk) next(t *testing.T) *station {
	t.Helper()
	select {
	case s := <-d.arrivals:
		return s
	case <-time.After(patience):
		t.Fatal("no worker reported")
		return nil
	}
}

// send gives an order without waiting for the answer.
func (s *station) send(t *testing.T, o order) {
	t.Helper()
	if err := json.NewEncoder(s.conn).Encode(o); err != nil {
		t.Fatalf("order to %s: %v", s.Role, err)
	}
}

// do gives an order and waits until it is done.
func (s *station) do(t *testing.T, o order) {
	t.Helper()
	s.send(t, o)
	s.conn.SetReadDeadline(time.Now().Add(patience))
	var answer string
	if err := s.from.Decode(&answer); err != nil || answer != "done" {
		t.Fatalf("%s to %s: %q, %v", o.Do, s.Role, answer, err)
	}
}

// gone waits until the process has ended.
func (s *station) gone(t *testing.T) {
	t.Helper()
	s.conn.SetReadDeadline(time.Now().Add(patience))
	var answer string
	err := s.from.Decode(&answer)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%s (process %d) still lives: %v", s.Role, s.PID, err)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("connection to %s: %v", s.Role, err)
	}
}

// A record is all that a launcher told.
type record struct {
	mu   sync.Mutex
	all  []launcher.Status
	more chan struct{} // closed and replaced with every status
}

func newRecord() *record { return &record{more: make(chan struct{})} }

func (r *record) watch(s launcher.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
	close(r.more)
	r.more = make(chan struct{})
}

// of gives the statuses of one worker so far.
func (r *record) of(w launcher.Worker) (list []launcher.Status, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		if s.Worker == w {
			list = append(list, s)
		}
	}
	return list, r.more
}

func (r *record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// await waits until the worker is in the state, and gives the status that said so.
func (r *record) await(t *testing.T, w launcher.Worker, state launcher.State) launcher.Status {
	t.Helper()
	late := time.After(patience)
	for {
		list, more := r.of(w)
		for _, s := range list {
			if s.State == state {
				return s
			}
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("worker %s is not %s; its statuses: %+v", w, state, list)
		}
	}
}
