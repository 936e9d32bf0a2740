package rundir

import (
	"os"
	"time"
)

// unseenAfter is how long the lock of a coordinator on another machine may go without being renewed before it is taken for
// dead. The file's time is that of the file server, whose clock may differ from ours.
const unseenAfter = StaleAfter + time.Minute

// Coordinated says who coordinates the run now, as far as can be seen without taking the lock: its owner has not given it back,
// and is a process that is there, or, on another machine, has renewed it lately. For showing only; what may not happen beside
// a coordinator takes the lock.
func (d *Dir) Coordinated() (Owner, bool) { return d.coordinated(time.Now()) }

func (d *Dir) coordinated(now time.Time) (Owner, bool) {
	path := d.join(lockFile)
	owner, err := readOwner(path)
	if err != nil || owner.Released || owner.isGone() {
		return Owner{}, false
	}
	if host, err := os.Hostname(); err == nil && owner.Host == host && owner.Process != "" && owner.Process == processIdentity(owner.PID) {
		return owner, true
	}
	info, err := os.Stat(path)
	if err != nil || now.Sub(info.ModTime()) > unseenAfter {
		return Owner{}, false
	}
	return owner, true
}
