package worker

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/wire"
)

// strangerAt listens where the discovery file says that the coordinator does, before the real address. It fails the test
// when it is shown the secret.
func strangerAt(t *testing.T, cfg Config, real *script, answer http.HandlerFunc) *atomic.Int32 {
	t.Helper()
	asked := new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if dump, err := httputil.DumpRequest(r, true); err != nil || bytes.Contains(dump, []byte(testSecret)) {
			t.Errorf("the secret was sent (%v): %s", err, dump)
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	writeDiscovery(t, cfg.RunDir, 2, server.Listener.Addr().String(), real.listener.Addr().String())
	return asked
}

func TestNothingThatAStrangerAnswersCountsAndTheNextAddressIsTried(t *testing.T) {
	task := marshal(t, api.JoinResponse{Worker: "3.0", Epoch: 99, Task: testTask("command", "false")})
	said := func(status int, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}
	no := func(code string) []byte { return marshal(t, api.Error{Code: code, Message: "says a stranger"}) }
	var overheard string // the proof of a right answer to an earlier join
	for name, answer := range map[string]http.HandlerFunc{
		"a job":                said(http.StatusOK, task),
		"the run is over":      said(http.StatusForbidden, no("ended")),
		"the secret is wrong":  said(http.StatusUnauthorized, no("secret")),
		"an older epoch":       said(http.StatusForbidden, no("epoch")),
		"nothing that is JSON": said(http.StatusOK, []byte("hello")),
		"what takes too long": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		},
		"what has no end":        func(w http.ResponseWriter, _ *http.Request) { endless(w) },
		"look elsewhere":         func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/v1/other", http.StatusFound) },
		"the worker's own proof": func(w http.ResponseWriter, r *http.Request) { proofIs(w, r.Header.Get(api.HeaderProof), task) },
		"a proof with a guess": func(w http.ResponseWriter, r *http.Request) {
			proofIs(w, api.Key{Run: testRun, Secret: "guess"}.ProveAnswer(r, http.StatusOK, task), task)
		},
		"an earlier right answer": func(w http.ResponseWriter, r *http.Request) { proofIs(w, overheard, task) },
	} {
		c, cfg := overTCP(t, testTask("func"))
		earlier := httptest.NewRequest(http.MethodPost, api.PathJoin, nil)
		testKey.SignRequest(earlier, task)
		overheard = testKey.ProveAnswer(earlier, http.StatusOK, task)
		asked := strangerAt(t, cfg, c, answer)
		w := start(t, cfg)
		c.next().drain()
		if got := w.status(); got != 0 || asked.Load() != 1 {
			t.Errorf("a stranger answers %s: status %d, asked %d times; want 0 and 1", name, got, asked.Load())
		}
	}
}

func proofIs(w http.ResponseWriter, proof string, body []byte) {
	w.Header().Set(api.HeaderProof, proof)
	_, _ = w.Write(body)
}

func endless(w io.Writer) {
	for {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
}

func TestAWorkerSaysNothingOnAStreamThatIsNotProven(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	heard := make(chan string, 1)
	var joined []byte
	asked := strangerAt(t, cfg, c, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathJoin { // the port changed hands after the join
			prove(w, r, http.StatusOK, joined)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s",
			api.Upgrade, wire.AppendWelcome(nil, wire.Welcome{Epoch: 2}))
		all, _ := io.ReadAll(buffered)
		heard <- string(all)
	})
	joined = marshal(t, c.joined)
	w := start(t, cfg)
	c.next().drain()
	if got := w.status(); got != 0 || asked.Load() != 2 {
		t.Errorf("status %d, asked %d times; want 0 and 2", got, asked.Load())
	}
	if got := <-heard; got != "" {
		t.Errorf("the stranger was told %q", got)
	}
}

func TestARightRefusalOfTheUpgradeCounts(t *testing.T) {
	c, cfg := overTCP(t, testTask("func"))
	strangerAt(t, cfg, c, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathJoin {
			prove(w, r, http.StatusOK, marshal(t, c.joined))
			return
		}
		prove(w, r, http.StatusUpgradeRequired, marshal(t, api.Error{Code: "version", Message: "for a reason"}))
	})
	w := start(t, cfg)
	if err := w.wait(); err == nil || w.status() != StatusRefused || !strings.Contains(err.Error(), "for a reason") {
		t.Errorf("got %v", err)
	}
}
