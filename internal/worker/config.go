package worker

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Identity is who the worker is to the coordinator: an element of a submission, or a name of its own where nobody launched it.
type Identity struct {
	Tag     string
	Element int
	// Array is what a batch system calls that submission, "" where there is none.
	Array string
	// Restart is how often the batch system has started this element again.
	Restart int
	Name    string
}

// A Func is user code as a Go function. It returns nil when the block is done; ctx ends at the block's timeout and when the
// block is taken away. b is its own until it returns. A panic counts as the death of a worker.
type Func func(ctx context.Context, b *Block) error

// Config says who the worker is, where its coordinator is, and what it may use.
type Config struct {
	// RunDir is the run directory, where discovery.json and the secret are found.
	RunDir string
	// Dial opens a connection to a coordinator in the same process instead; then RunID and Secret are given here.
	Dial          func(ctx context.Context) (net.Conn, error)
	RunID, Secret string

	// Identity names the worker. Without a tag and a name it is named after its host and process.
	Identity Identity
	// Job is what a batch system says of the job that the worker runs in, if it does.
	Job Job
	// Task is what a worker with a name asks for, "" = any.
	Task string
	// Slots is how many blocks run at once, at least 1. With Fill, the coordinator says how many more its Job holds.
	Slots int
	Fill  bool
	// Batch is how many short blocks it asks for at once, at most; 0 = as many as are worth it.
	Batch int
	// Node is the machine's name, "" = what the system says.
	Node string
	// GPUs are the devices of this worker; slot i gets its share in this order.
	GPUs []string
	// Version is that of the program, for messages.
	Version string

	// CgroupRoot is where /proc and /sys are looked for when it is about cgroups, "" but for tests.
	CgroupRoot string

	// Log takes the worker's own lines and the output of user code, nil = discard.
	Log io.Writer
	// Funcs is the user code of tasks with runner "func", by task id.
	Funcs map[string]Func
	// Abort ends the worker at once when it is closed: blocks are killed without grace. May be nil.
	Abort <-chan struct{}
	// Soon gives, whenever a batch system says that the end of the worker is near, when that is. May be nil.
	Soon <-chan time.Time
	// StopWithin is how soon after the end of its context the worker has given back what it holds, at the latest; 0 = within the job's
	// grace. A batch system waits no longer than it waits.
	StopWithin time.Duration

	// OnKill is called when a block that was acquired is no longer the worker's own. It must not block. Run has its own.
	OnKill func(Block)
	// OnStop is called when the coordinator wants running blocks killed after grace. It must not block. Run has its own.
	OnStop func(message string)

	// OnWake is called before anything else when the worker was stopped for so long that no block is its own any more. It must not block.
	// Run has its own.
	OnWake func()

	// JoinTimeout is how long the first join is tried, and for how long the files of the run directory are waited for;
	// 0 = 60 s.
	JoinTimeout time.Duration
}

// complete fills in what may be left out.
func (c Config) complete() (Config, error) {
	if c.RunDir == "" && c.Dial == nil {
		return c, &ExitError{Status: StatusUsage, Err: fmt.Errorf("no run directory was given")}
	}
	if c.Slots == 0 {
		c.Slots = 1
	}
	if c.Slots < 0 || c.Slots > maxSlots {
		return c, &ExitError{Status: StatusUsage, Err: fmt.Errorf("slots is %d, allowed are 1 to %d", c.Slots, maxSlots)}
	}
	if c.Node == "" {
		c.Node, _ = os.Hostname() // a machine without a name has the name ""
	}
	if c.Identity.Tag == "" && c.Identity.Name == "" {
		c.Identity.Name = fmt.Sprintf("%s-%d", c.Node, os.Getpid())
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.JoinTimeout == 0 {
		c.JoinTimeout = defaultJoinTimeout
	}
	return c, nil
}

const (
	maxSlots           = 4096
	defaultJoinTimeout = 60 * time.Second
)
