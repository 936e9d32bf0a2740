package coordinator

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/testenv"
)

// clientTask is lineTask for clients of daisy.
func clientTask(t testing.TB, id string, n int64, after ...string) job.Task {
	t.Helper()
	task := lineTask(t, id, n, 10, after...)
	task.Runner = job.Runner{Kind: job.RunnerClients}
	task.MaxRetries, task.MaxLost = 1, 5
	return task
}

// A daisyClient is a client of daisy as the coordinator sees it: the codec at the other end of a connection.
type daisyClient struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// visit connects a client within the bubble.
func visit(t *testing.T, c *Coordinator) *daisyClient {
	t.Helper()
	ours, theirs := net.Pipe()
	go c.serveClient(theirs)
	t.Cleanup(func() { _ = ours.Close() })
	return &daisyClient{t, ours, bufio.NewReader(ours)}
}

func (d *daisyClient) say(m daisywire.Message) {
	d.t.Helper()
	synctest.Wait() // so that the engine is free
	if _, err := d.conn.Write(daisywire.Append(nil, daisywire.Released, &m)); err != nil {
		d.t.Fatal(err)
	}
}

// hear reads the next message.
func (d *daisyClient) hear() (daisywire.Message, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(d.r, head); err != nil {
		return daisywire.Message{}, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(d.r, payload); err != nil {
		return daisywire.Message{}, err
	}
	return daisywire.Decode(payload, daisywire.Released)
}

func (d *daisyClient) ask(task string, worker ...uint64) {
	d.t.Helper()
	m := daisywire.Message{Kind: daisywire.AcquireBlock, TaskID: task}
	if len(worker) > 0 {
		m.HasWorker, m.Worker = true, worker[0]
	}
	d.say(m)
}

// block is the answer to ask, which must be one.
func (d *daisyClient) block() daisywire.Block {
	d.t.Helper()
	m, err := d.hear()
	if err != nil || m.Kind != daisywire.SendBlock {
		d.t.Fatalf("the answer is %s %q, %v; want a block", m.Kind, m.Error, err)
	}
	return m.Block
}

func (d *daisyClient) acquire(task string, worker ...uint64) daisywire.Block {
	d.t.Helper()
	d.ask(task, worker...)
	return d.block()
}

func (d *daisyClient) release(b daisywire.Block) {
	d.t.Helper()
	b.Status = daisywire.Success
	d.say(daisywire.Message{Kind: daisywire.ReleaseBlock, Block: b})
}

// work does all that there is, and returns how many blocks that were. A block that it is to fail first is failed once.
func (d *daisyClient) work(task string, worker uint64) (done int) {
	d.t.Helper()
	for {
		d.ask(task, worker)
		m, err := d.hear()
		switch {
		case errors.Is(err, io.EOF) || err == nil && m.Kind == daisywire.RequestShutdown:
			_ = d.conn.Close()
			return done
		case err != nil || m.Kind != daisywire.SendBlock:
			d.t.Errorf("the answer is %s %q, %v; want a block or the end", m.Kind, m.Error, err)
			return done
		}
		d.release(m.Block)
		done++
	}
}

// rowsOf are the workers of a run that is over: "client-0 left 3/1" for 3 blocks processed, 1 of them failed.
func rowsOf(c *Coordinator) (rows []string) {
	views, _, _ := c.engine.EndedRows(0, 1000, nil)
	for _, v := range views {
		rows = append(rows, fmt.Sprintf("%s %s %d/%d", v.ID, v.End, v.Processed, v.WorkerSnapshot.Failed))
	}
	slices.Sort(rows)
	return rows
}

func TestBlocksOfClientsCountAsThoseOfWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 4))
		ended := loops(t, c)
		one, other, nameless := visit(t, c), visit(t, c), visit(t, c)
		one.release(one.acquire("a", 7))
		bad := one.acquire("a", 7)
		one.say(daisywire.Message{Kind: daisywire.BlockFailed, Block: bad, Error: "Traceback (most recent call last):\nValueError: no\n"})
		synctest.Wait()
		page := got[api.BlockPage](t, c, http.MethodGet, api.PathBlocks, "")
		if b := page.Blocks[bad.SpatialID]; b.Message == nil || *b.Message != "ValueError: no" || b.LastEnd == nil || *b.LastEnd != "failed" {
			t.Errorf("of the failed block is said %+v", b)
		}
		again := other.acquire("a", 7)
		if again.SpatialID != bad.SpatialID {
			t.Errorf("block %d is retried, want %d", again.SpatialID, bad.SpatialID)
		}
		other.release(again)
		nameless.release(nameless.acquire("a"))
		nameless.release(nameless.acquire("a"))
		<-ended
		c.closeSessions()
		if n, _ := c.engine.Tally(0); n.Success != 4 || n.Processed != 5 || n.Retries != 1 || n.Failed+n.Lost != 0 {
			t.Errorf("%+v", n)
		}
		if got, want := rowsOf(c), []string{"client left 2/0", "client-7 left 2/1", "client-7+2 left 1/0"}; !slices.Equal(got, want) {
			t.Errorf("the workers are %q, want %q", got, want)
		}
		for _, d := range []*daisyClient{one, other, nameless} {
			if m, err := d.hear(); !errors.Is(err, io.EOF) {
				t.Errorf("at the end a client hears %s, %v", m.Kind, err)
			}
		}
	})
}

func TestAClientIsToldWhenItsTaskHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 1), clientTask(t, "b", 1, "a"))
		ended := loops(t, c)
		works, waits, next := visit(t, c), visit(t, c), visit(t, c)
		b := works.acquire("a")
		waits.ask("a")
		next.ask("b") // there is none before that of a is done
		synctest.Wait()
		works.release(b)
		if m, err := waits.hear(); err != nil || m.Kind != daisywire.RequestShutdown {
			t.Errorf("who waits hears %s, %v", m.Kind, err)
		}
		works.ask("a")
		if m, err := works.hear(); err != nil || m.Kind != daisywire.RequestShutdown {
			t.Errorf("who asks hears %s, %v", m.Kind, err)
		}
		late := visit(t, c)
		late.ask("a")
		if m, err := late.hear(); err != nil || m.Kind != daisywire.RequestShutdown {
			t.Errorf("who comes too late hears %s, %v", m.Kind, err)
		}
		next.release(next.block())
		<-ended
		if state := c.engine.State(); state != engine.RunDone {
			t.Errorf("the run is %v", state)
		}
	})
}

// The end of its connection is that of a client, at once: no time passes before its block is another's.
func TestTheBlockOfAClientThatIsGoneIsAnothersAtOnce(t *testing.T) {
	for name, end := range map[string]func(*daisyClient){
		"closed":       func(d *daisyClient) { _ = d.conn.Close() },
		"disconnected": func(d *daisyClient) { d.say(daisywire.Message{Kind: daisywire.Disconnect}) },
		"dropped":      func(d *daisyClient) { d.say(daisywire.Message{Kind: daisywire.RequestShutdown}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRun(t, clientTask(t, "a", 1))
				ended := loops(t, c)
				gone, heir := visit(t, c), visit(t, c)
				gone.acquire("a", 0)
				heir.ask("a", 0)
				synctest.Wait()
				began := time.Now()
				end(gone)
				b := heir.block()
				wantAtOnce(t, "the block", began)
				heir.release(b)
				<-ended
				if n, _ := c.engine.Tally(0); n.Success != 1 || n.Lost != 1 || n.Processed != 1 || n.Retries != 0 {
					t.Errorf("%+v", n)
				}
				if got, want := rowsOf(c), []string{"client-0 lost 0/0", "client-0+2 left 1/0"}; !slices.Equal(got, want) {
					t.Errorf("the workers are %q, want %q", got, want)
				}
			})
		})
	}
}

// A lease is of a connection: who comes next from the same address, where a port is used again, has nothing of the one before.
func TestAConnectionInheritsNothingOfTheOneThatHadItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 2))
		ended := loops(t, c)
		before, other := visit(t, c), visit(t, c)
		b := before.acquire("a", 7)
		_ = before.conn.Close()
		synctest.Wait()
		other.acquire("a", 8) // b, which is ready again
		next := visit(t, c)
		if before.conn.LocalAddr().String() != next.conn.LocalAddr().String() {
			t.Fatal("they have different addresses")
		}
		own := next.acquire("a", 7)
		next.release(b) // as if it had been its own
		synctest.Wait()
		if n, _ := c.engine.Tally(0); n.Success != 0 || n.Lost != 1 {
			t.Errorf("after a release of what another has: %+v", n)
		}
		next.release(own)
		other.release(b)
		<-ended
		if n, _ := c.engine.Tally(0); n.Success != 2 || n.Lost != 1 || n.Processed != 2 || n.Retries+n.Failed != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestAClientMayComputeForAsLongAsItsTimeoutSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 2)
		task.Timeout = 50 * time.Hour
		c := newRun(t, task)
		ended := loops(t, c)
		d := visit(t, c)
		time.Sleep(10 * time.Hour) // it loads its model
		b := d.acquire("a")
		time.Sleep(49 * time.Hour)
		d.release(b)
		hangs := d.acquire("a")
		began := time.Now()
		if m, err := d.hear(); !errors.Is(err, io.EOF) {
			t.Errorf("it hears %s, %v", m.Kind, err)
		}
		if took := time.Since(began); took < task.Timeout || took > task.Timeout+time.Minute {
			t.Errorf("a client that does not end itself is dropped after %s", took)
		}
		heir := visit(t, c)
		if b = heir.acquire("a"); b.SpatialID != hangs.SpatialID {
			t.Errorf("block %d goes out, want %d", b.SpatialID, hangs.SpatialID)
		}
		heir.release(b)
		<-ended
		if n, _ := c.engine.Tally(0); n.Success != 2 || n.TimedOut != 1 || n.Lost != 0 || n.Retries != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// daisy's client ends its own process when its block has taken too long.
func TestAClientThatEndsItselfAtTheTimeoutHasTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 1)
		task.Timeout = 10 * time.Second
		c := newRun(t, task)
		ended := loops(t, c)
		for range 2 {
			d := visit(t, c)
			d.ask("a")
			if m, err := d.hear(); err != nil || !m.HasTimeout || m.Timeout != 10 {
				t.Errorf("it is told %+v, %v", m, err)
			}
			time.Sleep(10 * time.Second)
			_ = d.conn.Close()
		}
		<-ended
		if n, _ := c.engine.Tally(0); n.TimedOut != 2 || n.Lost != 0 || n.Failed != 1 {
			t.Errorf("%+v", n)
		}
	})
}

func TestClientsShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 4)
		task.MaxWorkers = 2
		c := newRun(t, task)
		ended := loops(t, c)
		one, other, third := visit(t, c), visit(t, c), visit(t, c)
		a, b := one.acquire("a"), other.acquire("a")
		third.ask("a")
		synctest.Wait()
		if s := got[api.State](t, c, http.MethodGet, api.PathState, ""); s.Tasks[0].Running != 2 || s.Tasks[0].Leased != 2 {
			t.Errorf("with max_workers 2 there run %d blocks", s.Tasks[0].Running)
		}
		one.release(a)
		third.release(third.block())
		other.release(b)
		one.work("a", 0)
		<-ended
	})
}

func TestBlocksForClientsAreForNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 1), lineTask(t, "b", 1, 10))
		loops(t, c)
		for task, why := range map[string]string{
			"b": `task "b" of this run starts its own workers`,
			"x": `there is no task "x" in this run; it has "a", "b"`,
			"":  `there is no task "" in this run`,
		} {
			d := visit(t, c)
			d.ask(task)
			if m, err := d.hear(); err != nil || m.Kind != daisywire.BlockFailed || !strings.Contains(m.Error, why) {
				t.Errorf("a client of task %q hears %s %q, %v", task, m.Kind, m.Error, err)
			}
		}
		answer, err := c.introduce(t.Context(), &engine.Join{Name: "w", Nonce: 1, Slots: 1, Task: "a"})
		if err != nil || answer.refusal == nil || answer.refusal.Message != `task "a" is for clients of daisy that come by themselves` {
			t.Errorf("a worker for task a gets %+v, %v", answer, err)
		}
		p := join(t, c, "any", 1)
		g := p.acquire(1)
		p.say(released(c, 1, g[0], 0))
		p.say([]byte{})
		time.Sleep(time.Minute)
		for f := range drained(p) {
			t.Errorf("a worker that takes any task got %v", f.kind)
		}
		d := visit(t, c)
		d.release(d.acquire("a"))
	})
}

// drained are the frames that have come, but for signs of life.
func drained(p *peer) func(func(frame) bool) {
	return func(yield func(frame) bool) {
		for {
			select {
			case f, open := <-p.frames:
				if !open {
					return
				}
				if len(f.payload) > 0 && f.kind != 34 && !yield(f) {
					return
				}
			default:
				return
			}
		}
	}
}

func TestTheStateTellsWhatClientsNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRun(t, clientTask(t, "a", 1))
		loops(t, c)
		s := got[api.State](t, c, http.MethodGet, api.PathState, "").Tasks[0]
		if s.Waits == nil || *s.Waits != "no client of daisy has connected: start one with the DAISY_CONTEXT of this task" {
			t.Errorf("the task waits for %v", s.Waits)
		}
		visit(t, c).say(daisywire.Message{Kind: daisywire.Register, TaskID: "a", Worker: 1})
		synctest.Wait()
		s = got[api.State](t, c, http.MethodGet, api.PathState, "").Tasks[0]
		if s.Waits == nil || *s.Waits != "its workers have not asked for a block" {
			t.Errorf("with a client that says nothing the task waits for %v", s.Waits)
		}
	})
}

// Whatever one client sends, the run goes on and ends well with another.
func TestNoRecordedMalformedFrameHarmsARun(t *testing.T) {
	text, err := os.ReadFile("../daisywire/testdata/golden/malformed.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range bytes.Lines(text) {
		var row struct {
			Name  string
			Steps []struct{ Do, Hex string }
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		rows++
		t.Run(row.Name, func(t *testing.T) {
			var frames [][]byte
			for _, step := range row.Steps {
				digits, _, isCut := strings.Cut(step.Hex, ".")
				b, err := hex.DecodeString(digits)
				if err != nil {
					t.Fatal(err)
				}
				if isCut {
					b = append(b, bytes.Repeat([]byte("ü"), (int(binary.BigEndian.Uint32(b))+4-len(b))/2)...)
				}
				frames = append(frames, b)
			}
			if frames == nil { // daisy's process dies of a length of 2^40 before the frame could be recorded
				length := string(binary.LittleEndian.AppendUint64([]byte{253}, 1<<40))
				frames = [][]byte{[]byte("\x00\x00\x00\x0b\x02\x00" + length), []byte("\x00\x00\x00\x0b\x02\x02" + length)}
			}
			synctest.Test(t, func(t *testing.T) {
				task := clientTask(t, "mal", 5)
				c := newRun(t, task)
				ended := loops(t, c)
				bad, good := visit(t, c), visit(t, c)
				go func() { _, _ = io.Copy(io.Discard, bad.conn) }()
				held := good.acquire("mal", 1)
				for _, b := range frames {
					_, _ = bad.conn.Write(b) // it may have been dropped by now
					synctest.Wait()
				}
				next := visit(t, c)
				b := next.acquire("mal")
				_ = bad.conn.Close()
				next.release(b)
				_ = next.conn.Close()
				good.release(held)
				good.work("mal", 1)
				<-ended
				if n, _ := c.engine.Tally(0); n.Success != 5 || n.Total != 5 || c.engine.State() != engine.RunDone {
					t.Errorf("%+v, %v", n, c.engine.State())
				}
			})
		})
	}
	if rows < 40 {
		t.Errorf("only %d rows are recorded", rows)
	}
}

func TestWhatAClientMeasuresIsBelievedWithinReason(t *testing.T) {
	nan, most := math.NaN(), uint64(math.MaxUint64)
	for name, c := range map[string]struct {
		stats *daisywire.Stats
		want  engine.Use
	}{
		"nothing":       {nil, engine.Use{WallNanos: 5e9}},
		"all":           {&daisywire.Stats{WallSeconds: 4.5, CPUSeconds: 9, PeakRSSBytes: 1, IOReadBytes: 2, IOWriteBytes: 3, GPUUtilPercent: 40, GPUMemBytes: 4}, engine.Use{WallNanos: 45e8, CPUNanos: 9e9, PeakRSSBytes: 1, ReadBytes: 2, WrittenBytes: 3, GPU: engine.GPU{Measured: true, Percent: 40, MemBytes: 4}}},
		"no GPU":        {&daisywire.Stats{GPUUtilPercent: float32(nan)}, engine.Use{WallNanos: 5e9}},
		"GPUs at 1e30%": {&daisywire.Stats{GPUUtilPercent: 1e30}, engine.Use{WallNanos: 5e9}},
		"no numbers":    {&daisywire.Stats{WallSeconds: nan, CPUSeconds: math.Inf(1), PeakRSSBytes: most, IOReadBytes: most, IOWriteBytes: most, GPUMemBytes: most}, engine.Use{WallNanos: 5e9}},
		"negative":      {&daisywire.Stats{WallSeconds: -5, CPUSeconds: -1e300, GPUUtilPercent: -1}, engine.Use{WallNanos: 5e9}},
		"out of bounds": {&daisywire.Stats{WallSeconds: 1e300, CPUSeconds: 1e300, GPUUtilPercent: float32(nan)}, engine.Use{WallNanos: 5e9}},
		"a longer time": {&daisywire.Stats{WallSeconds: 6, GPUUtilPercent: float32(nan)}, engine.Use{WallNanos: 5e9}},
	} {
		if got := useOf(&daisywire.End{Took: 5 * time.Second, Stats: c.stats}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

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

func TestConnectionsThatSayNothingDoNotKeepClientsOut(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	c, results := clientsHere(t, 200, func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() })
	early := called(t, c) // it says nothing for now, and others after it do neither
	var silent []net.Conn
	for range 10_000 {
		conn, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			t.Fatalf("connection %d: %v", len(silent), err)
		}
		silent = append(silent, conn)
		if len(silent) > mostQuiet+100 {
			_ = silent[0].Close()
			silent = silent[1:]
		}
	}
	_ = early.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := early.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest of too many is still there: %v", err)
	}
	half := called(t, c)
	if _, err := half.Write([]byte{0, 0, 0, 9, 2}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if n := doAll(t, c, called(t, c)); n != 200 {
		t.Errorf("a client among them did %d blocks", n)
	}
	t.Logf("200 blocks took %s beside them", time.Since(began))
	if r := <-results; r.State != engine.RunDone {
		t.Errorf("the run is %v: %s", r.State, r.Reason)
	}
	for _, conn := range silent {
		_ = conn.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "task a waits for clients of daisy on this machine: export DAISY_CONTEXT=hostname=127.0.0.1:port=") {
		t.Errorf("people were told %q", lines)
	}
}

func TestAClientThatSaysNothingAtFirstIsStillThere(t *testing.T) {
	c, results := clientsHere(t, 3, nil)
	quiet := called(t, c)
	for range maxStrangers + 10 {
		called(t, c)
	}
	time.Sleep(2 * roomWithin)
	if n := doAll(t, c, quiet); n != 3 {
		t.Errorf("it did %d blocks", n)
	}
	<-results
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

// A script may have several threads with one client.
func TestAClientMayHaveSeveralBlocksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := clientTask(t, "a", 6)
		task.MaxWorkers = 1
		c := newRun(t, task)
		ended := loops(t, c)
		d, other := visit(t, c), visit(t, c)
		var held []daisywire.Block
		for range 4 {
			held = append(held, d.acquire("a"))
		}
		other.ask("a")
		for _, i := range []int{3, 0, 2} {
			d.release(held[i])
		}
		d.say(daisywire.Message{Kind: daisywire.BlockFailed, Block: held[1], Error: "no"})
		other.release(other.block())
		if n := other.work("a", 0); n != 2 {
			t.Errorf("the other client did %d blocks more", n)
		}
		<-ended
		if n, _ := c.engine.Tally(0); n.Success != 6 || n.Retries != 1 || n.Processed != 7 {
			t.Errorf("%+v", n)
		}
	})
}

func TestTheContextOfClientsNamesAnAddressOfThisMachine(t *testing.T) {
	for listens, want := range map[string]string{"127.0.0.1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::1": "[%3A%3A1]"} {
		task := clientTask(t, "a", 1)
		task.ResourceTracking = true
		c := &Coordinator{cfg: Config{Job: &job.Job{Tasks: []job.Task{task, lineTask(t, "b", 1, 1)}}}, listener: listenInside()}
		c.listener.tcp = listensAt{net.ParseIP(listens)}
		if got := c.ClientContext("a"); got != "hostname="+want+":port=7000:task_id=a:worker_id=0:logdir=:resource_tracking=1" {
			t.Errorf("listening at %s: %s", listens, got)
		}
		if got := c.ClientContext("b"); got != "" {
			t.Errorf("a task for workers: %s", got)
		}
	}
}

// listensAt is a port that nobody reaches.
type listensAt struct{ ip net.IP }

func (listensAt) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (listensAt) Close() error              { return nil }
func (l listensAt) Addr() net.Addr          { return &net.TCPAddr{IP: l.ip, Port: 7000} }

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

// Nobody starts it again when its task has something to do.
func TestAClientThatHasToWaitForAnotherTaskIsNotSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := clientTask(t, "a", 2), clientTask(t, "b", 2, "a")
		before.MaxWorkers, before.Timeout, after.MaxWorkers = 1, 0, 1
		c := newRun(t, before, after)
		ended := loops(t, c)
		waits, works := visit(t, c), visit(t, c)
		waits.ask("b", 1)
		heard := make(chan error, 1)
		go func() {
			m, err := waits.hear()
			if err == nil && m.Kind != daisywire.SendBlock {
				err = fmt.Errorf("it hears %s", m.Kind)
			}
			heard <- err
		}()
		for range 2 {
			b := works.acquire("a", 2)
			time.Sleep(5 * time.Hour)
			works.release(b)
		}
		if err := <-heard; err != nil {
			t.Error(err)
		}
		_ = waits.conn.Close()
		works.work("a", 2)
		visit(t, c).work("b", 3)
		<-ended
	})
}
