package process

import (
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	canLimit = true
	// ownProgram is this program, also when its file has been replaced.
	ownProgram = "/proc/self/exe"
)

// becomeLimited returns only with an error, and with what it came from.
func becomeLimited(addressSpace, cgroup, errorFD string, argv []string) (what string, err error) {
	if fd, notThere := strconv.Atoi(errorFD); notThere == nil {
		syscall.CloseOnExec(fd) // its end says that all went well
	}
	// Byte for byte: os.Environ drops what occurs twice.
	environ, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return "environment", err
	}
	var env []string
	if len(environ) > 0 {
		env = strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00")
	}
	if cgroup != "" {
		if err := os.WriteFile(path.Join(cgroup, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return "enter the cgroup", err
		}
	}
	bytes, err := strconv.ParseUint(addressSpace, 10, 63)
	if err != nil {
		return "limit", err
	}
	if bytes > 0 {
		var now unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_AS, &now); err != nil {
			return "limit of address space", err
		}
		now.Max = min(now.Max, bytes)
		now.Cur = min(now.Cur, now.Max)
		if err := unix.Setrlimit(unix.RLIMIT_AS, &now); err != nil {
			return "limit of address space", err
		}
	}
	return becoming, syscall.Exec(argv[0], argv, env)
}
