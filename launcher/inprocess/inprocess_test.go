package inprocess

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

func TestTheInProcessLauncherConforms(t *testing.T) {
	launchertest.Run(t, func(*testing.T) launcher.Launcher {
		return New("in-process", launchertest.Goroutine)
	}, launchertest.Options{Goroutines: true})
}

// collect gives the channel on which a launcher's statuses arrive.
func collect(l *Launcher) <-chan launcher.Status {
	c := make(chan launcher.Status, 64)
	l.Watch(func(s launcher.Status) { c <- s })
	return c
}

func TestAWorkerThatReturnsHasLeftAndOneWithAnErrorHasBroken(t *testing.T) {
	l := New("in-process", func(_ context.Context, _ launcher.Request, w launcher.Worker) error {
		if w.Element == 1 {
			return errors.New("no such array")
		}
		return nil
	})
	c := collect(l)
	if _, err := l.Submit(t.Context(), launcher.Request{Tag: "1", Count: 2}); err != nil {
		t.Fatal(err)
	}
	ends := map[int]launcher.End{}
	for len(ends) < 2 {
		if s := <-c; s.State == launcher.Ended {
			ends[s.Worker.Element] = s.End
		}
	}
	if got, want := ends[0], (launcher.End{Cause: launcher.Exited}); got != want {
		t.Errorf("worker 0 ended %+v, want %+v", got, want)
	}
	if got, want := ends[1], (launcher.End{Cause: launcher.Exited, Exit: 1, Detail: "no such array"}); got != want {
		t.Errorf("worker 1 ended %+v, want %+v", got, want)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Submit(t.Context(), launcher.Request{Tag: "2", Count: 1}); err == nil {
		t.Error("a closed launcher started a worker")
	}
}

func TestCancelEndsAWorkerAndTheEndIsOurs(t *testing.T) {
	l := New("in-process", func(ctx context.Context, _ launcher.Request, _ launcher.Worker) error {
		<-ctx.Done()
		return nil
	})
	c := collect(l)
	if _, err := l.Submit(t.Context(), launcher.Request{Tag: "1", Count: 1}); err != nil {
		t.Fatal(err)
	}
	if s := <-c; s.State != launcher.Running {
		t.Fatalf("first status is %v, want running", s.State)
	}
	_ = l.Cancel(t.Context(), launcher.Worker{Tag: "1"}, launcher.Worker{Tag: "unknown"})
	if s := <-c; s.State != launcher.Ended || !s.End.Ours {
		t.Errorf("status %+v, want an end of our own", s)
	}
}

func TestCloseIsBoundedByItsContextAndKillReportsTheEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := New("in-process", func(context.Context, launcher.Request, launcher.Worker) error {
			<-release // ignores its context
			return nil
		})
		c := collect(l)
		if _, err := l.Submit(t.Context(), launcher.Request{Tag: "1", Count: 1}); err != nil {
			t.Fatal(err)
		}
		<-c
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Close(ctx)
		if err == nil {
			t.Error("Close reports no worker left behind")
		}
		_ = l.Kill(t.Context(), launcher.Worker{Tag: "1"})
		if s := <-c; s.State != launcher.Ended {
			t.Errorf("status %+v, want ended", s)
		}
		close(release)
		synctest.Wait()
		if len(c) != 0 {
			t.Error("the end was told twice")
		}
	})
}
