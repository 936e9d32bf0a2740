package coordinator

import (
	"os"
	"syscall"
	"testing"

	"example.org/daisy/internal/rundir"
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
