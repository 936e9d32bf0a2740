package worker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

func TestWhatAnUndeliveredBlockHasUsedGoesToTheOutbox(t *testing.T) {
	task, err := NewTask(testTask("daisy", "sh"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{cfg: Config{RunDir: t.TempDir(), Log: t.Output()}, worker: "3.0", runID: testRun}
	percent, memory := float32(12.5), int64(7)
	c.unacked.add(undelivered{wire.Release{Seq: 1, WallNanos: 1, CPUNanos: 2, PeakRSSBytes: 3, ReadBytes: 4, WrittenBytes: 5, GPU: wire.GPU{Measured: true, Percent: percent, MemBytes: memory}}, &heldBlock{task: task}})
	c.unacked.add(undelivered{wire.Release{Seq: 2, WallNanos: 1}, &heldBlock{task: task, flat: 1}})
	if err := c.leaveInOutbox(); err == nil {
		t.Error("nobody hears of it")
	}
	want := []api.Undelivered{
		{Version: 1, RunID: testRun, Worker: "3.0", Seq: 1, Task: "predict", Outcome: "success", WallNanos: 1, CPUNanos: 2, PeakRSSBytes: 3, ReadBytes: 4, WrittenBytes: 5, GPUPercent: &percent, GPUMemBytes: &memory},
		{Version: 1, RunID: testRun, Worker: "3.0", Seq: 2, Task: "predict", Block: 1, Outcome: "success", WallNanos: 1},
	}
	var got []api.Undelivered
	files, _ := filepath.Glob(filepath.Join(c.cfg.RunDir, "outbox", "*"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var u api.Undelivered
		if err := json.Unmarshal(text, &u); err != nil {
			t.Fatal(err)
		}
		got = append(got, u)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
