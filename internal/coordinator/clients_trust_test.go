package coordinator

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/daisywire"
	"example.org/daisy/internal/engine"
)

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
