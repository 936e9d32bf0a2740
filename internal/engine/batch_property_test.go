package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
	"pgregory.net/rapid"
)

// TestWhateverABatchSystemDoesToARun has whole runs go through crashes of the coordinator, of workers and nodes, lost answers, refusals,
// twins, and a queue that somebody else tidies. After everything that happens: what the batch system holds of the run is within
// max_workers, and the blocks of a submission go to one array only. When the faults end, the run ends.
func TestWhateverABatchSystemDoesToARun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRough(t)
		for range rapid.IntRange(5, 60).Draw(t, "faults") {
			r.c.run(r.c.now + time.Duration(rapid.Int64Range(int64(time.Second), int64(5*time.Minute)).Draw(t, "time")))
			if r.c.final != nil {
				break
			}
			r.fault()
			r.check()
		}
		r.calm()
	})
}

type rough struct {
	t     *rapid.T
	c     *cluster
	tasks []job.Task
	twins map[string]bool
	lives int
	most  int64 // max_submitted
}

func newRough(t *rapid.T) *rough {
	r := &rough{t: t, twins: map[string]bool{}}
	for i := range rapid.IntRange(1, 2).Draw(t, "tasks") {
		task := taskOf(rapid.SampledFrom([]int64{1, 10, 60, 400}).Draw(t, "blocks"), fmt.Sprint("t", i))
		task.MaxWorkers = rapid.Int64Range(1, 6).Draw(t, "max_workers")
		if i > 0 && rapid.Bool().Draw(t, "chained") {
			task.Grid, task.After = r.tasks[0].Grid, []string{"t0"}
		}
		if rapid.Bool().Draw(t, "a class of its own") {
			task.Env = []string{fmt.Sprint("N=", i)}
		}
		if rapid.Bool().Draw(t, "queued behind a throttle") {
			task.Options = map[string][]string{"array_limit": {fmt.Sprint(rapid.IntRange(2, 12).Draw(t, "array_limit"))}}
		}
		r.tasks = append(r.tasks, task)
	}
	r.most = rapid.SampledFrom([]int64{0, 0, 2, 9}).Draw(t, "max_submitted")
	r.c = newCluster(t, nil, r.tasks...)
	r.c.e.cfg.Job.MaxSubmitted = r.most
	r.c.block = rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 5 * time.Minute}).Draw(t, "block")
	r.c.q.Accounting = rapid.Bool().Draw(t, "accounting")
	slow := rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 20 * time.Minute}).Draw(t, "queue")
	r.c.starts = func(_ string, i int) time.Duration { return 2*time.Second + time.Duration(i)*slow }
	return r
}

// elements lists those in a state.
func (r *rough) elements(state launcher.State) (list []launcher.Element) {
	for _, e := range r.c.all() {
		if e.State == state && !r.twins[e.Array] {
			list = append(list, e)
		}
	}
	return list
}

func (r *rough) one(state launcher.State) (launcher.Element, bool) {
	list := r.elements(state)
	if len(list) == 0 {
		return launcher.Element{}, false
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(r.t, "element")], true
}

func (r *rough) agentOf(e launcher.Element) *agent {
	if a := r.c.agents[launcher.Worker{Tag: e.Tag, Element: e.First}.String()]; a != nil && a.array == e.Array {
		return a
	}
	return nil
}

func (r *rough) fault() {
	q := r.c.q
	switch rapid.IntRange(0, 11).Draw(r.t, "fault") {
	case 0: // the coordinator is killed
		r.resume()
	case 1:
		q.Down = errors.New("Unable to contact slurm controller")
	case 2, 3:
		q.Down = nil
	case 4:
		accepted := rapid.Bool().Draw(r.t, "accepted")
		q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			return launchertest.Outcome{Accepted: accepted, Err: launcher.ErrUnsure}
		}
	case 5:
		kind := rapid.SampledFrom([]launcher.RefusalKind{launcher.RefusedForNow, launcher.RefusedForLimits}).Draw(r.t, "refusal")
		q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			return launchertest.Outcome{Err: &launcher.Refusal{Kind: kind, Text: "no"}}
		}
	case 6: // a worker ends
		if e, ok := r.one(launcher.Running); ok {
			cause := rapid.SampledFrom([]launcher.Cause{launcher.Exited, launcher.TimeLimit, launcher.Preempted, launcher.Cancelled, launcher.OutOfMemory}).Draw(r.t, "cause")
			q.End(e.Tag, e.First, launcher.End{Cause: cause, Exit: 1})
			if a := r.agentOf(e); a != nil {
				r.c.die(a)
			}
		}
	case 7: // its node fails, and perhaps it lives
		if e, ok := r.one(launcher.Running); ok {
			q.Set(e.Tag, e.First, func(e *launcher.Element) {
				e.State, e.Word, e.End.Cause = launcher.Unknown, "NODE_FAIL", launcher.NodeFailed
			})
			if a := r.agentOf(e); a != nil && rapid.Bool().Draw(r.t, "with its workers") {
				r.c.die(a)
			}
		}
	case 8: // it is cut off
		if e, ok := r.one(launcher.Running); ok {
			if a := r.agentOf(e); a != nil && a.session != 0 {
				s := a.session
				a.session = 0
				r.c.apply(Event{Kind: EventDetach, Session: s})
				r.c.after(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(r.t, "for")), func() { r.c.comeBack(a) })
			}
		}
	case 9: // somebody takes it out of the queue
		if e, ok := r.one(launcher.Pending); ok && len(r.elements(launcher.Pending))+len(r.elements(launcher.Running)) > 1 {
			q.Forget(e.Tag, e.First)
		}
	case 10:
		if e, ok := r.one(launcher.Running); ok {
			r.twins[q.Twin(e.Tag, 2)] = true
		}
	case 11: // what has ended is forgotten
		for _, e := range r.elements(launcher.Ended) {
			q.Forget(e.Tag, e.First)
		}
	}
}

// comeBack has a worker that was cut off connect again, and go on.
func (c *cluster) comeBack(a *agent) {
	if a.dead || a.session != 0 || c.e.Finished() {
		return
	}
	c.connect(a)
	if a.session == 0 { // sent away
		c.q.End(a.at.Tag, a.at.Element, launcher.End{})
		c.die(a)
	}
}

func (r *rough) resume() {
	if r.lives++; r.lives > 4 {
		return
	}
	was := r.c
	n := was.resumed(r.tasks...)
	n.e.cfg.Job.MaxSubmitted = r.most
	r.c = n
	for _, id := range slices.Sorted(maps.Keys(was.agents)) {
		a := was.agents[id]
		if a.dead {
			continue
		}
		b := &agent{id: id, array: a.array, at: a.at, slots: a.slots, held: a.held, epoch: a.epoch, served: a.served}
		n.agents[id] = b
		n.after(time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Minute)).Draw(r.t, "back after")), func() { n.comeBack(b) })
	}
	for i, e := range r.elements(launcher.Pending) {
		n.after(time.Duration(i+1)*20*time.Second, func() { n.start(e.Tag, e.First, 1) })
	}
}

// check: what the batch system holds is within the limits.
func (r *rough) check() {
	slots := make([]int64, len(r.tasks))
	type array struct{ waits, runs, throttle int64 }
	arrays := map[launcher.Element]array{} // by tag and id
	for _, state := range []launcher.State{launcher.Running, launcher.Pending} {
		for _, e := range r.elements(state) {
			w := r.c.e.launchedAs(launcher.Worker{Tag: e.Tag, Element: e.First})
			if w == nil {
				r.t.Fatalf("element %d of %s is in the queue, and the engine does not know it", e.First, e.Tag)
			}
			of := launcher.Element{Tag: e.Tag, Array: e.Array}
			a := arrays[of]
			if state == launcher.Running {
				a.runs++
				slots[w.task]++
			} else {
				a.waits, a.throttle = a.waits+1, int64(e.Throttle)
			}
			arrays[of] = a
		}
	}
	there := int64(0)
	for of, a := range arrays {
		there += a.waits + a.runs
		may := a.waits
		if a.throttle > 0 {
			may = min(may, max(a.throttle-a.runs, 0))
		}
		slots[r.c.e.submissions[of.Tag].request.Task] += may
	}
	if most := r.most; most > 0 && there > most {
		r.t.Fatalf("at %v there are %d workers in the queue, max_submitted is %d", r.c.now, there, most)
	}
	for i, n := range slots {
		// Limits that became smaller take a moment.
		if most := r.tasks[r.index(i)].MaxWorkers; n > most {
			r.t.Fatalf("at %v task %d has %d workers in the queue, max_workers is %d", r.c.now, i, n, most)
		}
	}
	for i := range r.c.e.tasks {
		c := r.c.e.sched.Tally(i)
		if c.Total != c.Waiting+c.Ready+c.Leased+c.Success+c.Skipped+c.Failed+c.Orphaned+c.Abandoned {
			r.t.Fatalf("task %d does not add up: %+v", i, c)
		}
	}
}

// index finds a task of the pipeline among those of the job.
func (r *rough) index(i int) int {
	id := r.c.e.tasks[i].spec.ID
	return slices.IndexFunc(r.tasks, func(t job.Task) bool { return t.ID == id })
}

// calm ends the faults: the run must end.
func (r *rough) calm() {
	r.c.q.Down, r.c.q.NextSubmit = nil, nil
	for _, e := range r.elements(launcher.Unknown) {
		if a := r.agentOf(e); a != nil && !a.dead {
			r.c.q.End(e.Tag, e.First, launcher.End{Cause: launcher.NodeFailed})
			r.c.die(a)
		}
	}
	r.c.run(r.c.now + 100*time.Hour) // 400 blocks of 5 minutes on one worker take 34
	if r.c.final == nil {
		for _, w := range r.c.e.live {
			r.t.Logf("%+v\n%+v lease %+v", *w, r.c.agents[w.id], w.first)
		}
		r.t.Logf("there is %+v", r.c.all())
		r.t.Fatalf("the run does not end: %q, %q; notices %q; calls %q", r.c.e.waits(0), r.c.e.waits(len(r.tasks)-1), tail(r.c.notices, 10), tail(r.c.q.Calls(), 10))
	}
}
