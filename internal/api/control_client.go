package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// controlTimeout bounds one request: a coordinator answers between two events, whatever it does.
	controlTimeout   = 10 * time.Second
	maxControlAnswer = 64 << 20
)

// A Client speaks with the coordinator of a run.
type Client struct {
	Key       Key
	Addresses []string // "host:port", tried in this order
	// Fingerprint is that of the coordinator's certificate, "" if it speaks plain HTTP.
	Fingerprint string
}

// A RefusedError is a coordinator's no.
type RefusedError struct {
	Status int
	Code   string // as that of Error
	Text   string // a line for each thing that is wrong
}

func (e *RefusedError) Error() string { return e.Text }

// A NoAnswerError says that nobody answered who proves to be the run's coordinator.
type NoAnswerError struct{ Err error }

func (e *NoAnswerError) Error() string {
	return "the coordinator does not answer: " + OneLine(e.Err.Error())
}

func (e *NoAnswerError) Unwrap() error { return e.Err }

// Get asks for something.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Post has something done.
func (c *Client) Post(ctx context.Context, path string, order any) (Done, error) {
	var done Done
	body, err := json.Marshal(order)
	if err != nil {
		return done, err
	}
	return done, c.do(ctx, http.MethodPost, path, body, &done)
}

// do tries the addresses in turn. One that has answered is not left for another.
func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	var errs []error
	for _, address := range c.Addresses {
		status, answer, err := c.try(ctx, address, method, path, body)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case status != http.StatusOK:
			return refusedWith(status, answer)
		}
		if err := json.Unmarshal(answer, into); err != nil {
			return fmt.Errorf("the answer of the coordinator at %s cannot be read; use the daisy-submit that started the run: %w", address, err)
		}
		var head struct{ Version int }
		if json.Unmarshal(answer, &head) != nil || head.Version != ControlVersion {
			return fmt.Errorf("the coordinator at %s answers in version %d, and this program reads version %d; use the daisy-submit that started the run", address, head.Version, ControlVersion)
		}
		return nil
	}
	if errs == nil {
		errs = append(errs, errors.New("it has no address"))
	}
	return &NoAnswerError{errors.Join(errs...)}
}

// refusedWith reads a no.
func refusedWith(status int, answer []byte) error {
	var e Error
	if json.Unmarshal(answer, &e) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("the coordinator answers with HTTP status %d, and no reason that can be read", status)
	}
	return &RefusedError{status, e.Code, Printable(e.Message)}
}

func (c *Client) try(ctx context.Context, address, method, path string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	r, resp, err := c.send(ctx, address, method, path, nil, body)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxControlAnswer))
	if err != nil {
		return 0, nil, err
	}
	if !c.Key.CheckAnswer(resp, r, answer) {
		return 0, nil, &StrangerError{address, Unproven(resp.StatusCode)}
	}
	return resp.StatusCode, answer, nil
}

// send makes one request, and gives its answer, of which nothing has been checked. The caller closes its body.
func (c *Client) send(ctx context.Context, address, method, path string, header http.Header, body []byte) (*http.Request, *http.Response, error) {
	host := strings.Replace(address, "%", "%25", 1) // the zone of an address of IPv6
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(r.Header, header)
	c.Key.SignRequest(r, body)
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// No proxy, whatever the environment says.
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return Dial(ctx, address, c.Fingerprint, controlTimeout/time.Duration(1+len(c.Addresses)))
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	return r, resp, err
}
