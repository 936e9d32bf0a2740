package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// What people change in a run that goes on. The shell asks first whether it is possible, so that it can answer them; the events
// themselves do nothing where it is not.

// SettingKey says what a Setting changes.
type SettingKey uint8

const (
	// SetResources: Amounts replace those of the budget that have the same names.
	SetResources SettingKey = iota
	// SetMaxWorkers: of Task, to N.
	SetMaxWorkers
	// SetTimeout: of the blocks of Task, those that run included, to Timeout; 0 = none.
	SetTimeout
)

// A Setting is a limit of the run that is to be another from now on.
type Setting struct {
	Key     SettingKey
	Task    int32
	N       int64
	Timeout time.Duration
	Amounts scheduler.Resources
	// By is who wants it, for people.
	By string
}

// Limits are those that can be changed.
type Limits struct {
	// Total and Used are the budget, unless Unlimited.
	Total, Used scheduler.Resources
	Unlimited   bool
	// Tasks are in the order of the pipeline.
	Tasks []TaskLimits
}

// TaskLimits are those of one task; 0 = none.
type TaskLimits struct {
	MaxWorkers int64
	Timeout    time.Duration
}

// Limits returns the present limits.
func (e *Engine) Limits() Limits {
	b := e.fleet.Budget()
	l := Limits{Total: b.Total(), Used: b.Used(), Unlimited: b.Unlimited()}
	for i := range e.tasks {
		l.Tasks = append(l.Tasks, TaskLimits{e.tasks[i].spec.MaxWorkers, e.tasks[i].spec.Timeout})
	}
	return l
}

// Slots is how many slots the workers of a task have at present, those that leave or are away too.
func (e *Engine) Slots(task int) int64 { return e.fleet.Slots(task) }

// CheckSetting says why a setting is not possible.
func (e *Engine) CheckSetting(s *Setting) error {
	if e.phase != running {
		return fmt.Errorf("the run is ending: %s", e.why)
	}
	if s.Key == SetResources {
		return e.checkAmounts(s.Amounts)
	}
	if s.Task < 0 || int(s.Task) >= len(e.tasks) {
		return fmt.Errorf("there is no task number %d", s.Task)
	}
	t := &e.tasks[s.Task]
	switch {
	case t.ended:
		return fmt.Errorf("task %q has ended", t.spec.ID)
	case s.Key == SetMaxWorkers && s.N < 1:
		return fmt.Errorf("%d is too small; allowed is 1 or more", s.N)
	case s.Key == SetTimeout && s.Timeout < 0:
		return errors.New("a timeout is not negative; 0s is none")
	}
	return nil
}

// checkAmounts: each amount is one of the budget, and every task can still run a block.
func (e *Engine) checkAmounts(amounts scheduler.Resources) error {
	b := e.fleet.Budget()
	if b.Unlimited() {
		return errors.New("this run has no limit on resources; max_workers of a task bounds it")
	}
	for _, name := range amounts.Names() {
		if !b.Total().Has(name) {
			return fmt.Errorf("the run has no resource %q; it has %s", name, strings.Join(b.Total().Names(), ", "))
		}
		if amounts.Get(name) < 0 {
			return fmt.Errorf("%s is negative; allowed is 0 or more", name)
		}
		for i := range e.tasks {
			t := &e.tasks[i]
			if need := t.spec.Requires.Get(name); !t.ended && need > amounts.Get(name) {
				return fmt.Errorf("a block of task %q requires %s = %s: with %s it could never run",
					t.spec.ID, name, amount(name, need), amount(name, amounts.Get(name)))
			}
		}
	}
	return nil
}

// set takes a setting in, which holds over a resume.
func (e *Engine) set(s *Setting) {
	if s == nil || e.CheckSetting(s) != nil {
		return
	}
	for _, r := range s.records() {
		e.append(r)
	}
	e.wantCommit = true
	e.notice("%s from now on (%s)", e.limit(s), s.By)
	e.tight, e.demand.dirty = true, true
	for _, w := range e.live {
		if s.Key == SetTimeout && w.task == s.Task {
			e.tellTimeout(w)
		}
	}
}

// limit puts a setting in force, and says which.
func (e *Engine) limit(s *Setting) string {
	for _, one := range s.singles() {
		e.sets = withSetting(e.sets, one)
	}
	switch s.Key {
	case SetMaxWorkers:
		e.respec(s.Task).MaxWorkers = s.N
		e.fleet.SetMaxWorkers(int(s.Task), s.N)
		return fmt.Sprintf("task %q: max_workers is %d", e.tasks[s.Task].spec.ID, s.N)
	case SetTimeout:
		return e.setTimeout(s)
	default:
		e.fleet.SetTotal(replaced(e.fleet.Budget().Total(), s.Amounts))
		return fmt.Sprintf("resources are %v", e.fleet.Budget().Total())
	}
}

// respec gives a task a description of its own that may be changed: that of the job is read by others.
func (e *Engine) respec(task int32) *job.Task {
	spec := *e.tasks[task].spec
	e.tasks[task].spec = &spec
	return &spec
}

// setTimeout changes the limit of a task's blocks: that of the engine counts from their start, so that it holds for those that
// run.
func (e *Engine) setTimeout(s *Setting) string {
	e.respec(s.Task).Timeout = s.Timeout
	t := &e.tasks[s.Task]
	t.timeout, t.retimed = 0, true
	word := "none"
	if s.Timeout > 0 {
		t.timeout, word = s.Timeout+timeoutSlack, units.Duration(s.Timeout)
	}
	return fmt.Sprintf("task %q: timeout is %s", t.spec.ID, word)
}

// tellTimeout tells a worker the limit of its task, if it is not the one that it may have joined with.
func (e *Engine) tellTimeout(w *worker) {
	if w != nil && w.session != 0 && e.tasks[w.task].retimed {
		e.emit(Effect{Kind: EffectReassign, Session: w.session, Task: w.task})
	}
}

// replaced is a set of amounts with some replaced by others.
func replaced(all, by scheduler.Resources) scheduler.Resources {
	now := map[string]int64{}
	for _, name := range all.Names() {
		now[name] = all.Get(name)
	}
	for _, name := range by.Names() {
		now[name] = by.Get(name)
	}
	return scheduler.NewResources(now)
}

// An excess is what is taken beyond the limits, without what is on its way out.
type excess struct {
	slots []int64             // by task, beyond max_workers
	free  scheduler.Resources // of the budget: what is negative is too much
}

func (e *Engine) excess() excess {
	x := excess{slots: make([]int64, len(e.tasks)), free: e.fleet.Budget().Free()}
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.spec.MaxWorkers > 0 {
			x.slots[i] = e.fleet.Slots(i) - t.leaving - t.spec.MaxWorkers
		}
		if t.leaving > 0 && !e.fleet.Budget().Unlimited() {
			x.free = x.free.Add(t.spec.Requires.Times(t.leaving))
		}
	}
	return x
}

// helps reports whether it is less when a worker of a task leaves.
func (x *excess) helps(task int32, requires scheduler.Resources) bool {
	if x.slots[task] > 0 {
		return true
	}
	for _, name := range x.free.Names() {
		if x.free.Get(name) < 0 && requires.Get(name) > 0 {
			return true
		}
	}
	return false
}

// shrink has workers leave until what is taken is within limits that became smaller: first those that have not joined, then
// those that have nothing to do, then those that run blocks, which they finish. Of each sort the least important tasks go
// first, and of them the youngest workers.
func (e *Engine) shrink() {
	e.tight = false
	if e.phase != running {
		return
	}
	x := e.excess()
	var list []*worker
	for _, w := range e.live {
		if w.sub != nil && !w.goes() && !w.spare && !w.yields && x.helps(w.task, e.tasks[w.task].spec.Requires) {
			list = append(list, w)
		}
	}
	place := make([]int, len(e.tasks))
	for at, i := range e.fleet.Order() {
		place[i] = at
	}
	slices.SortStableFunc(list, func(a, b *worker) int {
		return cmp.Or(cmp.Compare(a.reluctance(), b.reluctance()), cmp.Compare(place[b.task], place[a.task]), cmp.Compare(b.bornAt, a.bornAt), cmp.Compare(b.number, a.number))
	})
	for _, w := range list {
		requires := e.tasks[w.task].spec.Requires
		if !x.helps(w.task, requires) {
			continue
		}
		if !w.sub.sent { // the launcher has not heard of it: again when it has
			e.tight = true
			continue
		}
		x.slots[w.task] -= int64(w.slots)
		x.free = x.free.Add(requires.Times(int64(w.slots)))
		const why = "the run may use less from now on"
		if e.yield(w, toDrain, why) {
			continue
		}
		e.tell(w, toDrain, why)
		if w.nonce == 0 || w.session == 0 && w.held == 0 && !w.away { // who is away has blocks of which it has not told
			e.cancel(w)
		}
	}
}

// reluctance orders workers by how much is lost when they leave.
func (w *worker) reluctance() int {
	switch {
	case w.nonce == 0:
		return 0
	case w.held == 0:
		return 1
	default:
		return 2
	}
}

// goes reports whether a worker is on its way out.
func (w *worker) goes() bool { return w.killed || w.ending || w.leaving || w.told != notTold }

// CheckStopWorker says why a worker cannot be stopped.
func (e *Engine) CheckStopWorker(id string) error {
	switch w := e.workers[id]; {
	case w == nil:
		return fmt.Errorf("there is no worker %q", id)
	case w.ended:
		return fmt.Errorf("worker %s has ended", id)
	case w.killed || w.ending || w.told == toStop:
		return fmt.Errorf("worker %s is being stopped already", id)
	}
	return nil
}

// stopWorker has one worker leave: what it runs gets the grace time, and goes to others if it has not ended then.
func (e *Engine) stopWorker(id, why string) {
	if e.CheckStopWorker(id) != nil {
		return
	}
	w := e.workers[id]
	e.notice("worker %s: %s", id, why)
	e.tell(w, toStop, why)
	if w.session == 0 {
		e.cancel(w)
	}
}

// CheckStop says why the run cannot be ended in a way.
func (e *Engine) CheckStop(kind StopKind) error {
	switch {
	case e.phase == running,
		e.phase == stoppingRun && kind > e.stop.kind,
		e.phase == leavingRun && kind == StopNow && !e.stop.killed:
		return nil
	}
	return fmt.Errorf("the run is ending already: %s", e.why)
}
