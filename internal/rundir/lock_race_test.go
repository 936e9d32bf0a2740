package rundir

import (
	"errors"
	"os"
	"testing"
)

// Of two that come at once after a crash, one has the lock and has not yet written who it is.
func TestALockWhoseNewOwnerHasNotSaidWhoItIsIsNotTakenOver(t *testing.T) {
	d, err := Create(t.TempDir(), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	dead := d.newOwner()
	dead.PID = 1 << 30 // of no process
	path := d.join(lockFile)
	if err := os.WriteFile(path, dead.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock(f); err != nil {
		t.Fatal(err)
	}
	first := &Lock{dir: d, file: f, owner: d.newOwner()}
	looked := make(chan error, 1)
	_, err = d.tryLock(func(other *os.File) error {
		got := flock(other)
		go func() { looked <- first.store() }() // while the second one looks at the file
		return got
	})
	if err := <-looked; err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Owner.PID != os.Getpid() {
		t.Errorf("got %v, want that process %d has the lock", err, os.Getpid())
	}
}
