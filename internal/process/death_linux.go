package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes of every child: a group of its own, and death together with the thread that forked it (see Spawner), unless it outlives
// that.
func attributes(outlives bool) *syscall.SysProcAttr {
	if outlives {
		return &syscall.SysProcAttr{Setpgid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func onMainThread() bool { return unix.Gettid() == os.Getpid() }

// waitUntilEnded returns when the process has ended, without reaping it: its pid stays taken.
func waitUntilEnded(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return // an error comes back from the wait that follows
		}
	}
}

// maxRSSBytes: Linux counts in KiB.
func maxRSSBytes(u *syscall.Rusage) int64 { return u.Maxrss * 1024 }

// Death signals need no guard.
func newGuard(*os.File) (*guard, error) { return nil, nil }
