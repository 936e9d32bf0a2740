//go:build linux

package e2e

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A terminal is the user's side of a pseudoterminal that controls a daisy-submit.
type terminal struct {
	t      testing.TB
	master *os.File
	slave  *os.File
	screen *transcript // what was written to it
	read   sync.WaitGroup
}

// openTerminal makes a terminal the controlling one of a command that has not begun.
func openTerminal(t testing.TB, s *submit) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		if failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); failed != nil {
			return
		}
		n, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, master: master, slave: slave, screen: s.stderr}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	term.read.Go(func() { _, _ = io.Copy(term.screen, master) }) // ends with the terminal
	t.Cleanup(term.close)
	return term
}

func (term *terminal) write(keys string) {
	if _, err := io.WriteString(term.master, keys); err != nil {
		term.t.Fatal(err)
	}
}

// close hangs up.
func (term *terminal) close() {
	_ = term.master.Close()
	_ = term.slave.Close()
	term.read.Wait()
}

// pipeOutput makes the output of a command that has not begun go to pipes; the function that it gives closes their other end.
func pipeOutput(t testing.TB, s *submit) (hangUp func()) {
	t.Helper()
	out, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = outW, outW
	t.Cleanup(func() { _ = outW.Close() })
	return func() {
		_ = out.Close()
		_ = outW.Close() // the command has its own
	}
}
