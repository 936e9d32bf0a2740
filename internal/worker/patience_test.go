package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

// virtually runs a test in virtual time, where a wait costs nothing.
func virtually(t *testing.T, test func(*testing.T)) {
	soon = 24 * time.Hour
	defer func() { soon = realSoon }()
	synctest.Test(t, test)
}

// patient is a worker with one function block that waits for its end, in virtual time: heartbeats every 10 s, 108 s of
// patience without contact, hint seconds without any answer.
func patient(t *testing.T, hint float64, f Func) (*script, *running, string) {
	c, cfg := withFunc(t, 0, f)
	cfg.Slots = 2
	cfg.RunDir = t.TempDir()
	c.set(func(j *api.JoinResponse) { j.HeartbeatSeconds, j.AbandonSeconds, j.HintSeconds = 10, 108, hint })
	return c, start(t, cfg), cfg.RunDir
}

func TestAWorkerGivesUpWithoutContactKillsItsBlocksAndKeepsItsResults(t *testing.T) {
	virtually(t, func(t *testing.T) {
		began := time.Now()
		killed := make(chan time.Duration, 1)
		c, w, dir := patient(t, 240, func(ctx context.Context, b *Block) error {
			if b.Flat == 8 {
				return errors.New("no good")
			}
			<-ctx.Done()
			killed <- time.Since(began)
			return ctx.Err()
		})
		s := c.next()
		s.acquire()
		s.acquire()
		s.grant(1, 7)
		s.grant(2, 8)
		s.release()
		c.server.Close() // and nobody comes back
		s.conn.Close()
		err := w.wait()
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Status != StatusGone || !strings.Contains(err.Error(), "no contact with the coordinator for 1m48s") {
			t.Errorf("got %v", err)
		}
		if got := <-killed; got < 107*time.Second || got > 109*time.Second {
			t.Errorf("the block was killed after %v, want 108 s", got)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "outbox", "*"))
		if len(files) != 1 {
			t.Fatalf("got %v, want one result in the outbox", files)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var got api.Undelivered
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		got.Nonce, got.Attempt = 0, 0
		want := api.Undelivered{Version: 1, RunID: testRun, Worker: "3.0", Seq: 1, Epoch: 2, Lease: 8, Task: "predict", Block: 8, Outcome: "failed", Message: "no good", WallNanos: got.WallNanos}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhereNobodyAnswersAtAllAWorkerGivesUpSooner(t *testing.T) {
	virtually(t, func(t *testing.T) {
		began := time.Now()
		c, w, _ := patient(t, 60, func(ctx context.Context, _ *Block) error { <-ctx.Done(); return nil })
		// The network swallows everything: the old connection stays open, and no new one comes to be.
		s := c.next()
		c.server.Close()
		go func() {
			for {
				if _, _, err := s.in.Next(); err != nil {
					return
				}
			}
		}()
		err := w.wait()
		if err == nil || !strings.Contains(err.Error(), "nobody has answered for 1m0s") {
			t.Errorf("got %v", err)
		}
		if got := time.Since(began); got < 59*time.Second || got > 62*time.Second {
			t.Errorf("gave up after %v, want 60 s", got)
		}
	})
}

func TestARefusedConnectionIsAnAnswer(t *testing.T) {
	c := &Client{birth: time.Now(), patience: patience{abandon: time.Hour, hint: time.Minute}}
	c.heard.Store(int64(-2 * time.Minute))
	c.answered.Store(int64(-2 * time.Minute))
	if left, _ := c.patienceLeft(); left > 0 {
		t.Errorf("without an answer: got %v, want none", left)
	}
	c.answered.Store(int64(c.clock()))
	if left, _ := c.patienceLeft(); left <= 0 {
		t.Errorf("after a refusal: got %v", left)
	}
}

func TestHeartbeatsKeepAWorkerForAsLongAsABlockTakes(t *testing.T) {
	virtually(t, func(t *testing.T) {
		finish := make(chan struct{})
		c, w, _ := patient(t, 240, func(context.Context, *Block) error { <-finish; return nil })
		s := c.next()
		s.acquire()
		s.acquire()
		s.grant(1, 7)
		beats := 0
		for range 720 { // two hours
			s.expect(wire.KindHeartbeat)
			s.send(wire.AppendHeartbeat)
			beats++
		}
		close(finish)
		if r := s.release(); r.Outcome != wire.Success {
			t.Errorf("got %v %q", r.Outcome, r.Message)
		}
		if len(c.joins) != 1 {
			t.Errorf("the worker joined %d times", len(c.joins))
		}
		s.acquire()
		s.acknowledge(1)
		s.drain()
		s.leaving()
		if got := w.status(); got != 0 {
			t.Errorf("status: got %d, want 0", got)
		}
	})
}

func TestASilentConnectionIsReplacedAndTheBlockGoesOn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		finish := make(chan struct{})
		began := time.Now()
		c, _, _ := patient(t, 240, func(context.Context, *Block) error { <-finish; return nil })
		s := c.next()
		s.acquire()
		s.acquire()
		s.grant(1, 7)
		go func() { // reads, and never says a word
			for {
				if _, _, err := s.in.Next(); err != nil {
					return
				}
			}
		}()
		again := c.next()
		if got := time.Since(began); got < 30*time.Second || got > 45*time.Second {
			t.Errorf("came back after %v, want three or four heartbeats", got)
		}
		if diff := cmp.Diff([]wire.Held{{Epoch: 2, Lease: 7, Task: 3, Block: 7, Attempt: 1}}, again.hello.Held); diff != "" {
			t.Error(diff)
		}
		again.acquire()
		close(finish)
		if r := again.release(); r.Lease != 7 || r.Outcome != wire.Success {
			t.Errorf("got %+v", r)
		}
	})
}

func TestASilentConnectionLeavesTimeToComeBack(t *testing.T) {
	virtually(t, func(t *testing.T) {
		began := time.Now()
		c, cfg := withFunc(t, 0, func(ctx context.Context, _ *Block) error { <-ctx.Done(); return nil })
		c.set(func(j *api.JoinResponse) { j.HeartbeatSeconds, j.AbandonSeconds, j.HintSeconds = 10, 27, 240 })
		start(t, cfg)
		s := c.next()
		go func() { // reads, and never says a word
			for {
				if _, _, err := s.in.Next(); err != nil {
					return
				}
			}
		}()
		c.next()
		if got := time.Since(began); got > 21*time.Second {
			t.Errorf("came back after %v, and gives up 27 s after the last word", got)
		}
	})
}

func TestARunThatEndedMeanwhileEndsTheWorkerInPeace(t *testing.T) {
	virtually(t, func(t *testing.T) {
		c, w, _ := patient(t, 240, func(ctx context.Context, _ *Block) error { <-ctx.Done(); return nil })
		s := c.next()
		s.acquire()
		s.acquire()
		s.grant(1, 7)
		c.refuseWith(&api.Error{Code: "ended", Message: "the run is over"})
		s.conn.Close()
		if got := w.status(); got != 0 {
			t.Errorf("status: got %d, want 0", got)
		}
	})
}

func TestNothingWorthDeliveringMeansNoNewConnection(t *testing.T) {
	virtually(t, func(t *testing.T) {
		began := time.Now()
		c, w, _ := patient(t, 240, nil)
		s := c.next()
		s.acquire()
		s.acquire()
		c.server.Close()
		s.drain()
		s.leaving()
		s.conn.Close()
		if got := w.status(); got != 0 {
			t.Errorf("status: got %d, want 0", got)
		}
		if got := time.Since(began); got > time.Second {
			t.Errorf("ended after %v, want at once", got)
		}
	})
}

func TestAWorkerBesideItsCoordinatorSeesTheNextOneAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		address string
		want    bool
	}{
		"on this machine":       {"127.0.0.1:4711", true},
		"on this machine, IPv6": {"[::1]:4711", true},
		"on another":            {"192.0.2.7:4711", false},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				dir := t.TempDir()
				cfg := Config{RunDir: dir}
				writeDiscovery(t, dir, 2, c.address)
				if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(testSecret+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				var p places
				if err := p.reread(&cfg, 0); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if p.awaitNews(t.Context(), &cfg, time.Second) || time.Since(began) != time.Second {
					t.Errorf("there was no news, and it went on after %v", time.Since(began))
				}
				began = time.Now()
				time.AfterFunc(1950*time.Millisecond, func() { writeDiscovery(t, dir, 3, c.address) })
				if got := p.awaitNews(t.Context(), &cfg, 5*time.Second); got != c.want || got && time.Since(began) != 2*time.Second {
					t.Errorf("news: %v after %v, want %v", got, time.Since(began), c.want)
				}
			})
		})
	}
}
