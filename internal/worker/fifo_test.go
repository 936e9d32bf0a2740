package worker

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fifo is a named pipe by which user code tells the test that it has come to a place: readLine waits for a line.
type fifo struct {
	t    testing.TB
	path string
	r    *bufio.Reader
	file *os.File
}

func (f *fifo) readLine() string {
	f.t.Helper()
	_ = f.file.SetReadDeadline(time.Now().Add(soon))
	line, err := f.r.ReadString('\n')
	if err != nil {
		f.t.Fatalf("user code does not come to where it should: %v", err)
	}
	return strings.TrimSpace(line)
}

func newFifo(t testing.TB) *fifo {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// Open for both, so that opening does not wait and the end of a writer is no end of the file.
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { file.Close() })
	return &fifo{t: t, path: path, r: bufio.NewReader(file), file: file}
}

// readPID reads a line that is a process id.
func (f *fifo) readPID() int {
	f.t.Helper()
	pid, err := strconv.Atoi(f.readLine())
	if err != nil {
		f.t.Fatal(err)
	}
	return pid
}

// writeLine lets user code go on that reads from it.
func (f *fifo) writeLine() {
	f.t.Helper()
	if _, err := f.file.WriteString("go\n"); err != nil {
		f.t.Fatal(err)
	}
}

// gone waits until a process that is not our child has ended (a zombie has).
func gone(t testing.TB, pid int) {
	t.Helper()
	for end := time.Now().Add(soon); alive(pid); {
		if time.Now().After(end) {
			t.Fatalf("process %d still runs", pid)
		}
		// Nothing announces the end of somebody else's child.
		pauseBriefly()
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil && len(stat) > 0
	}
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return stat[i+2] != 'Z' && stat[i+2] != 'X'
		}
	}
	return false
}

func pauseBriefly() { <-time.After(time.Millisecond) }
