package process

import (
	"os"
	"runtime"
)

// A Thread lets one goroutine that starts process after process fork on its own thread, which saves the way to a thread of
// the Spawner and back for each of them (BenchmarkStartAndWait).
type Thread struct {
	spawner *Spawner
	id      int // of the system's thread; 0 = none may be used
}

// LockThread locks the calling goroutine to its thread until Unlock. The goroutine must not end before its processes have:
// they would be killed.
func (s *Spawner) LockThread() *Thread {
	runtime.LockOSThread()
	t := &Thread{spawner: s}
	// Orphans are told from our own children by being the main thread's (see orphans): nothing may be forked there.
	if !onMainThread() {
		t.id = threadID()
	}
	return t
}

// Start is Spawner.Start, on this thread if the caller is the goroutine that locked it.
func (t *Thread) Start(c Config) (*Process, error) {
	fork := t.spawner.fork
	if t.id != 0 && threadID() == t.id {
		fork = func(r *request) { r.process, r.err = os.StartProcess(r.path, r.argv, r.attr) }
	}
	return t.spawner.start(c, fork)
}

// Unlock undoes LockThread. All processes that were started with the Thread must have ended: from now on the runtime may end
// the system's thread, and them with it.
func (t *Thread) Unlock() { runtime.UnlockOSThread() }
