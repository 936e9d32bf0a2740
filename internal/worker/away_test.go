package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/wire"
)

func TestABlockIsKeptForTheNextCoordinatorAsLongAsTheLastOneSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		blocks uint64
		takes  time.Duration
		want   time.Duration
	}{
		"with a block": {1, 3 * time.Hour, time.Hour + time.Minute}, "with one that ends": {1, time.Hour / 2, time.Hour/2 + time.Minute}, "without one": {0, 0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				c, w, _ := patient(t, 60, func(ctx context.Context, _ *Block) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(tc.takes):
						return nil
					}
				})
				s := c.next()
				s.acquire()
				s.acquire()
				for lease := range tc.blocks {
					s.grant(lease+1, 7)
				}
				s.send(func(dst []byte) []byte { return wire.AppendAway(dst, wire.Away{ForNanos: int64(time.Hour)}) })
				synctest.Wait()
				began := time.Now()
				c.server.Close() // and nobody comes back
				s.conn.Close()
				err := w.wait()
				var exit *ExitError
				if !errors.As(err, &exit) || exit.Status != StatusGone {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took < tc.want-time.Second || took > tc.want+30*time.Second {
					t.Errorf("it went after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

func TestAWorkerThatStartsWhileTheCoordinatorIsAwayWaitsForTheNext(t *testing.T) {
	c, cfg := overTCP(t, testTask("command", "true"))
	cfg.JoinTimeout = 300 * time.Millisecond
	there, err := os.ReadFile(filepath.Join(cfg.RunDir, "discovery.json"))
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	until := time.Now().Add(time.Hour)
	away, err := json.Marshal(rundir.Discovery{Version: rundir.DiscoveryVersion, Epoch: 1, RunID: testRun, Addresses: []string{closed.Addr().String()}, AwayUntil: &until})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.RunDir, "discovery.json"), away, 0o600); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*cfg.JoinTimeout, func() {
		_ = os.WriteFile(filepath.Join(cfg.RunDir, "new"), there, 0o600)
		_ = os.Rename(filepath.Join(cfg.RunDir, "new"), filepath.Join(cfg.RunDir, "discovery.json"))
	})
	w := start(t, cfg)
	s := c.next()
	s.send(func(dst []byte) []byte { return wire.AppendDrain(dst, wire.Drain{Message: "done"}) })
	if err := w.wait(); err != nil {
		t.Error(err)
	}
}
