package wire

import (
	"net"
	"testing"
)

// BenchmarkRoundTrip is one block over TCP: release and acquire there, acknowledged and blocks back. It is to be read beside
// BenchmarkPingPong: the same number of bytes without frames.
func BenchmarkRoundTrip(b *testing.B) {
	here, there := connect(b, "tcp")
	defer here.Close()
	go func() {
		r, w := NewReader(there), NewWriter(there)
		grants := []Grant{{1000, 1000, 1}}
		for {
			kind, payload, err := r.Next()
			if err != nil {
				there.Close()
				return
			}
			switch kind {
			case KindRelease:
				m, _ := DecodeRelease(payload)
				_ = w.Queue(func(dst []byte) []byte { return AppendAcknowledged(dst, Acknowledged{m.Seq}) })
			case KindAcquire:
				m, _ := DecodeAcquire(payload)
				_ = w.Send(func(dst []byte) []byte { return AppendBlocks(dst, Blocks{m.Request, 0, grants}) })
			}
		}
	}()
	r, w := NewReader(here), NewWriter(here)
	b.ReportAllocs()
	for b.Loop() {
		_ = w.Queue(func(dst []byte) []byte {
			return AppendRelease(dst, Release{Seq: 1000, Epoch: 1, Lease: 1000, WallNanos: 50_000})
		})
		_ = w.Send(func(dst []byte) []byte { return AppendAcquire(dst, Acquire{1000, 1}) })
		for kind := KindAcknowledged; kind != KindBlocks; {
			var err error
			if kind, _, err = r.Next(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkPingPong is bare TCP with the message sizes of BenchmarkRoundTrip.
func BenchmarkPingPong(b *testing.B) {
	here, there := connect(b, "tcp")
	defer here.Close()
	request := len(AppendAcquire(AppendRelease(nil, Release{Seq: 1000, Epoch: 1, Lease: 1000, WallNanos: 50_000}), Acquire{1000, 1}))
	reply := len(AppendBlocks(AppendAcknowledged(nil, Acknowledged{1000}), Blocks{1000, 0, []Grant{{1000, 1000, 1}}}))
	go func() {
		buf, out := make([]byte, 4096), make([]byte, reply)
		for readAll(there, buf[:request]) == nil {
			_, _ = there.Write(out)
		}
		there.Close()
	}()
	buf, out := make([]byte, 4096), make([]byte, request)
	for b.Loop() {
		_, _ = here.Write(out)
		if err := readAll(here, buf[:reply]); err != nil {
			b.Fatal(err)
		}
	}
}

func readAll(c net.Conn, buf []byte) error {
	for len(buf) > 0 {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		buf = buf[n:]
	}
	return nil
}

func BenchmarkBlocksOf64(b *testing.B) {
	grants := make([]Grant, 64)
	for i := range grants {
		grants[i] = Grant{uint64(100_000 + i), uint64(1_000_000 + i), 1}
	}
	var buf []byte
	var into Blocks
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendBlocks(buf[:0], Blocks{1, 1, grants})
		if err := DecodeBlocks(buf[6:], &into); err != nil {
			b.Fatal(err)
		}
	}
}
