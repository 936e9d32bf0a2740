package scheduler_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "example.org/daisy/scheduler"
)

func TestResourcesReadAsPeopleWriteThem(t *testing.T) {
	r := NewResources(map[string]int64{"memory": 16 << 30, "cpu": 4000, "gpu": 500})
	if got, want := r.String(), "cpu=4 gpu=0.5 memory=16GiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{"cpu", "gpu", "memory"}, r.Names()); diff != "" {
		t.Error(diff)
	}
	for n, want := range map[int64]string{
		0: "0B", 999: "999B", 1024: "1KiB", 3 << 29: "1.5GiB", 1<<40 + 1<<37: "1.125TiB", 1<<30 + 1<<10: "1048577KiB", 100 << 20: "100MiB",
		100e6: "100MB", 16e9: "16GB", 1e9 + 1: "1000000001B", 1<<63 - 1: "9223372036854775807B", 1 << 62: "4EiB", 5 << 59: "2.5EiB", -1 << 63: "-8EiB",
	} {
		if got := NewResources(map[string]int64{"memory": n}).String(); got != "memory="+want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
	if got, want := NewResources(map[string]int64{"memory": 1000}).String(), "memory=1KB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSumsOfResourcesHaveTheNamesOfBothAndStopAtTheEnds(t *testing.T) {
	a, b := NewResources(map[string]int64{"a": 1, "c": math.MaxInt64}), NewResources(map[string]int64{"b": 2, "c": 1})
	for _, c := range []struct {
		name string
		got  Resources
		want map[string]int64
	}{
		{"sum", a.Add(b), map[string]int64{"a": 1, "b": 2, "c": math.MaxInt64}},
		{"difference", a.Sub(b), map[string]int64{"a": 1, "b": -2, "c": math.MaxInt64 - 1}},
		{"product", a.Times(3), map[string]int64{"a": 3, "c": math.MaxInt64}},
		{"negative product", a.Times(-3), map[string]int64{"a": -3, "c": math.MinInt64}},
	} {
		got := map[string]int64{}
		for _, name := range c.got.Names() {
			got[name] = c.got.Get(name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if !(Resources{}).IsZero() || a.IsZero() {
		t.Error("nothing is not zero, or something is")
	}
}

func TestARequirementThatTheBudgetDoesNotNameDoesNotFit(t *testing.T) {
	in := NewResources(map[string]int64{"cpu": 2000})
	for _, c := range []struct {
		r    map[string]int64
		want bool
	}{
		{nil, true},
		{map[string]int64{"cpu": 2000}, true},
		{map[string]int64{"cpu": 2001}, false},
		{map[string]int64{"gpu": 1}, false},
		{map[string]int64{"gpu": 0}, false},
	} {
		if got := NewResources(c.r).Fits(in); got != c.want {
			t.Errorf("%v fits in %v: got %v, want %v", c.r, in, got, c.want)
		}
	}
}

func TestABudgetIsNeverExceeded(t *testing.T) {
	b := NewBudget(NewResources(map[string]int64{"cpu": 3000}), false)
	two := NewResources(map[string]int64{"cpu": 2000})
	if !b.Take(two) || b.Take(two) {
		t.Error("two of three cpus were not given once")
	}
	if b.Take(NewResources(map[string]int64{"gpu": 1})) {
		t.Error("a gpu was given that is not in the budget")
	}
	if got := b.Free().Get("cpu"); got != 1000 {
		t.Errorf("free: %d", got)
	}
	b.SetTotal(NewResources(map[string]int64{"cpu": 1000}))
	if got := b.Free().Get("cpu"); got != -1000 {
		t.Errorf("free after the budget became smaller: %d", got)
	}
	b.Give(two)
	if !b.Used().IsZero() || !b.Take(NewResources(map[string]int64{"cpu": 1000})) {
		t.Errorf("after all was given back: %v used", b.Used())
	}
}

func TestAnUnlimitedBudgetCountsWhatIsTaken(t *testing.T) {
	b := NewBudget(Resources{}, true)
	if r := NewResources(map[string]int64{"gpu": 7000}); !b.Take(r) || b.Used().Get("gpu") != 7000 || !b.Unlimited() {
		t.Errorf("used: %v", b.Used())
	}
}
