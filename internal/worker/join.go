package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

const (
	dialTimeout    = 10 * time.Second
	nextAfter      = 3 * time.Second  // instead, where there are other addresses to try
	answerTimeout  = 40 * time.Second // the coordinator lets a join wait for 30 s
	maxAnswer      = 4 << 20
	maxRetryAfter  = 10 * time.Second
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = 5 * time.Second
)

// A refusal is a coordinator's no.
type refusal struct {
	code    string
	message string
}

func (r *refusal) Error() string { return r.message }

// final: asking again is no use. A coordinator that is busy is not the last word.
func (r *refusal) final() bool {
	switch r.code {
	case "version", "epoch", "twin", "unknown_tag", "excluded", "ended":
		return true
	default:
		return false
	}
}

// exit is the end of the worker that follows from the refusal: nil if the run is over.
func (r *refusal) exit() error {
	if r.code == "ended" {
		return nil
	}
	return &ExitError{Status: StatusRefused, Err: fmt.Errorf("the coordinator refuses this worker (%s): %s", r.code, r.message)}
}

// establish joins at one address, opens the stream there, and says hello.
func (c *Client) establish(ctx context.Context, address string) (*link, error) {
	joined, err := c.join(ctx, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	known := c.epoch
	c.mu.Unlock()
	if joined.Epoch < known {
		return nil, fmt.Errorf("a coordinator of the older epoch %d answers, epoch %d is known: it was taken over", joined.Epoch, known)
	}
	task, err := NewTask(joined.Task)
	if err != nil {
		return nil, &refusal{code: "version", message: "its specification cannot be read: " + err.Error()}
	}
	l, err := c.upgrade(ctx, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	welcome, err := c.hello(l, joined)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && welcome.Epoch < max(known, joined.Epoch) {
		err = fmt.Errorf("a coordinator of the older epoch %d answers, epoch %d is known: it was taken over", welcome.Epoch, max(known, joined.Epoch))
	}
	if err != nil {
		l.conn.Close()
		return nil, err
	}
	c.welcomed(joined, welcome, task)
	return l, nil
}

// join introduces the worker over HTTP.
func (c *Client) join(ctx context.Context, address string) (*api.JoinResponse, error) {
	// One that has found out that it has one slot does not get more: they would be counted, and nothing run in them.
	fill := c.cfg.Fill && (c.WorkerID() == "" || c.Slots() > 1)
	body, err := json.Marshal(api.JoinRequest{
		Protocol: wire.Version, Version: c.cfg.Version,
		Tag: c.cfg.Identity.Tag, Element: c.cfg.Identity.Element, Array: c.cfg.Identity.Array, Restart: c.cfg.Identity.Restart, Name: c.cfg.Identity.Name,
		Cluster: c.cfg.Job.Cluster, Process: c.cfg.Job.Process, Job: c.cfg.Job.ID, CPUMilli: c.cfg.Job.CPUMilli, MemoryBytes: c.cfg.Job.MemoryBytes, GPUs: int64(len(c.cfg.Job.GPUs)), LeftSeconds: c.cfg.Job.left(time.Now()).Seconds(),
		Nonce: c.nonce, Task: c.cfg.Task, Slots: c.Slots(), Fill: fill, Node: c.cfg.Node, PID: os.Getpid(), PIDSpace: process.Space(),
	})
	if err != nil {
		return nil, err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, urlHost+api.PathJoin, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{
		// No proxy: the coordinator is inside the cluster, whatever the environment says.
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, address) },
		DisableKeepAlives: true,
	}
	client := &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport: signed{c.places.key(), address, body, transport}, Timeout: answerTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax:     3,
		RetryWaitMin: firstBackoff, RetryWaitMax: longestBackoff,
		// Only an answer is asked for again here. Where nobody answers the next address is tried.
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			return err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable), nil
		},
		Backoff:      backoffAfter,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	resp, err := client.Do(req)
	if err != nil {
		var inURL *url.Error
		if errors.As(err, &inURL) {
			err = inURL.Err // the URL says nothing
		}
		return nil, err
	}
	defer resp.Body.Close()
	c.answered.Store(int64(c.clock()))
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refused(resp.StatusCode, answer)
	}
	joined := new(api.JoinResponse)
	if err := json.Unmarshal(answer, joined); err != nil || joined.Worker == "" || joined.Epoch == 0 {
		return nil, errors.New("the coordinator's answer to the join cannot be read")
	}
	return joined, nil
}

// signed signs each request, which has this body, with a nonce of its own, and gives an answer only if its proof is right.
type signed struct {
	key     api.Key
	address string
	body    []byte
	next    http.RoundTripper
}

func (s signed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	s.key.SignRequest(r, s.body)
	resp, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := proven(s.key, s.address, r, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// proven reads the answer to r and checks its proof. The body can be read again.
func proven(key api.Key, address string, r *http.Request, resp *http.Response) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if !key.CheckAnswer(resp, r, body) {
		return &api.StrangerError{Address: address, Why: api.Unproven(resp.StatusCode)}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// backoffAfter is full jitter, so that hundreds of workers that were refused together do not come back together. What the
// server asks for with Retry-After counts up to maxRetryAfter.
func backoffAfter(low, high time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
			return min(time.Duration(s)*time.Second, maxRetryAfter) + jitter(low)
		}
	}
	return jitter(min(high, low<<min(attempt, 16)))
}

// jitter is a random time below limit.
func jitter(limit time.Duration) time.Duration { return rand.N(max(limit, 1)) }

// urlHost stands where requests have a host: whom they go to is the matter of who opens the connection, and not every address can be in a
// URL (IPv6 with a zone).
const urlHost = "http://daisy"

func refused(status int, body []byte) error {
	var e api.Error
	if json.Unmarshal(body, &e) != nil {
		return fmt.Errorf("the coordinator answers with HTTP status %d, and no reason that can be read", status)
	}
	return &refusal{code: e.Code, message: api.OneLine(e.Message)}
}

// upgrade opens a connection and makes it a stream of frames.
func (c *Client) upgrade(ctx context.Context, address string) (*link, error) {
	conn, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	l, err := c.switchTo(conn, address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

func (c *Client) switchTo(conn net.Conn, address string) (*link, error) {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodGet, urlHost+api.PathStream, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", api.Upgrade)
	c.places.key().SignRequest(req, nil)
	var head bytes.Buffer
	if err := req.Write(&head); err != nil {
		return nil, err
	}
	if _, err := conn.Write(head.Bytes()); err != nil {
		return nil, err
	}
	from := bufio.NewReaderSize(io.LimitReader(conn, maxAnswer), 1<<10) // a stranger's answer may have no end
	resp, err := http.ReadResponse(from, req)
	if err != nil {
		return nil, err
	}
	if err := proven(c.places.key(), address, req, resp); err != nil {
		return nil, err
	}
	c.answered.Store(int64(c.clock()))
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		return nil, refused(resp.StatusCode, body)
	}
	ahead, err := from.Peek(from.Buffered())
	if err != nil {
		return nil, err
	}
	in := io.Reader(conn)
	if len(ahead) > 0 {
		in = io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn)
	}
	return &link{conn: conn, in: wire.NewReader(in), out: wire.NewWriter(conn)}, nil
}

// hello says who comes and what it holds, and waits for the welcome.
func (c *Client) hello(l *link, joined *api.JoinResponse) (wire.Welcome, error) {
	m := wire.Hello{Worker: joined.Worker, Nonce: c.nonce, Epoch: joined.Epoch}
	c.mu.Lock()
	m.Held = c.claimsLocked(joined.Epoch)
	c.mu.Unlock()
	if err := l.out.Send(func(dst []byte) []byte { return wire.AppendHello(dst, m) }); err != nil {
		return wire.Welcome{}, err
	}
	for {
		kind, payload, err := l.in.Next()
		if errors.Is(err, io.EOF) {
			return wire.Welcome{}, errors.New("the coordinator closed the stream instead of welcoming the worker")
		}
		if err != nil {
			return wire.Welcome{}, err
		}
		switch kind {
		case wire.KindHeartbeat: // may come at any time
		case wire.KindWelcome:
			welcome, err := wire.DecodeWelcome(payload)
			if err == nil {
				err = l.conn.SetDeadline(time.Time{})
			}
			return welcome, err
		default:
			return wire.Welcome{}, fmt.Errorf("%v came instead of Welcome", kind)
		}
	}
}

// claimsLocked are the leases of Hello, results first: those leave their slots free. A block that was given back before it had begun is
// nothing to be named to a coordinator of another epoch, which knows of no hand-out that it could end.
func (c *Client) claimsLocked(epoch uint64) []wire.Held {
	var claims []wire.Held
	claim := func(h *heldBlock) {
		w := wire.Held{Epoch: h.now.epoch, Lease: h.now.lease, Block: uint64(h.flat), Attempt: uint32(h.attempt)}
		if h.task != nil {
			w.Task = uint32(h.task.Spec.Index)
		}
		claims = append(claims, w)
	}
	last := c.lastHeldLocked()
	for _, u := range c.unacked.list() {
		// Of a block that the worker has got again since, the end of the attempt was taken in. Whether that was also kept is all the same: the later
		// attempt goes on.
		if u.Epoch == epoch || u.Outcome != wire.Recalled && (u.held.task == nil || last[u.held.what()] == u.held) {
			claim(u.held)
		}
	}
	results := len(claims)
	for _, h := range c.held {
		claim(h)
	}
	slices.SortFunc(claims[results:], func(a, b wire.Held) int { return cmp.Compare(a.Lease, b.Lease) })
	return claims
}

// lastHeldLocked is, of each block that is held or has been released without an acknowledgement, the last hand-out.
func (c *Client) lastHeldLocked() map[whichBlock]*heldBlock {
	last := make(map[whichBlock]*heldBlock, c.unacked.len()+len(c.held))
	for _, u := range c.unacked.list() {
		if u.held.task != nil {
			last[u.held.what()] = u.held
		}
	}
	for _, h := range c.held {
		if h.task != nil {
			last[h.what()] = h
		}
	}
	return last
}

// renameLocked takes over the names that a coordinator of a later epoch has given to hand-outs of earlier ones. It returns the results
// of those that have got none, which are not sent again: their numbers may name other hand-outs now.
func (c *Client) renameLocked(welcome wire.Welcome) (stale []undelivered) {
	names := make(map[leaseKey]wire.Kept, len(welcome.Kept))
	for _, k := range welcome.Kept {
		names[leaseKey{k.Epoch, k.Lease}] = k
	}
	rename := func(h *heldBlock) {
		if k, kept := names[h.now]; kept {
			h.now, h.attempt = leaseKey{welcome.Epoch, k.Now}, int32(k.Attempt)
		}
	}
	for _, h := range c.held {
		rename(h)
	}
	unacked := c.unacked.list()
	current := unacked[:0]
	for _, u := range unacked {
		rename(u.held)
		if u.Epoch, u.Lease = u.held.now.epoch, u.held.now.lease; u.Epoch == welcome.Epoch {
			current = append(current, u)
		} else if worthKeeping(u.Outcome) && u.held.task != nil {
			stale = append(stale, u)
		}
	}
	c.unacked.keep(current)
	c.settleLocked()
	return stale
}

// welcomed takes over what the coordinator said of itself.
func (c *Client) welcomed(joined *api.JoinResponse, welcome wire.Welcome, task *Task) {
	c.mu.Lock()
	if c.cfg.Fill && c.worker == "" && joined.Slots > 0 { // from the first time on its slots stay what they are
		c.slots = joined.Slots
	}
	c.worker, c.epoch = joined.Worker, welcome.Epoch
	c.patience = patience{
		heartbeat: atLeast(seconds(joined.HeartbeatSeconds), 5*time.Second),
		abandon:   atLeast(seconds(joined.AbandonSeconds), 108*time.Second),
		hint:      atLeast(seconds(joined.HintSeconds), 4*time.Minute),
		grace:     max(seconds(joined.GraceSeconds), 0),
	}
	c.serveLocked(task)
	gone := map[uint64]bool{}
	for _, lease := range welcome.Gone {
		gone[lease] = true
	}
	lost := c.forgetLocked(func(key leaseKey) bool { return gone[key.lease] })
	stale := c.renameLocked(welcome)
	c.mu.Unlock()
	c.kill(lost)
	for _, u := range stale {
		b := u.held.block()
		c.logf("the result of block %s (%v) is no longer wanted: the block has ended, or is another's", b.Label(), u.Outcome)
	}
}

// atLeast is d, or other where the coordinator did not say.
func atLeast(d, other time.Duration) time.Duration {
	if d <= 0 {
		return other
	}
	return d
}
