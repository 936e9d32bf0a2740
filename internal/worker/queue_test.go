package worker

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAQueueHoldsWhatWasAddedAndNotDropped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue[*int]
		var want []*int
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				n := rapid.IntRange(0, len(want)).Draw(t, "dropped")
				q.drop(n)
				want = want[n:]
			case 1:
				odd := func(n *int) bool { return *n%2 == 1 }
				want = slices.DeleteFunc(slices.Clone(want), odd)
				q.keep(slices.DeleteFunc(q.list(), odd))
			default:
				n := rapid.Int().Draw(t, "added")
				q.add(&n)
				want = append(want, &n)
			}
			if !slices.Equal(q.list(), want) || q.len() != len(want) {
				t.Fatalf("%v, want %v", q.list(), want)
			}
			for i, left := range q.all[:cap(q.all)] {
				if left != nil && (i < q.first || i >= len(q.all)) {
					t.Fatalf("what was taken away is still in memory at %d", i)
				}
			}
		}
	})
}

func TestAQueueThatIsServedAsItIsFilledDoesNotGrow(t *testing.T) {
	var q queue[int]
	for range 8 {
		q.add(0)
	}
	if n := testing.AllocsPerRun(10_000, func() { q.add(0); q.drop(1) }); n != 0 || cap(q.all) > 32 {
		t.Errorf("%v allocations a turn, room for %d", n, cap(q.all))
	}
}
