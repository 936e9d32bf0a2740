package coordinator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
	"example.org/daisy/scheduler"
)

// The benchmarks of dispatch over TCP have their clients in another process: the test binary itself, told by this variable
// what to do and where.
const benchRole = "DAISY_BENCH_CLIENTS"

func TestMain(m *testing.M) {
	if role := os.Getenv(benchRole); role != "" {
		if err := benchClients(strings.Fields(role)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	benchConnections = 16
	benchRounds      = 5
)

// ways are where the coordinator of a benchmark listens: what is for other machines has TLS.
var ways = []struct{ name, listen string }{{"plain", "127.0.0.1"}, {"tls", "0.0.0.0"}}

// BenchmarkDispatch hands out no-op blocks over TCP to 16 connections of another process, with journal (fsync) and tracking
// on. In batches of 1 it runs beside a bare ping-pong of the same messages without TLS, the two in turn, and reports the median ratio.
func BenchmarkDispatch(b *testing.B) {
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			const blocks = 200_000
			for range b.N {
				var ratios, rates []float64
				for range benchRounds {
					pings := pingPong(b, blocks)
					rate := dispatch(b, way.listen, blocks, 1)
					ratios, rates = append(ratios, 100*rate/pings), append(rates, rate)
				}
				slices.Sort(ratios)
				slices.Sort(rates)
				b.ReportMetric(ratios[benchRounds/2], "%pingpong")
				b.ReportMetric(rates[benchRounds/2], "blocks/s")
			}
		})
	}
	for _, batch := range []int{16, 64} {
		b.Run("batch"+strconv.Itoa(batch), func(b *testing.B) {
			for range b.N {
				var rates []float64
				for range 3 {
					rates = append(rates, dispatch(b, ways[0].listen, 4_000_000, batch))
				}
				slices.Sort(rates)
				b.ReportMetric(rates[1], "blocks/s")
			}
		})
	}
}

// BenchmarkConnected reports what a coordinator's memory grows by with each of 10,000 workers that are connected and idle.
func BenchmarkConnected(b *testing.B) {
	const workers = 10_000
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			for range b.N {
				b.ReportMetric(float64(connected(b, way.listen, workers))/workers/1024, "KiB/worker")
			}
		})
	}
}

func connected(b *testing.B, listen string, workers int) int64 {
	b.Helper()
	dir, err := rundir.Create(b.TempDir(), "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	j := benchJob(b, 1, "")
	j.Listen, j.HeartbeatTimeout, j.AbandonAfter = listen, time.Hour, time.Hour // they say nothing
	c, err := New(Config{Job: j, RunDir: dir, Listen: true, Unlimited: true})
	if err != nil {
		b.Fatal(err)
	}
	before := inUse()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(context.WithoutCancel(b.Context()))
		ended <- err
	}()
	clients := startClients(b, "connect", dir.Path(), strconv.Itoa(workers))
	clients.until("connected")
	after := inUse()
	c.Stop(engine.StopNow, "enough")
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	clients.took()
	return after - before
}

// inUse is the memory that this process has from the system.
func inUse() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// benchJob is one task of n blocks without conflict in 3-D.
func benchJob(b testing.TB, n int64, tracking string) *job.Job {
	const side = 100
	shape := geom.Coord((n+side*side-1)/(side*side), side, side)
	one := geom.Roi{Offset: geom.Fill(3, 0), Shape: geom.Fill(3, 1)}
	grid, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Fill(3, 0), Shape: shape}, Read: one, Write: one})
	if err != nil {
		b.Fatal(err)
	}
	d := job.Defaults
	return &job.Job{
		Name: "bench", Dir: b.TempDir(), Launcher: "local", Tracking: tracking,
		Grace: d.Grace, ReconnectGrace: d.ReconnectGrace, HeartbeatTimeout: d.HeartbeatTimeout, HintAfter: d.HintAfter, IdleTimeout: -1,
		Tasks: []job.Task{{
			ID: "noop", Grid: grid, Runner: job.Runner{Kind: job.RunnerFunc}, Slots: 1, Timeout: d.Timeout,
			MaxRetries: d.MaxRetries, MaxLost: d.MaxLost, MaxWorkerRestarts: d.MaxWorkerRestarts,
			Requires: scheduler.NewResources(map[string]int64{"cpu": 1000}),
		}},
	}
}

// dispatch runs n blocks and returns the rate from the first to the last.
func dispatch(b *testing.B, listen string, n int64, batch int) float64 {
	b.Helper()
	root := b.TempDir()
	dir, err := rundir.Create(root, "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	j := benchJob(b, n, root+"/tracking")
	j.Listen = listen
	c, err := New(Config{Job: j, RunDir: dir, Listen: true, Unlimited: true})
	if err != nil {
		b.Fatal(err)
	}
	clients := startClients(b, "dispatch", dir.Path(), strconv.Itoa(batch))
	result, err := c.Run(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	took := clients.took()
	t := result.Stats.Tasks[0]
	if t.Success != t.Blocks {
		b.Fatalf("%d of %d blocks succeeded: %s", t.Success, t.Blocks, result.Reason)
	}
	return float64(t.Blocks) / took.Seconds()
}

// clients is the other process.
type clients struct {
	b   *testing.B
	cmd *exec.Cmd
	out *bufio.Scanner
}

// startClients starts the other process.
func startClients(b *testing.B, args ...string) *clients {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), self)
	cmd.Env = append(os.Environ(), benchRole+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return &clients{b, cmd, bufio.NewScanner(out)}
}

// until waits for a line.
func (c *clients) until(line string) {
	c.b.Helper()
	if !c.out.Scan() || c.out.Text() != line {
		c.b.Fatalf("the clients say %q (%v), want %q", c.out.Text(), c.out.Err(), line)
	}
}

// took waits for the end, and says how long the work took.
func (c *clients) took() time.Duration {
	c.b.Helper()
	c.out.Scan()
	took, err := time.ParseDuration(c.out.Text())
	if err := errors.Join(err, c.cmd.Wait()); err != nil {
		c.b.Fatal(err)
	}
	return took
}

// The messages of one round trip: the ping-pong moves the same bytes in the same pieces.
var (
	benchRequest = wire.AppendAcquire(wire.AppendRelease(nil, wire.Release{Seq: 100_000, Epoch: 1, Lease: 100_000, WallNanos: 100}), wire.Acquire{Request: 100_000, Max: 1})
	benchAnswer  = wire.AppendBlocks(wire.AppendAcknowledged(nil, wire.Acknowledged{Seq: 100_000}), wire.Blocks{Request: 100_000, Grants: []wire.Grant{{Lease: 100_000, Block: 100_000, Attempt: 1}}})
)

// pingPong is the baseline: a goroutine for each connection that answers.
func pingPong(b *testing.B, n int64) float64 {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	clients := startClients(b, "pingpong", l.Addr().String(), strconv.FormatInt(n, 10))
	var served sync.WaitGroup
	for range benchConnections {
		conn, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		served.Go(func() {
			defer conn.Close()
			r, buf := bufio.NewReader(conn), make([]byte, len(benchRequest))
			for {
				if _, err := io.ReadFull(r, buf); err != nil {
					return
				}
				if _, err := conn.Write(benchAnswer); err != nil {
					return
				}
			}
		})
	}
	took := clients.took()
	served.Wait()
	return float64(n) / took.Seconds()
}

// benchClients is the other process.
func benchClients(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	switch args[0] {
	case "dispatch":
		return timed(func(i int, start <-chan struct{}) error { return dispatchClient(args[1], i, uint32(n), start) })
	case "connect":
		return connectClients(args[1], n)
	}
	return timed(func(_ int, start <-chan struct{}) error {
		conn, err := net.Dial("tcp", args[1])
		if err != nil {
			return err
		}
		defer conn.Close()
		r, buf := bufio.NewReader(conn), make([]byte, len(benchAnswer))
		<-start
		for range n / benchConnections {
			if _, err := conn.Write(benchRequest); err != nil {
				return err
			}
			if _, err := io.ReadFull(r, buf); err != nil {
				return err
			}
		}
		return nil
	})
}

// timed runs the clients at once and prints how long it took from their common start.
func timed(client func(i int, start <-chan struct{}) error) error {
	start := make(chan struct{})
	errs := make(chan error, benchConnections)
	for i := range benchConnections {
		go func() { errs <- client(i, start) }()
	}
	time.AfterFunc(300*time.Millisecond, func() { close(start) })
	<-start
	began := time.Now()
	for range benchConnections {
		if err := <-errs; err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began))
	return nil
}

// connectClients opens n streams, a few at a time, and holds them until they are closed.
func connectClients(runDir string, n int) error {
	began := time.Now()
	errs := make(chan error, benchConnections)
	conns := make([]net.Conn, n)
	for first := range benchConnections {
		go func() {
			var err error
			for i := first; i < n && err == nil; i += benchConnections {
				conns[i], err = benchWelcome(runDir, i)
			}
			errs <- err
		}()
	}
	for range benchConnections {
		if err := <-errs; err != nil {
			return err
		}
	}
	fmt.Println("connected")
	for _, conn := range conns {
		_, _ = io.Copy(io.Discard, conn)
	}
	fmt.Println(time.Since(began))
	return nil
}

// benchWelcome opens a stream and says hello.
func benchWelcome(runDir string, i int) (net.Conn, error) {
	conn, in, hello, err := benchConnect(runDir, i)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(wire.AppendHello(nil, hello)); err != nil {
		return nil, err
	}
	if kind, _, err := wire.NewReader(in).Next(); err != nil || kind != wire.KindWelcome {
		return nil, fmt.Errorf("got %v (%v), want a welcome", kind, err)
	}
	return conn, nil
}

// dispatchClient serves blocks that take no time, over one connection, with as little code as can be.
func dispatchClient(runDir string, i int, batch uint32, start <-chan struct{}) error {
	return dispatchAnd(runDir, i, batch, start, func(uint64) {})
}

// dispatchAnd is dispatchClient that does something before each batch, after so many blocks.
func dispatchAnd(runDir string, i int, batch uint32, start <-chan struct{}, before func(blocks uint64)) error {
	conn, in, hello, err := benchConnect(runDir, i)
	if err != nil {
		return err
	}
	defer conn.Close()
	out := wire.AppendHello(nil, hello)
	<-start
	out = wire.AppendAcquire(out, wire.Acquire{Request: 1, Max: batch})
	if in.Buffered() > 0 {
		return errors.New("the coordinator spoke before it was greeted")
	}
	frames := wire.NewReader(conn)
	var blocks wire.Blocks
	for seq, request := uint64(0), uint64(1); ; {
		before(seq)
		if _, err := conn.Write(out); err != nil {
			return err
		}
		out = out[:0]
		for len(out) == 0 {
			kind, payload, err := frames.Next()
			if err != nil {
				return err
			}
			switch kind {
			case wire.KindBlocks:
				if err := wire.DecodeBlocks(payload, &blocks); err != nil {
					return err
				}
				out = benchReturn(out, seq+1, hello.Epoch, blocks.Grants)
				seq += uint64(len(blocks.Grants))
				request++
				out = wire.AppendAcquire(out, wire.Acquire{Request: request, Max: batch})
			case wire.KindDrain, wire.KindStop:
				_, err := conn.Write(wire.AppendLeaving(nil, wire.Leaving{}))
				return err
			}
		}
	}
}

// benchReturn gives blocks back as daisy's own worker does: several that succeeded one after another in one message.
func benchReturn(out []byte, seq, epoch uint64, grants []wire.Grant) []byte {
	if len(grants) == 1 {
		return wire.AppendRelease(out, wire.Release{Seq: seq, Epoch: epoch, Lease: grants[0].Lease, WallNanos: 100})
	}
	m := wire.Successes{Seq: seq, Epoch: epoch}
	for _, g := range grants {
		m.Ended = append(m.Ended, wire.Ended{Lease: g.Lease, WallNanos: 100})
	}
	return wire.AppendSuccesses(out, m)
}

// benchConnect joins and opens a stream.
func benchConnect(runDir string, i int) (net.Conn, *bufio.Reader, wire.Hello, error) {
	var hello wire.Hello
	where, err := rundir.ReadDiscovery(runDir)
	if err != nil {
		return nil, nil, hello, err
	}
	secret, err := rundir.ReadSecret(runDir)
	if err != nil {
		return nil, nil, hello, err
	}
	key, address := api.Key{Run: where.RunID, Secret: secret}, where.Addresses[len(where.Addresses)-1]
	dial := func() (net.Conn, error) {
		return api.Dial(context.Background(), address, where.Fingerprint, time.Minute)
	}
	joined, err := benchJoin(dial, key, i)
	if err != nil {
		return nil, nil, hello, err
	}
	conn, err := dial()
	if err != nil {
		return nil, nil, hello, err
	}
	req, err := http.NewRequest(http.MethodGet, "http://daisy"+api.PathStream, nil)
	if err != nil {
		return nil, nil, hello, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", api.Upgrade)
	key.SignRequest(req, nil)
	if err := req.Write(conn); err != nil {
		return nil, nil, hello, err
	}
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, nil, hello, fmt.Errorf("upgrade: %v, %v", resp, err)
	}
	return conn, in, wire.Hello{Worker: joined.Worker, Nonce: uint64(i) + 1, Epoch: joined.Epoch}, nil
}

func benchJoin(dial func() (net.Conn, error), key api.Key, i int) (api.JoinResponse, error) {
	var joined api.JoinResponse
	body, err := json.Marshal(api.JoinRequest{Protocol: wire.Version, Name: fmt.Sprintf("client%d", i), Nonce: uint64(i) + 1, Slots: 1, Node: "here"})
	if err != nil {
		return joined, err
	}
	req, err := http.NewRequest(http.MethodPost, "http://daisy"+api.PathJoin, bytes.NewReader(body))
	if err != nil {
		return joined, err
	}
	key.SignRequest(req, body)
	conn, err := dial()
	if err != nil {
		return joined, err
	}
	defer conn.Close()
	if err := req.Write(conn); err != nil {
		return joined, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return joined, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return joined, fmt.Errorf("join: %s: %s", resp.Status, text)
	}
	return joined, json.NewDecoder(resp.Body).Decode(&joined)
}
