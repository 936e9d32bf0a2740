package sim

import "time"

// stallWorker stops a worker's process for a while (SIGSTOP, a machine that swaps). Its clock goes on: whatever is due is done when it
// wakes.
func (w *World) stallWorker(x *worker, d time.Duration) {
	if !x.dead {
		w.logf("worker %s stalls for %v", x.id, d)
		x.stalledTo = max(x.stalledTo, w.now+d)
	}
}

// stall stops the coordinator's process for a while. Its clock goes on.
func (w *World) stall(co *coordinator, d time.Duration) {
	w.logf("the coordinator stalls for %v", d)
	co.stalledTo = max(co.stalledTo, w.now+d)
}

// suspend stops the coordinator's machine, its clock with it: what was due in ten seconds is due ten seconds after it wakes.
func (w *World) suspend(co *coordinator, d time.Duration) {
	w.logf("the coordinator's machine sleeps for %v", d)
	co.stalledTo = max(co.stalledTo, w.now+d)
	co.lag += d
	for _, x := range w.workers {
		if x.node == 0 && w.launcher.properties().OneNode && !x.dead {
			w.stallWorker(x, d)
		}
	}
}
