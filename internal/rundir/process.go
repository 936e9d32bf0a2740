package rundir

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// processIdentity tells a process from all others that had or will have its
// pid: on Linux "boot id/pid namespace/start time in ticks since boot", else
// "pid" alone. "" if it does not exist or cannot be seen.
func processIdentity(pid int) string {
	if runtime.GOOS != "linux" {
		return "pid"
	}
	started := startTime(pid)
	if started == "" {
		return ""
	}
	return scope() + "/" + started
}

// scope is what a pid is unique in: two containers can have one host name.
func scope() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + space
}

// startTime is field 22 of /proc/<pid>/stat (proc(5)), or "ended" of a process that has, and whose parent has not asked how: in a
// container, say, whose first process does not. The second field is the command's name in parentheses and may hold anything, so
// count from its end.
func startTime(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const stateField, startField = 0, 22 - 3 // the third comes first here
	if len(fields) <= startField {
		return ""
	}
	if state := fields[stateField][0]; state == 'Z' || state == 'X' {
		return "ended"
	}
	return string(fields[startField])
}

// processIsGone reports whether the process with this pid and identity, on
// this host, has certainly ended.
func processIsGone(pid int, identity string) bool {
	if runtime.GOOS == "linux" {
		here := scope()
		rest, same := strings.CutPrefix(identity, here+"/")
		if here == "" || !same {
			return false // another boot or container: cannot be judged from here
		}
		if started := startTime(pid); started != "" {
			return started != rest
		}
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
