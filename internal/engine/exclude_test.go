package engine

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
)

// An oldRun is an engine whose records are kept.
type oldRun struct {
	t       testing.TB
	e       *Engine
	records [][]byte
}

func (r *oldRun) apply(ev Event) {
	var fx Effects
	r.e.Apply(0, &ev, &fx)
	for _, f := range fx.List {
		if f.Kind == EffectAppend {
			r.records = append(r.records, slices.Clone(f.Record))
		}
	}
}

// beginRun begins a run, or goes on with the one of which these are the records.
func beginRun(t testing.TB, epoch uint64, properties launcher.Properties, records [][]byte) *oldRun {
	t.Helper()
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, 9), Slots: 1, MaxRetries: 1, MaxLost: 1, MaxWorkerRestarts: 1, Runner: job.Runner{Kind: job.RunnerCommand}}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	var past *Past
	if records != nil {
		past = NewPast(p)
	}
	for _, b := range records {
		rec, err := DecodeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = past.Add(&rec); err != nil {
			t.Fatal(err)
		}
	}
	r := &oldRun{t: t, records: records}
	if r.e, err = New(Config{Job: j, Pipeline: p, Epoch: epoch, Unlimited: true, External: true, Past: past, Launcher: properties, Node: "here"}); err != nil {
		t.Fatal(err)
	}
	r.apply(Event{Kind: EventTick})
	return r
}

func (r *oldRun) excluded() (nodes []string) {
	for _, x := range r.e.Excluded() {
		nodes = append(nodes, x.Node+" by "+x.By+": "+x.Reason)
	}
	return nodes
}

func TestAResumeKeepsWhichNodesAreExcluded(t *testing.T) {
	first := beginRun(t, 1, launcher.Properties{}, nil)
	for _, x := range []Exclusion{{Node: "n1", By: "anna", Reason: "hot"}, {Node: "n2", By: "anna"}, {Node: "here", By: "anna"}, {Node: "n2", By: "ben", Include: true}} {
		first.apply(Event{Kind: EventExclude, Exclude: &x})
	}
	want := []string{"here by anna: ", "n1 by anna: hot"}
	second := beginRun(t, 2, launcher.Properties{}, first.records)
	if diff := cmp.Diff(want, second.excluded()); diff != "" {
		t.Errorf("after a resume: -want +got\n%s", diff)
	}
	third := beginRun(t, 3, launcher.Properties{}, second.records)
	if diff := cmp.Diff(want, third.excluded()); diff != "" {
		t.Errorf("after two: -want +got\n%s", diff)
	}
	// A launcher that has this machine only could start nothing any more.
	alone := beginRun(t, 4, localProperties(), third.records)
	if diff := cmp.Diff(want[1:], alone.excluded()); diff != "" {
		t.Errorf("with another launcher: -want +got\n%s", diff)
	}
}

func TestAnExclusionAsksForACommit(t *testing.T) {
	r := beginRun(t, 1, launcher.Properties{}, nil)
	r.apply(Event{Kind: EventCommitted, UpTo: 1 << 60})
	var fx Effects
	r.e.Apply(0, &Event{Kind: EventExclude, Exclude: &Exclusion{Node: "n1", By: "anna"}}, &fx)
	var kinds []EffectKind
	for _, f := range fx.List {
		kinds = append(kinds, f.Kind)
	}
	if want := []EffectKind{EffectAppend, EffectNotice, EffectCommit}; !slices.Equal(kinds, want) {
		t.Errorf("effects %v, want %v", kinds, want)
	}
}
