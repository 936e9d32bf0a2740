package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// settingsRun is a run of one task with a budget of 4 cores, and what it has written down and said.
type settingsRun struct {
	t       *testing.T
	e       *Engine
	records []Record
	notices []string
}

func newSettingsRun(t *testing.T, past *Past, budget scheduler.Resources) *settingsRun {
	t.Helper()
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Slots: 1, MaxRetries: 2, MaxLost: 3, MaxWorkerRestarts: 10, MaxWorkers: 2, Timeout: time.Minute, Requires: cpus(1),
		Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(t, 3)}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Job: j, Pipeline: p, Epoch: 2, Budget: budget, External: true, Past: past, Launcher: launcher.Properties{}})
	if err != nil {
		t.Fatal(err)
	}
	r := &settingsRun{t: t, e: e}
	r.apply(Event{Kind: EventTick})
	return r
}

func (r *settingsRun) apply(ev Event) {
	r.t.Helper()
	var fx Effects
	r.e.Apply(0, &ev, &fx)
	for _, f := range fx.List {
		switch f.Kind {
		case EffectAppend:
			record, err := DecodeRecord(f.Record)
			if err != nil {
				r.t.Fatal(err)
			}
			r.records = append(r.records, record)
		case EffectNotice:
			r.notices = append(r.notices, f.Text)
		}
	}
}

// past folds what the run has written down.
func (r *settingsRun) past() *Past {
	r.t.Helper()
	past := NewPast(r.e.cfg.Pipeline)
	for i := range r.records {
		if _, _, err := past.Add(&r.records[i]); err != nil {
			r.t.Fatal(err)
		}
	}
	return past
}

func (r *settingsRun) wantLimits(workers int64, timeout time.Duration, budget string) {
	r.t.Helper()
	l := r.e.Limits()
	if got := l.Tasks[0]; got != (TaskLimits{workers, timeout}) || l.Total.String() != budget {
		r.t.Errorf("limits %+v of %v, want %d workers, %v, %s", got, l.Total, workers, timeout, budget)
	}
}

func (r *settingsRun) setAll() {
	r.apply(Event{Kind: EventSet, Set: &Setting{Key: SetMaxWorkers, N: 9, By: "ada"}})
	r.apply(Event{Kind: EventSet, Set: &Setting{Key: SetMaxWorkers, N: 3, By: "bob"}})
	r.apply(Event{Kind: EventSet, Set: &Setting{Key: SetTimeout, Timeout: time.Hour, By: "ada"}})
	r.apply(Event{Kind: EventSet, Set: &Setting{Key: SetResources, Amounts: cpus(8), By: "ada"}})
}

func TestWhatWasSetHoldsAfterAResume(t *testing.T) {
	first := newSettingsRun(t, nil, cpus(4))
	first.setAll()
	first.wantLimits(3, time.Hour, "cpu=8")
	second := newSettingsRun(t, first.past(), cpus(4))
	second.wantLimits(3, time.Hour, "cpu=8")
	if second.e.tasks[0].timeout != time.Hour+timeoutSlack || !second.e.tasks[0].retimed {
		t.Errorf("blocks are ended after %v", second.e.tasks[0].timeout)
	}
	if !slices.Contains(second.notices, `task "a": max_workers is 3, as set by bob`) {
		t.Errorf("said: %q", second.notices)
	}
	// It is not written down anew, and holds in the next life all the same.
	second.records = append(first.records, second.records...)
	newSettingsRun(t, second.past(), cpus(4)).wantLimits(3, time.Hour, "cpu=8")
	if n := len(second.e.Settings()); n != 3 {
		t.Errorf("%d settings are in force, want 3: %+v", n, second.e.Settings())
	}
}

func TestWhatAResumeIsGivenWinsOverWhatWasSet(t *testing.T) {
	first := newSettingsRun(t, nil, cpus(4))
	first.setAll()
	past := first.past()
	records := past.Set(Setting{Key: SetTimeout, Timeout: time.Minute, By: "the resume"})
	records = append(records, past.Set(Setting{Key: SetMaxWorkers, N: 0})...) // no limit is that of the job
	newSettingsRun(t, past, cpus(4)).wantLimits(2, time.Minute, "cpu=8")
	first.records = append(first.records, records...)
	newSettingsRun(t, first.past(), cpus(4)).wantLimits(2, time.Minute, "cpu=8")
}

func TestWhatIsNotPossibleAnyMoreIsLeftOutAndSaid(t *testing.T) {
	first := newSettingsRun(t, nil, cpus(4))
	first.setAll()
	second := newSettingsRun(t, first.past(), scheduler.NewResources(map[string]int64{"gpu": 2000}))
	second.wantLimits(3, time.Hour, "gpu=2")
	if !slices.ContainsFunc(second.notices, func(s string) bool {
		return strings.HasPrefix(s, `what ada had set is not possible any more: the run has no resource "cpu"`)
	}) {
		t.Errorf("said: %q", second.notices)
	}
}
