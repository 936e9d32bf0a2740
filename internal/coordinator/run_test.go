package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
)

// newKept is a coordinator that listens and has a run directory.
func newKept(t *testing.T) (*Coordinator, *rundir.Dir) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Job: benchJob(t, 1, ""), RunDir: dir, Listen: true, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func TestTheDiscoveryFileGoesWithTheRun(t *testing.T) {
	c, dir := newKept(t)
	if _, err := rundir.ReadDiscovery(dir.Path()); err != nil {
		t.Fatal(err)
	}
	c.Stop(engine.StopNow, "enough")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := rundir.ReadDiscovery(dir.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the run: %v, want no file", err)
	}
}

func TestTheDiscoveryFileOfANewerCoordinatorStays(t *testing.T) {
	c, dir := newKept(t)
	newer := rundir.Discovery{Epoch: c.epoch + 1, Addresses: []string{"127.0.0.1:1"}}
	if err := dir.WriteDiscovery(newer); err != nil {
		t.Fatal(err)
	}
	c.Stop(engine.StopNow, "enough")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found, err := rundir.ReadDiscovery(dir.Path()); err != nil || found.Epoch != newer.Epoch {
		t.Errorf("got %+v, %v", found, err)
	}
}

func TestOnlyATakeOverOrAnErrorThatLastsEndsTheRun(t *testing.T) {
	full := &fs.PathError{Op: "open", Path: "lock", Err: syscall.EMFILE}
	taken := &rundir.TakenOverError{Path: "run", Epoch: 1, Newer: 2}
	for name, tc := range map[string]struct {
		after time.Duration // from when on
		err   error         // this comes instead of full
		want  error
		took  time.Duration // at least, and about a second more at most
	}{
		"no error":                {0, nil, nil, 0},
		"some without descriptor": {20 * time.Second, nil, nil, 20 * time.Second},
		"taken over":              {0, taken, taken, 0},
		"taken over meanwhile":    {20 * time.Second, taken, taken, 20 * time.Second},
		"an error that lasts":     {time.Hour, nil, full, rundir.StaleAfter},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := insist(t.Context(), func() error {
				if time.Since(began) >= tc.after {
					return tc.err
				}
				return full
			})
			if d := time.Since(began); !errors.Is(err, tc.want) || d < tc.took || d > tc.took+time.Second {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, d, tc.want, tc.took)
			}
		})
	}
}

// inBubble is a coordinator with a run directory and no port.
func inBubble(t *testing.T) (*Coordinator, *rundir.Dir) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "line", "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Job: benchJob(t, 1, ""), RunDir: dir, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func TestALockThatCannotBeRenewedForAWhileIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := inBubble(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.renewLock(ctx)
		}()
		lock := filepath.Join(dir.Path(), "lock")
		if err := os.Rename(lock, lock+"-away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rundir.StaleAfter)
		if err := os.Rename(lock+"-away", lock); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * rundir.StaleAfter)
		if !c.inbox.empty() {
			t.Fatal("the run was ended")
		}
		if _, err := dir.TakeOver(); err != nil {
			t.Fatal(err)
		}
		<-ended // at the next renewal
		lists, _ := c.inbox.swap(nil, nil)
		events := slices.Concat(lists...)
		if len(events) != 1 || events[0].Kind != engine.EventBroken {
			t.Errorf("after a take-over: %+v", events)
		}
		stop()
	})
}

func TestTheEndOfTheRunEndsTheRenewalOfALockThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := inBubble(t)
		if err := os.Remove(filepath.Join(dir.Path(), "lock")); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*rundir.RenewEvery, stop)
		began := time.Now()
		c.renewLock(ctx)
		if d := time.Since(began); d != 2*rundir.RenewEvery || !c.inbox.empty() {
			t.Errorf("it took %v, and there are events: %v", d, !c.inbox.empty())
		}
	})
}

func TestACommitWaitsUntilTheEpochCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := inBubble(t)
		epoch := filepath.Join(dir.Path(), "epoch")
		right, err := os.ReadFile(epoch)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text []byte) {
			if err := os.WriteFile(epoch, text, 0o600); err != nil {
				t.Error(err)
			}
		}
		write([]byte("cannot be read"))
		time.AfterFunc(10*time.Second, func() { write(right) })
		n := c.journal.Append([]byte("record"))
		if got, err := c.journal.Commit(); err != nil || got != n {
			t.Errorf("committed up to %d (%v), want %d", got, err, n)
		}
		write([]byte("99\n"))
		c.journal.Append([]byte("record"))
		began := time.Now()
		var taken *rundir.TakenOverError
		if _, err := c.journal.Commit(); !errors.As(err, &taken) || time.Since(began) != 0 {
			t.Errorf("after a take-over: %v after %v", err, time.Since(began))
		}
	})
}

// aQueue and anAdopter note that they were closed, or released; nothing else of them is called.
type aQueue struct {
	launcher.Queue
	calls []string
}

func (q *aQueue) Close(context.Context) error { q.calls = append(q.calls, "close"); return nil }

type anAdopter struct {
	launcher.Launcher
	launcher.Adopter
	calls []string
}

func (a *anAdopter) Close(context.Context) error { a.calls = append(a.calls, "close"); return nil }
func (a *anAdopter) Release()                    { a.calls = append(a.calls, "release") }

func TestTheWorkersOfARunThatWasTakenOverAreNotEnded(t *testing.T) {
	for taken, want := range map[bool][2]string{true: {"[]", "[release close]"}, false: {"[close]", "[close]"}} {
		q, a := &aQueue{}, &anAdopter{}
		for _, l := range []launcher.Launcher{q, a} {
			if err := (&Coordinator{cfg: Config{Launcher: l}}).closeLauncher(taken); err != nil {
				t.Error(err)
			}
		}
		if got := [2]string{fmt.Sprint(q.calls), fmt.Sprint(a.calls)}; got != want {
			t.Errorf("taken over %t: got %v, want %v", taken, got, want)
		}
	}
}

// TestACoordinatorThatWasTakenOverChangesNothingOfABatchSystems: it may have slept, and learns at its next commit only that the jobs are another's.
func TestACoordinatorThatWasTakenOverChangesNothingOfABatchSystems(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, dir := inBubble(t)
			q := launchertest.NewQueue()
			c.cfg.Launcher = q
			if taken {
				if err := os.WriteFile(filepath.Join(dir.Path(), "epoch"), []byte("99\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			c.errands.start(ctx)
			c.end(engine.EffectCancel, []launcher.Worker{{Tag: "1"}})
			c.ask(engine.EffectThrottle, engine.Ask{Array: "101", Count: 2})
			c.ask(engine.EffectExclude, engine.Ask{Array: "101", Nodes: []string{"n1"}})
			c.ask(engine.EffectCancelArray, engine.Ask{Tag: "1", Array: "101"})
			synctest.Wait()
			stop()
			c.errands.wait()
			if calls := q.Calls(); (len(calls) == 0) != taken || !taken && len(calls) != 4 {
				t.Errorf("taken over %t: calls %q", taken, calls)
			}
		})
	}
}

func TestARunThatIsLeftToAnotherCoordinatorHasNotEnded(t *testing.T) {
	c, dir := newKept(t)
	c.StepAside(time.Hour, "its time is over")
	result, err := c.Run(t.Context())
	if err != nil || result.State != engine.RunAside {
		t.Fatalf("it ended %v, %v", result.State, err)
	}
	if dir.Finished() {
		t.Error("there are statistics of its end")
	}
	if _, alive := dir.Coordinated(); alive {
		t.Error("it still has the lock")
	}
	found, err := rundir.ReadDiscovery(dir.Path())
	if err != nil || found.AwayUntil == nil || time.Until(*found.AwayUntil) < 50*time.Minute {
		t.Errorf("workers that start meanwhile find %+v, %v", found, err)
	}
	next, err := New(Config{Job: benchJob(t, 1, ""), RunDir: dir, Listen: true, Unlimited: true, Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := rundir.ReadDiscovery(dir.Path()); err != nil || found.AwayUntil != nil {
		t.Errorf("the next one says %+v, %v", found, err)
	}
	next.Stop(engine.StopNow, "enough")
	if result, err := next.Run(t.Context()); err != nil || result.State != engine.RunStopped {
		t.Errorf("the next one ended %v, %v", result.State, err)
	}
}

// A worker that has lost its connection may be back before the port is closed.
func TestOnlyAWorkerOfARunThatIsOverIsToldSo(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(*Coordinator, *rundir.Dir)
		status int
		code   string
	}{
		"stopped":    {func(c *Coordinator, _ *rundir.Dir) { c.Stop(engine.StopNow, "enough") }, http.StatusForbidden, "ended"},
		"aside":      {func(c *Coordinator, _ *rundir.Dir) { c.StepAside(time.Hour, "enough") }, http.StatusServiceUnavailable, "busy"},
		"taken over": {takeOver, http.StatusServiceUnavailable, "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := newKept(t)
			tc.end(c, dir)
			_, _ = c.Run(t.Context())
			w := httptest.NewRecorder()
			c.serveJoin(w, httptest.NewRequest(http.MethodPost, api.PathJoin, strings.NewReader(fmt.Sprintf(`{"protocol":%d,"name":"w","nonce":7,"slots":1}`, wire.Version))))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.code) {
				t.Errorf("the answer is %d: %s", w.Code, w.Body)
			}
		})
	}
}

// takeOver has another coordinator begin a newer epoch, which the first one sees when it cannot write any more.
func takeOver(c *Coordinator, dir *rundir.Dir) {
	_, _ = dir.NextEpoch()
	c.inbox.put(engine.Event{Kind: engine.EventBroken, Text: "taken over"})
}
