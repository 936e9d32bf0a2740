package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

// places is where the coordinator may be found, as last read from the run directory.
type places struct {
	runID, secret string
	epoch         uint64            // of the discovery file
	addresses     []string          // best first
	fingerprint   string            // of the coordinator's certificate, "" if it speaks plain HTTP
	awayUntil     time.Time         // the next coordinator is to come by then; zero if there is one
	answers       string            // the address at which the worker was last accepted
	tried         map[string]string // what became of the last attempt at each address, for people
	open          *reached          // a connection that is there already, for the next dial to its address
}

// find waits for the files of the run directory, at most until ctx ends.
func (p *places) find(ctx context.Context, cfg *Config) error {
	if cfg.Dial != nil {
		p.runID, p.secret, p.addresses = cfg.RunID, cfg.Secret, []string{inProcess}
		return nil
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := p.reread(cfg, 0)
		if err == nil {
			return nil
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("%w: the coordinator has not written it yet or has ended, or the file system does not show it here", err)
		}
	}
}

// inProcess is the address of a coordinator that is reached with Config.Dial.
const inProcess = "in-process"

var errOldDiscovery = errors.New("the discovery file is of an older epoch")

// reread looks for new addresses. What cannot be read, belongs to another run or to an older epoch leaves the old ones.
func (p *places) reread(cfg *Config, epoch uint64) error {
	if cfg.Dial != nil {
		return nil
	}
	found, err := rundir.ReadDiscovery(cfg.RunDir)
	if err != nil {
		return err
	}
	if p.runID != "" && found.RunID != p.runID {
		return fmt.Errorf("the run directory is that of run %s now, this worker belongs to run %s", found.RunID, p.runID)
	}
	if found.Epoch < max(epoch, p.epoch) {
		return fmt.Errorf("%w: %d, and %d is known", errOldDiscovery, found.Epoch, max(epoch, p.epoch))
	}
	secret, err := rundir.ReadSecret(cfg.RunDir)
	if err != nil {
		return err
	}
	p.runID, p.secret, p.epoch, p.addresses = found.RunID, secret, found.Epoch, found.Addresses
	p.fingerprint, p.awayUntil = found.Fingerprint, time.Time{}
	if found.AwayUntil != nil {
		p.awayUntil = *found.AwayUntil
	}
	return nil
}

// newsEvery is how often a worker beside its coordinator looks whether there is a new one.
const newsEvery = 100 * time.Millisecond

// awaitNews waits for d, or until there is a coordinator of a later epoch, which it reports. Only where all addresses are of this machine:
// on a file system that thousands of workers share, each look costs others time.
func (p *places) awaitNews(ctx context.Context, cfg *Config, d time.Duration) (news bool) {
	beside := cfg.Dial == nil
	for _, a := range p.addresses {
		host, _, err := net.SplitHostPort(a)
		ip := net.ParseIP(host)
		beside = beside && err == nil && ip != nil && ip.IsLoopback()
	}
	if !beside {
		pause(ctx, d)
		return false
	}
	for end := time.Now().Add(d); pause(ctx, min(time.Until(end), newsEvery)); {
		if found, err := rundir.ReadDiscovery(cfg.RunDir); err == nil && found.RunID == p.runID && found.Epoch > p.epoch {
			return true
		}
		if !time.Now().Before(end) {
			break
		}
	}
	return false
}

// key makes and checks the proofs of the run.
func (p *places) key() api.Key { return api.Key{Run: p.runID, Secret: p.secret} }

// inOrder are the addresses to try: first the one that was right before, then as the coordinator gave them.
func (p *places) inOrder() []string {
	if !slices.Contains(p.addresses, p.answers) {
		return p.addresses
	}
	order := []string{p.answers}
	for _, a := range p.addresses {
		if a != p.answers {
			order = append(order, a)
		}
	}
	return order
}

// dial opens a connection to one address, with TLS if the coordinator has a certificate, or gives the one that is there.
func (c *Client) dial(ctx context.Context, address string) (net.Conn, error) {
	if open := c.places.open; open != nil && open.address == address {
		c.places.open = nil
		return open.conn, nil
	}
	return c.dialAnew(ctx, address)
}

func (c *Client) dialAnew(ctx context.Context, address string) (net.Conn, error) {
	if c.cfg.Dial != nil {
		return c.cfg.Dial(ctx)
	}
	timeout := dialTimeout
	if len(c.places.addresses) > 1 {
		timeout = nextAfter // an address in a network without a way from here often gives no answer at all
	}
	return api.Dial(ctx, address, c.places.fingerprint, timeout)
}

// closeOpen closes the connection that nobody has used.
func (p *places) closeOpen() {
	if p.open != nil {
		p.open.conn.Close()
		p.open = nil
	}
}

// sayWhere logs at which address of the coordinator the worker has joined, and at which it could not.
func (c *Client) sayWhere() {
	switch {
	case c.cfg.Dial != nil: // in the same process
	case len(c.places.tried) == 0:
		c.logf("reached the coordinator at %s", c.places.answers)
	default:
		c.logf("reached the coordinator at %s; not so at the others: %s", c.places.answers, c.places.summary())
	}
}

// summary says of each address what became of the last attempt.
func (p *places) summary() string {
	var texts []string
	for _, address := range p.addresses {
		if text := p.tried[address]; text != "" {
			texts = append(texts, text)
		}
	}
	if texts == nil {
		return "no address was tried"
	}
	return strings.Join(texts, "; ")
}

// pause waits for d; false means that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
