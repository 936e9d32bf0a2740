package e2e

import (
	"maps"
	"syscall"
	"testing"
	"time"

	"example.org/daisy/internal/slurmlab"
)

func TestOnSlurmTheNextCoordinatorGoesOnWithTheSameWorkers(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{}, 24, "", "", "max_workers = 20")
	s := r.begin()
	r.untilBegun(17)
	r.untilQueued(16, 4)
	submitted, begun := r.submissions(), r.begun()
	r.crash(s)
	s = r.resume()
	time.Sleep(3 * time.Second) // in which it could submit more
	r.crash(s)
	time.Sleep(15 * time.Second) // longer than workers are missed
	s = r.resumeElsewhere("--take-over")
	time.Sleep(10 * time.Second)
	if got := r.submissions(); len(got) != len(submitted) {
		t.Errorf("submitted were %v, and now %v", submitted, got)
	}
	if got := r.begun(); !maps.Equal(got, begun) {
		t.Errorf("blocks had begun as %v, and now %v", begun, got)
	}
	r.open()
	r.ends(s, 0)
	r.wantRunsOnce()
	r.wantOneArrayEach()
	if got := r.accounted(); got > 20 {
		t.Errorf("%d elements in the accounting, want at most 20", got)
	}
	r.wantAsHere()
}

func TestOnSlurmAnInterruptLeavesNoJob(t *testing.T) {
	r := newSlurmRun(t, slurmlab.Options{NoAccounting: true}, 24, "", "", "max_workers = 20")
	s := r.begin()
	r.untilQueued(16, 4)
	s.signal(syscall.SIGINT)
	s.signal(syscall.SIGINT)
	r.ends(s, 130)
	r.wantNothingLeft()
}
