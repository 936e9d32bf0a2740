package worker

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

// ending reads the worker's word of its end.
func (s *stream) ending() time.Duration {
	s.t.Helper()
	m, err := wire.DecodeEnding(s.expect(wire.KindEnding))
	if err != nil {
		s.t.Fatal(err)
	}
	return time.Duration(m.LeftNanos)
}

func TestAWorkerThatIsWarnedSaysWhenItEndsOnEveryConnectionAndGoesOn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, cfg := withFunc(t, 0, func(context.Context, *Block) error { return nil })
		warn := make(chan time.Time)
		cfg.Soon = warn
		w := start(t, cfg)
		s := c.next()
		request := s.acquire().Request
		warn <- time.Now().Add(90 * time.Second)
		if got := s.ending(); got != 90*time.Second {
			t.Errorf("it has %v left", got)
		}
		time.Sleep(30 * time.Second)
		s.grant(request, 7)
		if r := s.release(); r.Outcome != wire.Success {
			t.Errorf("after the warning: %v", r.Outcome)
		}
		s.acknowledge(1)
		s.acquire()
		synctest.Wait()
		s.conn.Close()
		s = c.next()
		if got := s.ending(); got > 60*time.Second || got < 55*time.Second {
			t.Errorf("on the next connection it has %v left", got)
		}
		s.acquire()
		s.drain()
		if err := w.wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestAfterASignalAllIsReturnedBeforeTheBatchSystemKills(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, cfg := withFunc(t, 0, func(ctx context.Context, _ *Block) error { <-ctx.Done(); return errors.New("cut") })
		c.set(func(j *api.JoinResponse) { j.GraceSeconds = 3600 })
		cfg.StopWithin = 18 * time.Second
		w := start(t, cfg)
		s := c.next()
		s.grant(s.acquire().Request, 7)
		time.Sleep(time.Second)
		began := time.Now()
		w.cancel()
		s.leaving()
		if r := s.release(); r.Outcome != wire.Returned {
			t.Errorf("got %v %q", r.Outcome, r.Message)
		}
		if got := time.Since(began); got < 10*time.Second || got > 18*time.Second {
			t.Errorf("it was returned after %v", got)
		}
		s.acknowledge(1)
		if got := w.status(); got != 0 {
			t.Errorf("status %d", got)
		}
	})
}

func TestAResultThatNobodyTakesAfterASignalIsInTheOutboxWhenTheTimeIsOver(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, cfg := withFunc(t, 0, func(ctx context.Context, _ *Block) error { return nil })
		cfg.RunDir = t.TempDir()
		w := start(t, cfg)
		s := c.next()
		s.grant(s.acquire().Request, 7)
		s.release() // and no acknowledgement
		s.acquire()
		w.cancel()
		s.leaving()
		began := time.Now()
		time.Sleep(time.Second)
		w.now()
		_ = w.wait()
		if files, _ := filepath.Glob(filepath.Join(cfg.RunDir, "outbox", "*")); len(files) != 1 {
			t.Errorf("the outbox has %v", files)
		}
		if got := time.Since(began); got > 1500*time.Millisecond {
			t.Errorf("it was gone %v after it should have been", got)
		}
	})
}

func TestAWorkerSaysWhatItsBatchSystemSaysOfItsJob(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, cfg := withFunc(t, 0, nil)
		cfg.Identity = Identity{Tag: "3", Element: 2, Array: "4711", Restart: 1}
		cfg.Node = "n7"
		cfg.Job = Job{ID: "4713", Cluster: "west", Process: 1, CPUMilli: 4000, MemoryBytes: 8 << 30, GPUs: []string{"0", "GPU-1b5f"}, End: time.Now().Add(time.Hour)}
		start(t, cfg)
		c.next()
		got := c.joins[0]
		got.Nonce, got.PID, got.PIDSpace = 0, 0, ""
		want := api.JoinRequest{
			Protocol: wire.Version, Tag: "3", Element: 2, Array: "4711", Restart: 1, Cluster: "west", Process: 1, Slots: 1, Node: "n7",
			Job: "4713", CPUMilli: 4000, MemoryBytes: 8 << 30, GPUs: 2, LeftSeconds: 3600,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestAWorkerThatFillsHasTheSlotsThatItIsTold(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, cfg := withFunc(t, 0, nil)
		c.set(func(j *api.JoinResponse) { j.Slots = 3 })
		cfg.Fill = true
		start(t, cfg)
		s := c.next()
		for range 3 {
			s.acquire()
		}
		s.conn.Close()
		c.next()
		for i, want := range []int{1, 3} {
			if got := c.joins[i]; got.Slots != want || !got.Fill {
				t.Errorf("join %d says %d slots, fill %v, want %d and true", i, got.Slots, got.Fill, want)
			}
		}
	})
}

func TestAWorkerThatFillsAndWasToldThatItHasOneSlotKeepsToIt(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, cfg := withFunc(t, 0, nil)
		c.set(func(j *api.JoinResponse) { j.Slots = 1 })
		cfg.Fill = true
		start(t, cfg)
		s := c.next()
		s.acquire()
		c.set(func(j *api.JoinResponse) { j.Slots = 3 }) // of a coordinator that does not know it
		for again := 1; again <= 2; again++ {
			s.conn.Close()
			s = c.next()
			if got := c.joins[again]; got.Slots != 1 || got.Fill {
				t.Errorf("join %d says %d slots, fill %v, want 1 and false", again, got.Slots, got.Fill)
			}
		}
	})
}

func TestAWorkerIsGoneBeforeSlurmKillsIt(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: 18 * time.Second, 30 * time.Second: 18 * time.Second, 15 * time.Second: 8 * time.Second, 7 * time.Second: time.Second, 5 * time.Second: time.Second} {
		j := Job{ID: "1", KillWait: wait}
		if got := j.StopWithin(); got != want {
			t.Errorf("KillWait %v: got %v, want %v", wait, got, want)
		}
	}
	if got := (&Job{}).StopWithin(); got != 0 {
		t.Errorf("without a job: %v", got)
	}
}
