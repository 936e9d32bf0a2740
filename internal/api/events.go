package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// PathEvents answers with Server-Sent Events (GET), whose data are Events. Queries: all=1 (ends of blocks that ended well, too),
// follow=0 (only what there is). The header Last-Event-ID says behind which event to go on. Its proof is that of an empty body.
const PathEvents = "/v1/events"

// HeaderLastEvent is the header of a reader that comes back.
const HeaderLastEvent = "Last-Event-ID"

// EventsBeat is how often a stream says that it is alive when nothing happens.
const EventsBeat = 15 * time.Second

// The words of Event.Event.
const (
	EventBlock        = "block"
	EventWorkerJoined = "worker_joined"
	EventWorkerEnded  = "worker_ended"
	EventTaskEnded    = "task_ended"
	EventNotice       = "notice"
	EventSet          = "set"
	EventExcluded     = "excluded"
	EventIncluded     = "included"
	EventRunEnded     = "run_ended"
	EventMissed       = "missed"
	EventCut          = "cut"
)

// An Event is something that happened in a run. As in State, what has no value is null.
type Event struct {
	Version int `json:"version"`
	// ID is what Last-Event-ID takes to go on behind it: the epoch of the coordinator and a number that rises.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Event says what happened. Missed: some of what happened is not told. Cut: this is the last event, as the reader was too slow.
	Event string `json:"event"`
	// Task is that of a block, of a worker when it joined or ended, or the one that has ended.
	Task *string `json:"task"`
	// Block and Index are as in LiveBlock, Attempt counts from 1.
	Block   *uint64 `json:"block"`
	Index   []int64 `json:"index"`
	Attempt *int64  `json:"attempt"`
	// Outcome is how the attempt, or the worker ended.
	Outcome *string `json:"outcome"`
	// State is where that leaves the block (success, skipped, ready, held or failed), or how the task or the run ended.
	State  *string `json:"state"`
	Worker *string `json:"worker"`
	Node   *string `json:"node"`
	// Message is for people.
	Message *string `json:"message"`
}

// longestEvent is how long one line of the stream may be.
const longestEvent = 1 << 20

// silentAfter is how long a stream may be silent before it counts as broken. Tests are less patient.
var silentAfter = 3 * EventsBeat

// A BrokenStreamError says that a stream of events ended before its end.
type BrokenStreamError struct{ Err error }

func (e *BrokenStreamError) Error() string {
	return "the connection to the coordinator has broken: " + OneLine(e.Err.Error())
}

func (e *BrokenStreamError) Unwrap() error { return e.Err }

// Events reads the events of a run, those behind the one with the id after ("" = from the earliest that is kept), and calls each
// with every one until the stream ends or each gives an error, which it returns. The error is a *RefusedError, a *NoAnswerError
// or a *BrokenStreamError otherwise.
func (c *Client) Events(ctx context.Context, query url.Values, after string, each func(*Event) error) error {
	path := PathEvents
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var errs []error
	for _, address := range c.Addresses {
		err := c.eventsFrom(ctx, address, path, after, each)
		var none *NoAnswerError
		if !errors.As(err, &none) {
			return err
		}
		errs = append(errs, none.Err)
	}
	if errs == nil {
		errs = append(errs, errors.New("it has no address"))
	}
	return &NoAnswerError{errors.Join(errs...)}
}

func (c *Client) eventsFrom(ctx context.Context, address, path, after string, each func(*Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silentAfter, func() { cancel(fmt.Errorf("nothing has come for %v", silentAfter)) })
	defer watchdog.Stop()
	header := http.Header{}
	if after != "" {
		header.Set(HeaderLastEvent, after)
	}
	r, resp, err := c.send(ctx, address, http.MethodGet, path, header, nil)
	if err != nil {
		return &NoAnswerError{err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxControlAnswer))
		if err == nil && !c.Key.CheckAnswer(resp, r, answer) {
			err = &StrangerError{address, Unproven(resp.StatusCode)}
		}
		if err != nil {
			return &NoAnswerError{err}
		}
		return refusedWith(resp.StatusCode, answer)
	}
	if !c.Key.CheckAnswer(resp, r, nil) {
		return &NoAnswerError{&StrangerError{address, Unproven(resp.StatusCode)}}
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		watchdog.Reset(silentAfter)
		data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !isData { // the id and the name stand in the data, too; all else is to keep the connection alive
			continue
		}
		var e Event
		if err := json.Unmarshal(data, &e); err != nil || e.Version != ControlVersion {
			return fmt.Errorf("the coordinator at %s tells of an event that cannot be read; use the daisy-submit that started the run: %.100q", address, data)
		}
		if err := each(&e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return &BrokenStreamError{err}
	}
	return nil
}

// Line says an event in one line, without its time.
func (e *Event) Line() string {
	var b strings.Builder
	word := func(p *string) string {
		if p == nil {
			return "-"
		}
		return OneLine(*p)
	}
	switch e.Event {
	case EventBlock:
		fmt.Fprintf(&b, "%s %s", word(e.Task), e.which())
		if e.Attempt != nil && *e.Attempt > 1 {
			fmt.Fprintf(&b, ", attempt %d", *e.Attempt)
		}
		fmt.Fprintf(&b, ": %s", word(e.Outcome))
		switch word(e.State) {
		case "ready", "held":
			b.WriteString(", to be tried again")
		case "failed":
			b.WriteString(" for good")
		}
	case EventWorkerJoined:
		fmt.Fprintf(&b, "worker %s has joined for %s", word(e.Worker), word(e.Task))
	case EventWorkerEnded:
		fmt.Fprintf(&b, "worker %s has ended: %s", word(e.Worker), word(e.Outcome))
	case EventTaskEnded:
		fmt.Fprintf(&b, "task %s has ended: %s", word(e.Task), word(e.State))
	case EventRunEnded:
		fmt.Fprintf(&b, "the run has ended: %s", word(e.State))
	case EventMissed:
		b.WriteString("…")
	}
	if e.Event == EventBlock && e.Worker != nil {
		fmt.Fprintf(&b, " (worker %s)", word(e.Worker))
	}
	if (e.Event == EventBlock || e.Event == EventWorkerJoined || e.Event == EventWorkerEnded) && e.Node != nil {
		fmt.Fprintf(&b, " on %s", word(e.Node))
	}
	if e.Message != nil {
		switch {
		case b.Len() == 0:
		case e.Event == EventMissed:
			b.WriteString(" ")
		default:
			b.WriteString(": ")
		}
		b.WriteString(word(e.Message))
	}
	return b.String()
}

// which names a block by its id, or its position where ids do not fit.
func (e *Event) which() string {
	if e.Block != nil {
		return fmt.Sprintf("block %d", *e.Block)
	}
	return "block at " + strings.ReplaceAll(fmt.Sprint(e.Index), " ", ",")
}
