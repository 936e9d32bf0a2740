package scheduler

// The life of a task is one of two types. A running task has counts that move; an ended one has a tally and no method. A
// *running exists as long as its task runs, so that whoever would change the counts of an ended task has nothing to call.

type running struct{ tally Tally }

type ended struct {
	tally Tally
	state TaskState
}

func newRunning(total, ready int64) *running {
	return &running{Tally{Total: total, Ready: ready, Waiting: total - ready}}
}

// over reports whether nothing of the task can change any more.
func (r *running) over() bool { return r.tally.Waiting|r.tally.Ready|r.tally.Leased == 0 }

func (r *running) end() ended { return ended{r.tally, Done} }

// abandon ends the task early: all that has not ended is abandoned.
func (r *running) abandon() ended {
	t := r.tally
	t.Abandoned += t.unended()
	t.Waiting, t.Ready, t.Leased = 0, 0, 0
	return ended{t, Abandoned}
}

func (r *running) open()    { r.tally.Waiting--; r.tally.Ready++ }
func (r *running) acquire() { r.tally.Ready--; r.tally.Leased++ }
func (r *running) retry()   { r.tally.Leased--; r.tally.Ready++ }
func (r *running) hold()    { r.tally.Leased--; r.tally.Waiting++ }
func (r *running) succeed() { r.tally.Leased--; r.tally.Success++ }
func (r *running) fail()    { r.tally.Leased--; r.tally.Failed++ }
func (r *running) checked() { r.tally.Leased--; r.tally.Skipped++ }
func (r *running) orphan()  { r.tally.Waiting--; r.tally.Orphaned++ }
func (r *running) skip(n int64) {
	r.tally.Waiting -= n
	r.tally.Skipped += n
}
func (r *running) succeedBefore(n int64) {
	r.tally.Waiting -= n
	r.tally.Success += n
}
func (r *running) failBefore() { r.tally.Waiting--; r.tally.Failed++ }
func (r *running) began()      { r.tally.Retries++ }

// attempt counts the end of an attempt.
func (r *running) attempt(o Outcome) {
	switch o {
	case Success, Failed:
		r.tally.Processed++
	case TimedOut:
		r.tally.TimedOut++
	case OutOfMemory:
		r.tally.OutOfMemory++
	case Lost:
		r.tally.Lost++
	case Returned:
		r.tally.Returned++
	}
}
