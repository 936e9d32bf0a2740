package process

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// A guard stands in for death signals where the system has none: a shell that is told of every process group, and kills
// those that are left when its input ends, which it does when this process dies in whatever way. nil guards nothing.
type guard struct {
	process *os.Process
	mu      sync.Mutex
	tell    *os.File
}

// guardScript reads lines "+ pid" and "- pid".
const guardScript = `trap '' HUP INT TERM
live=
while read -r op pid; do
	case $op in
	+) live="$live $pid" ;;
	-) rest=
	   for p in $live; do [ "$p" = "$pid" ] || rest="$rest $p"; done
	   live=$rest ;;
	esac
done
for p in $live; do kill -KILL "-$p"; done`

func startGuard(null *os.File) (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard of child processes: %w", err)
	}
	defer read.Close()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", guardScript}, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{read, null, null}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		write.Close()
		return nil, fmt.Errorf("start the guard of child processes: %w", err)
	}
	return &guard{process: p, tell: write}, nil
}

func (g *guard) add(pid int)    { g.say("+", pid) }
func (g *guard) remove(pid int) { g.say("-", pid) }

func (g *guard) say(op string, pid int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = io.WriteString(g.tell, fmt.Sprintf("%s %d\n", op, pid)) // without a guard children are ended by their owners all the same
}

func (g *guard) close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	g.tell.Close()
	g.mu.Unlock()
	_, err := g.process.Wait()
	return err
}
