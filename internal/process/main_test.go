package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// adoptVariable makes the tests run in a process that adopts orphans.
const adoptVariable = "PROCESS_TEST_ADOPT"

// TestMain is also the program that the tests start: with the first argument "play", it plays the role named by the second.
func TestMain(m *testing.M) {
	RunLimited()
	if len(os.Args) > 2 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2], os.Args[3:]))
	}
	if os.Getenv(adoptVariable) != "" {
		if err := Adopt(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// A part is what a player tells on descriptor 3, which it and all that it starts hold: its end is the end of all of them.
type part struct {
	Args, Env []string
	Dir       string
	PID       int
}

func play(role string, args []string) int {
	out := os.NewFile(3, "report")
	report := func() {
		dir, _ := os.Getwd()
		_ = json.NewEncoder(out).Encode(part{os.Args, os.Environ(), dir, os.Getpid()})
	}
	hold := func() int { // until the parent of all closes the input
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	child := func(role string, env []string, args ...string) {
		cmd := exec.Command(os.Args[0], append([]string{"play", role}, args...)...)
		cmd.Stdin, cmd.ExtraFiles, cmd.Env = os.Stdin, []*os.File{out}, env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	switch role {
	case "hold":
		report()
		return hold()
	case "call": // connects to the address, and reports
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		report()
		return hold()
	case "have call": // the same, by a detached child
		child("call", nil, args[0])
		return hold()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		report()
		return hold()
	case "leave": // ends and leaves a detached process of the role behind
		child(args[0], nil)
		return 0
	case "leave in secret": // without the markers, but a member of the group
		cmd := exec.Command(os.Args[0], "play", args[0])
		cmd.Stdin, cmd.ExtraFiles, cmd.Env = os.Stdin, []*os.File{out}, []string{}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		return 0
	case "tree": // detached, without the markers, found by parentage
		child("stubborn", []string{})
		child("leave", nil, "stubborn")
		report()
		return hold()
	case "coordinator": // starts one by a spawner, one by a guard's protection, and holds
		s, err := NewSpawner()
		if err != nil {
			panic(err)
		}
		if _, err := s.Start(Config{Argv: []string{os.Args[0], "play", "stubborn"}, Stdin: os.Stdin, ExtraFiles: []*os.File{out}}); err != nil {
			panic(err)
		}
		return hold()
	case "guarded": // a child in a group of its own that only the guard ends
		null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		g, err := startGuard(null)
		if err != nil {
			panic(err)
		}
		p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "play", "stubborn"}, &os.ProcAttr{
			Files: []*os.File{os.Stdin, null, null, out}, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
		if err != nil {
			panic(err)
		}
		g.add(1 << 22) // one that has ended meanwhile
		g.add(p.Pid)
		g.remove(1 << 22)
		return hold()
	case "end orphans": // adopts when it is told to, and kills the process of its argument, so that the children of that are orphans
		_, _ = io.Copy(io.Discard, os.NewFile(4, "begin"))
		pid, _ := strconv.Atoi(args[0])
		if err := Adopt(); err != nil {
			panic(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			panic(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			panic(err)
		}
		found, err := EndOrphans(context.Background())
		if err != nil {
			panic(err)
		}
		return len(found)
	case "limits": // says how many files may be open here, and in children
		s, err := NewSpawner()
		if err != nil {
			panic(err)
		}
		files, err := FileLimit()
		if err != nil {
			panic(err)
		}
		fmt.Println(files)
		p, err := s.Start(Config{Argv: []string{"/bin/sh", "-c", "ulimit -n"}, Stdout: os.Stdout})
		if err != nil {
			panic(err)
		}
		p.Wait()
		return 0
	case "limited further": // says how much address space a child has that is to have so much
		s, err := NewSpawner()
		if err != nil {
			panic(err)
		}
		bytes, _ := strconv.ParseInt(args[0], 10, 64)
		p, err := s.Start(Config{Argv: []string{"/bin/sh", "-c", "ulimit -v"}, Stdout: os.Stdout, Memory: MemoryLimit{AddressSpace: bytes}})
		if err != nil {
			panic(err)
		}
		p.Wait()
		return 0
	case "burn":
		for x, end := 0, time.Now().Add(50*time.Millisecond); time.Now().Before(end); x++ {
			_ = x
		}
		memory := make([]byte, 64<<20)
		for i := range memory {
			memory[i] = 1
		}
		report()
		return hold()
	}
	fmt.Fprintln(os.Stderr, "no such role:", role)
	return 99
}

// A stage is where players are watched.
type stage struct {
	*testing.T
	spawner *Spawner
	stdin   *os.File // closed = all may end
	players *os.File // their ends of both pipes
	input   *os.File
	reports *bufio.Reader
	read    *os.File
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, spawner: newSpawner(t)}
	var err error
	if s.input, s.stdin, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if s.read, s.players, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	s.reports = bufio.NewReader(s.read)
	t.Cleanup(func() {
		for _, f := range []*os.File{s.stdin, s.input, s.players, s.read} {
			f.Close()
		}
	})
	return s
}

func newSpawner(t testing.TB) *Spawner {
	t.Helper()
	s, err := NewSpawner()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// outputFile takes what processes write, for read after their end.
func outputFile(t *testing.T) (file *os.File, read func() string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, func() string {
		t.Helper()
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// config is a player. Its marker is unique.
func (s *stage) config(role string, args ...string) Config {
	marker := fmt.Sprintf("DAISY_LEASE=%s.%d", strings.ReplaceAll(s.Name(), "/", "_"), time.Now().UnixNano())
	return Config{
		Argv: append([]string{os.Args[0], "play", role}, args...), Env: []string{marker, "GORACE=atexit_sleep_ms=0"}, Markers: []string{marker},
		Stdin: s.input, ExtraFiles: []*os.File{s.players},
	}
}

func (s *stage) start(c Config) *Process {
	s.Helper()
	p, err := s.spawner.Start(c)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// next waits for the report of a player.
func (s *stage) next() part {
	s.Helper()
	s.read.SetReadDeadline(time.Now().Add(patience))
	line, err := s.reports.ReadBytes('\n')
	if err != nil {
		s.Fatalf("no report: %v", err)
	}
	var p part
	if err := json.Unmarshal(line, &p); err != nil {
		s.Fatal(err)
	}
	return p
}

// empty waits until no player is left.
func (s *stage) empty() {
	s.Helper()
	s.players.Close()
	s.read.SetReadDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(s.reports); err != nil {
		s.Fatalf("players are left: %q, %v", rest, err)
	}
}
