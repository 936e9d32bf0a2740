package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"example.org/daisy"
)

// userCode is what the test binary does when it runs as user code, by E2E_ROLE. It is a command or a stream, whichever its
// worker takes it for.
func userCode(role string) int {
	switch role {
	case "misbehave":
		return everyBlock(func(b block) error {
			return misbehave(context.Background(), b.task, b.index, b.attempt, killParent)
		})
	case "ask":
		if os.Getenv("E2E_DEAF") != "" {
			signal.Ignore(syscall.SIGTERM)
		}
		return everyBlock(ask)
	case "hostile":
		return everyBlock(hostile)
	case "sit":
		return sit()
	case "env":
		return reportEnvironment()
	case "nap":
		return everyBlock(nap)
	case "mute":
		return 0 // a stream process that ends without an answer
	case "client":
		return client(os.Args[1])
	default:
		fmt.Fprintln(os.Stderr, "no role", role)
		return 2
	}
}

// block is what user code knows of its block.
type block struct {
	task           string
	index, attempt int
	lease          string
}

// everyBlock does the work of a command or of a stream.
func everyBlock(work func(block) error) int {
	if os.Getenv("DAISY_ANSWER_FD") != "" {
		return stream(work)
	}
	index, _ := strconv.Atoi(os.Getenv("DAISY_BLOCK_INDEX"))
	attempt, _ := strconv.Atoi(os.Getenv("DAISY_ATTEMPT"))
	if err := work(block{os.Getenv("DAISY_TASK_ID"), index, attempt, os.Getenv("DAISY_LEASE")}); err != nil {
		fmt.Println(err)
		return 7
	}
	return 0
}

func stream(work func(block) error) int {
	fd, err := strconv.Atoi(os.Getenv("DAISY_ANSWER_FD"))
	if err != nil {
		return 2
	}
	answers := json.NewEncoder(os.NewFile(uintptr(fd), "answers"))
	blocks := bufio.NewScanner(os.Stdin)
	for blocks.Scan() {
		var b struct {
			Task    string
			Index   []int
			Attempt int
			Lease   string
		}
		if err := json.Unmarshal(blocks.Bytes(), &b); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		answer := map[string]any{"lease": b.Lease, "ok": true}
		if err := work(block{b.Task, b.Index[0], b.Attempt, b.Lease}); err != nil {
			answer = map[string]any{"lease": b.Lease, "ok": false, "error": err.Error()}
		}
		if answers.Encode(answer) != nil {
			return 2
		}
	}
	return 0
}

// misbehave is the work of block index of task "work": block 0 always fails, 1 fails once, 2 hangs once until its time is up,
// 3 kills its worker once; the others, and all of other tasks, are done at once.
func misbehave(ctx context.Context, task string, index, attempt int, kill func()) error {
	if task != "work" {
		return nil
	}
	switch {
	case index == 0:
		return errors.New("this block always fails")
	case index == 1 && attempt == 1:
		return errors.New("this block fails once")
	case index == 2 && attempt == 1:
		if ctx.Done() != nil {
			<-ctx.Done()
			return ctx.Err()
		}
		hang()
	case index == 3 && attempt == 1:
		kill()
		hang()
	}
	return nil
}

// killParent kills the worker, which is the parent of a command and of a stream process.
func killParent() { _ = syscall.Kill(os.Getppid(), syscall.SIGKILL) }

// hang waits to be killed: nobody writes to this pipe.
func hang() {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	_, _ = r.Read(make([]byte, 1))
	_ = w.Close()
}

// visitDirector goes to the director and gives its connection.
func visitDirector(q question) (net.Conn, error) {
	conn, err := net.Dial("unix", os.Getenv("E2E_SOCKET"))
	if err != nil {
		return nil, err
	}
	q.PID, q.PPID = os.Getpid(), os.Getppid()
	q.Worker, q.Slot = os.Getenv("DAISY_WORKER_ID"), os.Getenv("DAISY_SLOT")
	q.GPUs, q.CUDA = os.Getenv("DAISY_GPUS"), os.Getenv("CUDA_VISIBLE_DEVICES")
	return conn, json.NewEncoder(conn).Encode(q)
}

// ask waits until the director lets it end; with E2E_ONLY only the block of that index asks. With E2E_RAN it writes its index
// into that file. Before, it leaves the processes behind that E2E_LEAVE names: "session" is one in a session
// of its own that holds the output open, "orphan" one whose parent has ended and whose environment is empty but for what it needs.
func ask(b block) error {
	if ran := os.Getenv("E2E_RAN"); ran != "" {
		f, err := os.OpenFile(ran, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := fmt.Fprintln(f, b.index); err != nil {
			return err
		}
	}
	if only := os.Getenv("E2E_ONLY"); only != "" && only != strconv.Itoa(b.index) {
		return nil
	}
	for _, how := range strings.Fields(os.Getenv("E2E_LEAVE")) {
		if err := leave(how); err != nil {
			return err
		}
	}
	conn, err := visitDirector(question{
		Role: "ask", Task: b.task, Index: strconv.Itoa(b.index), Attempt: strconv.Itoa(b.attempt), Lease: b.lease,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}

func leave(how string) error {
	cmd := exec.Command(self())
	cmd.Env = append(os.Environ(), "E2E_ROLE=sit")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if how == "orphan" {
		// The shell in between ends at once, so that init or a subreaper gets the child.
		cmd = exec.Command("sh", "-c", quoteShell(self())+" &")
		cmd.Env = []string{"E2E_ROLE=sit", "E2E_SOCKET=" + os.Getenv("E2E_SOCKET")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd.Run()
	}
	return cmd.Start()
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// sit is a process that stays: it ignores SIGTERM, and goes when the director goes.
func sit() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	conn, err := visitDirector(question{Role: "sit"})
	if err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, conn)
	return 0
}

// report is what reportEnvironment writes.
type report struct {
	Args  []string
	Dir   string
	Input json.RawMessage
	Env   map[string]string
}

// reportEnvironment writes what the process was given into a file in its working directory.
func reportEnvironment() int {
	r := report{Args: os.Args[1:], Env: map[string]string{}}
	r.Dir, _ = os.Getwd()
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	r.Input = input
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		r.Env[name] = value
	}
	data, err := json.Marshal(r)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := os.WriteFile("report-"+os.Getenv("DAISY_BLOCK_ID")+".json", data, 0o600); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// client is a worker of one's own: it serves the run in a directory until there is nothing left.
func client(runDirectory string) int {
	ctx := context.Background()
	c, err := daisy.Connect(ctx, runDirectory, daisy.ClientOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	kill := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	for b := range c.Blocks(ctx) {
		err := misbehave(b.Context(), b.Task, int(b.Index.At(0)), b.Attempt, kill)
		if err := b.Release(err); err != nil && !errors.Is(err, daisy.ErrReclaimed) {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := c.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}
