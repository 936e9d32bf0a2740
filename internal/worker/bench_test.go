package worker

import (
	"io"
	"os/exec"
	"sync"
	"testing"

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

// parallel is how many run at once in both benchmarks.
const parallel = 4

// BenchmarkCommandBlocks is blocks of /bin/true through a whole worker with 4 slots, over TCP. It is to be read beside
// BenchmarkBareExec.
func BenchmarkCommandBlocks(b *testing.B) {
	if err := process.Adopt(); err != nil { // as daisy-worker does
		b.Fatal(err)
	}
	c, cfg := overTCP(b, testTask("command", "/bin/true"))
	cfg.Slots = parallel
	w := start(b, cfg)
	s := c.next()
	var grants []wire.Grant
	var lease uint64
	released := 0
	b.ResetTimer()
	for released < b.N {
		kind, payload, err := s.in.Next()
		if err != nil {
			b.Fatal(err)
		}
		switch kind {
		case wire.KindRelease:
			r, err := wire.DecodeRelease(payload)
			if err != nil || (r.Outcome != wire.Success && r.Outcome != wire.Recalled) {
				b.Fatal(r, err)
			}
			if r.Outcome == wire.Success {
				released++
			}
			_ = s.out.Queue(func(dst []byte) []byte { return wire.AppendAcknowledged(dst, wire.Acknowledged{Seq: r.Seq}) })
		case wire.KindAcquire:
			a, err := wire.DecodeAcquire(payload)
			if err != nil {
				b.Fatal(err)
			}
			grants = grants[:0]
			for range min(a.Max, 8) {
				lease++
				grants = append(grants, wire.Grant{Lease: lease, Block: lease % 100, Attempt: 1})
			}
			_ = s.out.Queue(func(dst []byte) []byte {
				return wire.AppendBlocks(dst, wire.Blocks{Request: a.Request, Task: 3, Grants: grants})
			})
		}
		if !s.in.Buffered() {
			s.out.Flush()
		}
	}
	b.StopTimer()
	go io.Copy(io.Discard, s.conn) // the worker's last words
	w.now()
	w.wait()
}

// BenchmarkBareExec is os/exec of /bin/true with the same number in parallel.
func BenchmarkBareExec(b *testing.B) {
	work := make(chan struct{})
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for range work {
				if err := exec.Command("/bin/true").Run(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	workers.Wait()
}
