package worker

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

func TestALimitThatChangesCountsFromTheStartOfTheBlock(t *testing.T) {
	for name, c := range map[string]struct {
		first, then, want time.Duration // the second is set after 3 s; want 0 = it never ends
	}{
		"none":              {0, 0, 0},
		"as it was":         {5 * time.Second, 5 * time.Second, 5 * time.Second},
		"longer":            {5 * time.Second, 9 * time.Second, 9 * time.Second},
		"shorter":           {9 * time.Second, 5 * time.Second, 5 * time.Second},
		"shorter than past": {9 * time.Second, time.Second, 3 * time.Second},
		"given":             {0, 5 * time.Second, 5 * time.Second},
		"taken away":        {5 * time.Second, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimit(c.first)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began, ended := time.Now(), make(chan struct{})
			now := beginIn(&l, func() { close(ended) })
			time.Sleep(3 * time.Second)
			l.set(c.then)
			var got time.Duration
			select {
			case <-ended:
				got = time.Since(began)
			case <-ctx.Done():
			}
			if got != c.want {
				t.Errorf("%s: the block was ended after %v, want %v", name, got, c.want)
			}
			now.Store(nil)
			l.set(time.Second) // nothing runs any more
			time.Sleep(time.Minute)
			if l.unwatch(now); len(l.slots) != 0 {
				t.Errorf("%s: %d slots are still watched", name, len(l.slots))
			}
		})
	}
}

// beginIn begins a block in a slot of its own, and gives where it is.
func beginIn(l *limit, ended func()) *atomic.Pointer[attempt] {
	a := &attempt{began: l.clock()}
	a.ctx.watcher = told(ended)
	var now atomic.Pointer[attempt]
	l.watch(&now)
	now.Store(a)
	l.started()
	return &now
}

type told func()

func (f told) contextEnded(error) { f() }

// retimed sends a specification that differs from that of the join in its limit only.
func retimed(t *testing.T, s *stream, task api.TaskSpec, seconds float64) {
	t.Helper()
	task.TimeoutSeconds = seconds
	spec, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	s.send(func(dst []byte) []byte { return wire.AppendReassign(dst, wire.Reassign{Spec: spec}) })
}

func TestAShorterLimitEndsABlockThatRunsAndLeavesTheProcessThatServesTheTask(t *testing.T) {
	f := newFifo(t)
	task := testTask("stream", streamer(f, `case $lease in 2.8) say at; exec sleep 1000;; *) answer "{\"lease\":\"$lease\",\"ok\":true}";; esac`)...)
	task.TimeoutSeconds = 1000
	c, cfg := overTCP(t, task)
	start(t, cfg)
	s := c.next()
	task.RunDir = cfg.RunDir
	s.grant(s.acquire().Request, 7)
	f.readLine() // started
	s.release()
	retimed(t, s, task, 2000)
	s.grant(s.acquire().Request, 8)
	if line := f.readLine(); line != "at" {
		t.Fatalf("%q: another process was started", line)
	}
	retimed(t, s, task, 0.2)
	if r := s.release(); r.Outcome != wire.TimedOut || !strings.Contains(r.Message, "timed out after 200ms") {
		t.Errorf("got %v %q", r.Outcome, r.Message)
	}
}

func TestEachBlockHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(10 * time.Second)
		began := time.Now()
		var blocks [4]*atomic.Pointer[attempt]
		var got [4]time.Duration
		for i := range blocks { // after 0, 3, 6 and 9 s
			blocks[i] = beginIn(&l, func() { got[i] = time.Since(began) })
			time.Sleep(3 * time.Second)
		}
		blocks[2].Store(nil) // in time
		time.Sleep(time.Minute)
		synctest.Wait()
		want := [4]time.Duration{10 * time.Second, 13 * time.Second, 0, 19 * time.Second}
		if got != want {
			t.Errorf("the blocks were told after %v, want %v", got, want)
		}
	})
}

func TestALimitThatHadNothingToLookAtHoldsForTheNextBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(10 * time.Second)
		beginIn(&l, func() { t.Error("a block that has ended was told that its time is up") }).Store(nil)
		time.Sleep(time.Minute)
		began, got := time.Now(), time.Duration(0)
		beginIn(&l, func() { got = time.Since(began) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got != 10*time.Second {
			t.Errorf("the block was told after %v, want 10s", got)
		}
	})
}
