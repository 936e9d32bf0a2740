package stats

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.org/daisy/scheduler"
)

// TestARecorderGoesOnFromItsState tells one recorder everything, and another one too, which is replaced now and then by what its state
// makes.
func TestARecorderGoesOnFromItsState(t *testing.T) {
	infos := []TaskInfo{{ID: "a", Blocks: 100, Requires: scheduler.NewResources(map[string]int64{"cpu": 1000})}, {ID: "b", Blocks: 5}}
	rapid.Check(t, func(t *rapid.T) {
		one, other := New(infos), New(infos)
		for range rapid.IntRange(0, 40).Draw(t, "attempts") {
			if rapid.IntRange(0, 4).Draw(t, "again") == 0 {
				data, err := other.State()
				if err != nil {
					t.Fatal(err)
				}
				other = New(infos)
				if err := other.RestoreState(data); err != nil {
					t.Fatal(err)
				}
			}
			number := func(name string) int64 { return rapid.Int64Range(0, int64(time.Hour)).Draw(t, name) }
			a := Attempt{Task: rapid.IntRange(0, 1).Draw(t, "task"), Outcome: scheduler.Outcome(rapid.IntRange(0, int(scheduler.Recalled)).Draw(t, "outcome")),
				Verdict: rapid.SampledFrom([]scheduler.Verdict{scheduler.Stale, scheduler.Retry, scheduler.Succeeded}).Draw(t, "verdict"),
				Worker:  rapid.SampledFrom([]string{"", "1.0", "\xff"}).Draw(t, "worker"), Node: rapid.SampledFrom([]string{"", "n", "\xfe\"", "\xfd\""}).Draw(t, "node"),
				At: time.Duration(number("at")), Held: time.Duration(number("held")), WallNanos: number("wall"), CPUNanos: number("cpu"), PeakRSSBytes: number("peak"),
				ReadBytes: number("read"), WrittenBytes: number("written")}
			if rapid.Bool().Draw(t, "has measured GPUs") {
				a.GPU = GPU{true, rapid.Float32Range(0, 100).Draw(t, "percent"), number("memory of GPUs")}
			}
			one.Ended(a)
			other.Ended(a)
		}
		in := Input{Tasks: make([]Task, 2), Workers: []Worker{{Task: "a", ID: "1.0", Node: "n"}, {Task: "b", ID: "2", Node: "\xfe\""}}}
		if d := cmp.Diff(one.Stats(in), other.Stats(in)); d != "" {
			t.Fatalf("(-all at once +from its state)\n%s", d)
		}
		a, err1 := one.State()
		b, err2 := other.State()
		if err1 != nil || err2 != nil || string(a) != string(b) {
			t.Fatalf("states\n%s, %v\n%s, %v", a, err1, b, err2)
		}
	})
}

// TestAStateHasAllThatARecorderHas is for who adds to one of them.
func TestAStateHasAllThatARecorderHas(t *testing.T) {
	for _, c := range []struct {
		of, state any
		without   int // of the fields: what is known beforehand
	}{{taskRecord{}, taskState{}, 1}, {blockTimes{}, timesState{}, 0}, {Recorder{}, state{}, 0}} {
		if got, want := reflect.TypeOf(c.state).NumField(), reflect.TypeOf(c.of).NumField()-c.without; got != want {
			t.Errorf("%T has %d fields, and %T needs %d", c.state, got, c.of, want)
		}
	}
}

func TestAStateThatIsNotOfTheseTasksIsRefused(t *testing.T) {
	for data, want := range map[string]string{
		`{"tasks":[]}`:                       "are of 0 tasks, and there are 1",
		`{`:                                  "the statistics so far: ",
		`{"tasks":[{"times":{"bins":[1]}}]}`: `task "a": a histogram of 1 bins`,
		fmt.Sprintf(`{"tasks":[{"times":{"quantiles":[-1,1],"bins":[0%s]}}]}`, strings.Repeat(",0", len(limits)-1)): "place -1 of a histogram",
	} {
		if err := one().RestoreState([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", data, err, want)
		}
	}
}
