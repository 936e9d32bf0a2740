package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/daisy/launcher"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOnlyEndsThatAWorkerMadeItselfCount(t *testing.T) {
	for _, c := range []struct {
		end  launcher.End
		want bool
	}{
		{launcher.End{Cause: launcher.Exited}, true}, // status 0 without having been told is no better
		{launcher.End{Cause: launcher.Exited, Exit: 1}, true},
		{launcher.End{Cause: launcher.Signalled, Signal: 11}, true},
		{launcher.End{Cause: launcher.NeverStarted}, true},
		{launcher.End{Cause: launcher.Exited, Exit: 1, Ours: true}, false},
		{launcher.End{Cause: launcher.Signalled, Signal: 9, Ours: true}, false},
		{launcher.End{Cause: launcher.TimeLimit}, false},
		{launcher.End{Cause: launcher.Preempted}, false},
		{launcher.End{Cause: launcher.NodeFailed}, false},
		{launcher.End{Cause: launcher.OutOfMemory}, false},
	} {
		if got := Counts(c.end); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.end, got, c.want)
		}
	}
}

func TestTheBrakeTripsAtMaxWorkerRestarts(t *testing.T) {
	b := NewBrake(3, true)
	for i := range 3 {
		if b.Tripped() {
			t.Fatalf("tripped after %d ends", i)
		}
		b.Bad(BadEnd{Worker: fmt.Sprint("1.", i), Node: "n", Word: "exit status 1"})
	}
	if !b.Tripped() {
		t.Error("not tripped after 3 ends")
	}
}

func TestAValidReturnSetsTheCountToZero(t *testing.T) {
	b := NewBrake(3, true)
	for range 5 {
		b.Bad(BadEnd{Node: "n", Word: "exit status 1"})
		b.Bad(BadEnd{Node: "n", Word: "exit status 1"})
		if b.Tripped() || b.Ends() != 2 {
			t.Fatalf("got tripped %v at %d ends", b.Tripped(), b.Ends())
		}
		b.Good("elsewhere")
		if b.Ends() != 0 {
			t.Fatalf("%d ends count after a valid return", b.Ends())
		}
	}
}

func TestOneNodeAloneDoesNotTripTheBrakeOfMany(t *testing.T) {
	b := NewBrake(10, false)
	for range 50 {
		b.Bad(BadEnd{Node: "bad", Word: "exit status 1"})
	}
	if got, want := b.Ends(), 3; got != want {
		t.Errorf("%d ends of one node count, want %d", got, want)
	}
	for i := range 3 {
		for range 3 {
			b.Bad(BadEnd{Node: fmt.Sprint("n", i), Word: "exit status 1"})
		}
	}
	if !b.Tripped() {
		t.Error("four bad nodes do not trip it")
	}
}

func TestANodeIsExcludedAtTwoEndsInARow(t *testing.T) {
	b := NewBrake(10, false)
	if b.Bad(BadEnd{Node: "a"}) {
		t.Error("excluded at the first end")
	}
	b.Good("a") // not in a row
	if b.Bad(BadEnd{Node: "a"}) {
		t.Error("excluded at two ends with a good return of the node between them")
	}
	b.Good("b") // of another node: a's row goes on
	if !b.Bad(BadEnd{Node: "a"}) {
		t.Error("not excluded at the second end in a row")
	}
	if b.Bad(BadEnd{Node: "a"}) {
		t.Error("excluded once more")
	}
	b.Good("a") // of a worker that was there before
	if diff := cmp.Diff([]string{"a"}, b.Excluded()); diff != "" {
		t.Error(diff)
	}
}

func TestWhereThereIsOneNodeItIsNotExcluded(t *testing.T) {
	b := NewBrake(10, true)
	for range 10 {
		if b.Bad(BadEnd{Node: "here"}) {
			t.Fatal("excluded")
		}
	}
	if got := b.Excluded(); got != nil || !b.Tripped() {
		t.Errorf("got excluded %v, tripped %v", got, b.Tripped())
	}
}

func TestTheMessageOfTheBrake(t *testing.T) {
	b := NewBrake(10, false)
	b.Bad(BadEnd{Worker: "1.0", Node: "n1", Word: "exit status 3", Last: "no module named x"})
	b.Bad(BadEnd{Worker: "1.1", Node: "n2", Word: "exit status 3"})
	b.Bad(BadEnd{Worker: "2.0", Node: "n1", Word: "never connected"})
	want := "3 workers ended before they returned anything: 1 × never connected, 2 × exit status 3; on n1, n2; see the logs of 1.0, 1.1, 2.0; the last one said: no module named x"
	if got := b.Message(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for i := range 1000 {
		b.Bad(BadEnd{Worker: fmt.Sprint("w", i), Node: fmt.Sprint("m", i), Word: "signal 9"})
	}
	if got := b.Message(); len(got) > 300 || !strings.Contains(got, "1,000") && !strings.Contains(got, "1000") {
		t.Errorf("it does not stay short: %s", got)
	}
}

// The brake against a model that remembers every event since the last valid return.
func TestTheBrakeCountsAsItsModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, one := rapid.IntRange(0, 12).Draw(t, "limit"), rapid.Bool().Draw(t, "one node")
		b := NewBrake(limit, one)
		since := map[string]int{}
		row := map[string]int{}
		excluded := map[string]bool{}
		total := 0
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			node := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "node")
			if rapid.IntRange(0, 5).Draw(t, "good") == 0 {
				b.Good(node)
				since, total = map[string]int{}, 0
				if !excluded[node] {
					row[node] = 0
				}
			} else {
				since[node]++
				total++
				row[node]++
				if row[node] >= 2 && node != "" && !one {
					excluded[node] = true
				}
				b.Bad(BadEnd{Node: node})
			}
			want := total
			if !one {
				want = 0
				for n, ends := range since {
					if n != "" {
						ends = min(ends, 3)
					}
					want += ends
				}
			}
			if b.Ends() != want || b.Tripped() != (want >= max(limit, 1)) {
				t.Fatalf("got %d ends, tripped %v; want %d of %d", b.Ends(), b.Tripped(), want, limit)
			}
			var names []string
			for n := range excluded {
				names = append(names, n)
			}
			slices.Sort(names)
			if diff := cmp.Diff(names, b.Excluded()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
