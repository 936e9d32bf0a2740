package sim

import (
	"fmt"
	"time"
)

// Guests are workers that come by themselves: nobody has asked for them, and no launcher knows of them or can end them.

// guest has one come after a while. Named guests share one name, so that only the first of them is let in.
func (w *World) guest(node, slots int, task string, named bool, in time.Duration) *worker {
	x := &worker{world: w, guest: true, wants: task, nonce: mix(w.cfg.Seed, uint64(w.number)) | 1, node: node, slots: slots}
	x.id = fmt.Sprintf("guest-%d", w.number)
	if named {
		x.id = "guest"
	}
	w.enlist(x, in)
	return x
}

// guests has those come that a fault brings: some for any task, some for one.
func (a *faultActor) guests(f *Fault) {
	w := a.world
	for i := range 1 + f.N%3 {
		task, n := "", f.N/3+i
		if n%3 > 0 {
			task = w.cfg.Job.Tasks[n%len(w.cfg.Job.Tasks)].ID
		}
		w.guest(n%len(w.net.nodes), 1+n%2, task, n%7 == 0, time.Duration(i)*time.Second)
	}
}

// A host brings guests to a run that has no launcher: for each that leaves, somebody starts another.
type host struct {
	nobody
	world *World
	rng   func(n int) int
}

func newHost(w *World) *host {
	h := &host{world: w, rng: w.cfg.rng(streamLauncher).IntN}
	h.bring("", 0)
	for range h.rng(4) {
		task := ""
		if h.rng(3) == 0 {
			task = w.cfg.Job.Tasks[h.rng(len(w.cfg.Job.Tasks))].ID
		}
		h.bring(task, time.Duration(h.rng(20))*time.Second)
	}
	return h
}

func (h *host) bring(task string, in time.Duration) {
	h.world.guest(1+h.rng(len(h.world.net.nodes)-1), 1+h.rng(2), task, h.rng(8) == 0, in)
}

// left: a guest is gone.
func (h *host) left() {
	if !h.world.over {
		h.bring("", time.Duration(1+h.rng(60))*time.Second)
	}
}
