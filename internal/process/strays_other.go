//go:build unix && !linux

package process

import (
	"context"
	"syscall"
	"time"
)

func (t target) alive() bool { return syscall.Kill(t.pid, 0) == nil }

// Adopt does nothing: this system hands orphans to nobody else.
func Adopt() error { return nil }

// EndOrphans has nothing to end: nothing is adopted.
func EndOrphans(context.Context) (PIDs, error) { return nil, nil }

// EndStrays ends what is left of the process group: SIGTERM, and SIGKILL after grace. What left the group is not found on
// this system.
func (p *Process) EndStrays(ctx context.Context, grace time.Duration) (PIDs, error) {
	return end(ctx, grace, nil, p.group)
}

// Kill ends the process group with SIGKILL and returns when nobody is left of it or ctx ends. It does not replace Wait.
func (p *Process) Kill(ctx context.Context) error {
	p.Done() // a leader that nobody reaps stays in its group
	_, err := end(ctx, 0, nil, p.group)
	return err
}

// group gives the group as one "pid", the way kill(2) takes it, while somebody is in it.
func (p *Process) group() ([]target, error) {
	if syscall.Kill(-p.PID(), 0) != nil {
		return nil, nil
	}
	return []target{{pid: -p.PID()}}, nil
}
