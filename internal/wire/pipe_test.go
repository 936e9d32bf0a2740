package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPipeHoldsWhatNobodyHasRead(t *testing.T) {
	here, there := Pipe()
	want := bytes.Repeat([]byte("0123456789"), 10_000)
	for i := 0; i < len(want); i += 100 { // all of it before anybody reads
		if n, err := here.Write(want[i : i+100]); n != 100 || err != nil {
			t.Fatal(n, err)
		}
	}
	here.Close()
	if got, err := io.ReadAll(there); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes and %v, want %d and the end", len(got), err, len(want))
	}
	if _, err := there.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write to an end that is closed: %v", err)
	}
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a read from an end that was closed here: %v", err)
	}
}

func TestAReadFromAPipeEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(mine, other net.Conn)
		want error
	}{
		"with a deadline that passes":     {func(mine, _ net.Conn) { _ = mine.SetReadDeadline(time.Now().Add(time.Second)) }, os.ErrDeadlineExceeded},
		"with a deadline that has passed": {func(mine, _ net.Conn) { _ = mine.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"when the other end is closed":    {func(_, other net.Conn) { other.Close() }, io.EOF},
		"when its own end is closed":      {func(mine, _ net.Conn) { mine.Close() }, io.ErrClosedPipe},
		"with what comes":                 {func(_, other net.Conn) { _, _ = other.Write([]byte("x")) }, nil},
		"with what comes, deadline lifted": {func(mine, other net.Conn) {
			_ = mine.SetReadDeadline(time.Now().Add(time.Second))
			_ = mine.SetReadDeadline(time.Time{})
			time.Sleep(time.Minute)
			_, _ = other.Write([]byte("x"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, other := Pipe()
				defer mine.Close()
				defer other.Close()
				ended := make(chan error)
				go func() {
					_, err := mine.Read(make([]byte, 1))
					ended <- err
				}()
				synctest.Wait()
				c.end(mine, other)
				if err := <-ended; !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

func TestAWriterOverAPipeWritesAtOnceAndUsesItsMemoryAgain(t *testing.T) {
	here, there := Pipe()
	w, r := NewWriter(here), NewReader(there)
	n := testing.AllocsPerRun(100, func() {
		_ = w.Send(AppendHeartbeat)
		if !w.idleNow() {
			t.Error("Flush has left a rest to somebody else")
		}
		if kind, _, err := r.Next(); kind != KindHeartbeat || err != nil {
			t.Error(kind, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for each frame, want 0", n)
	}
}

// idleNow reports whether nobody is writing, nor has anything to write.
func (w *Writer) idleNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.writing && len(w.pending) == 0
}
