package rundir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

const lockFile = "lock"

// RenewEvery is how often the holder of a lock calls Renew.
const RenewEvery = 5 * time.Second

// StaleAfter is how long the counter of a lock must stand still before
// AwaitLock takes the lock for free.
const StaleAfter = 30 * time.Second

// Owner is the content of the lock file: who coordinates the run.
type Owner struct {
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Process  string    `json:"process"` // tells processes apart that had one pid: see processIdentity
	Since    time.Time `json:"since"`
	Epoch    uint64    `json:"epoch"`   // of the run, once known
	Counter  uint64    `json:"counter"` // renewed every 5 s while the owner lives
	Released bool      `json:"released"`
	Token    string    `json:"token"` // random: tells two locks of one process apart
}

// LockedError says that another coordinator holds the run.
type LockedError struct {
	Path  string // of the run directory
	Owner Owner  // zero if it could not be read
}

func (e *LockedError) Error() string {
	who := "another coordinator"
	if e.Owner.Host != "" {
		who = fmt.Sprintf("pid %d on %s, since %s", e.Owner.PID, e.Owner.Host, e.Owner.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s: the run is being coordinated by %s; stop that one first, or give --take-over if it is gone", e.Path, who)
}

// Lock is the right to coordinate a run. It keeps honest coordinators apart;
// what keeps the run right, should two run all the same, is the epoch.
type Lock struct {
	dir *Dir

	mu    sync.Mutex
	file  *os.File // flocked, or nil where the file system has no flock
	owner Owner
}

// introduction is how long a new owner may take from having the lock to having written who it is.
const introduction = time.Second

// TryLock takes the lock if it is free: flock says so, or its owner was a
// process on this host that is gone. Where the file system has no flock, the
// lock file itself is the lock, and free also when it says "released".
// Otherwise it gives a *LockedError.
func (d *Dir) TryLock() (*Lock, error) { return d.tryLock(flock) }

func (d *Dir) tryLock(flock flockFunc) (*Lock, error) {
	path := d.join(lockFile)
	const tries = 10 // others may replace the file meanwhile
	for range tries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, explain("lock the run directory", path, err)
		}
		err = flock(f)
		switch {
		case err == nil:
			// The file may have been replaced by someone who took over between open and flock.
			if !isStill(f, path) {
				_ = f.Close()
				continue
			}
			l := &Lock{dir: d, file: f, owner: d.newOwner()}
			if err := l.store(); err != nil {
				_ = f.Close()
				return nil, err
			}
			return l, nil
		case isUnsupported(err):
			_ = f.Close()
			return d.lockByContent(path)
		case errors.Is(err, syscall.EWOULDBLOCK):
			_ = f.Close()
			owner, _ := readOwner(path)
			// Whoever has the lock may be about to write down who it is: until then the file names the one before.
			for until := time.Now().Add(introduction); owner.isGone() && time.Now().Before(until); {
				time.Sleep(introduction / 50)
				owner, _ = readOwner(path)
			}
			if owner.isGone() {
				return d.takeOver(flock)
			}
			return nil, &LockedError{d.path, owner}
		default:
			_ = f.Close()
			return nil, explain("lock the run directory", path, err)
		}
	}
	return nil, fmt.Errorf("lock the run directory %s: the lock file was replaced %d times meanwhile; look for several coordinators being started", path, tries)
}

// lockByContent is for file systems without flock.
func (d *Dir) lockByContent(path string) (*Lock, error) {
	owner, err := readOwner(path)
	switch {
	case errors.Is(err, errNoOwner) || err == nil && (owner.Released || owner.isGone()):
		return d.takeOver(noFlock)
	case err != nil:
		return nil, err
	}
	return nil, &LockedError{d.path, owner}
}

// TakeOver takes the lock from whoever has it, by putting a new lock file in
// the old one's place. The former owner's next Renew says so.
func (d *Dir) TakeOver() (*Lock, error) { return d.takeOver(flock) }

func (d *Dir) takeOver(flock flockFunc) (*Lock, error) {
	path := d.join(lockFile)
	l := &Lock{dir: d, owner: d.newOwner()}
	f, err := newReplacement(path, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.discard()
	if _, err := f.Write(l.owner.encode()); err != nil {
		return nil, explain("lock the run directory", path, err)
	}
	// Locked before anyone can see it under its final name.
	own, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		return nil, explain("lock the run directory", path, err)
	}
	if err := flock(own); err == nil {
		l.file = own
	} else {
		_ = own.Close()
		if !isUnsupported(err) {
			return nil, explain("lock the run directory", path, err)
		}
	}
	if err := f.replace(); err != nil {
		if l.file != nil {
			_ = l.file.Close()
		}
		return nil, err
	}
	// Of two that take over at once, the later rename has it.
	if now, err := readOwner(path); err != nil || now.Token != l.owner.Token {
		if l.file != nil {
			_ = l.file.Close()
		}
		return nil, &LockedError{d.path, now}
	}
	return l, nil
}

// AwaitLock takes the lock as TryLock does, and otherwise watches its counter:
// once it has stood still for StaleAfter the lock is taken over; as soon as it
// moves, the *LockedError is returned. So it waits StaleAfter at most. waiting, if not nil, is called once when the wait begins.
func (d *Dir) AwaitLock(ctx context.Context, waiting func(Owner)) (*Lock, error) {
	var first *LockedError
	for waited := time.Duration(0); ; waited += time.Second {
		l, err := d.TryLock()
		var locked *LockedError
		if !errors.As(err, &locked) {
			return l, err
		}
		if first == nil {
			first = locked
			if waiting != nil {
				waiting(locked.Owner)
			}
		}
		if locked.Owner.Token != first.Owner.Token || locked.Owner.Counter != first.Owner.Counter {
			return nil, locked
		}
		if waited >= StaleAfter {
			return d.TakeOver()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (the wait for it was ended: %w)", locked, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// Renew moves the counter on; the owner calls it every RenewEvery. epoch is
// shown to others. It gives a *TakenOverError when the lock is another's now.
func (l *Lock) Renew(epoch uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := l.dir.join(lockFile)
	now, err := readOwner(path)
	if errors.Is(err, errNoOwner) {
		return fmt.Errorf("%s was removed or emptied while this coordinator had it, so that nothing kept a second one away; go on with: daisy-submit run --resume %s", path, l.dir.path)
	}
	if err != nil {
		return err
	}
	if now.Token != l.owner.Token {
		return &TakenOverError{l.dir.path, epoch, now.Epoch, now}
	}
	l.owner.Epoch = epoch
	l.owner.Counter++
	return l.store()
}

// Unlock gives the lock back. The file stays: removing it would race with
// others that have opened it.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner.Released {
		return nil
	}
	l.owner.Released = true
	var err error
	if now, rerr := readOwner(l.dir.join(lockFile)); rerr == nil && now.Token == l.owner.Token {
		err = l.store()
	}
	if l.file != nil {
		if cerr := l.file.Close(); err == nil && cerr != nil {
			err = explain("unlock the run directory", l.dir.join(lockFile), cerr)
		}
	}
	return err
}

// Owner is what the lock file says about this lock.
func (l *Lock) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// store writes the content in place, so that the flock stays on the file; without flock it replaces the file.
func (l *Lock) store() error {
	if l.file == nil {
		return l.dir.write(lockFile, l.owner.encode())
	}
	path := l.dir.join(lockFile)
	if _, err := l.file.WriteAt(l.owner.encode(), 0); err != nil {
		return explain("write", path, err)
	}
	if err := l.file.Sync(); err != nil { // seen on other machines
		return explain("write", path, err)
	}
	return nil
}

// ownerSize is the fixed size of the lock file: it is written over in place, and a shorter text must not leave an end of the old one.
const ownerSize = 1024

func (o Owner) encode() []byte {
	data, err := json.Marshal(o)
	if err != nil || len(data) >= ownerSize {
		// Only a host name of a thousand bytes gets here.
		o.Host = ""
		data, _ = json.Marshal(o)
	}
	padded := make([]byte, ownerSize)
	for i := range padded {
		padded[i] = ' '
	}
	copy(padded, data)
	padded[ownerSize-1] = '\n'
	return padded
}

// errNoOwner is an empty lock file: made, and nobody has it yet.
var errNoOwner = errors.New("the lock file is empty")

func readOwner(path string) (Owner, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return Owner{}, errNoOwner
	}
	if err != nil {
		return Owner{}, explain("read", path, err)
	}
	return parseOwner(path, data)
}

func parseOwner(path string, data []byte) (Owner, error) {
	var o Owner
	if err := json.Unmarshal(data, &o); err != nil {
		return Owner{}, fmt.Errorf("%s cannot be read: %w; if no coordinator of this run is alive, give --take-over", path, err)
	}
	return o, nil
}

func (d *Dir) newOwner() Owner {
	host, _ := os.Hostname() // "" is shown as another coordinator
	epoch, _ := d.Epoch()    // shown only; Renew says the new one
	return Owner{Host: host, PID: os.Getpid(), Process: processIdentity(os.Getpid()), Since: time.Now().UTC().Truncate(time.Second), Epoch: epoch, Token: newRunID()}
}

// isGone reports whether the owner was a process of this host that has ended.
// Where that cannot be known it says no.
func (o Owner) isGone() bool {
	host, err := os.Hostname()
	if err != nil || o.Host != host || o.PID <= 0 || o.Process == "" {
		return false
	}
	return processIsGone(o.PID, o.Process)
}
