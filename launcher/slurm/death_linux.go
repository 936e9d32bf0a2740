package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// dieWithParent has the kernel end the command with this process.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// onOneThread runs f on a thread of its own: the signal of dieWithParent comes when the thread that started the command ends, and
// Go ends threads as it likes. It is to be called in a goroutine of its own.
func onOneThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}

// startOf is when a process started, in the kernel's ticks, "-" if it is not known.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "-"
	}
	// The name in brackets may hold anything.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return "-"
	}
	return f[19]
}
