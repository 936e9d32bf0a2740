package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/launcher"
)

func TestJobsAreShownAsTheSystemHasThem(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 4)
	if d := cmp.Diff([]Job{{Tag: "1", Array: "40", Asked: 4}}, x.b.Jobs(x.now)); d != "" {
		t.Errorf("before an answer (-want +got):\n%s", d)
	}
	pending := row("40 1 2-3 pending")
	pending.StartsIn = time.Hour
	running := row("40 1 0-1 running")
	running.Node, running.Left = "n7", 30*time.Minute
	x.list(running, pending)
	x.b.Connected(x.now, launcher.Worker{Tag: "1", Element: 1}, true)
	listed := x.now
	want := Job{Tag: "1", Array: "40", Queued: 2, Running: 2, Connected: 1, Nodes: []string{"n7"}, Waits: []Waiting{{Reason: pending.Reason, Count: 2, StartsIn: 50 * time.Minute}}}
	if d := cmp.Diff([]Job{want}, x.b.Jobs(listed+10*time.Minute)); d != "" {
		t.Errorf("ten minutes after an answer (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want.Waits, x.b.Waits(listed+10*time.Minute, []string{"1"})); d != "" {
		t.Errorf("what they wait for (-want +got):\n%s", d)
	}
	if left := x.b.TimeLeft(listed+10*time.Minute, launcher.Worker{Tag: "1", Element: 0}); left != 20*time.Minute {
		t.Errorf("time left: %v", left)
	}
	if left := x.b.TimeLeft(listed, launcher.Worker{Tag: "1", Element: 3}); left != 0 {
		t.Errorf("time left of one that is pending: %v", left)
	}
	x.list(row("40 1 0-3 failed"))
	if jobs := x.b.Jobs(x.now); len(jobs) != 0 && jobs[0].Queued+jobs[0].Asked > 0 {
		t.Errorf("when it is over: %+v", jobs)
	}
}
