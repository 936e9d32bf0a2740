package coordinator

import (
	"os"
	"syscall"
	"testing"

	"example.org/daisy/internal/rundir"
	"example.org/daisy/scheduler"
)

func TestALogsDirectoryIsNamedOnceThereIsALog(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "segment", "")
	if err != nil {
		t.Fatal(err)
	}
	c := &Coordinator{cfg: Config{RunDir: d}}
	if got := c.logs(); got != "" {
		t.Errorf("got %s, which is empty", got)
	}
	if err := os.WriteFile(d.LogPath("1.0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.logs(); got != d.LogsDir() {
		t.Errorf("got %q, want %s", got, d.LogsDir())
	}
	if got := (&Coordinator{}).logs(); got != "" {
		t.Errorf("without a run directory: got %q", got)
	}
}

func TestAnInterruptionNamesItsSignal(t *testing.T) {
	for sig, want := range map[syscall.Signal]string{
		syscall.SIGINT:  "interrupted by Ctrl-C (SIGINT)",
		syscall.SIGTERM: "interrupted by SIGTERM",
		syscall.SIGQUIT: `interrupted by Ctrl-\ (SIGQUIT)`,
		syscall.SIGKILL: "interrupted by signal 9 (killed)",
	} {
		if got := interruptedBy(sig); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestABlockThatIsSkippedForSeveralReasonsCountsForOne(t *testing.T) {
	bits := func(blocks ...int64) scheduler.Bitmap {
		b := scheduler.NewBitmap(200)
		for _, block := range blocks {
			b.Set(block)
		}
		return b
	}
	task := scheduler.Task{Done: bits(1, 2, 3, 4, 150), Mask: bits(3, 4, 5, 6, 7, 151)}
	if done, masked := skipBits(&task, bits(4, 7)); done != 4 || masked != 3 {
		t.Errorf("%d done, %d masked, want 1, 2, 3, 150 and 5, 6, 151", done, masked)
	}
	if done, masked := skipBits(&task, nil); done != 5 || masked != 4 {
		t.Errorf("with all selected: %d done, %d masked, want 5 and 4", done, masked)
	}
	if done, masked := skipBits(&scheduler.Task{Mask: bits(1)}, nil); done != 0 || masked != 1 {
		t.Errorf("without marks: %d done, %d masked, want 0 and 1", done, masked)
	}
}
