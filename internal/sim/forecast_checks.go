package sim

import (
	"fmt"

	"example.org/daisy/internal/engine"
	"example.org/daisy/scheduler"
)

// forecastChecks are the invariants that cost next to nothing: a forecast that breaks one is worth nothing.
type forecastChecks struct {
	f       *forecaster
	tasks   []forecastTask
	running int64
	next    int // task to be looked at
	err     error
}

type forecastTask struct {
	ended   scheduler.Bitmap // blocks that have ended well, by the ends that were counted
	good    int64
	running int64
	tally   scheduler.Tally
}

func (c *forecastChecks) init(f *forecaster) {
	c.f = f
	for _, t := range f.cfg.Pipeline.Tasks() {
		c.tasks = append(c.tasks, forecastTask{ended: scheduler.NewBitmap(t.Grid.Len())})
	}
}

func (c *forecastChecks) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w, at %v: %s", ErrBroken, c.f.now, fmt.Sprintf(format, args...))
	}
}

func (c *forecastChecks) handedOut(h scheduler.Handout) {
	if c.tasks[h.Task].ended.Get(h.Block) {
		c.fail("block %d of task %d has ended well, and is handed out again", h.Block, h.Task)
	}
}

func (c *forecastChecks) ended(a *engine.Attempt) {
	t := &c.tasks[a.Handout.Task]
	if a.Verdict != scheduler.Succeeded && a.Verdict != scheduler.WasSkipped {
		return
	}
	if t.ended.Get(a.Handout.Block) {
		c.fail("block %d of task %d is counted twice", a.Handout.Block, a.Handout.Task)
	}
	t.ended.Set(a.Handout.Block)
	t.good++
}

// begins and stops follow what runs.
func (c *forecastChecks) begins(task int32) {
	t := &c.tasks[task]
	t.running++
	c.running++
	if most := c.f.tasks[task].MaxWorkers; most > 0 && t.running > most {
		c.fail("%d blocks of task %d run at once, and %d may", t.running, task, most)
	}
	if most := int64(c.f.cfg.MaxSlots); most > 0 && c.running > most {
		c.fail("%d blocks run at once, and %d may", c.running, most)
	}
}

func (c *forecastChecks) stops(task int32) {
	c.tasks[task].running--
	c.running--
}

// applied looks at the counts of one task after each call of the engine, one after the other.
func (c *forecastChecks) applied() {
	i := c.next
	if c.next++; c.next == len(c.tasks) {
		c.next = 0
	}
	now, _ := c.f.engine.Tally(i)
	was := &c.tasks[i].tally
	switch {
	case now.Total != now.Waiting+now.Ready+now.Leased+now.Success+now.Skipped+now.Failed+now.Orphaned+now.Abandoned:
		c.fail("the counts of task %d do not add up: %+v", i, now)
	case now.Success < was.Success || now.Skipped < was.Skipped || now.Failed < was.Failed || now.Processed < was.Processed:
		c.fail("counts of task %d go back: from %+v to %+v", i, *was, now)
	}
	*was = now
}

// atEnd compares the counts with what was seen.
func (c *forecastChecks) atEnd(s *engine.Snapshot) {
	for i := range c.tasks {
		t, now := &c.tasks[i], s.Tasks[i].Tally
		if left := now.Waiting + now.Ready + now.Leased; s.State == engine.RunDone && left > 0 {
			c.fail("the run is done and %d blocks of task %d are left", left, i)
		}
		if now.Success != t.good {
			c.fail("task %d counts %d blocks that ended well, and %d did", i, now.Success, t.good)
		}
	}
}
