package launchertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"example.org/daisy/launcher"
)

// program is the first argument that turns a test binary into the worker of the suite.
const program = "launchertest-worker"

// Main runs the tests of a package that uses Run: its TestMain calls it and nothing else. The workers of the suite are the
// test binary itself, executed again.
func Main(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == program {
		os.Exit(work(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// A hello is what a worker says of itself when it has connected. Bytes, since JSON strings cannot hold all that argv can.
type hello struct {
	Role string
	Args [][]byte
	Env  [][]byte
	Dir  string
	PID  int
}

// An order is what the test wants a worker to do.
type order struct {
	Do   string // "exit", "signal", "ignore TERM", "print", "spawn"
	N    int    // exit status, signal
	Text string // what to print to standard output and error; role of the spawned process
}

// work obeys the orders of the test at address until it is told to end or the test is gone. It answers every order that it
// survives with a line.
func work(address, role string) int {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	dir, _ := os.Getwd()
	h := hello{Role: role, Args: bytesOf(os.Args), Env: bytesOf(os.Environ()), Dir: dir, PID: os.Getpid()}
	to, from := json.NewEncoder(conn), json.NewDecoder(conn)
	if err := to.Encode(h); err != nil {
		return 99
	}
	for {
		var o order
		if from.Decode(&o) != nil {
			return 98
		}
		answer := "done"
		switch o.Do {
		case "exit":
			return o.N
		case "signal":
			_ = syscall.Kill(os.Getpid(), syscall.Signal(o.N))
			select {} // it comes
		case "ignore TERM":
			signal.Ignore(syscall.SIGTERM)
		case "print":
			fmt.Fprint(os.Stdout, o.Text)
			fmt.Fprint(os.Stderr, o.Text)
		case "spawn":
			// In a session of its own, with nothing inherited that would tell of its parent's end.
			cmd := exec.Command(os.Args[0], program, address, o.Text)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				answer = err.Error()
			}
		}
		if err := to.Encode(answer); err != nil {
			return 98
		}
	}
}

// Goroutine is a worker of the suite for launchers whose workers are goroutines. It waits for the order to exit, or for the end
// of its context.
func Goroutine(ctx context.Context, r launcher.Request, w launcher.Worker) error {
	conn, err := net.Dial("tcp", r.Argv[2])
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	h := hello{Role: r.Argv[3], PID: os.Getpid(), Env: bytesOf([]string{"DAISY_TAG=" + w.Tag, "DAISY_ELEMENT=" + strconv.Itoa(w.Element)})}
	if err := json.NewEncoder(conn).Encode(h); err != nil {
		return err
	}
	var o order
	switch err := json.NewDecoder(conn).Decode(&o); {
	case ctx.Err() != nil:
		return nil // told to leave
	case err != nil:
		return err
	case o.Do != "exit":
		return fmt.Errorf("a goroutine cannot obey the order %q", o.Do)
	case o.N != 0:
		return fmt.Errorf("status %d", o.N)
	default:
		return nil
	}
}

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}
