package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/internal/units"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A run is resumed from its journal alone: it says what has ended, and how. Whatever else there is of the run, tracking and
// processes, is brought up to it before the first block is handed out.

// readPast reads what earlier epochs have left. The epoch of this coordinator has begun, so that nothing is added to them
// any more; but one that was taken over just then may still be at it to compact what there is. The statistics are told of every attempt.
func (c *Coordinator) readPast() (*engine.Past, journal.Position, error) {
	var f *fold
	var report journal.Report
	var err error
	for range readings {
		f = newFold(c.cfg.Job, c.pipeline)
		if report, err = f.read(c.cfg.RunDir.JournalDir(), nil); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, journal.Position{}, fmt.Errorf("resume %s: %w", c.cfg.RunDir.Path(), err)
	}
	for _, cut := range report.Cut {
		c.cfg.Notice(cut.String())
	}
	c.recorder, c.mishaps, c.before = f.recorder, f.mishaps, f.past.Lasted()
	return f.past, report.Last, nil
}

// readings is how often the journal is read while files of it go.
const readings = 5

// readOutbox takes in the good results that workers of an earlier epoch could not deliver, as ends of attempts that are still to be
// journalled. Others are as if the attempt had not been: the block runs again. What is not a result of this run is passed over,
// and said.
func (c *Coordinator) readOutbox(past *engine.Past) (found []engine.Record, err error) {
	entries, err := os.ReadDir(c.cfg.RunDir.OutboxDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", c.cfg.RunDir.Path(), err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue // not complete
		}
		path := filepath.Join(c.cfg.RunDir.OutboxDir(), e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("resume %s: %w", c.cfg.RunDir.Path(), err)
		}
		var u api.Undelivered
		if err := json.Unmarshal(data, &u); err != nil || u.Version != api.UndeliveredVersion || u.RunID != c.runID {
			c.cfg.Notice(fmt.Sprintf("%s is no result of this run and is passed over", path))
			continue
		}
		outcome := scheduler.Success
		switch u.Outcome {
		case scheduler.Success.String():
		case scheduler.Skipped.String():
			outcome = scheduler.Skipped
		default:
			continue
		}
		r := engine.Record{
			Kind: engine.RecordEnd, Task: int32(c.pipeline.Index(u.Task)), Block: u.Block, Lease: u.Lease, Attempt: int32(u.Attempt), Worker: past.Number(u.Worker, u.Nonce),
			Outcome: uint8(outcome), Use: engine.Use{WallNanos: u.WallNanos, CPUNanos: u.CPUNanos, PeakRSSBytes: u.PeakRSSBytes, ReadBytes: u.ReadBytes, WrittenBytes: u.WrittenBytes, GPU: undeliveredGPU(&u)}, Held: u.WallNanos / 1000,
		}
		records := []engine.Record{r}
		if r.Worker == 0 {
			// It had got the block before it was written down that it had joined, which nobody waits for.
			r.Worker = past.NextNumber()
			records = []engine.Record{
				{Kind: engine.RecordJoin, Task: r.Task, Worker: r.Worker, ID: u.Worker, Nonce: u.Nonce, Count: 1},
				{Kind: engine.RecordGone, Task: r.Task, Worker: r.Worker, Text: "lost"},
				r,
			}
		}
		for _, r := range records {
			a, isEnd, err := past.Add(&r)
			if err != nil {
				c.cfg.Notice(fmt.Sprintf("%s is no result of this run and is passed over: %v", path, err))
				break
			}
			if isEnd {
				a.At = 0 // with this epoch: so a later one will read it
				c.record(&a)
			}
			if isEnd || r.Kind != engine.RecordEnd { // not of a block that had ended
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// lettingGo is how long a coordinator that was taken over may take to see it and to end.
const lettingGo = 3 * rundir.RenewEvery

// strayBound limits the wait for processes of the run that were left behind; they have got SIGKILL, and only the system can keep
// them.
const strayBound = 10 * time.Second

// takeOver takes over the workers that a dead coordinator has left on this machine and that its journal knows, and ends whatever else it
// has left, so that no block runs twice. Without a launcher that could take them over, the workers are ended too.
func (c *Coordinator) takeOver() (left []launcher.Worker, err error) {
	if c.cfg.Launcher != nil && c.cfg.Launcher.Properties().Queue {
		return nil, nil // its workers are the batch system's, wherever they run: the engine asks for them
	}
	ctx, cancel := context.WithTimeout(context.Background(), strayBound)
	defer cancel()
	mark := launchedFor + "=" + c.runID
	var ended fmt.Stringer
	if l, can := c.cfg.Launcher.(launcher.Adopter); can {
		known := map[string]bool{}
		for _, w := range c.past.Live() {
			known[w.ID] = known[w.ID] || w.Launched
		}
		c.cfg.Launcher.Watch(c.status)
		left, ended, err = l.Adopt(ctx, mark, func(w launcher.Worker) bool { return known[w.String()] })
	} else {
		var found process.PIDs
		if found, err = process.EndMarked(ctx, []string{mark}, nil, 0); len(found) > 0 {
			ended = found
		}
	}
	if err != nil {
		return nil, fmt.Errorf("resume %s: processes that the coordinator before had started: %w", c.cfg.RunDir.Path(), err)
	}
	if len(left) > 0 {
		c.cfg.Notice(fmt.Sprintf("took over %s of the coordinator before", units.Plural(int64(len(left)), "worker")))
	}
	if ended != nil {
		c.cfg.Notice(fmt.Sprintf("ended processes of the coordinator before: %v", ended))
	}
	return left, nil
}

// openGroup opens the tracking group of a task, which a run that goes on had when it was last alive. Should it be gone, or be another
// one, nobody knows any more what had been done before the run, and nothing is guessed.
func (c *Coordinator) openGroup(dir string, g *geom.Grid, resources bool) (*tracking.Store, error) {
	had := c.past != nil && len(c.past.Epochs()) > 0
	if _, err := os.Stat(filepath.Join(dir, "zarr.json")); had && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tracking %s is gone, and this run had marks there: put it back, or start a new run", dir)
	}
	options := []tracking.Option{tracking.ForRun(c.runID)}
	if resources {
		options = append(options, tracking.WithResources())
	}
	s, err := tracking.Open(dir, g, options...)
	// A coordinator that was taken over lets go when it sees that.
	var locked *tracking.LockedError
	for until := time.Now().Add(lettingGo); had && errors.As(err, &locked) && time.Now().Before(until); {
		time.Sleep(lettingGo / 50)
		s, err = tracking.Open(dir, g, options...)
	}
	var layout *tracking.LayoutError
	var unreadable *tracking.UnreadableError
	switch {
	case had && errors.As(err, &layout):
		return nil, fmt.Errorf("tracking %s is not the one that this run had: it is of another layout of blocks (hash %s, this task's %s). Put this run's back, or start a new run", layout.Path, layout.Stored, layout.Want)
	case had && errors.As(err, &unreadable):
		return nil, fmt.Errorf("tracking %s is not as this run left it: %s: %s. Put this run's back, or start a new run", unreadable.Path, unreadable.File, unreadable.Reason)
	}
	return s, err
}

// catchUpUse brings what blocks have used up to the journal, by reading it once more: it is too much to be remembered. A snapshot in the
// journal stands for what is in tracking already. recovered are ends that are not in it yet.
func (c *Coordinator) catchUpUse(stores []*tracking.Store, recovered []engine.Record) error {
	if !slices.ContainsFunc(stores, func(s *tracking.Store) bool { return s != nil && s.HasResources() }) {
		return nil
	}
	f, use := newFold(c.cfg.Job, c.pipeline), usage{stores: stores}
	_, err := f.read(c.cfg.RunDir.JournalDir(), use.add)
	for i := 0; i < len(recovered) && err == nil; i++ {
		err = f.add(&recovered[i], use.add)
	}
	for _, s := range stores {
		if s != nil && err == nil {
			err = s.Flush()
		}
	}
	if err != nil {
		return fmt.Errorf("resume %s: what blocks have used: %w", c.cfg.RunDir.Path(), err)
	}
	return nil
}

// segments are the earlier lives of the run, for the reports.
func segments(past *engine.Past) []api.Segment {
	var list []api.Segment
	for _, e := range past.Epochs() {
		began := time.Unix(0, e.Began)
		ended := began.Add(e.Lasted)
		list = append(list, api.Segment{Epoch: e.Epoch, Started: began, Ended: &ended, WallSeconds: e.Lasted.Seconds()})
	}
	return list
}

// undeliveredGPU is what a result in the outbox says of GPUs.
func undeliveredGPU(u *api.Undelivered) engine.GPU {
	if u.GPUPercent == nil || u.GPUMemBytes == nil {
		return engine.GPU{}
	}
	return engine.GPU{Measured: true, Percent: *u.GPUPercent, MemBytes: *u.GPUMemBytes}
}
