package coordinator

import (
	"fmt"
	"math/bits"
	"os"
	"syscall"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/process"
	"example.org/daisy/internal/stats"
	"example.org/daisy/scheduler"
)

// record takes the end of an attempt to the statistics.
func (c *Coordinator) record(a *engine.Attempt) {
	c.mishaps.note(a)
	c.recorder.Ended(attemptOf(a, c.before))
}

// attemptOf is what the statistics are told, of an attempt in an epoch before which the run had lasted so long.
func attemptOf(a *engine.Attempt, before time.Duration) stats.Attempt {
	return stats.Attempt{
		Task: int(a.Handout.Task), Outcome: a.Outcome, Verdict: a.Verdict, Worker: a.Worker, Node: a.Node,
		At: before + a.At, Held: a.Held, WallNanos: a.Use.WallNanos, CPUNanos: a.Use.CPUNanos, PeakRSSBytes: a.Use.PeakRSSBytes,
		ReadBytes: a.Use.ReadBytes, WrittenBytes: a.Use.WrittenBytes,
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
			Started: c.began, Ended: ended, Wall: c.before + c.now(), JobFile: j.File, Directory: c.runPath(), Epoch: c.epoch,
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

	tasks := c.pipeline.Tasks()
	for i, t := range snap.Tasks {
		done, masked := skipBits(&tasks[i])
		in.Tasks = append(in.Tasks, stats.Task{
			State: t.State, Tally: t.Tally, DoneBits: done, MaskBits: masked, Workers: t.Workers, MaxConcurrency: t.MaxConcurrency,
		})
	}
	c.limitsOf(&in)
	for _, f := range snap.Failures {
		grid := tasks[f.Task].Grid
		id, fits := grid.ID(f.Block)
		in.Tasks[f.Task].Failures = append(in.Tasks[f.Task].Failures, stats.Failure{
			Block: id, HasID: fits, Index: grid.Index(f.Block).Slice(), Attempts: int64(f.Attempts),
			Worker: f.Worker, Node: f.Node, Message: f.Message, Tail: f.Tail, Log: c.workerLog(f.Worker),
		})
	}
	for _, w := range snap.Workers {
		in.Workers = append(in.Workers, stats.Worker{
			Task: tasks[w.Task].ID, ID: w.ID, Node: w.Node, Slots: int64(w.Slots), Processed: w.Processed, Failed: w.Failed,
			Busy: w.Busy, Idle: w.Idle, PeakRSSBytes: w.PeakRSSBytes, End: w.End, Log: c.workerLog(w.ID),
		})
	}
	return in
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
	dir := c.cfg.RunDir.LogsDir()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		return ""
	}
	return dir
}

// skipBits counts the blocks marked done, and those that only the mask skips.
func skipBits(t *scheduler.Task) (done, masked int64) {
	for i, word := range t.Done {
		done += int64(bits.OnesCount64(word))
		if i < len(t.Mask) {
			masked -= int64(bits.OnesCount64(word & t.Mask[i]))
		}
	}
	for _, word := range t.Mask {
		masked += int64(bits.OnesCount64(word))
	}
	return done, masked
}
