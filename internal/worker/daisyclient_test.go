package worker

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"example.org/daisy/internal/daisywire"
)

// clientVariable makes the test binary a worker script of daisy.
const clientVariable = "WORKER_TEST_CLIENT"

// A client is a client of daisy that does what no sound one would do.
type client struct {
	conn net.Conn
	task string
	last daisywire.Block // that it was sent
}

func dialRelay() *client {
	c, err := daisywire.ParseContext(os.Getenv(daisywire.Variable))
	if err != nil {
		panic(err)
	}
	host, _ := c.Get("hostname")
	port, _ := c.Get("port")
	task, _ := c.Get("task_id")
	conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		panic(err)
	}
	return &client{conn: conn, task: task}
}

func (c *client) send(m daisywire.Message) {
	if _, err := c.conn.Write(daisywire.Append(nil, daisywire.Released, &m)); err != nil {
		panic(err)
	}
}

func (c *client) ask(task string) {
	c.send(daisywire.Message{Kind: daisywire.AcquireBlock, TaskID: task, Worker: 1, HasWorker: true})
}

// next is the next message, false at the end of the connection.
func (c *client) next() (daisywire.Message, bool) {
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return daisywire.Message{}, false
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c.conn, payload); err != nil {
		panic(err)
	}
	m, err := daisywire.Decode(payload, daisywire.Released)
	if err != nil {
		panic(err)
	}
	if m.Kind == daisywire.SendBlock {
		c.last = m.Block
	}
	return m, true
}

// acquire is false when there are no more blocks.
func (c *client) acquire() bool {
	c.ask(c.task)
	m, ok := c.next()
	return ok && m.Kind == daisywire.SendBlock
}

func (c *client) release(change func(*daisywire.Message)) {
	m := daisywire.Message{Kind: daisywire.ReleaseBlock, Block: c.last}
	m.Block.Status = daisywire.Success
	if change != nil {
		change(&m)
	}
	c.send(m)
}

// playClient does what its arguments say, one after another, and ends with 0.
func playClient(args []string) int {
	var c, second *client
	if len(args) > 0 && args[0] != "exit" && args[0] != "child" {
		c = dialRelay()
	}
	for i := 0; i < len(args); i++ {
		operand := func() string { i++; return args[i] }
		switch args[i] {
		case "say": // a line to a fifo
			f, err := os.OpenFile(operand(), os.O_WRONLY, 0)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(f, os.Getpid())
			f.Close()
		case "await": // a line of a fifo
			f, err := os.Open(operand())
			if err != nil {
				panic(err)
			}
			if _, err := f.Read(make([]byte, 1)); err != nil {
				panic(err)
			}
			f.Close()
		case "print":
			fmt.Println(operand())
		case "acquire":
			if !c.acquire() {
				return 0
			}
		case "ask":
			c.ask(c.task)
		case "ask for":
			c.ask(operand())
		case "release":
			c.release(nil)
		case "release another's":
			c.release(func(m *daisywire.Message) { m.Block.SpatialID++ })
		case "release elsewhere":
			c.release(func(m *daisywire.Message) { m.Block.Write.Offset = []int64{1 << 40} })
		case "release failed":
			c.release(func(m *daisywire.Message) { m.Block.Status = daisywire.Failed })
		case "release measured":
			c.release(func(m *daisywire.Message) {
				m.Block.Stats = &daisywire.Stats{WallSeconds: 0.001, CPUSeconds: 0.25, PeakRSSBytes: 4096, IOReadBytes: 300, IOWriteBytes: 70000}
			})
		case "release mismeasured":
			stats := map[string]daisywire.Stats{"wall": {WallSeconds: math.Inf(1), CPUSeconds: 77}, "long": {WallSeconds: 1000, CPUSeconds: 77}, "cpu": {CPUSeconds: math.NaN()}, "memory": {PeakRSSBytes: 1 << 63}, "read": {IOReadBytes: 1 << 63}, "written": {IOWriteBytes: 1 << 63}}[operand()]
			c.release(func(m *daisywire.Message) { m.Block.Stats = &stats })
		case "fail":
			c.release(func(m *daisywire.Message) { m.Kind, m.Error = daisywire.BlockFailed, operand() })
		case "second acquires": // on another connection, without waiting for the answer
			second = dialRelay()
			second.ask(second.task)
		case "second gets":
			if m, ok := second.next(); !ok || m.Kind != daisywire.SendBlock {
				return 0
			}
		case "second releases":
			second.release(nil)
		case "write":
			text, err := strconv.Unquote(`"` + operand() + `"`) // no argument can have a zero byte
			if err == nil {
				_, err = c.conn.Write([]byte(text))
			}
			if err != nil {
				panic(err)
			}
		case "close":
			c.conn.Close()
		case "hold": // for ever
			select {}
		case "child": // does the rest
			cmd := exec.Command(os.Args[0], args[i+1:]...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil {
				fmt.Println(err)
				return 7
			}
			return 0
		case "loop":
			for c.acquire() {
				c.release(nil)
			}
		case "again": // from the begin, on the same connection
			i = -1
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "exit":
			status, _ := strconv.Atoi(operand())
			return status
		default:
			panic("no such thing to do: " + args[i])
		}
	}
	return 0
}
