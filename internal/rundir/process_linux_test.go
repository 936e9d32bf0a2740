package rundir

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// As in a container whose first process never asks how its orphans ended: there a coordinator that was killed keeps its pid for ever.
func TestAProcessThatEndedAndThatNobodyWaitedForIsGone(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	identity := processIdentity(pid)
	if processIsGone(pid, identity) {
		t.Error("it is there")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !processIsGone(pid, identity) || processIdentity(pid) == identity {
		t.Errorf("it has ended, and is %q", processIdentity(pid))
	}
}
