package engine

import (
	"testing"
	"time"

	"example.org/daisy/scheduler"
)

func TestFairShare(t *testing.T) {
	const ms = estimate(time.Millisecond)
	for _, c := range []struct {
		name             string
		n                int32
		ready, taskSlots int64
		slots, held      int32
		each             estimate
		want             int32
	}{
		{"asks for one", 1, 1000, 4, 1, 0, ms, 1},
		{"not more than asked for", 16, 1000, 4, 1, 0, ms, 16},
		{"not measured: a block for each free slot", 16, 1000, 4, 4, 1, 0, 3},
		{"not measured and all slots taken", 16, 1000, 4, 4, 4, 0, 1},
		{"its part of what is ready", 64, 80, 4, 1, 0, ms, 10},
		{"the last ones go one by one", 64, 5, 4, 1, 0, ms, 1},
		{"100 ms of work", 64, 100_000, 4, 1, 0, 10 * ms, 10},
		{"100 ms of work for two slots, of which it has some", 64, 100_000, 4, 2, 5, 10 * ms, 15},
		{"long blocks: one for a slot", 64, 100_000, 4, 1, 0, 5000 * ms, 1},
		{"always at least one", 64, 1, 100, 1, 9, 5000 * ms, 1},
	} {
		if got := fairShare(c.n, c.ready, c.taskSlots, c.slots, c.held, c.each); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAnEstimateFollowsWhatIsMeasured(t *testing.T) {
	var e estimate
	for range 100 {
		e.add(800)
	}
	if e != 800 {
		t.Errorf("after equal times: got %d, want 800", e)
	}
	for range 100 {
		e.add(1600)
	}
	if e < 1590 || e > 1600 {
		t.Errorf("after a change: got %d, want nearly 1600", e)
	}
}

func TestBackoffDoublesAndSpreads(t *testing.T) {
	seen := map[time.Duration]bool{}
	for block := range int64(100) {
		for attempt := int32(1); attempt < 70; attempt++ {
			most := time.Second << min(attempt-1, 6)
			got := backoff(time.Second, scheduler.Handout{Block: block, Attempt: attempt})
			if got < most/2 || got > most {
				t.Fatalf("block %d, attempt %d: got %v, want between %v and %v", block, attempt, got, most/2, most)
			}
			if attempt == 1 {
				seen[got] = true
			}
		}
	}
	if len(seen) < 95 {
		t.Errorf("100 blocks come back at only %d different times", len(seen))
	}
}
