package engine

import (
	"testing"
	"time"

	"example.org/daisy/scheduler"
)

// A worker that came by itself brings a result and a block that runs over a resume, after which others have all that there is. When the result is in, the
// block takes a share all the same: it runs already, and a worker that was started in its place would be one too many.
func TestWhatRunsBehindAResultOverAResumeTakesItsShare(t *testing.T) {
	task := taskOf(8, "a")
	task.MaxWorkers = 1
	c := newCluster(t, nil, task)
	c.starts = func(string, int) time.Duration { return never }
	c.apply(Event{Kind: EventTick})
	c.run(5 * time.Second)
	c.guest("x", "a")
	x := c.agents["x"]

	n := c.resumed(task)
	n.apply(Event{Kind: EventTick})
	x.epoch, x.held = 1, []scheduler.Handout{{Lease: 1, Block: 0, Attempt: 1}, {Lease: 2, Block: 1, Attempt: 1}}
	n.agents["x"] = x
	n.says = func(_ *agent, j *Join) { j.Name, j.Task = "x", "a" }
	n.connect(x)
	if got := n.e.fleet.Slots(0); got != 2 {
		t.Fatalf("%d slots are taken, want that of the worker in the queue and that of x", got)
	}
	x.ready = true
	n.finish(x, scheduler.Success)
	if got := n.e.fleet.Slots(0); got != 2 {
		t.Errorf("%d slots are taken when the result is in, want 2: x runs a block still", got)
	}
}
