package wire

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// above is a connection as TLS is: what is written to it goes to below, enciphered.
type above struct {
	net.Conn
	below *Writer
}

func (a above) Write(p []byte) (int, error) {
	enciphered := bytes.Clone(p)
	for i := range enciphered {
		enciphered[i] ^= 0xff
	}
	return a.below.Write(enciphered)
}

func newAbove() (w *Writer, peer net.Conn) {
	ours, peer := net.Pipe()
	below := NewWriter(ours)
	w = NewWriter(above{ours, below})
	w.GoesTo(below)
	return w, peer
}

func TestAWriterAboveAnotherKeepsTheOrderOfManySenders(t *testing.T) {
	const senders, each = 4, 200
	w, peer := newAbove()
	var sending sync.WaitGroup
	for i := range senders {
		sending.Go(func() {
			for n := range uint64(each) {
				if err := w.Send(func(dst []byte) []byte { return AppendAcquire(dst, Acquire{Request: n, Max: uint32(i + 1)}) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	closed := make(chan error, 1)
	go func() {
		sending.Wait()
		closed <- w.Close()
	}()
	r := NewReader(deciphering{peer})
	var next [senders]uint64
	for range senders * each {
		_, payload, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		m, err := DecodeAcquire(payload)
		if err != nil || m.Request != next[m.Max-1] {
			t.Fatalf("sender %d: got %d (%v), want %d", m.Max-1, m.Request, err, next[m.Max-1])
		}
		next[m.Max-1]++
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

type deciphering struct{ net.Conn }

func (d deciphering) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	for i := range p[:n] {
		p[i] ^= 0xff
	}
	return n, err
}

// TestAPeerThatDoesNotReadHoldsUpNobodyAbove: not even who sends when another waits for what was sent before.
func TestAPeerThatDoesNotReadHoldsUpNobodyAbove(t *testing.T) {
	w, peer := newAbove()
	send := func() error { return w.Send(AppendHeartbeat) }
	if err := send(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	for range 1000 {
		_ = send() // it fails once Close has come so far
	}
	select {
	case err := <-closed:
		t.Errorf("closed before anything was read: %v", err)
	default:
	}
	peer.Close()
	if err := <-closed; err == nil {
		t.Error("closed without an error, though nothing was read")
	}
}

func TestAWriterAboveAnotherFailsWhenTooMuchWaits(t *testing.T) {
	w, _ := newAbove()
	large := func(dst []byte) []byte { return AppendReassign(dst, Reassign{make([]byte, MaxFrame/2)}) }
	for range 2*MaxPending/(MaxFrame/2) + 2 {
		if err := w.Send(large); err != nil {
			return
		}
	}
	t.Errorf("nothing was read, and more than %d bytes were taken", 2*MaxPending)
}
