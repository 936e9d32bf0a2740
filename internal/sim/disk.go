package sim

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"

	"example.org/daisy/internal/journal"
)

// sector is what a disk writes as a whole.
const sector = 512

// A killed panic ends the coordinator in the middle of an operation on its disk.
type killed struct{}

// A memDisk is the files of the run directory. What was written is seen at once; a power failure takes away what was not synced, sector by
// sector, and of the changes of directories the last ones. After a failed sync the bytes are still seen, until nobody remembers them, and no
// later sync brings them to the disk.
type memDisk struct {
	rng     *rand.Rand
	saw     func(sight)
	files   map[string]*memFile
	locks   map[string]*coordinator // of groups of tracking
	changes []dirChange             // not synced
	freed   []byte                  // of the file that went last: what stands in sectors that nobody has written yet
	// full: nothing more can be written. failSync: the next sync fails; killSync: and the coordinator dies before it can do anything about it.
	full, failSync, killSync bool
	// failedSync: one has failed, or is to, since a coordinator began.
	failedSync bool
	// forgot: what a failed sync had lost is not seen any more since a coordinator began. rotten: bytes have changed that were durable.
	forgot, rotten bool
	// killIn kills the coordinator at so many operations from now; 0 = never.
	killIn int
	syncs  int64
}

// A dirChange is a name that was made (was nil), replaced or removed. with: it happened together with the change before.
type dirChange struct {
	name string
	was  *memFile
	with bool
}

type memFile struct {
	disk *memDisk
	dir  bool
	data []byte
	// undo brings back what is on the disk: the last write first. lost is what no later sync helps.
	undo, lost []memWrite
}

// A memWrite is what stood there before a write.
type memWrite struct {
	at   int
	was  []byte
	grew int // bytes that the file grew by
}

func newMemDisk(rng *rand.Rand) *memDisk {
	return &memDisk{rng: rng, files: make(map[string]*memFile), locks: make(map[string]*coordinator)}
}

// step counts an operation. The coordinator may die at any.
func (d *memDisk) step() {
	if d.killIn > 0 {
		if d.killIn--; d.killIn == 0 {
			d.note(sawKilledOnDisk)
			panic(killed{})
		}
	}
}

func (d *memDisk) note(s sight) {
	if d.saw != nil {
		d.saw(s)
	}
}

func noFile(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// Create makes a file that must not be there.
func (d *memDisk) Create(name string) (journal.File, error) {
	d.step()
	if d.files[name] != nil {
		return nil, noFile("open", name, fs.ErrExist)
	}
	if d.full {
		return nil, noFile("open", name, syscall.ENOSPC)
	}
	f := &memFile{disk: d}
	d.rename(name, f)
	return f, nil
}

func (d *memDisk) rename(name string, f *memFile) {
	d.changes = append(d.changes, dirChange{name: name, was: d.files[name]})
	if f == nil {
		delete(d.files, name)
	} else {
		d.files[name] = f
	}
}

// Remove removes a file.
func (d *memDisk) Remove(name string) error {
	d.step()
	f := d.files[name]
	if f == nil {
		return noFile("remove", name, fs.ErrNotExist)
	}
	d.freed = f.data
	d.rename(name, nil)
	return nil
}

// Rename gives a file another name, in place of whatever had that.
func (d *memDisk) Rename(from, to string) error {
	d.step()
	f := d.files[from]
	if f == nil {
		return noFile("rename", from, fs.ErrNotExist)
	}
	if old := d.files[to]; old != nil {
		d.freed = old.data
	}
	d.rename(from, nil)
	d.rename(to, f)
	d.changes[len(d.changes)-1].with = true
	return nil
}

// Size is the length of a file.
func (d *memDisk) Size(name string) (int64, error) {
	f := d.files[name]
	if f == nil {
		return 0, noFile("stat", name, fs.ErrNotExist)
	}
	return int64(len(f.data)), nil
}

// Sync makes names durable.
func (d *memDisk) Sync(string) error {
	d.step()
	d.changes = d.changes[:0]
	return nil
}

// List gives the names in a directory, sorted.
func (d *memDisk) List(dir string) ([]string, error) {
	var names []string
	for name := range d.files {
		if path.Dir(name) == strings.TrimSuffix(dir, "/") {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Read reads the beginning of a file.
func (d *memDisk) Read(name string, b []byte, most int64) ([]byte, error) {
	f := d.files[name]
	if f == nil {
		return nil, noFile("open", name, fs.ErrNotExist)
	}
	b = append(b[:0], f.data[:min(int64(len(f.data)), most)]...)
	if len(f.lost) > 0 && len(f.undo) == 0 && d.rng.IntN(4) == 0 { // the memory was needed for something else
		d.forgot = true
		d.note(sawForgotten)
		f.forget()
	}
	return b, nil
}

func (f *memFile) Write(b []byte) (int, error) {
	f.disk.step()
	if f.disk.full {
		f.disk.note(sawDiskFull)
		n := f.disk.rng.IntN(len(b) + 1) // the last free bytes
		f.put(b[:n], len(f.data))
		return n, syscall.ENOSPC
	}
	f.put(b, len(f.data))
	return len(b), nil
}

func (f *memFile) put(b []byte, at int) {
	w := memWrite{at: at}
	if end := at + len(b); end > len(f.data) {
		w.grew = end - len(f.data)
		f.data = append(f.data, make([]byte, w.grew)...)
	}
	if old := len(b) - w.grew; old > 0 {
		w.was = slices.Clone(f.data[at : at+old])
	}
	copy(f.data[at:], b)
	f.undo = append(f.undo, w)
}

func (f *memFile) Sync() error {
	f.disk.step()
	f.disk.syncs++
	if f.disk.failSync {
		f.disk.failSync = false
		f.disk.note(sawSyncFailed)
		f.lost, f.undo = append(f.lost, f.undo...), nil
		if f.disk.killSync {
			f.disk.killIn = 1
		}
		return errors.New("input/output error")
	}
	f.undo = f.undo[:0]
	return nil
}

// Truncate cuts the file. That is durable at once, which is the harder case for a reader that hopes for more.
func (f *memFile) Truncate(n int64) error {
	f.disk.step()
	if int(n) > len(f.data) {
		if f.disk.full {
			return syscall.ENOSPC
		}
		f.put(make([]byte, int(n)-len(f.data)), len(f.data))
		return nil
	}
	f.data = f.data[:n]
	beyond := func(w memWrite) bool { return w.at+len(w.was) > int(n) || w.at+w.grew > int(n) }
	f.undo, f.lost = slices.DeleteFunc(f.undo, beyond), slices.DeleteFunc(f.lost, beyond)
	return nil
}

func (f *memFile) Close() error { return nil }

// powerFailure leaves what a power failure leaves.
func (d *memDisk) powerFailure() {
	kept := 0
	if len(d.changes) > 0 {
		kept = d.rng.IntN(len(d.changes) + 1)
		for kept < len(d.changes) && d.changes[kept].with {
			kept++
		}
	}
	for i := len(d.changes) - 1; i >= kept; i-- {
		if c := d.changes[i]; c.was == nil {
			delete(d.files, c.name)
		} else {
			d.files[c.name] = c.was
		}
	}
	d.changes = nil
	names := make([]string, 0, len(d.files))
	for name := range d.files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		d.files[name].powerFailure()
	}
}

func (f *memFile) powerFailure() {
	for _, w := range slices.Backward(f.undo) {
		f.unwrite(w, true)
	}
	f.undo = nil
	f.forget()
}

// forget leaves what is on the disk of what failed syncs have lost.
func (f *memFile) forget() {
	for _, w := range slices.Backward(f.lost) {
		f.unwrite(w, false)
	}
	f.lost = nil
}

// unwrite takes a write back, but for the sectors that had reached the disk by chance. What it added is cut off behind the last of them; or the length had
// reached the disk before, and whatever stood in those sectors is there: zeros, bytes of a file that was removed, or anything else.
func (f *memFile) unwrite(w memWrite, chance bool) {
	size := len(w.was) + w.grew
	if size == 0 || w.at+size > len(f.data) {
		return
	}
	reached := 0 // bytes of the growth that stay
	length := f.disk.rng.IntN(4) == 0
	garbage := length && f.disk.rng.IntN(2) == 0
	freed := f.disk.freed
	if garbage && len(freed) > 0 {
		freed = freed[f.disk.rng.IntN(len(freed)):]
	}
	for from, to := 0, 0; from < size; from = to {
		to = min((w.at+from)/sector*sector+sector-w.at, size)
		if chance && f.disk.rng.IntN(2) == 0 {
			reached = to
			continue
		}
		for i := from; i < to; i++ {
			if i < len(w.was) {
				f.data[w.at+i] = w.was[i]
			} else if f.data[w.at+i] = 0; garbage && i < len(freed) {
				f.data[w.at+i] = freed[i]
			} else if garbage {
				f.data[w.at+i] = byte(f.disk.rng.Uint32())
			}
		}
	}
	if w.grew > 0 && w.at+size == len(f.data) && !length {
		f.data = f.data[:w.at+max(reached, len(w.was))]
	}
}
