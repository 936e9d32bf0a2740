package engine

import (
	"time"

	"example.org/daisy/scheduler"
)

// What people look at in a run that goes on. Each call costs some milliseconds at most, however large the run: who wants more
// calls again, with other events in between.

// A BlockView is a block as the engine knows it.
type BlockView struct {
	Block int64
	State scheduler.BlockState
	// Attempt is the number of the attempt that it is at, or was at last; 0 = the engine does not know.
	Attempt int32
	// Worker and Node have it, or had it last; "" = nobody, or not known.
	Worker, Node string
	// Running: it has been started, and runs for For.
	Running bool
	For     time.Duration
	// Outcome, Message and Tail are of a block that failed, where they were kept.
	Outcome       scheduler.Outcome
	Message, Tail string
}

// viewUnits is how many blocks one look goes through.
const viewUnits = 1 << 16

// Blocks goes through a task from a block on, and appends those in one of the states (all, if none is given) to the views, until
// there are limit of them. It returns the block to go on with, which is the number of blocks at the end.
func (e *Engine) Blocks(task int, from int64, states []scheduler.BlockState, limit int, views []BlockView) ([]BlockView, int64) {
	wanted := ^uint32(0)
	if len(states) > 0 {
		wanted = 0
		for _, s := range states {
			wanted |= 1 << s
		}
	}
	first := len(views)
	total := e.sched.Tally(task).Total
	block, end := max(from, 0), min(max(from, 0)+viewUnits, total)
	for ; block < end && len(views) < limit; block++ {
		if s := e.sched.Block(task, block); wanted&(1<<s) != 0 {
			views = append(views, BlockView{Block: block, State: s})
		}
	}
	e.fillIn(int32(task), views[first:])
	return views, block
}

// fillIn adds what is known of the blocks beside their state.
func (e *Engine) fillIn(task int32, views []BlockView) {
	at := map[int64]*BlockView{}
	leased, failed := false, false
	for i := range views {
		at[views[i].Block] = &views[i]
		leased = leased || views[i].State == scheduler.BlockLeased
		failed = failed || views[i].State == scheduler.BlockFailed
	}
	for _, l := range e.leases {
		if !leased {
			break
		}
		if l == nil || l.handout.Task != task {
			continue
		}
		if v := at[l.handout.Block]; v != nil && v.State == scheduler.BlockLeased {
			v.Attempt, v.Worker, v.Node = l.handout.Attempt, l.worker.id, l.worker.node
			if l.state == started {
				v.Running, v.For = true, e.now-l.began
			}
		}
	}
	if !failed {
		return
	}
	n := 0
	e.sched.Failures(int(task), func(block int64, attempts int) bool {
		if v := at[block]; v != nil {
			v.Attempt = int32(attempts)
		}
		n++
		return n < viewUnits
	})
	for _, f := range e.tasks[task].failures {
		if v := at[f.Block]; v != nil && v.State == scheduler.BlockFailed {
			v.Attempt, v.Worker, v.Node = f.Attempts, f.Worker, f.Node
			v.Outcome, v.Message, v.Tail = f.Outcome, f.Message, f.Tail
		}
	}
}

// A WorkerView is a worker as the engine knows it.
type WorkerView struct {
	WorkerSnapshot
	// Held is how many blocks it has, Running how many of them run.
	Held, Running int
	// Silent is for how long nothing has been heard of it, -1 if it has not joined.
	Silent time.Duration
	// Why is what it was told when it was told to leave.
	Why string
	// Job is what a batch system calls it, Left is how long it may run there; "" and 0 if not known.
	Job  string
	Left time.Duration
}

// LiveIDs lists the workers that have not ended, in no order.
func (e *Engine) LiveIDs() []string {
	ids := make([]string, len(e.live))
	for i, w := range e.live {
		ids[i] = w.id
	}
	return ids
}

// LiveWorkers appends what there is to say of some workers, as far as they have not ended: State is as in a snapshot, or
// "starting". The numbers are those of the task that it serves now.
func (e *Engine) LiveWorkers(ids []string, views []WorkerView) []WorkerView {
	for _, id := range ids {
		w := e.workers[id]
		if w == nil || w.ended {
			continue
		}
		v := WorkerView{WorkerSnapshot: WorkerSnapshot{ID: w.id, Task: w.task, Node: w.node, Slots: int(w.slots), Grant: w.grant},
			Held: int(w.held), Running: int(w.started), Silent: -1, Why: w.toldWhy}
		if w.row != nil {
			v.WorkerSnapshot = e.rowSnapshot(w.row)
		}
		v.State = w.stateWord()
		if w.nonce != 0 {
			v.Silent = e.now - w.heard
		}
		v.Job, v.Left = e.jobOf(w)
		views = append(views, v)
	}
	return views
}

// EndedRows goes through the rows of the snapshot from one on, appends those that are over, and returns the one to go on with;
// done says that there are no more.
func (e *Engine) EndedRows(from, limit int, views []WorkerView) (_ []WorkerView, next int, done bool) {
	end := min(from+viewUnits, len(e.rows))
	for ; from < end && len(views) < limit; from++ {
		if e.rows[from].over {
			views = append(views, WorkerView{WorkerSnapshot: e.rowSnapshot(e.rows[from]), Silent: -1})
		}
	}
	return views, from, from >= len(e.rows)
}

// WorkerStates counts the workers that have not ended by what they do.
func (e *Engine) WorkerStates() map[string]int64 {
	n := map[string]int64{}
	for _, w := range e.live {
		n[w.stateWord()]++
	}
	return n
}

// stateWord is what a worker does now, or that it has not come yet.
func (w *worker) stateWord() string {
	switch {
	case w.nonce != 0:
		return w.word()
	case w.told != notTold || w.killed:
		return "leaving"
	default:
		return "starting"
	}
}
