package coordinator

import (
	"fmt"
	"math/bits"
	"os"
	"syscall"
	"time"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/rundir"
	"example.org/daisy/internal/stats"
	"example.org/daisy/scheduler"
)

// record takes the end of an attempt to the statistics.
func (c *Coordinator) record(a *engine.Attempt) {
	c.mishaps.note(a)
	c.recorder.Ended(forRecorder(a, c.before))
}

// forRecorder is an attempt for the statistics, whose time began so long before that of the attempt.
func forRecorder(a *engine.Attempt, before time.Duration) stats.Attempt {
	return stats.Attempt{
		Task: int(a.Handout.Task), Outcome: a.Outcome, Verdict: a.Verdict, Worker: a.Worker, Node: a.Node,
		At: before + a.At, Held: a.Held, WallNanos: a.Use.WallNanos, CPUNanos: a.Use.CPUNanos, PeakRSSBytes: a.Use.PeakRSSBytes,
		ReadBytes: a.Use.ReadBytes, WrittenBytes: a.Use.WrittenBytes, GPU: stats.GPU(a.Use.GPU),
	}
}

// statistics puts together what stats.json says, from the engine's own counts. Called when the engine has stopped.
func (c *Coordinator) statistics(ended time.Time) stats.Input {
	var snap engine.Snapshot
	c.engine.Snapshot(&snap)
	j := c.cfg.Job
	in := stats.Input{
		Run: stats.Run{
			ID: c.runID, Name: j.Name, State: c.outcome.String(), Message: c.why, ExitStatus: c.exitStatus(),
			Started: c.began, Began: c.began, Ended: ended, Wall: c.before + c.now(), JobFile: j.File, Directory: c.runPath(), Epoch: c.epoch,
		},
		Coordinator: stats.Coordinator{BytesIn: c.listener.in.Load(), BytesOut: c.listener.out.Load()},
	}
	if c.past != nil {
		in.Run.Earlier = segments(c.past)
		if len(in.Run.Earlier) > 0 {
			in.Run.Started = in.Run.Earlier[0].Started
		}
	}
	if c.cfg.Launcher != nil {
		in.Run.Launcher = c.cfg.Launcher.Name()
	}
	in.Run.Logs = c.logs()
	own := process.Self()
	in.Coordinator.CPU, in.Coordinator.PeakRSSBytes = own.CPU, own.PeakRSSBytes

	addTasks(&in, j, c.pipeline.Tasks(), &snap, c.engine.Limits().Tasks, c.workerLog)
	in.Run.Changes = c.changes()
	return in
}

// addTasks adds what an engine says of tasks, failed blocks and workers.
func addTasks(in *stats.Input, j *job.Job, tasks []scheduler.Task, snap *engine.Snapshot, limits []engine.TaskLimits, logOf func(worker string) string) {
	for i, t := range snap.Tasks {
		unselected := j.Task(t.ID).Unselected
		done, masked := skipBits(&tasks[i], unselected)
		in.Tasks = append(in.Tasks, stats.Task{
			State: t.State, Tally: t.Tally, DoneBits: done, MaskBits: masked, UnselectedBits: unselected.Count(), Workers: t.Workers, MaxConcurrency: t.MaxConcurrency,
			MaxWorkers: limits[i].MaxWorkers, Timeout: limits[i].Timeout,
		})
	}
	for _, f := range snap.Failures {
		grid := tasks[f.Task].Grid
		id, fits := grid.ID(f.Block)
		in.Tasks[f.Task].Failures = append(in.Tasks[f.Task].Failures, stats.Failure{
			Block: id, HasID: fits, Index: grid.Index(f.Block).Slice(), Attempts: int64(f.Attempts),
			Worker: f.Worker, Node: f.Node, Message: f.Message, Tail: f.Tail, Log: logOf(f.Worker),
		})
	}
	for _, w := range snap.Workers {
		asked, granted := amountsOf(j.Task(tasks[w.Task].ID), &w)
		in.Workers = append(in.Workers, stats.Worker{
			Task: tasks[w.Task].ID, ID: w.ID, Node: w.Node, Slots: int64(w.Slots), Asked: asked, Granted: granted, Processed: w.Processed, Failed: w.Failed,
			Busy: w.Busy, Idle: w.Idle, PeakRSSBytes: w.PeakRSSBytes, End: w.End, Log: logOf(w.ID),
		})
	}
}

// amountsOf is what a batch system was asked for a worker of a task, and what it gave; nothing without one.
func amountsOf(t *job.Task, w *engine.WorkerSnapshot) (asked, granted api.Amounts) {
	g := w.Grant
	if g == (engine.Grant{}) {
		return asked, granted
	}
	r := requestOf(t, int(w.Slots))
	asked = amounts((r.CPUMilli+999)/1000*1000, r.MemoryBytes, int64(r.GPUs)) // whole cores
	return asked, amounts(g.CPUMilli, g.MemoryBytes, g.GPUs)
}

func amounts(cpuMilli, memory, gpus int64) (a api.Amounts) {
	if cpuMilli > 0 {
		a.Cores = value(float64(cpuMilli) / 1000)
	}
	a.MemoryBytes, a.GPUs = value(memory), value(gpus)
	return a
}

// interruptedBy says it as those do who sent the signal.
func interruptedBy(sig syscall.Signal) string {
	switch sig {
	case syscall.SIGINT:
		return "interrupted by Ctrl-C (SIGINT)"
	case syscall.SIGQUIT:
		return "interrupted by Ctrl-\\ (SIGQUIT)"
	case syscall.SIGTERM:
		return "interrupted by SIGTERM"
	default:
		return fmt.Sprintf("interrupted by signal %d (%v)", int(sig), sig)
	}
}

// logs is the directory of the workers' logs, "" if there is none in it: those of a serial run go to the terminal.
func (c *Coordinator) logs() string {
	if c.cfg.RunDir == nil {
		return ""
	}
	return logsIn(c.cfg.RunDir)
}

func logsIn(run *rundir.Dir) string {
	dir := run.LogsDir()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		return ""
	}
	return dir
}

// skipBits counts the selected blocks that are marked done, and those of them that only the mask skips.
func skipBits(t *scheduler.Task, unselected scheduler.Bitmap) (done, masked int64) {
	for i := range max(len(t.Done), len(t.Mask)) {
		at := func(b scheduler.Bitmap) uint64 {
			if i < len(b) {
				return b[i]
			}
			return 0
		}
		selected := ^at(unselected)
		done += int64(bits.OnesCount64(at(t.Done) & selected))
		masked += int64(bits.OnesCount64(at(t.Mask) &^ at(t.Done) & selected))
	}
	return done, masked
}
