package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/launcher"
)

// submit asks the launcher for workers.
func (c *Coordinator) submit(s *engine.Submission) {
	task := c.cfg.Job.Task(c.pipeline.Tasks()[s.Task].ID)
	r := requestFor(c.cfg.Job, task, s.Tag, s.Count, s.Slots, c.cfg.WorkerArgv, c.runPath())
	r.Env, r.Exclude = LaunchEnvironment(c.environment(), c.runID), slices.Clone(s.Exclude)
	r.Throttle = s.Throttle
	r.LogPath = func(launcher.Worker) string { return "" }
	if d := c.cfg.RunDir; d != nil {
		r.LogPath = func(w launcher.Worker) string { return d.LogPath(w.String()) }
	}
	c.errands.add(func(ctx context.Context) {
		array, err := c.cfg.Launcher.Submit(ctx, r)
		if c.cfg.Launcher.Properties().Queue {
			c.answered(engine.Answer{Array: array, Err: err})
			return
		}
		done := engine.Event{Kind: engine.EventSubmitted, Tag: r.Tag}
		if err != nil {
			done.Text = err.Error()
		}
		c.inbox.put(done)
	})
}

// end has the launcher make workers leave, or kills them.
func (c *Coordinator) end(kind engine.EffectKind, workers []launcher.Worker) {
	workers = slices.Clone(workers)
	c.errands.add(func(ctx context.Context) {
		if c.takenOver() != nil {
			return // they are another's workers now, and the next commit ends this coordinator
		}
		call := c.cfg.Launcher.Cancel
		if kind == engine.EffectKill {
			call = c.cfg.Launcher.Kill
		}
		err := call(ctx, workers...)
		if c.cfg.Launcher.Properties().Queue {
			c.answered(engine.Answer{Err: err})
		} else if err != nil {
			c.inbox.call(func() { c.cfg.Notice(err.Error()) })
		}
	})
}

// ask puts a question to the batch system.
func (c *Coordinator) ask(kind engine.EffectKind, a engine.Ask) {
	q := c.cfg.Launcher.(launcher.Queue)
	if kind == engine.EffectBind {
		q.Bind(a.Tag, a.Array)
		return
	}
	c.errands.add(func(ctx context.Context) {
		changes := kind == engine.EffectThrottle || kind == engine.EffectExclude || kind == engine.EffectCancelArray
		if changes && c.takenOver() != nil {
			return // as in end
		}
		var got engine.Answer
		switch kind {
		case engine.EffectList:
			got.Listing, got.Err = q.List(ctx)
		case engine.EffectKnown:
			got.Known, got.Err = q.Known(ctx, a.Array)
		case engine.EffectAccount:
			got.Listing, got.Err = q.Account(ctx, a.Arrays...)
		case engine.EffectThrottle:
			got.Err = q.Throttle(ctx, a.Array, a.Count)
		case engine.EffectExclude:
			got.Err = q.Exclude(ctx, a.Array, a.Nodes)
		case engine.EffectCancelArray:
			got.Err = q.CancelArray(ctx, a.Tag, a.Array)
		}
		c.answered(got)
	})
}

// answered takes an answer of the batch system to the engine.
func (c *Coordinator) answered(a engine.Answer) {
	c.inbox.put(engine.Event{Kind: engine.EventAnswered, Answer: &a})
}

// status takes what the launcher saw to the engine.
func (c *Coordinator) status(s launcher.Status) {
	c.inbox.put(engine.Event{Kind: engine.EventStatus, Status: &s})
}

// workerLog is where the log of a worker is, "" if it has none: a worker that came by itself logs where it likes.
func (c *Coordinator) workerLog(worker string) string {
	if c.cfg.RunDir == nil || c.cfg.Launcher == nil {
		return ""
	}
	return logIn(c.cfg.RunDir, worker)
}

func logIn(run *rundir.Dir, worker string) string {
	if worker == "" {
		return ""
	}
	path := run.LogPath(worker)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// runPath is the run directory, "" if there is none.
func (c *Coordinator) runPath() string {
	if c.cfg.RunDir == nil {
		return ""
	}
	return filepath.Clean(c.cfg.RunDir.Path())
}
