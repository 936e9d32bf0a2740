package process

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestAProcessIsGoneOnceItHasEndedEvenIfNobodyHasWaitedForIt(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if Gone(t.Context(), cmd.Process.Pid, 0) {
		t.Error("a process that runs is gone")
	}
	in.Close()
	if !Gone(t.Context(), cmd.Process.Pid, 10*time.Second) {
		t.Error("a process that has ended is not gone")
	}
	_ = cmd.Wait()
	if !Gone(t.Context(), cmd.Process.Pid, 0) {
		t.Error("a process that was waited for is not gone")
	}
	if Gone(t.Context(), os.Getpid(), 0) || Space() == "" {
		t.Error("this process is gone, or has no space")
	}
}
