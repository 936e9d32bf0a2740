package engine

import (
	"time"

	"example.org/daisy/scheduler"
)

// A Snapshot is where a run stands, for people.
type Snapshot struct {
	State RunState
	// Ending says why the run ends early, "" if it does not.
	Ending string
	// Tasks are in the order of the pipeline.
	Tasks []TaskSnapshot
	// Workers has one row for each worker and each task that it served, in the order in which they began.
	Workers []WorkerSnapshot
	// Failures are the first blocks that failed for good, of each task at most 100.
	Failures []FailedBlock
}

// A TaskSnapshot is one task.
type TaskSnapshot struct {
	ID    string
	Tally scheduler.Tally
	State scheduler.TaskState
	// Workers is how many workers have served it so far.
	Workers int64
	// SlotsBusy run a block, SlotsIdle have none, SlotsStarting are those of workers that were asked for and have not joined.
	SlotsBusy, SlotsIdle, SlotsStarting int64
	// MaxConcurrency is how many blocks ran at once at most.
	MaxConcurrency int64
	// SkippedByCheck are the skipped blocks of which the check on the worker said that they are done.
	SkippedByCheck int64
	// Waits says what it waits for, "" if all that could run runs.
	Waits string
}

// A WorkerSnapshot is what one worker did for one task.
type WorkerSnapshot struct {
	ID    string
	Task  int32
	Node  string
	Slots int
	// Grant is what its batch system has given it; zero without one.
	Grant Grant
	// Processed are its valid returns, Failed those of them that said failed.
	Processed, Failed int64
	// Busy and Idle are times of slots; together slots × the time that it served the task.
	Busy, Idle   time.Duration
	PeakRSSBytes int64
	// State is what it does now: "busy", "idle", "suspect", "leaving", "ended".
	State string
	// End is how it ended: left, drained, stopped, exited, signal, lost, time_limit, preempted, node_failed, out_of_memory,
	// cancelled or killed_by_us; "" as long as it serves.
	End string
}

// A FailedBlock is a block that failed for good.
type FailedBlock struct {
	Task     int32
	Block    int64
	Attempts int32
	Outcome  scheduler.Outcome
	// Worker and Node are those of its last attempt.
	Worker, Node  string
	Message, Tail string
}

// keptFailures is how many failed blocks of a task a snapshot shows.
const keptFailures = 100

// Snapshot fills into, whose slices it reuses. It takes time for each worker that the run has ever had: it is for the end of a
// run, and for tests.
func (e *Engine) Snapshot(into *Snapshot) {
	e.Overview(into)
	for i := range e.tasks {
		into.Failures = append(into.Failures, e.tasks[i].failures...)
	}
	for _, r := range e.rows {
		into.Workers = append(into.Workers, e.rowSnapshot(r))
	}
}

// Overview is a Snapshot without workers and failures, which takes time for each task only.
func (e *Engine) Overview(into *Snapshot) {
	into.State, into.Ending = e.State(), ""
	if e.phase != running {
		into.Ending = e.why
	}
	into.Tasks, into.Workers, into.Failures = into.Tasks[:0], into.Workers[:0], into.Failures[:0]
	for i := range e.tasks {
		t := &e.tasks[i]
		into.Tasks = append(into.Tasks, TaskSnapshot{
			ID: t.spec.ID, Tally: e.sched.Tally(i), State: e.sched.State(i),
			Workers: t.served, SlotsBusy: t.started, SlotsIdle: t.joined - t.started, SlotsStarting: t.starting,
			MaxConcurrency: t.most, SkippedByCheck: t.checked, Waits: e.waits(i),
		})
	}
}

// Running is how many blocks run.
func (e *Engine) Running() (n int64) {
	for i := range e.tasks {
		n += e.tasks[i].started
	}
	return n
}

// A row is what one worker did for one task.
type row struct {
	worker            *worker
	task              int32
	slots             int32
	since             time.Duration
	processed, failed int64
	busy, served      time.Duration // served: slots × time, without what has passed since since if it is not over
	peak              int64
	over              bool
	end               string
}

func (e *Engine) rowSnapshot(r *row) WorkerSnapshot {
	w := r.worker
	s := WorkerSnapshot{ID: w.id, Task: r.task, Node: w.node, Slots: int(r.slots), Grant: w.grant, Processed: r.processed, Failed: r.failed,
		Busy: r.busy, PeakRSSBytes: r.peak, State: "ended", End: r.end}
	served := r.served
	if !r.over {
		served += time.Duration(r.slots) * (e.now - r.since)
		for l := w.first; l != nil; l = l.next {
			if l.state == started {
				s.Busy += e.now - l.began
			}
		}
		s.State = w.word()
	}
	s.Idle = max(served-s.Busy, 0)
	return s
}

// word is what a worker does now.
func (w *worker) word() string {
	switch {
	case w.ended:
		return "ended"
	case w.suspect || w.session == 0:
		return "suspect"
	case w.told != notTold || w.leaving:
		return "leaving"
	case w.started > 0:
		return "busy"
	default:
		return "idle"
	}
}

// openRow begins the row of a worker for its task, or goes on with the one that it has there already.
func (e *Engine) openRow(w *worker) {
	for _, r := range w.rows {
		if r.task == w.task {
			w.row = r
			r.over, r.end, r.slots, r.since = false, "", w.slots, e.now
			return
		}
	}
	w.row = &row{worker: w, task: w.task, slots: w.slots, since: e.now}
	w.rows = append(w.rows, w.row)
	e.rows = append(e.rows, w.row)
	e.tasks[w.task].served++
}

// closeRow ends it.
func (e *Engine) closeRow(w *worker, end string) {
	if w.row == nil || w.row.over {
		return
	}
	w.row.over, w.row.end = true, end
	w.row.served += time.Duration(w.row.slots) * (e.now - w.row.since)
}

// Tally is where the blocks of a task stand, and whether it has ended: what a Snapshot says of it, without the rest.
func (e *Engine) Tally(task int) (scheduler.Tally, scheduler.TaskState) {
	return e.sched.Tally(task), e.sched.State(task)
}
