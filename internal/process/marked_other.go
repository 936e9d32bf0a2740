//go:build unix && !linux

package process

import (
	"context"
	"syscall"
	"time"
)

// EndMarked finds nothing: this system shows nobody's environment.
func EndMarked(context.Context, []string, []string, time.Duration) (PIDs, error) { return nil, nil }

// Marked finds nothing, either.
func Marked([]string) ([]Found, error) { return nil, nil }

// Env is of nobody: Marked finds nothing.
func (f *Found) Env(string) (value string, ok bool) { return "", false }

// Take has nothing to take over: Marked finds nothing.
func (s *Spawner) Take(Found, []string) (*Process, error) { return nil, nil }

func (p *Process) signalTaken(syscall.Signal) error { return nil }

func (p *Process) waitTaken() {}
