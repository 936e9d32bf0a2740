//go:build linux && amd64

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A tracer is this test binary in a process of its own. It runs a program, sees each of its system calls, and kills it right
// before or right after the one that it was told. So a program dies at any of its effects, and knows of no test.

// An effect names one effect of a program: the nth of a kind, such as "sync out/journal/journal-#-#.log". Numbers and
// random parts of names are #.
type effect struct {
	Kind  string
	N     int
	After bool // the program dies when it is done, else before
}

func (e effect) String() string {
	when := "before"
	if e.After {
		when = "after"
	}
	return fmt.Sprintf("%s the %d. %q", when, e.N, e.Kind)
}

// died is the exit status of a tracer that has killed its program.
const died = 99

// traced is a program that dies at an effect; with none it only has its effects counted, into a file.
func traced(t testing.TB, at effect, counts, dir string, args ...string) *submit {
	t.Helper()
	s := prepare(t, dir, args...)
	told, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Args = append([]string{self(), s.cmd.Path}, args...)
	s.cmd.Path = self()
	s.cmd.Env = append(os.Environ(), "E2E_KILL_AT="+string(told), "E2E_COUNTS="+counts)
	s.begin()
	return s
}

func init() {
	told, isTracer := os.LookupEnv("E2E_KILL_AT")
	if !isTracer {
		return
	}
	var at effect
	status, err := 0, json.Unmarshal([]byte(told), &at)
	counts := os.Getenv("E2E_COUNTS")
	_, _ = os.Unsetenv("E2E_KILL_AT"), os.Unsetenv("E2E_COUNTS")
	tr := tracer{at: at, seen: map[string]int{}, inside: map[int]bool{}}
	if err == nil {
		status, err = tr.run(os.Args[1:])
	}
	if err == nil && counts != "" {
		data, _ := json.Marshal(tr.seen)
		err = os.WriteFile(counts, data, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tracer:", err)
		status = 98
	}
	os.Exit(status)
}

type tracer struct {
	at     effect
	dir    string
	pid    int
	seen   map[string]int // effects by kind
	inside map[int]bool   // threads in a system call
	doomed int            // thread that dies at the end of its system call
}

// run runs the program to its end and gives its exit status.
func (tr *tracer) run(argv []string) (int, error) {
	const exitKill, syscallStop = 0x100000, syscall.SIGTRAP | 0x80
	runtime.LockOSThread()
	var err error
	if tr.dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	tr.pid = cmd.Process.Pid
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(tr.pid, &ws, 0, nil); err != nil {
		return 0, err
	}
	if err := syscall.PtraceSetOptions(tr.pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|exitKill); err != nil {
		return 0, err
	}
	known := map[int]bool{tr.pid: true}
	for tid, signal := tr.pid, 0; ; {
		if err := syscall.PtraceSyscall(tid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
		for {
			tid, err = syscall.Wait4(-1, &ws, syscall.WALL, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if ws.Stopped() {
				break
			}
			if tid == tr.pid {
				if ws.Signaled() {
					return died, nil
				}
				return ws.ExitStatus(), nil
			}
			delete(tr.inside, tid)
		}
		switch sig := ws.StopSignal(); {
		case sig == syscallStop:
			signal = 0
			tr.syscall(tid)
		case sig == syscall.SIGTRAP && ws.TrapCause() > 0, sig == syscall.SIGSTOP && !known[tid]:
			known[tid], signal = true, 0
		default:
			signal = int(sig)
		}
	}
}

// syscall is told of the beginnings and ends of system calls.
func (tr *tracer) syscall(tid int) {
	tr.inside[tid] = !tr.inside[tid]
	if !tr.inside[tid] {
		if tid == tr.doomed {
			_ = syscall.Kill(tr.pid, syscall.SIGKILL)
		}
		return
	}
	var regs syscall.PtraceRegs
	if syscall.PtraceGetRegs(tid, &regs) != nil {
		return
	}
	kind := tr.kind(&regs)
	if kind == "" {
		return
	}
	tr.seen[kind]++
	if kind != tr.at.Kind || tr.seen[kind] != tr.at.N {
		return
	}
	if tr.at.After {
		tr.doomed = tid
	} else {
		_ = syscall.Kill(tr.pid, syscall.SIGKILL) // the call does not happen any more
	}
}

// kind names a system call that others can see the effect of: on files below the directory, on connections, on processes.
func (tr *tracer) kind(r *syscall.PtraceRegs) string {
	const copyFileRange, renameat2, pidfdSendSignal, clone3 = 326, 316, 424, 435
	file := func(word, name string) string {
		if name == "" {
			return ""
		}
		return word + " " + name
	}
	switch r.Orig_rax {
	case syscall.SYS_WRITE, syscall.SYS_PWRITE64, syscall.SYS_WRITEV, syscall.SYS_SENDTO, syscall.SYS_SENDMSG, copyFileRange:
		fd := r.Rdi
		if r.Orig_rax == copyFileRange {
			fd = r.Rdx
		}
		return file("write", tr.descriptor(fd))
	case syscall.SYS_FSYNC, syscall.SYS_FDATASYNC:
		return file("sync", tr.descriptor(r.Rdi))
	case syscall.SYS_FTRUNCATE, syscall.SYS_FALLOCATE:
		return file("size", tr.descriptor(r.Rdi))
	case syscall.SYS_FLOCK:
		return file("lock", tr.descriptor(r.Rdi))
	case syscall.SYS_OPENAT:
		if r.Rdx&syscall.O_CREAT != 0 {
			return file("create", tr.path(r.Rsi))
		}
	case syscall.SYS_RENAMEAT, syscall.SYS_LINKAT, renameat2:
		return file("name", tr.path(r.R10))
	case syscall.SYS_SYMLINKAT:
		return file("name", tr.path(r.Rdx))
	case syscall.SYS_UNLINKAT:
		return file("remove", tr.path(r.Rsi))
	case syscall.SYS_MKDIRAT:
		return file("folder", tr.path(r.Rsi))
	case syscall.SYS_CLONE:
		if r.Rdi&syscall.CLONE_THREAD == 0 {
			return "start a process"
		}
	case clone3:
		return "start a process"
	case syscall.SYS_KILL, pidfdSendSignal:
		return "signal a process"
	case syscall.SYS_ACCEPT4:
		return "accept"
	}
	return ""
}

// descriptor names what is open: a file below the directory, or a connection.
func (tr *tracer) descriptor(fd uint64) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tr.pid, fd))
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(name, "socket:"):
		return "connection"
	}
	return tr.below(name)
}

// path names the file whose path is in the program's memory.
func (tr *tracer) path(address uint64) string {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", tr.pid))
	if err != nil {
		return ""
	}
	defer mem.Close()
	b := make([]byte, 512)
	n, _ := mem.ReadAt(b, int64(address))
	name, _, _ := bytes.Cut(b[:n], []byte{0})
	path := string(name)
	if !filepath.IsAbs(path) {
		path = filepath.Join(tr.dir, path)
	}
	return tr.below(path)
}

var (
	numbers   = regexp.MustCompile(`[0-9]+`)
	temporary = regexp.MustCompile(`^(.*/\.[^/]*)-[a-z0-9]{8}$`)
)

func (tr *tracer) below(path string) string {
	rel, err := filepath.Rel(tr.dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return ""
	}
	return numbers.ReplaceAllString(temporary.ReplaceAllString(rel, "$1-0"), "#")
}
