package scheduler_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/geom"
	. "example.org/daisy/scheduler"
)

func line(id string, blocks int64) Task {
	return Task{ID: id, Grid: mustGrid(geom.Coord(blocks), 10, 0, false)}
}

func TestIllFormedPipelinesAreRefusedWithAllReasons(t *testing.T) {
	flat := Task{ID: "flat", Grid: mustGrid(geom.Coord(2, 2), 10, 0, false)}
	for _, c := range []struct {
		name  string
		tasks []Task
		edges []Edge
		want  []string
	}{
		{"duplicate id", []Task{line("a", 1), line("a", 2)}, nil, []string{`two tasks have the id "a"`}},
		{"unknown names", []Task{line("a", 1)}, []Edge{{"a", "x"}, {"y", "a"}}, []string{`edge from "a" to "x": there is no task "x"`, `there is no task "y"`}},
		{"cycle", []Task{line("a", 1), line("b", 1), line("c", 1), line("d", 1)}, []Edge{{"a", "b"}, {"b", "c"}, {"c", "b"}, {"c", "d"}},
			[]string{"wait for each other in a circle: b -> c -> b"}},
		{"itself", []Task{line("a", 1)}, []Edge{{"a", "a"}}, []string{"in a circle: a -> a"}},
		{"mixed dimensions", []Task{line("a", 1), flat}, []Edge{{"a", "flat"}}, []string{`one has 1 dimensions, the other 2`}},
		{"no grid, no id, bad limits", []Task{{MaxRetries: -1, MaxLost: -1}}, nil, []string{"its id is empty", "it has no grid", "max_retries -1", "max_lost -1"}},
		{"bitmap of another size", []Task{{ID: "a", Grid: line("", 100).Grid, Done: NewBitmap(64), Mask: NewBitmap(200)}}, nil,
			[]string{"the done bitmap has 1 words: 100 blocks need 2", "the mask bitmap has 4 words"}},
	} {
		_, err := NewPipeline(c.tasks, c.edges)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", c.name, err, want)
			}
		}
	}
}

func TestASinglePipelineIsCheckedWhenItIsRun(t *testing.T) {
	if _, err := New(Single(Task{ID: "a", Grid: line("a", 1).Grid, MaxRetries: -1}), Options{}); err == nil {
		t.Error("a negative max_retries was accepted")
	}
}

func TestMoreBlocksThanMemoryHoldsAreRefused(t *testing.T) {
	_, err := New(Single(Task{ID: "a", Grid: mustGrid(geom.Coord(1<<20, 1<<20), 1, 0, false)}), Options{})
	if err == nil || !strings.Contains(err.Error(), "make the blocks larger") {
		t.Errorf("got %v", err)
	}
}

func ids(p *Pipeline) (out []string) {
	for _, t := range p.Tasks() {
		out = append(out, t.ID)
	}
	return out
}

func TestTasksStandInTopologicalOrderAndEdgesCountOnce(t *testing.T) {
	p := mustPipeline([]Task{line("c", 1), line("b", 1), line("a", 1)}, Edge{"a", "b"}, Edge{"b", "c"}, Edge{"a", "b"})
	if diff := cmp.Diff([]string{"a", "b", "c"}, ids(p)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Edge{{"a", "b"}, {"b", "c"}}, p.Edges()); diff != "" {
		t.Error(diff)
	}
	if p.Index("b") != 1 || p.Index("x") != -1 {
		t.Errorf("b is at %d, x at %d", p.Index("b"), p.Index("x"))
	}
	if diff := cmp.Diff([]int{0}, p.Upstream(1)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{2}, p.Downstream(1)); diff != "" {
		t.Error(diff)
	}
}

func TestSequenceJoinsEndsToBeginsAndParallelJoinsNothing(t *testing.T) {
	side, err := Parallel(Single(line("b", 1)), Single(line("c", 1)))
	if err != nil {
		t.Fatal(err)
	}
	empty, err := Sequence()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Sequence(Single(line("a", 1)), empty, side, Single(line("d", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Edge{{"a", "b"}, {"a", "c"}, {"b", "d"}, {"c", "d"}}, p.Edges()); diff != "" {
		t.Error(diff)
	}
	if _, err := Sequence(Single(line("a", 1)), Single(line("a", 1))); err == nil {
		t.Error("a task twice in a sequence was accepted")
	}
}

func TestARunOfNothingHasEnded(t *testing.T) {
	for name, p := range map[string]*Pipeline{
		"no task":  mustPipeline(nil),
		"no block": Single(Task{ID: "a", Grid: noBlock(t)}),
	} {
		s := mustNew(p)
		if !s.Ended() || s.Work(1) {
			t.Errorf("%s: the run goes on", name)
		}
	}
}

// noBlock returns a well-formed grid without a block: valid, and smaller than one.
func noBlock(t *testing.T) *geom.Grid {
	t.Helper()
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(9)},
		Read: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(10)}, Write: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(10)}})
	if err != nil || g.Len() != 0 {
		t.Fatalf("%v", err)
	}
	return g
}
