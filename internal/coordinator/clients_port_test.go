package coordinator

import (
	"bufio"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/testenv"
)

// clientsHere is a coordinator that listens, for a task of n blocks for clients; Run of it ends with the test.
func clientsHere(t *testing.T, n int64, notice func(string)) (*Coordinator, <-chan Result) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	return clientsIn(t, dir, n, notice, false)
}

func clientsIn(t *testing.T, dir *rundir.Dir, n int64, notice func(string), resume bool) (*Coordinator, <-chan Result) {
	t.Helper()
	j := benchJob(t, 1, "")
	j.Tasks = []job.Task{clientTask(t, "a", n)}
	c, err := New(Config{Job: j, RunDir: dir, Listen: true, Unlimited: true, Notice: notice, Resume: resume})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan Result, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result, err := c.Run(t.Context())
		if err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		results <- result
	}()
	t.Cleanup(func() {
		c.Stop(engine.StopNow, "the test is over")
		<-ended
	})
	return c, results
}

// called is a client at the port.
func called(t *testing.T, c *Coordinator) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", c.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// doAll has a client do blocks until there is none, and returns how many.
func doAll(t *testing.T, c *Coordinator, conn net.Conn) (done int) {
	t.Helper()
	d := &daisyClient{t, conn, bufio.NewReader(conn)}
	for {
		if _, err := conn.Write(daisywire.Append(nil, daisywire.Released, &daisywire.Message{Kind: daisywire.AcquireBlock, TaskID: "a"})); err != nil {
			return done
		}
		m, err := d.hear()
		if err != nil || m.Kind != daisywire.SendBlock {
			return done
		}
		m.Block.Status = daisywire.Success
		if _, err := conn.Write(daisywire.Append(nil, daisywire.Released, &daisywire.Message{Kind: daisywire.ReleaseBlock, Block: m.Block})); err != nil {
			t.Error(err)
			return done
		}
		done++
	}
}

func TestAClientOfDaisy1IsToldApart(t *testing.T) {
	lines := make(chan string, 10)
	c, _ := clientsHere(t, 1, func(line string) { lines <- line })
	<-lines
	for _, first := range []string{"\x9a\x00\x00\x00\x80\x04\x95", "G\x01\x00\x00\x80\x03c", "\x00\x01\x00\x00\x80\x04\x95"} {
		conn := called(t, c)
		if _, err := conn.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%q: it is answered", first)
		}
	}
	if line := <-lines; !strings.Contains(line, "daisy 1.x") || !strings.Contains(line, "pip install 'daisy>=2'") {
		t.Errorf("people are told %q", line)
	}
	select {
	case line := <-lines:
		t.Errorf("and then %q", line)
	default:
	}
}

func TestWhereNoTaskAsksForThemClientsFindNobody(t *testing.T) {
	c, _ := newKept(t)
	conn := called(t, c)
	if _, err := conn.Write([]byte("\x00\x00\x00\x06\x02\x00\x02x\x00\x00")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a client is answered")
	}
	c.Stop(engine.StopNow, "enough")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAResumeListensWhereClientsWereToldTo(t *testing.T) {
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	c, results := clientsIn(t, dir, 3, nil, false)
	was := c.ClientContext("a")
	conn := called(t, c)
	d := &daisyClient{t, conn, bufio.NewReader(conn)}
	if _, err := conn.Write(daisywire.Append(nil, daisywire.Released, &daisywire.Message{Kind: daisywire.AcquireBlock, TaskID: "a"})); err != nil {
		t.Fatal(err)
	}
	held := d.block()
	c.Stop(engine.StopNow, "enough")
	<-results
	_ = conn.Close()
	again, err := rundir.Open(dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	c, results = clientsIn(t, again, 3, nil, true)
	if now := c.ClientContext("a"); now != was {
		t.Errorf("clients are told %q, and were %q", now, was)
	}
	if n := doAll(t, c, called(t, c)); n != 3 {
		t.Errorf("a client did %d blocks, with %d held before", n, held.SpatialID)
	}
	if r := <-results; r.State != engine.RunDone {
		t.Errorf("the run is %v", r.State)
	}
}

func TestAClientOfAnotherUserFindsNobody(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		testenv.Unavailable(t, "only root on Linux can make a socket another user's")
	}
	c, _ := clientsHere(t, 1, nil)
	var chown error
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { chown = syscall.Fchown(int(fd), 12345, -1) })
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", c.Addr().String())
	if err != nil || chown != nil {
		t.Fatal(err, chown)
	}
	defer conn.Close()
	if n := doAll(t, c, conn); n != 0 {
		t.Errorf("it did %d blocks", n)
	}
	if n := doAll(t, c, called(t, c)); n != 1 {
		t.Errorf("a client of this user did %d blocks", n)
	}
}
