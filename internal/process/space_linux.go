package process

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Space names the set of processes in which a PID of this process means something: boot and PID namespace. PIDs of two
// processes can be compared only if their spaces are equal; "" equals nothing.
func Space() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// Gone waits until the process pid, which need not be a child, has ended, for at most the given time, and reports whether it
// has. A process that nobody has waited for yet has ended.
func Gone(ctx context.Context, pid int, within time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	// A look now and then, not one long wait: that would hold a thread for each of many processes.
	pause := time.Millisecond
	for end := time.Now().Add(within); ; pause *= 2 {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if n > 0 {
			return true
		}
		left := time.Until(end)
		if err != nil && !errors.Is(err, unix.EINTR) || left <= 0 {
			return false
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return false
		}
	}
}
