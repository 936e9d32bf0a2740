package sim

import (
	"errors"
	"io/fs"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/scheduler"
)

// openTracking opens the group of each task, brings it up to the journal, and puts the done bits into the pipeline, as
// internal/coordinator does.
func (co *coordinator) openTracking(p *scheduler.Pipeline) (*scheduler.Pipeline, error) {
	w := co.world
	if !w.cfg.Tracking {
		return p, nil
	}
	tasks := p.Tasks()
	disk := trackingDisk{w.disk, co}
	co.stores = make([]*tracking.Store, len(tasks))
	for i := range tasks {
		dir := "/track/" + tasks[i].ID
		had := co.past != nil && len(co.past.Epochs()) > 0
		if _, err := disk.Lstat(dir + "/zarr.json"); had && errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("tracking " + dir + " is gone")
		}
		s, err := tracking.Open(dir, tasks[i].Grid, tracking.OnDisk(disk))
		if err != nil {
			return nil, err
		}
		co.stores[i] = s
		if tasks[i].Done, err = s.Done(); err != nil {
			return nil, err
		}
		if co.past == nil {
			continue
		}
		if err := co.past.CatchUp(i, s, tasks[i].Done); err != nil {
			return nil, err
		}
		if err := s.Flush(); err != nil {
			return nil, err
		}
	}
	return scheduler.NewPipeline(tasks, p.Edges())
}

// track notes a mark, which is written soon.
func (co *coordinator) track(f *engine.Effect) {
	if co.stores == nil {
		return
	}
	if len(co.marks) == 0 {
		co.world.queue.push(event{at: co.world.now + trackEvery, to: co, what: coTracks})
	}
	co.marks = append(co.marks, mark{task: f.Task, done: f.Done, block: f.Block})
}

// writeMarks writes what has come.
func (co *coordinator) writeMarks() {
	if len(co.marks) == 0 {
		return
	}
	touched := make([]bool, len(co.stores))
	for _, m := range co.marks {
		touched[m.task] = true
		if m.done {
			co.stores[m.task].MarkDone(m.block)
		} else {
			co.stores[m.task].AddFailure(m.block)
		}
	}
	co.marks = co.marks[:0]
	for i, s := range co.stores {
		if !touched[i] {
			continue
		}
		if err := s.Flush(); err != nil && !co.broken {
			co.world.logf("epoch %d: tracking: %v", co.epoch, err)
			co.breaks(err.Error())
		}
	}
}

// closeTracking syncs and closes the groups. If that fails, the next life finds it out.
func (co *coordinator) closeTracking() {
	for _, s := range co.stores {
		if err := s.Close(); err != nil {
			co.unsynced = true
		}
	}
}

// checkTracking compares what is in the groups with what the journal says.
func (c *checks) checkTracking(co *coordinator, folds []fold) {
	if co.stores == nil || co.unsynced {
		return
	}
	for i := range folds {
		t := &c.world.cfg.Job.Tasks[i]
		s, err := tracking.Open("/track/"+t.ID, t.Grid, tracking.OnDisk(trackingDisk{c.world.disk, nil}))
		if err != nil {
			c.fail("the tracking of task %d cannot be opened after the end: %v", i, err)
			return
		}
		defer s.Close()
		done, err := s.Done()
		if err != nil {
			c.fail("the tracking of task %d cannot be read after the end: %v", i, err)
			return
		}
		for b := range c.tasks[i].blocks {
			k := folds[i].blocks[b]
			if good := k != nil && k.good; scheduler.Bitmap(done).Get(b) != good {
				c.fail("block %d of task %d: tracking says done %v, the journal %v", b, i, !good, good)
			}
			n, err := s.FailureCount(b)
			if want := k.failed(); err != nil || n != want {
				c.fail("block %d of task %d: tracking says that it failed %d times, the journal %d (%v)", b, i, n, want, err)
			}
		}
	}
}

// failed is how often a block has failed.
func (k *foldedBlock) failed() uint32 {
	if k == nil {
		return 0
	}
	return uint32(k.ever)
}
