package engine

import (
	"testing"
	"time"
)

func TestOfAWorkerThatIsSilentOverAnOpenConnectionTheBatchSystemIsAskedAtOnce(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.block = time.Hour
	c.run(4 * time.Minute)
	asked := func() (n int) {
		for _, call := range c.q.Calls() {
			if call == "list" {
				n++
			}
		}
		return n
	}
	before := asked()
	c.run(c.now + time.Minute)
	if n := asked() - before; n > 1 {
		t.Errorf("with all well it was asked %d times in a minute", n)
	}
	c.agents["1.0"].silent = true
	c.run(c.now + c.e.cfg.Job.HeartbeatTimeout + 10*time.Second)
	before = asked()
	c.run(c.now + 30*time.Second)
	if n := asked() - before; n < 4 {
		t.Errorf("with a silent worker it was asked %d times in half a minute", n)
	}
	for _, a := range c.agents {
		a.silent = false
	}
	c.run(c.now + time.Minute)
	before = asked()
	c.run(c.now + time.Minute)
	if n := asked() - before; n > 1 {
		t.Errorf("with the worker heard again it was asked %d times in a minute", n)
	}
}
