package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/daisy/internal/testenv"
	"example.org/daisy/internal/wire"
)

// A network answers dials: after a time, with an error or a connection.
type network map[string]struct {
	after time.Duration
	err   error
	deaf  bool // it is connected, although nobody wants it any more
}

// conns counts what is open.
type conns struct {
	net.Conn
	open *atomic.Int64
}

func (c conns) Close() error { c.open.Add(-1); return nil }

func TestTheFirstAddressThatAnswersIsTakenAndNoneHoldsUpTheOthers(t *testing.T) {
	const forever = time.Hour
	for name, c := range map[string]struct {
		net    network
		first  string
		others []string
		failed []string
		took   time.Duration
	}{
		"the first answers": {network{"a": {}, "b": {}, "c": {}}, "a", []string{"b", "c"}, nil, 0},
		"the first swallows everything": {
			network{"a": {after: forever}, "b": {after: 10 * time.Millisecond}, "c": {}}, "b", []string{"a", "c"}, nil, 260 * time.Millisecond,
		},
		"the first refuses": {network{"a": {err: syscall.ECONNREFUSED}, "b": {after: 10 * time.Millisecond}, "c": {}}, "b", []string{"c"}, []string{"a"}, 10 * time.Millisecond},
		"the best is only slow": {
			network{"a": {after: 300 * time.Millisecond}, "b": {after: forever}, "c": {after: forever}}, "a", []string{"b", "c"}, nil, 300 * time.Millisecond,
		},
		"two answer": {network{"a": {after: 400 * time.Millisecond, deaf: true}, "b": {after: 10 * time.Millisecond}, "c": {}}, "b", []string{"a", "c"}, nil, 260 * time.Millisecond},
		"nobody": {
			network{"a": {err: syscall.ECONNREFUSED}, "b": {after: 3 * time.Second, err: os.ErrDeadlineExceeded}, "c": {after: 3 * time.Second, err: os.ErrDeadlineExceeded}},
			"", nil, []string{"a", "b", "c"}, 3250 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := new(atomic.Int64)
				began := time.Now()
				first, others, failed := reach(t.Context(), []string{"a", "b", "c"}, func(ctx context.Context, address string) (net.Conn, error) {
					to := c.net[address]
					if to.deaf {
						time.Sleep(to.after)
					} else if !pause(ctx, to.after) && to.after > 0 {
						return nil, ctx.Err()
					}
					if to.err != nil {
						return nil, to.err
					}
					open.Add(1)
					return conns{open: open}, nil
				})
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				got := ""
				if first != nil {
					got = first.address
					first.conn.Close()
				}
				if got != c.first || !slices.Equal(others, c.others) || len(failed) != len(c.failed) {
					t.Errorf("got %q, others %q, failed %v", got, others, failed)
				}
				for _, a := range c.failed {
					if failed[a] == nil {
						t.Errorf("nothing is said of %s", a)
					}
				}
				time.Sleep(time.Second)
				if n := open.Load(); n != 0 {
					t.Errorf("%d connections are left", n)
				}
			})
		})
	}
}

func TestAWorkerComesOverEveryKindOfAddress(t *testing.T) {
	for listen, written := range map[string]string{"[::1]:0": "[::1]", "127.0.0.2:0": "127.0.0.2", "[::1%lo]:0": "[::1%lo]"} {
		t.Run(written, func(t *testing.T) {
			l, err := net.Listen("tcp", listen)
			if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) || listen == "[::1%lo]:0" && err != nil {
				testenv.Unavailable(t, fmt.Sprintf("this machine has no address %s: %v", written, err))
			}
			if err != nil {
				t.Fatal(err)
			}
			c := newScript(t, l, testTask("func"))
			dir := t.TempDir()
			c.joined.Task.RunDir = dir
			if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(testSecret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			// The first is of a network for documentation, to which there is no way; nobody listens at the second.
			writeDiscovery(t, dir, 2, "192.0.2.1:"+port, "127.0.0.3:1", written+":"+port)
			w := start(t, Config{RunDir: dir, Identity: Identity{Tag: "3"}, Node: "n1", JoinTimeout: soon, Funcs: map[string]Func{"predict": nil}})
			s := c.next()
			s.acquire()
			s.send(func(dst []byte) []byte { return wire.AppendDrain(dst, wire.Drain{}) })
			s.leaving()
			if err := w.wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnAttemptThatWasCutOffDoesNotHideWhatWasFoundOutBefore(t *testing.T) {
	p := places{addresses: []string{"a:1", "b:2", "c:3"}}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	p.noted(t.Context(), "a:1", errors.New("no route to host"))
	p.noted(over, "a:1", context.Canceled)
	p.noted(over, "b:2", context.Canceled)
	if got, want := p.summary(), fmt.Sprintf("a:1: no route to host; b:2: %v", context.Canceled); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.noted(t.Context(), "a:1", errors.New("no answer"))
	if !strings.HasPrefix(p.summary(), "a:1: no answer; ") {
		t.Errorf("got %q", p.summary())
	}
}
