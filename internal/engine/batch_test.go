package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

func TestARunOnABatchSystem(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a")).ends(time.Hour, RunDone)
	// A first wave of four, then the rest.
	if got := c.count("submit"); got != 2 || c.submits[0].Count != 4 || c.submits[1].Count != 4 {
		t.Errorf("%d submissions: %q", got, c.q.Calls())
	}
	if n := c.count("cancel"); n != 0 {
		t.Errorf("%d cancels: %q", n, c.q.Calls())
	}
	if c.now > c.lastDone+time.Second {
		t.Errorf("the last block was done at %v, and the run at %v", c.lastDone, c.now)
	}
	for i, r := range c.records {
		if r.Kind == RecordBound && (r.ID != "1" || r.Text != "101") && (r.ID != "2" || r.Text != "102") {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

func TestPendingWorkersSayWhatTheyWaitFor(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(_ string, i int) time.Duration {
		if i == 0 {
			return 5 * time.Second
		}
		return never
	}
	c.node = func(string, int) string { return "n1" }
	c.run(50 * time.Millisecond)
	c.waits("4 workers asked for")
	c.run(4 * time.Second)
	c.waits("waiting for 4 pending workers: Priority (others are ahead in the queue)")
	c.q.Set("1", 3, func(e *launcher.Element) { e.Reason = launcher.Reason{Word: "Resources"} })
	for _, a := range c.agents {
		a.silent = true
	}
	c.run(5*time.Second + 500*time.Millisecond)
	c.agents["1.0"].silent = true
	c.run(50 * time.Second)
	c.waits("waiting for 2 pending workers: Priority (others are ahead in the queue); waiting for 1 pending worker: Resources; 1 job running, none connected for 44s; see /runs/x/logs/1.0.log")
	c.q.Down = fmt.Errorf("Unable to contact slurm controller")
	c.run(4 * time.Minute)
	if got := c.e.waits(0); !strings.Contains(got, "the batch system has not answered") {
		t.Errorf("it says %q", got)
	}
	c.mustSay("the batch system does not answer: Unable to contact slurm controller")
}
