package e2e

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// cells reads an array of a tracking group into a slice of its type and length.
func cells[T any](t testing.TB, group, array string, n int) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(group, array, "c", "0"))
	if err != nil {
		t.Fatal(err)
	}
	values := make([]T, n)
	if used, err := binary.Decode(data, binary.LittleEndian, values); err != nil || used != len(data) {
		t.Fatalf("%s: %d of %d bytes: %v", array, used, len(data), err)
	}
	return values
}

func TestWhatEachBlockUsedIsKept(t *testing.T) {
	t.Parallel()
	// Block 2 never succeeds; of block 1 the attempt counts that did.
	dir, path := writeJob(t, job(tracked,
		blocks("work", 4)+shell("head -c 1000000 /dev/zero > out{index}; test {index} != 2 || exit 1; test {index} != 1 || test $DAISY_ATTEMPT = 2 || head -c 9000000 /dev/zero > out1; test {index} != 1 || test $DAISY_ATTEMPT = 2")+
			"max_retries = 1\nresource_tracking = true"))
	wantStatus(t, 1, dir, "run", path, "--run-dir", "one")
	group := dir + "/tracking/work"
	wall, cpu, gpu := cells[float32](t, group, "wall_seconds", 4), cells[float32](t, group, "cpu_seconds", 4), cells[float32](t, group, "gpu_util_pct", 4)
	rss, read, written := cells[uint64](t, group, "peak_rss_bytes", 4), cells[uint64](t, group, "io_read_bytes", 4), cells[uint64](t, group, "io_write_bytes", 4)
	for b := range 4 {
		if b == 2 {
			if wall[b] != 0 || cpu[b] != 0 || gpu[b] != 0 || rss[b] != 0 || read[b] != 0 || written[b] != 0 {
				t.Errorf("block 2 has failed and used %v %v %v %v %v %v", wall[b], cpu[b], gpu[b], rss[b], read[b], written[b])
			}
			continue
		}
		if wall[b] <= 0 || wall[b] > 60 || cpu[b] <= 0 || cpu[b] > 60 || !math.IsNaN(float64(gpu[b])) || rss[b] == 0 ||
			read[b] < 1_000_000 || read[b] > 2_000_000 || written[b] < 1_000_000 || written[b] > 2_000_000 {
			t.Errorf("block %d used %v %v %v %v %v %v", b, wall[b], cpu[b], gpu[b], rss[b], read[b], written[b])
		}
	}
	const all = 6*1_000_000 + 9_000_000
	if work := task(t, statsOf(t, dir+"/one"), "work"); work.IOWriteBytes == nil || *work.IOWriteBytes < all || *work.IOWriteBytes > all+1_000_000 {
		t.Errorf("the statistics have %v bytes written, want %d", work.IOWriteBytes, all)
	}
}
