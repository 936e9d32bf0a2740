package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
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
	// maxLeftSeconds bounds what a worker can say of its end: that of a clock that is wrong is none.
	maxLeftSeconds = 1e8
)

// joinAnswer is the engine's answer to a join.
type joinAnswer struct {
	worker  string
	task    int32
	slots   int32
	refusal *api.Error
}

func (c *Coordinator) newServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.PathJoin, c.guarded(c.serveJoin))
	mux.HandleFunc("GET "+api.PathStream, c.guarded(c.serveStream))
	c.controlRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		turnAway(w, http.StatusNotFound, "bad_request", fmt.Sprintf("there is no %s %s here", r.Method, r.URL.Path))
	})
	return &http.Server{
		Handler:           private(mux),
		ReadHeaderTimeout: sniffTimeout,
		ReadTimeout:       joinTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // what strangers send is not our reader's business
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

// connKey is under what the context of a request has its connection.
type connKey struct{}

// guarded lets in who proves to know the secret, and means this run.
func (c *Coordinator) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJoinBody))
		if err != nil {
			turnAway(w, http.StatusBadRequest, "bad_request", "the request is not what was expected: "+err.Error())
			return
		}
		if !c.key().CheckRequest(r, body) {
			turnAway(w, http.StatusUnauthorized, "secret", fmt.Sprintf("this is run %s, and the request does not prove to know its secret, which is in the file \"secret\" of the run directory", c.runID))
			return
		}
		if conn := underlying(r.Context().Value(connKey{})); conn != nil {
			conn.known()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next(w, r)
	}
}

// key makes and checks the proofs of the run.
func (c *Coordinator) key() api.Key { return api.Key{Run: c.runID, Secret: c.secret} }

// turnAway answers who has not shown the secret. It proves nothing: a proof for anybody would be one for a stranger to pass on.
func turnAway(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Connection", "close")
	send(w, status, encode(api.Error{Code: code, Message: message}))
}

func (c *Coordinator) refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	c.answer(w, r, status, api.Error{Code: code, Message: message})
}

// answer answers who has shown the secret, and proves who answers.
func (c *Coordinator) answer(w http.ResponseWriter, r *http.Request, status int, body any) {
	text := encode(body)
	w.Header().Set(api.HeaderProof, c.key().ProveAnswer(r, status, text))
	send(w, status, text)
}

func encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // these are structs of ours
	}
	return text
}

func send(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // whoever is gone does not miss it
}

// serveJoin takes a worker's introduction to the engine and waits for its answer.
func (c *Coordinator) serveJoin(w http.ResponseWriter, r *http.Request) {
	var req api.JoinRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		c.refuse(w, r, http.StatusBadRequest, "bad_request", "the join request is not what was expected: "+err.Error())
		return
	}
	if req.Protocol != wire.Version {
		c.refuse(w, r, http.StatusConflict, "version", fmt.Sprintf("the worker speaks protocol %d (program version %s), this coordinator %d (%s): use the daisy-worker of the run directory",
			req.Protocol, req.Version, wire.Version, c.cfg.Version))
		return
	}
	if !(req.LeftSeconds >= 0 && req.LeftSeconds < maxLeftSeconds) {
		req.LeftSeconds = 0 // nothing that is known
	}
	if req.Nonce == 0 || req.Slots < 1 || (req.Tag == "") == (req.Name == "") {
		c.refuse(w, r, http.StatusBadRequest, "bad_request", "a join needs a nonce, at least one slot, and either a tag or a name")
		return
	}
	a, err := c.introduce(r.Context(), &engine.Join{
		Tag: req.Tag, Element: req.Element, Array: req.Array, Restart: req.Restart, Cluster: req.Cluster, Process: req.Process, Name: req.Name, Nonce: req.Nonce, Task: req.Task,
		Slots: req.Slots, Fill: req.Fill, Node: req.Node, PID: req.PID, Job: req.Job, Left: time.Duration(req.LeftSeconds * float64(time.Second)),
		Grant: engine.Grant{CPUMilli: max(req.CPUMilli, 0), MemoryBytes: max(req.MemoryBytes, 0), GPUs: max(req.GPUs, 0)},
	})
	switch {
	case errors.Is(err, errOver) && c.goesOn.Load():
		c.refuse(w, r, http.StatusServiceUnavailable, "busy", underAnother)
		return
	case errors.Is(err, errOver):
		c.refuse(w, r, http.StatusForbidden, "ended", err.Error())
		return
	case err != nil:
		c.refuse(w, r, http.StatusServiceUnavailable, "busy", err.Error())
		return
	case a.refusal != nil:
		c.answer(w, r, http.StatusForbidden, a.refusal)
		return
	}
	space := process.Space()
	c.mu.Lock()
	if req.Name != "" && req.PID > 1 && req.PID != os.Getpid() && space != "" && req.PIDSpace == space {
		c.pids[a.worker] = watchable{req.Nonce, req.PID}
	} else {
		delete(c.pids, a.worker) // of an earlier one with this name
	}
	c.mu.Unlock()
	j := c.cfg.Job
	c.answer(w, r, http.StatusOK, api.JoinResponse{
		Worker: a.worker, Epoch: c.epoch, Task: c.spec(a.task), Slots: int(a.slots),
		HeartbeatSeconds: c.heartbeatEvery().Seconds(),
		AbandonSeconds:   0.9 * c.engine.AbandonAfter().Seconds(),
		HintSeconds:      0.8 * j.HintAfter.Seconds(),
		GraceSeconds:     j.Grace.Seconds(),
	})
}

// introduce takes a worker to the engine and waits for its answer. The error is errOver when the run is over.
func (c *Coordinator) introduce(ctx context.Context, join *engine.Join) (joinAnswer, error) {
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
	c.inbox.put(engine.Event{Kind: engine.EventJoin, Request: id, Join: join})
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	select {
	case a := <-got:
		return a, nil
	case <-ctx.Done():
		return joinAnswer{}, errors.New("the coordinator does not answer; try again")
	case <-c.listener.ctx.Done():
		return joinAnswer{}, errOver
	}
}

// serveStream makes a worker's connection a session.
func (c *Coordinator) serveStream(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != api.Upgrade {
		w.Header().Set("Upgrade", api.Upgrade)
		c.refuse(w, r, http.StatusUpgradeRequired, "version", "this path speaks "+api.Upgrade+" only")
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		c.refuse(w, r, http.StatusInternalServerError, "bad_request", "the connection cannot be upgraded: "+err.Error())
		return
	}
	_ = conn.SetDeadline(time.Time{})
	head, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	head = append([]byte(nil), head...)
	if counted, ok := conn.(*countedConn); ok && (counted.r == nil || counted.r.Buffered() == 0) {
		// The session counts its bytes itself and writes with the descriptor of the connection.
		conn = counted.Conn
	}
	proof := c.key().ProveAnswer(r, http.StatusSwitchingProtocols, nil)
	if !c.startSession(conn, head, switching+proof+"\r\n\r\n") {
		_ = conn.Close()
	}
}

// switching is the answer to an upgrade up to its proof.
const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + api.Upgrade + "\r\n" + api.HeaderProof + ": "

var _ net.Listener = (*listener)(nil)
