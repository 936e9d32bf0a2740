package coordinator

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

const (
	maxJoinBody = 64 << 10
	// joinTimeout bounds the wait for the engine's answer to a join.
	joinTimeout = 30 * time.Second
)

// joinAnswer is the engine's answer to a join.
type joinAnswer struct {
	worker  string
	task    int32
	refusal *api.Error
}

func (c *Coordinator) newServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.PathJoin, c.guarded(c.serveJoin))
	mux.HandleFunc("GET "+api.PathStream, c.guarded(c.serveStream))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "bad_request", fmt.Sprintf("there is no %s %s here", r.Method, r.URL.Path))
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: sniffTimeout,
		ReadTimeout:       joinTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // what strangers send is not our reader's business
	}
}

// guarded lets in who knows the secret and means this run.
func (c *Coordinator) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		secret, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(secret), []byte(c.secret)) != 1 {
			refuse(w, http.StatusUnauthorized, "secret", "the secret is wrong: it is in the file \"secret\" of the run directory")
			return
		}
		if run := r.Header.Get(api.HeaderRun); run != c.runID {
			refuse(w, http.StatusConflict, "run", fmt.Sprintf("this is run %s, not %q: another coordinator has taken over the address", c.runID, run))
			return
		}
		next(w, r)
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, api.Error{Code: code, Message: message})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever is gone does not miss it
}

// serveJoin takes a worker's introduction to the engine and waits for its answer.
func (c *Coordinator) serveJoin(w http.ResponseWriter, r *http.Request) {
	var req api.JoinRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJoinBody)).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", "the join request is not what was expected: "+err.Error())
		return
	}
	if req.Protocol != wire.Version {
		refuse(w, http.StatusConflict, "version", fmt.Sprintf("the worker speaks protocol %d (program version %s), this coordinator %d (%s): use the daisy-worker of the run directory",
			req.Protocol, req.Version, wire.Version, c.cfg.Version))
		return
	}
	if req.Nonce == 0 || req.Slots < 1 || (req.Tag == "") == (req.Name == "") {
		refuse(w, http.StatusBadRequest, "bad_request", "a join needs a nonce, at least one slot, and either a tag or a name")
		return
	}
	got := make(chan joinAnswer, 1)
	c.mu.Lock()
	c.lastJoin++
	id := c.lastJoin
	c.joins[id] = got
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.joins, id)
		c.mu.Unlock()
	}()
	c.inbox.put(engine.Event{Kind: engine.EventJoin, Request: id, Join: &engine.Join{
		Tag: req.Tag, Element: req.Element, Name: req.Name, Nonce: req.Nonce, Task: req.Task, Slots: req.Slots, Node: req.Node, PID: req.PID,
	}})
	ctx, cancel := context.WithTimeout(r.Context(), joinTimeout)
	defer cancel()
	select {
	case a := <-got:
		if a.refusal != nil {
			answer(w, http.StatusForbidden, a.refusal)
			return
		}
		if space := process.Space(); req.Name != "" && req.PID > 1 && req.PID != os.Getpid() && space != "" && req.PIDSpace == space {
			c.mu.Lock()
			c.pids[a.worker] = req.PID
			c.mu.Unlock()
		}
		j := c.cfg.Job
		answer(w, http.StatusOK, api.JoinResponse{
			Worker: a.worker, Epoch: c.epoch, Task: c.specs[a.task],
			HeartbeatSeconds: c.heartbeatEvery().Seconds(),
			AbandonSeconds:   0.9 * c.abandonAfter().Seconds(),
			HintSeconds:      0.8 * j.HintAfter.Seconds(),
			GraceSeconds:     j.Grace.Seconds(),
		})
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "busy", "the coordinator does not answer; try again")
	case <-c.listener.ctx.Done():
		refuse(w, http.StatusForbidden, "ended", "the run is over")
	}
}

// abandonAfter is how long a worker may be silent, by the job or else by the launcher.
func (c *Coordinator) abandonAfter() time.Duration {
	if d := c.cfg.Job.AbandonAfter; d > 0 {
		return d
	}
	if c.cfg.Launcher != nil {
		return c.cfg.Launcher.Properties().AbandonAfter
	}
	return defaultAbandonAfter
}

// defaultAbandonAfter holds where no launcher says anything: workers that come by themselves on this machine.
const defaultAbandonAfter = 2 * time.Minute

// serveStream makes a worker's connection a session.
func (c *Coordinator) serveStream(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != api.Upgrade {
		w.Header().Set("Upgrade", api.Upgrade)
		refuse(w, http.StatusUpgradeRequired, "version", "this path speaks "+api.Upgrade+" only")
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, "bad_request", "the connection cannot be upgraded: "+err.Error())
		return
	}
	_ = conn.SetDeadline(time.Time{})
	head, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	head = append([]byte(nil), head...)
	if counted, ok := conn.(*countedConn); ok && (counted.r == nil || counted.r.Buffered() == 0) {
		// The session counts its bytes itself and writes with the descriptor of the connection.
		conn = counted.Conn
	}
	if !c.startSession(conn, head) {
		_ = conn.Close()
	}
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + api.Upgrade + "\r\n\r\n"

var _ net.Listener = (*listener)(nil)
