package worker

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

func withFunc(t testing.TB, seconds float64, f Func) (*script, Config) {
	task := testTask("func")
	task.TimeoutSeconds = seconds
	c, cfg := overPipe(t, task)
	cfg.Funcs = map[string]Func{"predict": f}
	return c, cfg
}

func TestTheEndsOfAFunction(t *testing.T) {
	for name, tc := range map[string]struct {
		f       Func
		want    wire.Outcome
		message string
	}{
		"nil":   {func(context.Context, *Block) error { return nil }, wire.Success, ""},
		"error": {func(_ context.Context, b *Block) error { return errors.New("no " + b.Label()) }, wire.Failed, "no predict 7 #1"},
		"panic": {func(context.Context, *Block) error { panic("oh") }, wire.Lost, "panic: oh"},
		"panic(nil)": {func(context.Context, *Block) error {
			var err error
			panic(err)
		}, wire.Lost, "panic: panic called with nil argument"},
		"Goexit":  {func(context.Context, *Block) error { runtime.Goexit(); return nil }, wire.Lost, "its function ended its goroutine (runtime.Goexit)"},
		"timeout": {func(ctx context.Context, _ *Block) error { <-ctx.Done(); return ctx.Err() }, wire.TimedOut, "timed out after 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			c, cfg := withFunc(t, 0.2, tc.f)
			w := start(t, cfg)
			s := c.next()
			r := runBlock(s)
			if r.Outcome != tc.want || r.Message != tc.message {
				t.Errorf("got %v %q, want %v %q", r.Outcome, r.Message, tc.want, tc.message)
			}
			if name == "panic" && !strings.Contains(r.Tail, "function_test.go") {
				t.Errorf("the tail has no stack: %q", r.Tail)
			}
			s.acquire()
			s.drain()
			s.leaving()
			if got := w.status(); got != 0 {
				t.Errorf("status: got %d, want 0", got)
			}
		})
	}
}

func TestASlotWhoseFunctionIgnoresItsTimeoutIsWrittenOff(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	c, cfg := withFunc(t, 0.1, func(_ context.Context, b *Block) error {
		if b.Flat == 7 {
			<-hold
		}
		return nil
	})
	c.set(func(j *api.JoinResponse) { j.GraceSeconds = 0.1 })
	cfg.Slots = 2
	w := start(t, cfg)
	s := c.next()
	s.acquire()
	s.acquire()
	s.grant(1, 7)
	r := s.release()
	if r.Outcome != wire.TimedOut || !strings.Contains(r.Message, "its function ignores its context") || !strings.Contains(r.Message, "of worker 3.0 is written off") {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.grant(2, 8) // the other slot goes on
	if r := s.release(); r.Outcome != wire.Success {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	s.acknowledge(2)
	s.grant(s.acquire().Request, 7)
	if r := s.release(); r.Outcome != wire.TimedOut {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
	if l := s.leaving(); l.Reason != wire.LeaveDone {
		t.Errorf("got %v: no slot is left", l)
	}
	s.acknowledge(3)
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

func TestASlotWhoseFunctionHasEndedItsGoroutineGoesOn(t *testing.T) {
	c, cfg := withFunc(t, 1000, func(_ context.Context, b *Block) error {
		if b.Flat == 7 {
			runtime.Goexit()
		}
		return nil
	})
	w := start(t, cfg)
	s := c.next()
	if r := runBlock(s); r.Outcome != wire.Lost {
		t.Errorf("got %v, want lost", r.Outcome)
	}
	s.grant(s.acquire().Request, 8)
	if r := s.release(); r.Outcome != wire.Success {
		t.Errorf("got %v, want success", r.Outcome)
	}
	s.acknowledge(2)
	s.acquire()
	s.drain()
	s.leaving()
	if got := w.status(); got != 0 {
		t.Errorf("status: got %d, want 0", got)
	}
}

// TestAFunctionThatReturnsAfterItsSlotWasWrittenOffIsNotHeard: its block has ended, and its worker has left.
func TestAFunctionThatReturnsAfterItsSlotWasWrittenOffIsNotHeard(t *testing.T) {
	for name, last := range map[string]func() error{
		"returns": func() error { return nil },
		"panics":  func() error { panic("late") },
		"Goexit":  func() error { runtime.Goexit(); return nil },
	} {
		hold, back := make(chan struct{}), make(chan struct{})
		c, cfg := withFunc(t, 0.05, func(context.Context, *Block) error {
			defer close(back)
			<-hold
			return last()
		})
		c.set(func(j *api.JoinResponse) { j.GraceSeconds = 0.05 })
		w := start(t, cfg)
		s := c.next()
		if r := runBlock(s); r.Outcome != wire.TimedOut {
			t.Errorf("%s: got %v, want timed out", name, r.Outcome)
		}
		if l := s.leaving(); l.Reason != wire.LeaveDone {
			t.Errorf("%s: got %v: no slot is left", name, l)
		}
		s.acknowledge(1)
		if got := w.status(); got != 0 {
			t.Errorf("%s: status: got %d, want 0", name, got)
		}
		close(hold)
		<-back
	}
}
