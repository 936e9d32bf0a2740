package daisywire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
)

// goldenRows reads a file of rows.
func goldenRows[T any](t testing.TB, name string) (rows []T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: %s: %v", name, lines.Text(), err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", name)
	}
	return rows
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decoded is a message as the rows describe it.
type decoded struct {
	Message  string        `json:"message"`
	TaskID   string        `json:"task_id"`
	WorkerID *uint64       `json:"worker_id"`
	Block    *decodedBlock `json:"block"`
	Timeout  *float64      `json:"timeout_secs"`
	Error    string        `json:"error"`
}

type decodedBlock struct {
	Read   [2][]int64    `json:"read_roi"`
	Write  [2][]int64    `json:"write_roi"`
	TaskID string        `json:"task_id"`
	ID     uint64        `json:"spatial_id"`
	Status string        `json:"status"`
	Stats  *decodedStats `json:"stats"`
}

type decodedStats struct {
	Wall, CPU                *float64
	RSS, Read, Written, GPUM uint64
	GPU                      *float64
}

func (s *decodedStats) UnmarshalJSON(b []byte) error {
	var x struct {
		Wall    *float64 `json:"wall_seconds"`
		CPU     *float64 `json:"cpu_seconds"`
		RSS     uint64   `json:"peak_rss_bytes"`
		Read    uint64   `json:"io_read_bytes"`
		Written uint64   `json:"io_write_bytes"`
		GPU     *float64 `json:"gpu_util_pct"`
		GPUM    uint64   `json:"gpu_mem_bytes"`
	}
	err := json.Unmarshal(b, &x)
	*s = decodedStats{x.Wall, x.CPU, x.RSS, x.Read, x.Written, x.GPUM, x.GPU}
	return err
}

// describe is m as a row would describe it.
func describe(m *Message) decoded {
	d := decoded{Message: m.Kind.String(), TaskID: m.TaskID, Error: m.Error}
	if m.HasWorker {
		d.WorkerID = &m.Worker
	}
	if m.HasTimeout {
		d.Timeout = number(m.Timeout)
	}
	switch m.Kind {
	case SendBlock, ReleaseBlock, BlockFailed:
		b := &m.Block
		d.Block = &decodedBlock{
			Read: [2][]int64{b.Read.Offset, b.Read.Shape}, Write: [2][]int64{b.Write.Offset, b.Write.Shape},
			TaskID: b.TaskID, ID: b.SpatialID, Status: b.Status.String(),
		}
		if s := b.Stats; s != nil {
			d.Block.Stats = &decodedStats{number(s.WallSeconds), number(s.CPUSeconds), s.PeakRSSBytes, s.IOReadBytes, s.IOWriteBytes, s.GPUMemBytes, number(float64(s.GPUUtilPercent))}
		}
	}
	return d
}

// number is nil for what JSON does not have.
func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// sameBothWays checks that a frame means what a row says, and that it is what we write for that.
func sameBothWays(t *testing.T, name, text string, want *decoded) {
	t.Helper()
	frame := unhex(t, text)
	r := newFrameReader(bytes.NewReader(frame))
	payload, err := r.next()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m, err := Decode(payload, Released)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if _, err := r.next(); err != io.EOF {
		t.Errorf("%s: behind the frame comes %v, want the end", name, err)
	}
	if want != nil {
		if diff := cmp.Diff(*want, describe(&m)); diff != "" {
			t.Errorf("%s: decoded (-recorded +ours):\n%s", name, diff)
		}
	}
	if got := Append(nil, Released, &m); !bytes.Equal(got, frame) {
		t.Errorf("%s: encoded again is\n%x, want\n%x", name, got, frame)
	}
}

type frameRow struct {
	Scenario  string
	Worker    int
	Seq       int
	Direction string
	Hex       string
	Event     string
	Decoded   *decoded
}

func TestGoldenFramesAreTheSameBothWays(t *testing.T) {
	for i, row := range goldenRows[frameRow](t, "frames.jsonl") {
		if row.Hex != "" {
			sameBothWays(t, fmt.Sprintf("row %d, %s", i+1, row.Scenario), row.Hex, row.Decoded)
		}
	}
}

type clientRow struct {
	Name   string
	Sends  string `json:"server_sends_hex"`
	Client struct {
		Result string
		Read   [2][]int64 `json:"read_roi"`
		Write  [2][]int64 `json:"write_roi"`
		TaskID string     `json:"task_id"`
		ID     uint64     `json:"spatial_id"`
	}
	Answers []struct {
		Hex     string
		Decoded *decoded
	} `json:"client_sends"`
}

// What the real client makes of bytes is what our decoder makes of them.
func TestGoldenAnswersOfAServerMeanWhatTheClientTakesThemFor(t *testing.T) {
	for _, row := range goldenRows[clientRow](t, "client_side.jsonl") {
		for _, a := range row.Answers {
			sameBothWays(t, row.Name, a.Hex, a.Decoded)
		}
		frame := unhex(t, row.Sends)
		r := newFrameReader(bytes.NewReader(frame))
		payload, err := r.next()
		var m Message
		if err == nil {
			m, err = Decode(payload, Released)
		}
		switch {
		case row.Client.Result == "block":
			if err != nil {
				t.Errorf("%s: %v", row.Name, err)
				continue
			}
			b := describe(&m).Block
			if b == nil || !cmp.Equal(b.Read, row.Client.Read) || !cmp.Equal(b.Write, row.Client.Write) || b.TaskID != row.Client.TaskID || b.ID != row.Client.ID {
				t.Errorf("%s: decoded is %+v, the client has %+v", row.Name, b, row.Client)
			}
			if got := Append(nil, Released, &m); !bytes.HasPrefix(frame, got) && row.Name != "bytes after the message" {
				t.Errorf("%s: encoded again is\n%x, want\n%x", row.Name, got, frame)
			}
		case row.Client.Result == "no more work":
			if err != io.EOF && (err != nil || m.Kind != RequestShutdown) {
				t.Errorf("%s: decoded is %s, %v; the client took it for the end", row.Name, m.Kind, err)
			}
		case err == nil && (m.Kind == SendBlock && len(m.Block.Read.Offset) == len(m.Block.Read.Shape) || m.Kind == RequestShutdown):
			t.Errorf("%s: decoded is %s; the client refused it", row.Name, m.Kind)
		}
	}
}

type contextRow struct {
	Raw     string
	Source  string
	Decoded map[string]string
}

func contexts(t testing.TB) []contextRow { return goldenRows[contextRow](t, "contexts.jsonl") }

func TestGoldenContextsAreTheSameBothWays(t *testing.T) {
	for _, row := range contexts(t) {
		c, err := ParseContext(row.Raw)
		if _, refused := row.Decoded["exception"]; refused {
			if err == nil || !strings.Contains(err.Error(), `"a" is not of the form key=value`) {
				t.Errorf("%q: %v, %v; daisy refuses it", row.Raw, c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", row.Raw, err)
			continue
		}
		got := map[string]string{}
		for _, v := range c {
			got[v.Key], _ = c.Get(v.Key)
		}
		if diff := cmp.Diff(row.Decoded, got); diff != "" {
			t.Errorf("%q (-recorded +ours):\n%s", row.Raw, diff)
		}
		if row.Source != "Context.from_env()" && c.String() != row.Raw {
			t.Errorf("written again is %q, want %q", c.String(), row.Raw)
		}
	}
}

type runRow struct {
	Scenario string
	Counts   struct{ Completed, Failed, Total int }
	Task     struct {
		TaskID  string     `json:"task_id"`
		Total   [2][]int64 `json:"total_roi"`
		Read    [2][]int64 `json:"read_roi"`
		Write   [2][]int64 `json:"write_roi"`
		Fit     string
		Timeout *float64
	}
}

func roiOf(r [2][]int64) geom.Roi {
	return geom.Roi{Offset: geom.Coord(r[0]...), Shape: geom.Coord(r[1]...)}
}

// gridOf is the grid of a task, nil if it is beyond what a grid here can have.
func gridOf(t *testing.T, total, read, write [2][]int64, fit string) *geom.Grid {
	t.Helper()
	if fit == "" {
		fit = "valid"
	}
	f, err := geom.ParseFit(fit)
	if err != nil {
		t.Fatal(err)
	}
	grid, err := geom.NewGrid(geom.GridSpec{TotalRead: roiOf(total), Read: roiOf(read), Write: roiOf(write), Fit: f})
	if err != nil && !strings.Contains(err.Error(), "leaves the range of coordinates") {
		t.Fatal(err)
	}
	return grid
}

// The recorded workers, served by a session that gives out the blocks in the recorded order, get the recorded bytes, and their runs end with
// the recorded counts.
func TestGoldenRunsOfWorkersGetTheSameBytesFromASession(t *testing.T) {
	frames := goldenRows[frameRow](t, "frames.jsonl")
	for _, run := range goldenRows[runRow](t, "frame_runs.jsonl") {
		t.Run(run.Scenario, func(t *testing.T) {
			task := run.Task
			replay := &replayed{t: t, grid: gridOf(t, task.Total, task.Read, task.Write, task.Fit), task: task.TaskID, done: map[uint64]bool{}}
			replay.timeout = 600
			if task.Timeout != nil {
				replay.timeout = *task.Timeout
			}
			workers := map[int][]frameRow{}
			for _, row := range frames {
				if row.Scenario == run.Scenario {
					workers[row.Worker] = append(workers[row.Worker], row)
				}
			}
			for n := range len(workers) {
				replay.worker(workers[n])
			}
			if len(workers) == 0 {
				t.Fatal("no worker is recorded")
			}
			if len(replay.done) != run.Counts.Completed || run.Counts.Failed != run.Counts.Total-run.Counts.Completed {
				t.Errorf("done are %d blocks, recorded %+v", len(replay.done), run.Counts)
			}
			if replay.grid != nil && int(replay.grid.Len()) != run.Counts.Total {
				t.Errorf("the grid has %d blocks, recorded %+v", replay.grid.Len(), run.Counts)
			}
		})
	}
}

// created is the same frame with a block that was not yet tried: daisy sends a block again in the state of its last attempt, which no client
// looks at.
func created(t *testing.T, frame []byte) []byte {
	m, err := Decode(frame[4:], Released)
	if err != nil {
		t.Fatal(err)
	}
	m.Block.Status = Created
	return Append(nil, Released, &m)
}

// replayed serves blocks in a recorded order.
type replayed struct {
	t       *testing.T
	grid    *geom.Grid
	task    string
	timeout float64

	mu    sync.Mutex
	rows  []frameRow // what is to be sent
	given int
	ended int
	done  map[uint64]bool
}

func (r *replayed) worker(rows []frameRow) {
	r.given, r.ended = 0, 0
	for _, row := range rows {
		if row.Direction == "server->worker" && row.Hex != "" {
			r.rows = append(r.rows, row)
		}
	}
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, ours, r) }()
	for _, row := range rows {
		switch {
		case row.Event != "" && row.Direction == "server->worker":
			cancel()
		case row.Event != "":
			_ = theirs.Close()
		case row.Direction == "worker->server":
			if _, err := theirs.Write(unhex(r.t, row.Hex)); err != nil {
				r.t.Fatalf("frame %d: %v", row.Seq, err)
			}
		default:
			want := created(r.t, unhex(r.t, row.Hex))
			got := make([]byte, len(want))
			if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, want) {
				r.t.Fatalf("frame %d: the session sends %x (%v), want %x", row.Seq, got, err, want)
			}
		}
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		r.t.Errorf("the session dropped a worker: %v", err)
	}
	if r.given != r.ended {
		r.t.Errorf("%d blocks were given and %d came back", r.given, r.ended)
	}
}

func (r *replayed) Join(_ context.Context, c Client) (Blocks, error) {
	if c.Task != r.task || !c.HasWorker && !strings.HasPrefix(r.t.Name(), "TestGoldenRuns") {
		r.t.Errorf("the client that joins is %+v", c)
	}
	return r, nil
}

func (r *replayed) Acquire(ctx context.Context) (Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rows) == 0 {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return Grant{}, ctx.Err()
	}
	row := r.rows[0]
	r.rows = r.rows[1:]
	if row.Decoded.Message == "RequestShutdown" {
		return Grant{}, ErrNoMore
	}
	b := row.Decoded.Block
	g := Grant{Lease: b.ID, SpatialID: b.ID, Read: roiOf(b.Read), Write: roiOf(b.Write), Timeout: seconds(r.timeout)}
	if r.grid != nil {
		if n, ok := r.grid.BlockOfID(b.ID); !ok || r.grid.ReadRoi(n) != g.Read || r.grid.WriteRoi(n) != g.Write {
			r.t.Errorf("block %d of the grid is not the recorded one", b.ID)
		}
	}
	r.given++
	return g, nil
}

func (r *replayed) Release(e End) {
	r.ended++
	if e.Outcome == Succeeded {
		r.done[e.Lease] = true
	}
}

func (*replayed) Leave() {}
