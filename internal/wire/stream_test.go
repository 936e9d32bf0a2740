package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestAReaderCutsAnyStreamIntoItsFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.IntRange(0, 40_000), 0, 8).Draw(t, "lengths")
		var stream []byte
		for _, n := range texts {
			stream = AppendReassign(stream, Reassign{bytes.Repeat([]byte{7}, n)})
		}
		from := io.Reader(bytes.NewReader(stream))
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 1:
			from = iotest.HalfReader(from)
		case 2:
			from = iotest.DataErrReader(from)
		}
		r := NewReader(from)
		for _, n := range texts {
			kind, payload, err := r.Next()
			if err != nil || kind != KindReassign {
				t.Fatal(kind, err)
			}
			if m, err := DecodeReassign(payload); err != nil || len(m.Spec) != n {
				t.Fatalf("got %d bytes, %v, want %d", len(m.Spec), err, n)
			}
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("got %v, want EOF", err)
		}
	})
}

func TestAReaderSurvivesOneByteAtATime(t *testing.T) {
	stream := AppendRelease(AppendHeartbeat(nil), Release{Seq: 1, Message: "x"})
	r := NewReader(iotest.OneByteReader(bytes.NewReader(stream)))
	for _, want := range []Kind{KindHeartbeat, KindRelease} {
		if kind, _, err := r.Next(); err != nil || kind != want {
			t.Errorf("got %v, %v, want %v", kind, err, want)
		}
	}
}

func TestBadFramesAreRefusedAndStayRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		stream []byte
		want   error
	}{
		"too long":             {[]byte{0, 0x10, 0, 1, 1, 1}, ErrFrame},
		"too short":            {[]byte{0, 0, 0, 1, 1}, ErrFrame},
		"other version":        {[]byte{0, 0, 0, 2, 9, 4}, ErrFrame},
		"version seen early":   {[]byte{0, 0, 0, 200, 9}, ErrFrame},
		"cut in the length":    {[]byte{0, 0}, io.ErrUnexpectedEOF},
		"cut in the payload":   {[]byte{0, 0, 0, 9, 1, 1, 1}, io.ErrUnexpectedEOF},
		"something else: HTTP": {[]byte("GET / HTTP/1.1\r\n"), ErrFrame},
	} {
		r := NewReader(bytes.NewReader(tc.stream))
		for range 2 {
			if _, _, err := r.Next(); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", name, err, tc.want)
			}
		}
	}
}

func TestAClaimedLengthIsNotAllocatedBeforeItsBytesCome(t *testing.T) {
	r := NewReader(bytes.NewReader([]byte{0, 0x0f, 0xff, 0xff, 1, 1, 0}))
	if _, _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	if len(r.buf) > firstBuffer {
		t.Errorf("the buffer has %d bytes, want %d", len(r.buf), firstBuffer)
	}
}

func TestALargeBufferIsGivenBack(t *testing.T) {
	stream := AppendHeartbeat(AppendReassign(nil, Reassign{make([]byte, 500_000)}))
	r := NewReader(io.MultiReader(bytes.NewReader(stream[:len(stream)-6]), bytes.NewReader(stream[len(stream)-6:])))
	for range 2 {
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.buf) != firstBuffer {
		t.Errorf("the buffer has %d bytes, want %d", len(r.buf), firstBuffer)
	}
}

func TestBufferedTellsWhetherNextWaits(t *testing.T) {
	stream := AppendHeartbeat(AppendHeartbeat(nil))
	r := NewReader(bytes.NewReader(append(stream, 0, 0)))
	for i, want := range []bool{false, true, false} {
		if got := r.Buffered(); got != want {
			t.Errorf("before frame %d: got %v, want %v", i, got, want)
		}
		_, _, _ = r.Next()
	}
}

// connect gives both ends of a connection; over TCP, or net.Pipe, which has no descriptor and no buffer.
func connect(t testing.TB, network string) (net.Conn, net.Conn) {
	if network == "pipe" {
		return net.Pipe()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestAllThatManyGoroutinesSendArrivesWholeAndInTheirOrder(t *testing.T) {
	const senders, each = 8, 500
	for _, network := range []string{"tcp", "pipe"} {
		a, b := connect(t, network)
		w := NewWriter(a)
		var sending sync.WaitGroup
		for s := range uint64(senders) {
			sending.Go(func() {
				for i := range uint64(each) {
					if err := w.Send(func(dst []byte) []byte { return AppendRelease(dst, Release{Seq: i, Lease: s, Message: "0123456789"}) }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var next [senders]uint64
		r := NewReader(b)
		for range senders * each {
			_, payload, err := r.Next()
			if err != nil {
				t.Fatal(network, err)
			}
			m, err := DecodeRelease(payload)
			if err != nil || m.Seq != next[m.Lease] {
				t.Fatalf("%s: sender %d: got %d, %v, want %d", network, m.Lease, m.Seq, err, next[m.Lease])
			}
			next[m.Lease]++
		}
		sending.Wait()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		a.Close()
		b.Close()
	}
}

// countingConn counts writes. It hides the descriptor, so that every write is seen.
type countingConn struct {
	net.Conn
	writes int
}

func (c *countingConn) Write(p []byte) (int, error) { c.writes++; return c.Conn.Write(p) }

func TestWhatIsQueuedLeavesInOneWrite(t *testing.T) {
	a, b := connect(t, "tcp")
	defer b.Close()
	conn := &countingConn{Conn: a}
	w := NewWriter(conn)
	for range 100 {
		if err := w.Queue(AppendHeartbeat); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a.Close()
	got, err := io.ReadAll(b)
	if err != nil || len(got) != 600 || conn.writes != 1 || w.Written() != 600 {
		t.Errorf("got %d bytes in %d writes, %v, want 600 in 1", len(got), conn.writes, err)
	}
}

func TestAPeerThatDoesNotReadIsGivenUpNotWaitedFor(t *testing.T) {
	for _, network := range []string{"tcp", "pipe"} {
		a, b := connect(t, network)
		w := NewWriter(a)
		spec := make([]byte, MaxFrame/2)
		var err error
		for range 100 { // far above MaxPending and what the system buffers; nothing blocks
			if err = w.Send(func(dst []byte) []byte { return AppendReassign(dst, Reassign{spec}) }); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s: 50 MiB were taken for a peer that does not read", network)
		}
		if got := w.Close(); got == nil {
			t.Errorf("%s: Close does not tell that the rest was lost", network)
		}
		b.Close()
	}
}

func TestAFrameAboveTheLimitIsRefusedAndHarmsNothing(t *testing.T) {
	a, b := connect(t, "tcp")
	defer a.Close()
	defer b.Close()
	w := NewWriter(a)
	if err := w.Send(func(dst []byte) []byte { return AppendReassign(dst, Reassign{make([]byte, MaxFrame)}) }); !errors.Is(err, ErrFrame) {
		t.Errorf("got %v, want %v", err, ErrFrame)
	}
	if err := w.Send(AppendHeartbeat); err != nil {
		t.Error(err)
	}
	if kind, _, err := NewReader(b).Next(); kind != KindHeartbeat || err != nil {
		t.Errorf("got %v, %v", kind, err)
	}
}

func TestASendAfterTheConnectionBrokeFails(t *testing.T) {
	a, b := connect(t, "tcp")
	w := NewWriter(a)
	b.Close()
	a.Close()
	if err := w.Close(); err != nil {
		t.Errorf("nothing was lost: got %v", err)
	}
	if err := w.Send(AppendHeartbeat); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
	w = NewWriter(a)
	_ = w.Send(AppendHeartbeat)
	if err := w.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}

func TestSendingAndReadingDoNotAllocate(t *testing.T) {
	a, b := connect(t, "tcp")
	defer a.Close()
	defer b.Close()
	w, r := NewWriter(a), NewReader(b)
	m := Release{Seq: 1, Lease: 2, WallNanos: 3}
	if n := testing.AllocsPerRun(100, func() {
		_ = w.Send(func(dst []byte) []byte { return AppendRelease(dst, m) })
		_, payload, _ := r.Next()
		_, _ = DecodeRelease(payload)
	}); n != 0 {
		t.Errorf("%v allocations a frame, want 0", n)
	}
}

// FuzzReader: no stream makes the reader panic, loop, or give a frame that was not in it.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, m := range forms() {
		f.Add(m.frame)
		all = append(all, m.frame...)
	}
	f.Add(all)
	f.Add([]byte{0, 0x10, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(iotest.HalfReader(bytes.NewReader(stream)))
		used := 0
		for {
			kind, payload, err := r.Next()
			if err != nil {
				return
			}
			want := stream[used+6 : used+6+len(payload)]
			if Kind(stream[used+5]) != kind || !bytes.Equal(payload, want) {
				t.Fatalf("at %d: got %v %x, want %x", used, kind, payload, want)
			}
			used += 6 + len(payload)
		}
	})
}
