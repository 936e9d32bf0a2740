package journal

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkCommit measures records per second with one fsync for each batch.
func BenchmarkCommit(b *testing.B) {
	record := make([]byte, 24) // the size of an ended attempt
	for _, size := range []int{1, 16, 256, 4096} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			j := mustCreate(b, b.TempDir(), 1)
			n := 0
			for b.Loop() {
				for range size {
					j.Append(record)
				}
				n += size
				mustCommit(b, j, uint64(n))
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkAppendBesideCommits measures Append while another goroutine commits
// without a pause, as the coordinator does under load.
func BenchmarkAppendBesideCommits(b *testing.B) {
	record := make([]byte, 24)
	j := mustCreate(b, b.TempDir(), 1)
	var stop atomic.Bool
	done := make(chan error)
	go func() {
		for !stop.Load() {
			if _, err := j.Commit(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	n := 0
	for b.Loop() {
		j.Append(record)
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	stop.Store(true)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
