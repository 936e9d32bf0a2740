package worker

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"

	"example.org/daisy/internal/api"
)

// reachStep is how long one address has to answer before the next is tried beside it.
const reachStep = 250 * time.Millisecond

// A reached address is one that somebody answers at.
type reached struct {
	address string
	conn    net.Conn
}

// reach finds out at which address somebody answers. An address that swallows what is sent to it holds up nobody: all are tried, each a
// little after the one before, until one answers. failed says of those which have not why; others are those of which nothing is known
// then, in their order.
func reach(ctx context.Context, addresses []string, dial func(ctx context.Context, address string) (net.Conn, error)) (first *reached, others []string, failed map[string]error) {
	type result struct {
		reached
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result, len(addresses))
	started, ended := 0, 0
	defer func() {
		cancel()
		late := started - ended
		go func() { // ends with the dials, which cannot always be hurried
			for range late {
				if r := <-results; r.err == nil {
					r.conn.Close()
				}
			}
		}()
	}()
	failed = map[string]error{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ended < len(addresses) {
		select {
		case <-timer.C:
		case r := <-results:
			ended++
			if r.err == nil {
				others = slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return a == r.address || failed[a] != nil })
				return &r.reached, others, failed
			}
			failed[r.address] = r.err
		}
		if started < len(addresses) {
			address := addresses[started]
			started++
			go func() {
				conn, err := dial(ctx, address)
				results <- result{reached{address, conn}, err}
			}()
			timer.Reset(reachStep)
		}
	}
	return nil, nil, failed
}

// noted is what a worker remembers of a failure at an address, for people. One that was only cut off says less than the one before.
func (p *places) noted(ctx context.Context, address string, err error) {
	text := address + ": " + err.Error()
	var other *api.StrangerError
	if errors.As(err, &other) {
		text = other.Error()
	}
	if p.tried == nil {
		p.tried = map[string]string{}
	}
	if p.tried[address] == "" || ctx.Err() == nil {
		p.tried[address] = text
	}
}

// isThere reports whether a failure shows that there is a machine: one that refuses, or has something else there, is alive.
func isThere(err error) bool {
	return errors.As(err, new(*api.StrangerError)) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}
