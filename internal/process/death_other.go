//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// attributes of every child: a group of its own. The guard sees to it that it does not outlive this process.
func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Where there are no death signals no thread matters.
func onMainThread() bool { return false }

// waitUntilEnded leaves the waiting to the reaping wait.
func waitUntilEnded(int) {}

// maxRSSBytes: macOS counts in bytes.
func maxRSSBytes(u *syscall.Rusage) int64 { return u.Maxrss }

func newGuard(null *os.File) (*guard, error) { return startGuard(null) }
