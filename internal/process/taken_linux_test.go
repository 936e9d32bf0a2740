package process

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// take has another spawner take over the process that carries a player's markers.
func take(t *testing.T, c Config) (*Process, *Spawner) {
	t.Helper()
	found, err := Marked(c.Markers)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("nobody is found")
	}
	other := newSpawner(t)
	p, err := other.Take(found[0], c.Markers) // the oldest
	if err != nil || p == nil {
		t.Fatalf("%v, %v", p, err)
	}
	return p, other
}

func TestAProcessThatWasTakenOverIsWaitedForWithoutItsStatus(t *testing.T) {
	s := newStage(t)
	c := s.config("hold")
	owner := s.start(c)
	s.next()
	p, _ := take(t, c)
	if p.PID() != owner.PID() {
		t.Errorf("process %d is taken over, want %d", p.PID(), owner.PID())
	}
	select {
	case <-p.Done():
		t.Error("it has ended")
	case <-time.After(20 * time.Millisecond):
	}
	if err := p.Terminate(); err != nil {
		t.Error(err)
	}
	if r := owner.Wait(); r.Signal != syscall.SIGTERM {
		t.Errorf("its owner sees %v", r)
	}
	if r := p.Wait(); r.Exit != -1 || r.Err == nil || r.Success() {
		t.Errorf("it ended as %+v", r)
	}
	if err := p.Terminate(); err != nil { // nobody, whoever has its number now
		t.Error(err)
	}
}

func TestAProcessThatWasTakenOverIsKilledWithItsTree(t *testing.T) {
	for name, kill := range map[string]func(p *Process, s *Spawner) error{
		"Kill":  func(p *Process, _ *Spawner) error { return p.Kill(t.Context()) },
		"Close": func(_ *Process, s *Spawner) error { return s.Close(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			c := s.config("tree")
			s.start(c)
			for range 3 {
				s.next()
			}
			p, other := take(t, c)
			if err := kill(p, other); err != nil {
				t.Error(err)
			}
			p.Wait()
			s.empty()
		})
	}
}

func TestWhatAProcessThatWasTakenOverLeavesBehindIsEnded(t *testing.T) {
	s := newStage(t)
	c := s.config("hold")
	owner := s.start(c)
	s.next()
	p, _ := take(t, c)
	left := s.config("stubborn")
	left.Env = c.Env
	stray := s.start(left)
	s.next()
	if err := owner.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	p.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found, err := p.EndStrays(ctx, 0)
	if err != nil || !slices.Contains(found, stray.PID()) {
		t.Errorf("ended are %v, want %d: %v", found, stray.PID(), err)
	}
	s.empty()
}

func TestAProcessThatHasEndedIsNotTakenOver(t *testing.T) {
	s := newStage(t)
	c := s.config("hold")
	owner := s.start(c)
	s.next()
	found, err := Marked(c.Markers)
	if err != nil || len(found) != 1 {
		t.Fatalf("found are %v: %v", found, err)
	}
	if err := owner.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	if p, err := newSpawner(t).Take(found[0], c.Markers); p != nil || err != nil {
		t.Errorf("taken over is %v, %v", p, err)
	}
	if found, err := Marked(c.Markers); err != nil || len(found) != 0 {
		t.Errorf("found are %v: %v", found, err)
	}
}

func TestWhoIsToBeSparedIsNotEnded(t *testing.T) {
	s := newStage(t)
	shared := fmt.Sprintf("DAISY_TEST=%d", time.Now().UnixNano())
	spared, ended := s.config("stubborn"), s.config("stubborn")
	spared.Env, ended.Env = append(spared.Env, shared), append(ended.Env, shared)
	p := s.start(spared)
	s.next()
	q := s.start(ended)
	s.next()
	found, err := EndMarked(t.Context(), []string{shared}, spared.Markers, 0)
	if err != nil || !slices.Equal(found, PIDs{q.PID()}) {
		t.Errorf("ended are %v, want %d: %v", found, q.PID(), err)
	}
	select {
	case <-p.Done():
		t.Error("it was not spared")
	default:
	}
}
