package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/units"
	"example.org/daisy/internal/wire"
)

// worthKeeping: the result says something about the block. What was given back unfinished does not.
func worthKeeping(o wire.Outcome) bool { return o != wire.Returned && o != wire.Recalled }

// leaveInOutbox writes what was never acknowledged. Call it when the connection has ended for good.
func (c *Client) leaveInOutbox() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	kept := 0
	for _, u := range c.unacked.list() {
		if !worthKeeping(u.Outcome) || u.held.task == nil {
			continue
		}
		b := u.held.block()
		if c.cfg.RunDir == "" {
			errs = append(errs, fmt.Errorf("the result of block %s (%v) could not be delivered", b.Label(), u.Outcome))
			continue
		}
		r := api.Undelivered{
			Version: api.UndeliveredVersion, RunID: c.runID, Worker: c.worker, Nonce: c.nonce,
			Seq: u.Seq, Epoch: u.Epoch, Lease: u.Lease,
			Task: b.Task.Spec.ID, Block: b.Flat, Attempt: b.Attempt, Outcome: u.Outcome.String(),
			WallNanos: u.WallNanos, CPUNanos: u.CPUNanos, PeakRSSBytes: u.PeakRSSBytes, ReadBytes: u.ReadBytes, WrittenBytes: u.WrittenBytes, Message: u.Message, Tail: u.Tail,
		}
		if u.GPU.Measured {
			r.GPUPercent, r.GPUMemBytes = &u.GPU.Percent, &u.GPU.MemBytes
		}
		path, err := writeResult(c.cfg.RunDir, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("the result of block %s (%v) could not be delivered, nor kept: %w", b.Label(), u.Outcome, err))
			continue
		}
		kept++
		c.logf("the result of block %s (%v) could not be delivered; it is in %s", b.Label(), u.Outcome, path)
	}
	c.unacked.drop(c.unacked.len())
	if kept > 0 {
		errs = append(errs, fmt.Errorf("%s could not be delivered, and went to the outbox of %s", units.Plural(int64(kept), "result"), c.cfg.RunDir))
	}
	return errors.Join(errs...)
}

func writeResult(runDir string, r api.Undelivered) (string, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(runDir, "outbox")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%016x-%d.json", rundir.SafeName(r.Worker), r.Nonce, r.Seq))
	f, err := os.CreateTemp(dir, ".result-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return path, nil
}
