package fleet

import (
	"math"
	"testing"
	"time"

	"example.org/daisy/scheduler"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func cpu(n int64) scheduler.Resources {
	return scheduler.NewResources(map[string]int64{"cpu": n * 1000})
}

func with(total int64, tasks ...Task) *Fleet {
	return New(tasks, scheduler.NewBudget(cpu(total), false), 0)
}

// take takes what workers of an earlier decision hold.
func (f *Fleet) take(t testing.TB, task int, slots int64) *Fleet {
	t.Helper()
	if !f.Take(task, slots) {
		t.Fatalf("no room for %d slots of task %d", slots, task)
	}
	return f
}

const timeout = 5 * time.Second

func TestDecisions(t *testing.T) {
	a := Task{Requires: cpu(1), Slots: 1}
	b := Task{Requires: cpu(1), Slots: 1, Depth: 1, Class: 1}
	same := Task{Requires: cpu(1), Slots: 1, Depth: 1}
	many := int64(math.MaxInt64)
	ready := func(n int64) Load { return Load{Ready: n, Left: n, Starts: many} }
	none := Load{Left: 10, Starts: many}
	idle := func(ref, task int) Idle { return Idle{Ref: ref, Task: task, Slots: 1, Since: 10 * time.Second} }
	for _, c := range []struct {
		name  string
		fleet *Fleet
		loads []Load
		idle  []Idle
		want  []Order
	}{
		{"need is what is ready", with(8, a), []Load{ready(3)}, nil, []Order{{Kind: Start, Slots: 1, Count: 3}}},
		{"what a slot covers is no need", with(8, a), []Load{{Ready: 3, Covered: 3, Left: 3, Starts: many}}, nil, nil},
		{"not more than the budget", with(2, a), []Load{ready(9)}, nil, []Order{{Kind: Start, Slots: 1, Count: 2}}},
		{"not more than max_workers", with(8, Task{Requires: cpu(1), Slots: 1, MaxWorkers: 2}), []Load{ready(9)}, nil, []Order{{Kind: Start, Slots: 1, Count: 2}}},
		{"max_workers counts slots: the last worker gets fewer", with(8, Task{Requires: cpu(1), Slots: 2, MaxWorkers: 3}), []Load{ready(9)}, nil,
			[]Order{{Kind: Start, Slots: 2, Count: 1}, {Kind: Start, Slots: 1, Count: 1}}},
		{"the budget likewise", with(5, Task{Requires: cpu(2), Slots: 4}), []Load{ready(9)}, nil, []Order{{Kind: Start, Slots: 2, Count: 1}}},
		{"no more slots than blocks are left", with(8, Task{Requires: cpu(1), Slots: 4}), []Load{ready(1)}, nil, []Order{{Kind: Start, Slots: 1, Count: 1}}},
		{"a resource that the budget lacks", with(8, Task{Requires: scheduler.NewResources(map[string]int64{"gpu": 1000}), Slots: 1}), []Load{ready(1)}, nil, nil},
		{"the brake or a pause", with(8, a), []Load{{Ready: 3, Left: 3}}, nil, nil},
		{"the first wave", with(8, a), []Load{{Ready: 9, Left: 9, Starts: 4}}, nil, []Order{{Kind: Start, Slots: 1, Count: 4}}},
		{"the first wave is one for all tasks of a class", with(9, a, same), []Load{{Ready: 9, Left: 9, Starts: 4}, {Ready: 3, Left: 3, Starts: 4}}, nil,
			[]Order{{Kind: Start, Task: 1, Slots: 1, Count: 3}, {Kind: Start, Task: 0, Slots: 1, Count: 1}}},
		{"never too many at once", New([]Task{a}, scheduler.NewBudget(scheduler.Resources{}, true), 0), []Load{ready(20_000)}, nil, []Order{{Kind: Start, Slots: 1, Count: 10_000}}},
		{"an ended task wants nothing", with(8, a), []Load{{Ready: 3, Left: 3, Starts: many, Ended: true}}, nil, nil},
		{"downstream first", with(3, a, b), []Load{ready(9), ready(2)}, nil,
			[]Order{{Kind: Start, Task: 1, Slots: 1, Count: 2}, {Kind: Start, Task: 0, Slots: 1, Count: 1}}},
		{"priority before depth", with(3, Task{Requires: cpu(1), Slots: 1, Priority: 1}, b), []Load{ready(9), ready(2)}, nil, []Order{{Kind: Start, Slots: 1, Count: 3}}},
		{"a task that comes later but does not fit leaves the budget to others", with(3, a, Task{Requires: cpu(4), Slots: 1, Depth: 1, Class: 1}), []Load{ready(9), ready(1)}, nil,
			[]Order{{Kind: Start, Slots: 1, Count: 3}}},

		{"an idle worker takes over in its class", with(8, a, same).take(t, 0, 1), []Load{none, ready(1)}, []Idle{idle(7, 0)}, []Order{{Kind: Reassign, Ref: 7, Task: 1, Slots: 1}}},
		{"not in another class: a new one starts", with(8, a, b).take(t, 0, 1), []Load{none, ready(1)}, []Idle{idle(7, 0)}, []Order{{Kind: Start, Task: 1, Slots: 1, Count: 1}}},
		{"one that starts is not moved", with(8, a, same).take(t, 0, 1), []Load{none, ready(1)}, []Idle{{Ref: 7, Slots: 1, Starting: true, Since: 10 * time.Second}},
			[]Order{{Kind: Start, Task: 1, Slots: 1, Count: 1}}},
		{"not beyond max_workers", with(8, a, Task{Requires: cpu(1), Slots: 1, MaxWorkers: 1}).take(t, 0, 1).take(t, 1, 1), []Load{none, ready(1)}, []Idle{idle(7, 0)}, nil},
		{"a quiet one stays where it is", with(8, a, same).take(t, 0, 1), []Load{none, ready(1)}, []Idle{{Ref: 7, Slots: 1, Pinned: true, Since: 10 * time.Second}},
			[]Order{{Kind: Start, Task: 1, Slots: 1, Count: 1}}},
		{"one that nobody launched and takes any task", with(8, a, b), []Load{none, ready(1)}, []Idle{{Ref: 7, Slots: 1, External: true, Any: true}}, []Order{{Kind: Reassign, Ref: 7, Task: 1, Slots: 1}}},

		{"not to a task without room", with(1, a, b).take(t, 0, 1), []Load{none, ready(1)}, []Idle{{Ref: 7, Slots: 1, External: true, Any: true}}, nil},
		{"what it will need is not given to others", with(2, a, b), []Load{ready(9), ready(1)}, []Idle{{Ref: 7, Slots: 2, External: true, Any: true}},
			[]Order{{Kind: Reassign, Ref: 7, Task: 1, Slots: 1}, {Kind: Start, Task: 0, Slots: 1, Count: 1}}},

		{"idle workers make room when the budget is full", with(2, a, b).take(t, 0, 2), []Load{none, ready(1)}, []Idle{idle(7, 0), idle(8, 0)}, []Order{{Kind: Release, Why: Needed, Ref: 7}}},
		{"one that has not joined does so too", with(1, a, b).take(t, 0, 1), []Load{none, ready(1)}, []Idle{{Ref: 7, Slots: 1, Starting: true}}, []Order{{Kind: Release, Why: Needed, Ref: 7}}},
		{"one that nobody launched does not: it takes no room", with(1, a, b).take(t, 0, 1), []Load{none, ready(1)}, []Idle{{Ref: 6, Slots: 1, External: true, Pinned: true}, idle(7, 0)},
			[]Order{{Kind: Release, Why: Needed, Ref: 7}}},
		{"as many as it takes", with(2, a, Task{Requires: cpu(2), Slots: 1, Class: 1}).take(t, 0, 2), []Load{none, ready(1)}, []Idle{idle(7, 0), idle(8, 0)},
			[]Order{{Kind: Release, Why: Needed, Ref: 7}, {Kind: Release, Why: Needed, Ref: 8}}},
		{"none in vain", with(2, a, Task{Requires: cpu(2), Slots: 1, Class: 1}).take(t, 0, 2), []Load{none, ready(1)}, []Idle{idle(7, 0)}, nil},
		{"what leaves already is counted on", with(2, a, b).take(t, 0, 2), []Load{{Left: 10, Leaving: 1, Starts: many}, ready(1)}, []Idle{idle(7, 0)}, nil},
		{"where slots are bounded too", New([]Task{a, b}, scheduler.NewBudget(cpu(8), false), 2).take(t, 0, 2), []Load{{Left: 10, Leaving: 1, Starts: many}, ready(1)}, []Idle{idle(7, 0)}, nil},
		{"none for a task that may start nothing", with(1, a, b).take(t, 0, 1), []Load{none, {Ready: 1, Left: 1}}, []Idle{idle(7, 0)}, nil},
		{"none for a task at its max_workers", with(2, a, Task{Requires: cpu(1), Slots: 1, Class: 1, MaxWorkers: 1}).take(t, 0, 1).take(t, 1, 1), []Load{none, ready(1)}, []Idle{idle(7, 0)}, nil},

		{"idle for idle_timeout", with(2, a).take(t, 0, 1), []Load{none}, []Idle{{Ref: 7, Slots: 1, Since: 6 * time.Second}}, []Order{{Kind: Release, Why: TimedOut, Ref: 7}}},
		{"one that starts has not been idle yet", with(2, a).take(t, 0, 1), []Load{none}, []Idle{{Ref: 7, Slots: 1, Starting: true}}, nil},
		{"not before", with(2, a).take(t, 0, 1), []Load{none}, []Idle{{Ref: 7, Slots: 1, Since: 6*time.Second + 1}}, nil},
		{"at once when nothing can come", with(2, a).take(t, 0, 1), []Load{{Ended: true}}, []Idle{idle(7, 0)}, []Order{{Kind: Release, Why: Over, Ref: 7}}},
		{"not while a task of its class goes on", with(2, a, same).take(t, 0, 1), []Load{{Ended: true}, none}, []Idle{idle(7, 0)}, nil},
		{"one that nobody launched is never sent away", with(2, a), []Load{{Ended: true}}, []Idle{{Ref: 7, Slots: 1, External: true, Pinned: true}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.fleet.Decide(11*time.Second, timeout, c.loads, c.idle, nil)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestASerialFleetHasOneSlot(t *testing.T) {
	f := New([]Task{{Requires: cpu(1), Slots: 4}, {Requires: cpu(1), Slots: 1, Class: 1}}, scheduler.NewBudget(cpu(8), true), 1)
	loads := []Load{{Ready: 9, Left: 9, Starts: 9}, {Left: 9, Starts: 9}}
	got := f.Decide(0, timeout, loads, nil, nil)
	if diff := cmp.Diff([]Order{{Kind: Start, Slots: 1, Count: 1}}, got); diff != "" {
		t.Error(diff)
	}
	// The slot is free for the other task only once its worker has gone.
	loads[0], loads[1].Ready = Load{Left: 1, Starts: 9}, 1
	got = f.Decide(0, timeout, loads, []Idle{{Ref: 3, Slots: 1}}, nil)
	if diff := cmp.Diff([]Order{{Kind: Release, Why: Needed, Ref: 3}}, got); diff != "" {
		t.Error(diff)
	}
	if f.Take(1, 1) {
		t.Error("two slots of one")
	}
	f.Give(0, 1)
	if !f.Take(1, 1) {
		t.Error("the slot was given back and cannot be taken")
	}
}

func TestClassesAreThoseBetweenWhichAWorkerMayMove(t *testing.T) {
	kinds := []Kind{
		{Requires: cpu(1), Options: "command"},
		{Requires: cpu(2), Options: "command"},
		{Requires: cpu(1), Options: "command", Env: []string{"A=1"}},
		{Requires: cpu(1), Options: "stream"},
		{Requires: cpu(1), Options: "command"},
		{Requires: cpu(1), Options: "command", Env: []string{"A=1"}},
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 0, 2}, Classes(kinds)); diff != "" {
		t.Error(diff)
	}
}

// Whatever the loads, a decision keeps to the budget and max_workers, uses each idle worker once, and leaves no ready block
// that free budget or idle workers could serve.
func TestEveryDecisionIsSoundAndLeavesNothingUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 12).Draw(t, "cpus")
		unlimited := rapid.IntRange(0, 9).Draw(t, "unlimited") == 0
		maxSlots := rapid.SampledFrom([]int64{0, 0, 1, 5}).Draw(t, "max slots")
		n := rapid.IntRange(1, 4).Draw(t, "tasks")
		tasks := make([]Task, n)
		kinds := make([]Kind, n)
		for i := range tasks {
			need := rapid.Int64Range(1, 3).Draw(t, "requires")
			tasks[i] = Task{Requires: cpu(need), Slots: rapid.Int64Range(1, 3).Draw(t, "slots"), MaxWorkers: rapid.SampledFrom([]int64{0, 0, 1, 4}).Draw(t, "max_workers"),
				Priority: rapid.IntRange(-1, 1).Draw(t, "priority"), Depth: rapid.IntRange(0, i).Draw(t, "depth")}
			kinds[i] = Kind{Requires: tasks[i].Requires}
		}
		for i, c := range Classes(kinds) {
			tasks[i].Class = c
		}
		f := New(tasks, scheduler.NewBudget(cpu(total), unlimited), maxSlots)
		loads := make([]Load, n)
		var idle []Idle
		for i := range loads {
			l := Load{Ready: rapid.Int64Range(0, 6).Draw(t, "ready"), Starts: rapid.SampledFrom([]int64{0, 1, 100, 100}).Draw(t, "starts")}
			l.Left = l.Ready + rapid.Int64Range(0, 6).Draw(t, "waiting")
			l.Ended = l.Left == 0
			for range rapid.IntRange(0, 4).Draw(t, "workers") {
				slots := rapid.Int64Range(1, tasks[i].Slots).Draw(t, "its slots")
				if !f.Take(i, slots) {
					continue
				}
				switch rapid.IntRange(0, 3).Draw(t, "state") {
				case 0:
					l.Leaving += slots
				case 1:
					if l.Ready == 0 {
						idle = append(idle, Idle{Ref: len(idle), Task: i, Slots: slots, Starting: rapid.Bool().Draw(t, "starting"), Pinned: rapid.IntRange(0, 4).Draw(t, "pinned") == 0,
							Since: time.Duration(rapid.Int64Range(0, 10).Draw(t, "since")) * time.Second})
					}
				} // else busy
			}
			loads[i] = l
		}
		need := make([]int64, n)
		for i, l := range loads {
			if !l.Ended {
				need[i] = l.Need()
			}
		}
		used := map[int]bool{}
		leaving := scheduler.Resources{}
		leavingSlots := int64(0)
		for i, l := range loads {
			leaving = leaving.Add(tasks[i].Requires.Times(l.Leaving))
			leavingSlots += l.Leaving
		}
		served := append([]int64(nil), need...)
		startedOf := make([]int64, n) // by class
		neededFreed := false
		for _, o := range f.Decide(10*time.Second, timeout, loads, idle, nil) {
			if o.Kind != Start {
				if used[o.Ref] {
					t.Fatalf("worker %d is used twice", o.Ref)
				}
				used[o.Ref] = true
			}
			switch o.Kind {
			case Reassign:
				w := idle[o.Ref]
				if w.Starting || w.Pinned || tasks[w.Task].Class != tasks[o.Task].Class || served[o.Task] <= 0 {
					t.Fatalf("%+v was moved by %+v", w, o)
				}
				served[o.Task] -= o.Slots
			case Start:
				if o.Count < 1 || o.Slots < 1 || o.Slots > tasks[o.Task].Slots || o.Slots > loads[o.Task].Left || served[o.Task]-(o.Count-1)*o.Slots <= 0 {
					t.Fatalf("%+v for a need of %d", o, served[o.Task])
				}
				served[o.Task] -= o.Count * o.Slots
				if startedOf[tasks[o.Task].Class] += o.Count; startedOf[tasks[o.Task].Class] > loads[o.Task].Starts {
					t.Fatalf("%+v: %d starts of %d for its class", o, startedOf[tasks[o.Task].Class], loads[o.Task].Starts)
				}
			case Release:
				w := idle[o.Ref]
				leaving = leaving.Add(tasks[w.Task].Requires.Times(w.Slots))
				leavingSlots += w.Slots
				neededFreed = neededFreed || o.Why == Needed
				if o.Why == TimedOut && (w.Starting || 10*time.Second-w.Since < timeout) || o.Why == Over && !loads[w.Task].Ended {
					t.Fatalf("%+v was sent away by %+v", w, o)
				}
			}
		}
		// Sound.
		sum := int64(0)
		for i := range tasks {
			sum += f.Slots(i) * tasks[i].Requires.Get("cpu")
			if m := tasks[i].MaxWorkers; m > 0 && f.Slots(i) > m {
				t.Fatalf("task %d has %d slots of %d", i, f.Slots(i), m)
			}
		}
		if !unlimited && sum > total*1000 || maxSlots > 0 && f.Total() > maxSlots {
			t.Fatalf("%d of the budget %d, %d slots of %d", sum, total*1000, f.Total(), maxSlots)
		}
		// Nothing undone: of the tasks whose need is left, none could start, and none could if the idle workers that are left made room.
		free := leaving
		if !unlimited {
			free = f.budget.Free().Add(leaving)
		}
		room := maxSlots - f.total + leavingSlots
		anyNeed := false
		for i := range tasks {
			if served[i] <= 0 || startedOf[tasks[i].Class] >= loads[i].Starts {
				continue
			}
			if f.Room(i) > 0 {
				t.Fatalf("task %d: a need of %d is left and room for %d slots", i, served[i], f.Room(i))
			}
			if m := tasks[i].MaxWorkers; m > 0 && f.Slots(i) >= m {
				continue
			}
			anyNeed = true
			if leavingSlots > 0 {
				continue // room is being made; whether for this one is decided when it is there
			}
			spare, spareSlots := free, room
			for r, w := range idle {
				if !used[r] && w.Task != i {
					spare = spare.Add(tasks[w.Task].Requires.Times(w.Slots))
					spareSlots += w.Slots
				}
			}
			if f.fits(i, spare) > 0 && (maxSlots == 0 || spareSlots > 0) {
				t.Fatalf("task %d: a need of %d is left, and idle workers that could make room stay", i, served[i])
			}
		}
		if neededFreed && !anyNeed {
			t.Fatal("a worker was sent away for nobody")
		}
	})
}
