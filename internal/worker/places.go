package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
)

// places is where the coordinator may be found, as last read from the run directory.
type places struct {
	runID, secret string
	epoch         uint64 // of the discovery file
	addresses     []string
	tried         []string // what became of the last attempt at each address, for people
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
	return nil
}

// key makes and checks the proofs of the run.
func (p *places) key() api.Key { return api.Key{Run: p.runID, Secret: p.secret} }

// dial opens a connection to one address.
func (c *Client) dial(ctx context.Context, address string) (net.Conn, error) {
	if c.cfg.Dial != nil {
		return c.cfg.Dial(ctx)
	}
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "tcp", address)
}

func (p *places) summary() string {
	if len(p.tried) == 0 {
		return "no address was tried"
	}
	return strings.Join(p.tried, "; ")
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
