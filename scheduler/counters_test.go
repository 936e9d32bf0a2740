package scheduler_test

import (
	"testing"

	. "example.org/daisy/scheduler"
)

// square returns a task over 20 × 20, of blocks w wide.
func square(w, context int64) plainTask {
	p := plainTask{fit: "shrink", maxLost: 5}
	for range 2 {
		p.total = append(p.total, [2]int64{-context, 20 + context})
		p.write = append(p.write, [2]int64{0, w})
		p.read = append(p.read, [2]int64{-context, w + context})
	}
	return p
}

// Each of four blocks needs 16 × 16 of the 20 × 20 blocks of either of two tasks. All end but one, and but
// the very last of each task, which only one of the four needs.
func TestABlockThatNeedsManyWaitsForTheLastOfThem(t *testing.T) {
	p := plainPipeline{tasks: []plainTask{square(1, 0), square(1, 0), square(10, 6)}, edges: [][2]int{{0, 2}, {1, 2}}}
	for last := range 2 * 400 {
		s := p.scheduler(t)
		var left []Lease
		for i := range 2 * 400 {
			h, _ := s.Acquire(i/400, Holder{})
			if i == last || i%400 == 399 {
				left = append(left, h.Lease)
			} else {
				s.Release(h.Lease, Ending{Outcome: Success})
			}
		}
		drain(s, 1)
		y, x := last%400/20, last%20
		for b := range 3 {
			needed := y >= 4*(b/2) && y < 16+4*(b/2) && x >= 4*(b%2) && x < 16+4*(b%2)
			if got := s.Block(2, int64(b)); (got == BlockReady) == needed {
				t.Fatalf("block %d,%d of task %d is left, needed by block %d: %v; that is %v", y, x, last/400, b, needed, got)
			}
		}
		for _, l := range left {
			s.Release(l, Ending{Outcome: Success})
			drain(s, 1)
		}
		if ready := s.Tally(2).Ready; ready != 4 {
			t.Fatalf("with block %d,%d of task %d among the last, %d blocks are ready, want 4", y, x, last/400, ready)
		}
	}
}

func TestWhatIsNotDoneTaintsWhatNeedsItInSlicesOfOne(t *testing.T) {
	for a := range 100 {
		for b := range a {
			p := plainPipeline{tasks: []plainTask{square(2, 0), square(2, 3)}, edges: [][2]int{{0, 1}}}
			for i := range p.tasks {
				for block := range 100 {
					p.tasks[i].skip = append(p.tasks[i].skip, i == 1 || block != a && block != b)
				}
			}
			m, s := newModel(p.tasks, p.edges), p.scheduler(t)
			drain(s, 1)
			if d := m.difference(s); d != "" {
				t.Fatalf("not done are %d and %d: %s", a, b, d)
			}
		}
	}
}
