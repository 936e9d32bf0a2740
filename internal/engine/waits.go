package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/internal/units"
	"example.org/daisy/scheduler"
)

// waits says what a task waits for, "" if it runs or has ended.
func (e *Engine) waits(i int) string {
	t := &e.tasks[i]
	if e.sched.State(i) != scheduler.Running {
		return ""
	}
	switch {
	case e.phase == stoppingRun && len(e.away) > 0:
		return e.why + "; " + e.waitsFor("the end waits")
	case e.phase != running:
		return e.why
	case len(e.away)+len(e.held) > 0:
		return e.waitsFor("blocks handed out before wait")
	case e.shedding > 0:
		return "a worker that is back is told that a block of it is done, or another's, and may run it still: blocks handed out before wait for its next word"
	}
	tally := e.sched.Tally(i)
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if t.starters > 0 && e.book != nil {
		parts = e.queueWaits(i)
	} else if t.starters > 0 {
		say("%s starting", units.Plural(t.starters, "worker"))
	}
	if t.tripped {
		say("no more workers are started: %s", t.brake.Message())
	}
	if t.started > 0 {
		return strings.Join(parts, "; ")
	}
	switch {
	case tally.Ready > 0 && t.starters == 0 && !t.tripped:
		say("%s", e.lacks(i))
	case tally.Ready == 0 && tally.Leased > 0:
		say("%s on its way to the disk", units.Plural(tally.Leased, "result"))
	case tally.Ready == 0:
		if at := e.nextRetry(i); at != never {
			say("retry in %s", units.Duration(max(at-e.now, 0).Round(100*time.Millisecond)))
		}
		for _, u := range e.cfg.Pipeline.Upstream(i) {
			if up := e.sched.Tally(u); e.sched.State(u) == scheduler.Running {
				say("%s is not done (%s of %s)", e.tasks[u].spec.ID, units.Count(up.Success+up.Skipped), units.Count(up.Total))
			}
		}
	}
	return strings.Join(parts, "; ")
}

// lacks says why no worker serves a task that has ready blocks.
func (e *Engine) lacks(i int) string {
	t := &e.tasks[i]
	switch {
	case t.clients && t.joined == 0:
		return "no client of daisy has connected: start one with the DAISY_CONTEXT of this task"
	case t.joined > 0 && !(t.clients && t.waiting.first != nil):
		return "its workers have not asked for a block"
	case e.cfg.External && !t.clients:
		return "no worker has come"
	case e.book != nil && t.hopeless != "":
		return "no more workers are asked for: " + t.hopeless
	case e.book != nil && t.pauseTo > e.now:
		return fmt.Sprintf("the batch system refused workers (%s); next try in %s", t.refusal, units.Duration((t.pauseTo - e.now).Round(time.Second)))
	case t.pauseTo > e.now:
		return "the launcher refused workers; next try in " + units.Duration((t.pauseTo - e.now).Round(100*time.Millisecond))
	case t.leaving > 0:
		return units.Plural(t.leaving, "slot") + " on their way out"
	case e.book != nil && e.submittable() == 0:
		return fmt.Sprintf("no more may be queued: max_submitted %d", e.cfg.Job.MaxSubmitted)
	case e.book != nil && e.classes[t.class].yields:
		return "its share of the resources went to others while none of its workers was started"
	case !e.proven[t.class] && e.firstWave(t.class) == 0:
		return "the first workers of its kind have yet to show that they work"
	case e.cfg.MaxSlots > 0 && e.fleet.Total() >= int64(e.cfg.MaxSlots):
		return fmt.Sprintf("%d of %d slots are taken", e.fleet.Total(), e.cfg.MaxSlots)
	}
	budget := e.fleet.Budget()
	free := budget.Free()
	var full []string
	for _, name := range t.spec.Requires.Names() {
		if !budget.Unlimited() && t.spec.Requires.Get(name) > free.Get(name) {
			full = append(full, fmt.Sprintf("%s %s of %s", name, amount(name, budget.Used().Get(name)), amount(name, budget.Total().Get(name))))
		}
	}
	if full == nil {
		return "a worker is about to be asked for"
	}
	return "budget full: " + strings.Join(full, ", ")
}

// nextRetry is when the first block of a task that is kept back comes back; never if there is none.
func (e *Engine) nextRetry(i int) time.Duration {
	at := never
	for _, r := range e.retries {
		if int(r.task) == i {
			at = min(at, r.at)
		}
	}
	return at
}

func amount(name string, n int64) string {
	if name == "memory" {
		return units.Size(n)
	}
	return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
}
