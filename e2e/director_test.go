package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A director tells user code what to do: each block of the role "ask" comes to it over a socket and waits for its answer. So a
// test knows what runs and decides when it ends, without waiting for time to pass.
type director struct {
	t        testing.TB
	listener net.Listener
	visits   chan *visit

	mu    sync.Mutex
	conns []net.Conn
}

// question is what user code says when it comes.
type question struct {
	Role      string // "ask": a block; "sit": a process that a block left behind
	Task      string
	Index     string
	Attempt   string
	Lease     string
	Worker    string
	Slot      string
	GPUs      string
	CUDA      string
	PID, PPID int
}

// A visit is a process that waits for an answer.
type visit struct {
	question
	at   time.Time
	conn net.Conn
	gone chan struct{} // closed when the process has got its answer and gone on, or has ended
}

func newDirector(t testing.TB) *director {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-") // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	d := &director{t: t, listener: l, visits: make(chan *visit, 10_000)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		d.serve()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range d.conns {
			_ = c.Close() // what the run should have ended ends by itself then
		}
		_ = os.RemoveAll(dir)
	})
	return d
}

// code is user code that comes to the director for each block.
func (d *director) code(kind string, env ...string) string {
	return code(kind, "ask", append(env, "E2E_SOCKET="+d.listener.Addr().String())...)
}

func (d *director) serve() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns = append(d.conns, conn)
		d.mu.Unlock()
		go func() { // ends with the connection
			at := time.Now()
			r := bufio.NewReader(conn)
			line, err := r.ReadBytes('\n')
			v := &visit{at: at, conn: conn, gone: make(chan struct{})}
			if err != nil || json.Unmarshal(line, &v.question) != nil {
				return
			}
			d.visits <- v
			_, _ = r.ReadByte() // nothing more comes until the process ends
			close(v.gone)
		}()
	}
}

// next waits for the next visit.
func (d *director) next() *visit {
	d.t.Helper()
	select {
	case v := <-d.visits:
		return v
	case <-time.After(patience):
		d.t.Fatalf("no block has started within %v", patience)
		return nil
	}
}

// visitsOf waits for n visits in a role, and gives the others that came meanwhile too.
func visitsOf(d *director, want map[string]int) map[string][]*visit {
	d.t.Helper()
	got := map[string][]*visit{}
	for missing := true; missing; {
		v := d.next()
		got[v.Role] = append(got[v.Role], v)
		missing = false
		for role, n := range want {
			missing = missing || len(got[role]) < n
		}
	}
	return got
}

// letAllEnd ends every block that comes from now on.
func (d *director) letAllEnd() {
	go func() { // ends with the test
		for {
			select {
			case v := <-d.visits:
				v.ok()
			case <-d.t.Context().Done():
				return
			}
		}
	}()
}

// none checks that nobody has come.
func (d *director) none() {
	d.t.Helper()
	select {
	case v := <-d.visits:
		d.t.Errorf("block %s of task %s was started", v.Index, v.Task)
	default:
	}
}

// ok ends the block well.
func (v *visit) ok() {
	_, _ = io.WriteString(v.conn, "ok\n") // whoever is gone does not miss it
}

// wantGone waits until the process has ended.
func (v *visit) wantGone(t testing.TB) {
	t.Helper()
	select {
	case <-v.gone:
	case <-time.After(patience):
		t.Fatalf("process %d (%s, block %s) has not ended within %v", v.PID, v.Role, v.Index, patience)
	}
}
