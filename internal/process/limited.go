package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A MemoryLimit holds a program and all that it starts, from its first instruction on. The zero value holds nobody. Linux.
type MemoryLimit struct {
	// AddressSpace is how many bytes of address space each process may have (RLIMIT_AS), for itself; 0 = no limit.
	AddressSpace int64
	// Cgroup takes all of them in, and limits what they use together; nil = none.
	Cgroup *MemoryCgroup
}

func (m MemoryLimit) isNone() bool { return m.AddressSpace == 0 && m.Cgroup == nil }

// No system starts a program under a limit of memory that its parent does not have, and a limit that is set when it runs comes too
// late for a short one. So this program starts itself under another name, limits itself, and becomes the program that is meant.
const limitedName = "daisy-limited"

// limits is whether this program is able to, as it has called RunLimited.
var limits bool

// RunLimited is the first call of main in every program that starts others with a MemoryLimit. It does not return if this process
// is on its way to become one of those.
func RunLimited() {
	if limits = canLimit; !limits || len(os.Args) < 5 || os.Args[0] != limitedName {
		return
	}
	what, err := becomeLimited(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	tell := io.Writer(os.Stderr)
	if fd, notThere := strconv.Atoi(os.Args[3]); notThere == nil {
		tell = os.NewFile(uintptr(fd), "errors")
	}
	var errno syscall.Errno
	errors.As(err, &errno)
	fmt.Fprintf(tell, "%d %s: %s: %v", int(errno), what, os.Args[4], err)
	os.Exit(126)
}

// Limited is the program and the arguments to start in place of argv, so that argv runs under a limit. What keeps it from that is
// told on standard error, and ends it with status 126.
func Limited(argv []string, m MemoryLimit) (path string, args []string, err error) {
	return limited(argv, m, "-")
}

func limited(argv []string, m MemoryLimit, errorFD string) (path string, args []string, err error) {
	if !limits {
		return "", nil, fmt.Errorf("cannot start %q with limited memory: %w", argv[0], errNoLimits)
	}
	cgroup := ""
	if m.Cgroup != nil {
		cgroup = m.Cgroup.dir
	}
	args = []string{limitedName, strconv.FormatInt(m.AddressSpace, 10), cgroup, errorFD}
	return ownProgram, append(args, argv...), nil
}

var errNoLimits = errors.New("that is not possible on this system, or in this program")

// limitedError is what a process that did not become the program of c has told; nil if it has become it.
func limitedError(c *Config, errs *os.File) error {
	told, err := io.ReadAll(errs)
	if err != nil {
		return fmt.Errorf("cannot start %q with limited memory: %w", c.Argv[0], err)
	}
	if len(told) == 0 {
		return nil
	}
	number, text, _ := strings.Cut(string(told), " ")
	errno, _ := strconv.Atoi(number)
	if strings.HasPrefix(text, becoming+":") && errno != 0 {
		return startError(c, &fs.PathError{Op: "exec", Path: c.Argv[0], Err: syscall.Errno(errno)})
	}
	return fmt.Errorf("cannot start %q with limited memory: %s", c.Argv[0], text)
}

// becoming is the step of becomeLimited whose failure is that of any start of a program.
const becoming = "start"

// CanLimitMemory reports whether this system can start a program with a MemoryLimit.
func CanLimitMemory() bool { return canLimit }
