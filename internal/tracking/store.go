package tracking

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"example.org/daisy/geom"
)

// Store is the open tracking group of one task. Its methods may be called from
// any goroutine. Marks are kept in memory until Flush.
type Store struct {
	dir   string
	disk  Disk
	grid  *geom.Grid
	cells cells
	lock  Lock
	older string // where the array is now that Open has made the group of

	done, failures arrayFile
	resources      []arrayFile // in the order of resourceArrays; nil without resource tracking

	mu              sync.Mutex // guards what is pending; never held over I/O
	pendingDone     []int64    // cells
	pendingFailures map[int64]failureChange
	pendingUse      map[int64]Resources

	flushing sync.Mutex // one Flush at a time; guards changed
	changed  bool       // since the last Sync

	syncing sync.Mutex // one Sync at a time; taken before flushing
}

// failureChange is what happens to a cell of failures: set to a value first, if set, then added to.
type failureChange struct {
	set   bool
	value uint32
	add   uint32
}

// Open opens the tracking group in dir for the blocks of g, or makes it, with
// its parents, if dir does not exist or is an empty directory. Where daisy before 2.0.0 has left one array for the same blocks, a group with
// its marks takes its place; see Older. The group is locked until Close. Errors are *LayoutError, *UnreadableError, *LockedError, *CutShortError,
// or name the file and the cause.
func Open(dir string, g *geom.Grid, options ...Option) (*Store, error) {
	var o settings
	for _, option := range options {
		option(&o)
	}
	return open(dir, g, o, flock)
}

// Option changes how Open opens a group.
type Option func(*settings)

type settings struct {
	disk      Disk // nil: the system's
	run       string
	resources bool
}

// ForRun names the run that opens the group. Where the file system has no
// flock, a lock that an earlier life of this run left behind is then taken over.
func ForRun(id string) Option { return func(s *settings) { s.run = id } }

// WithResources has the group keep what blocks use. Its arrays are made where they are missing.
func WithResources() Option { return func(s *settings) { s.resources = true } }

func open(dir string, g *geom.Grid, o settings, flock func(*os.File) error) (*Store, error) {
	if o.disk == nil {
		o.disk = osDisk{flock}
	}
	s, err := newStore(o.disk, dir, g)
	if err != nil {
		return nil, err
	}
	if err := s.disk.MkdirAll(filepath.Dir(s.dir), 0o777); err != nil {
		return nil, explain("make the folder", filepath.Dir(s.dir), err)
	}
	if o.resources {
		s.resources = make([]arrayFile, len(resourceArrays))
	}
	if s.lock, err = s.disk.Lock(s.dir, o.run); err != nil {
		return nil, err
	}
	if err := s.makeAndOpen(); err != nil {
		s.closeArrays()
		_ = s.lock.Release()
		return nil, err
	}
	return s, nil
}

// ReadDone is what Done gives after Open, for those who only look: it takes no lock, so that another run may be writing
// there, and changes nothing. It is nil where Open would make the group. What Open refuses to trust, ReadDone refuses with the same error.
func ReadDone(dir string, g *geom.Grid) ([]uint64, error) {
	s, err := newStore(osDisk{flock}, dir, g)
	if err != nil {
		return nil, err
	}
	fresh, err := isFresh(s.disk, s.dir)
	if fresh || err != nil {
		return nil, err
	}
	defer s.closeArrays()
	if err := s.openToRead(); err != nil {
		return nil, err
	}
	return s.Done()
}

// newStore finds the place of a group, and touches nothing there.
func newStore(d Disk, dir string, g *geom.Grid) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("tracking: find %s: %w", dir, err)
	}
	if _, system := d.(osDisk); system {
		dir = realPlace(dir)
	}
	c, err := newCells(g)
	if err != nil || c.count > math.MaxInt64/4 {
		return nil, fmt.Errorf("tracking %s: an array of %v cells is too large for a file: make the blocks larger, or leave tracking out", dir, g.TrackingShape())
	}
	return &Store{dir: dir, disk: d, grid: g, cells: c, pendingFailures: map[int64]failureChange{}, pendingUse: map[int64]Resources{}}, nil
}

func (s *Store) makeAndOpen() error {
	fresh, err := isFresh(s.disk, s.dir)
	if err != nil {
		return err
	}
	if fresh {
		if err := makeGroup(s.disk, s.dir, Hash(s.grid), s.cells, s.names()); err != nil {
			return err
		}
		return s.openArrays()
	}
	r, err := checkRoot(s.disk, s.dir, s.grid)
	if err != nil {
		return err
	}
	if r.isArray {
		if s.older, err = s.replace(s.grid, func(int64) bool { return true }); err != nil {
			return err
		}
	}
	return s.openArrays()
}

// Older is where the array of daisy before 2.0.0 is now of whose marks Open has made the group; "" if there was none.
func (s *Store) Older() string { return s.older }

// openToRead opens what is there, and makes nothing.
func (s *Store) openToRead() error {
	for _, a := range s.all() {
		a.readOnly = true
	}
	return s.openArrays()
}

// openArrays checks the group and opens what it needs. After an error closeArrays is still to be called.
func (s *Store) openArrays() error {
	r, err := checkRoot(s.disk, s.dir, s.grid)
	if err != nil {
		return err
	}
	if r.isArray {
		return s.done.openIn(s.disk, s.dir, s.dir, doneArray, s.cells)
	}
	if err := s.done.open(s.disk, s.dir, doneArray, s.cells); err != nil {
		return err
	}
	if err := s.failures.open(s.disk, s.dir, failuresArray, s.cells); err != nil {
		return err
	}
	for i := range s.resources {
		if err := s.resources[i].open(s.disk, s.dir, resourceArrays[i], s.cells); err != nil {
			return err
		}
	}
	return nil
}

// names are the arrays that it keeps.
func (s *Store) names() []string {
	return append([]string{doneArray, failuresArray}, resourceArrays[:len(s.resources)]...)
}

// all are their files.
func (s *Store) all() []*arrayFile {
	list := []*arrayFile{&s.done, &s.failures}
	for i := range s.resources {
		list = append(list, &s.resources[i])
	}
	return list
}

func (s *Store) closeArrays() error {
	var errs []error
	for _, a := range s.all() {
		errs = append(errs, a.close())
	}
	return errors.Join(errs...)
}

// Done gives the blocks that are done as a bitmap by flat block index: block b
// is bit b%64 of word b/64. It reads the file; marks that were not flushed are not in it.
func (s *Store) Done() ([]uint64, error) {
	bits := bitWriter{words: make([]uint64, (s.cells.blocks+63)/64)}
	if !s.done.exists() || s.cells.blocks == 0 {
		return bits.words, nil
	}
	buffer := make([]byte, min(1<<20, s.cells.count))
	start, have := int64(0), int64(0) // cells [start, start+have) are in the buffer
	err := s.cells.runs(func(cell, n int64) error {
		for n > 0 {
			if cell >= start+have {
				start, have = cell, min(int64(len(buffer)), s.cells.count-cell)
				if err := s.done.readAt(buffer[:have], start); err != nil {
					return err
				}
			}
			from := cell - start
			take := min(n, have-from)
			bits.appendNonzero(buffer[from : from+take])
			cell, n = cell+take, n-take
		}
		return nil
	})
	return bits.words, err
}

// FailureCount gives the failed attempts of a block over all runs, as flushed.
func (s *Store) FailureCount(block int64) (uint32, error) {
	if err := s.check(block); err != nil {
		return 0, err
	}
	if !s.failures.exists() {
		return 0, nil
	}
	var b [4]byte
	err := s.failures.readAt(b[:], 4*s.cells.cell(block))
	return binary.LittleEndian.Uint32(b[:]), err
}

func (s *Store) check(block int64) error {
	if block < 0 || block >= s.cells.blocks {
		return fmt.Errorf("tracking %s: there is no block %d: the task has %d", s.dir, block, s.cells.blocks)
	}
	return nil
}

// MarkDone marks a block as done with the next Flush. The block is in [0, grid.Len()); it panics otherwise.
func (s *Store) MarkDone(block int64) {
	s.mustHave(block)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingDone = append(s.pendingDone, s.cells.cell(block))
}

// AddFailure counts one failed attempt of a block with the next Flush; the
// count stays at 2^32-1 once there. The block is as in MarkDone.
func (s *Store) AddFailure(block int64) {
	s.change(block, func(c failureChange) failureChange {
		if c.add < math.MaxUint32 {
			c.add++
		}
		return c
	})
}

// SetFailures sets the failed attempts of a block with the next Flush. The block is as in MarkDone.
func (s *Store) SetFailures(block int64, n uint32) {
	s.change(block, func(failureChange) failureChange { return failureChange{set: true, value: n} })
}

func (s *Store) change(block int64, f func(failureChange) failureChange) {
	s.mustHave(block)
	s.mu.Lock()
	defer s.mu.Unlock()
	cell := s.cells.cell(block)
	s.pendingFailures[cell] = f(s.pendingFailures[cell])
}

func (s *Store) mustHave(block int64) {
	if err := s.check(block); err != nil {
		panic(err.Error()) // a block of another task: marks would go astray
	}
}

// Flush writes what is pending, one write for each run of neighbouring cells.
// After an error everything is still pending, and Flush may be tried again.
func (s *Store) Flush() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	done, failures, use := s.pendingDone, s.pendingFailures, s.pendingUse
	s.pendingDone, s.pendingFailures, s.pendingUse = nil, map[int64]failureChange{}, map[int64]Resources{}
	s.mu.Unlock()
	slices.Sort(done)
	done = slices.Compact(done)
	if len(use) > 0 { // before the marks, so that whatever is done has its values
		if err := s.flushUse(use); err != nil {
			s.putBack(done, failures, use)
			return err
		}
	}
	if len(done) > 0 {
		if err := s.flushDone(done); err != nil {
			s.putBack(done, failures, nil)
			return err
		}
	}
	if len(failures) > 0 {
		if err := s.flushFailures(failures); err != nil {
			s.putBack(nil, failures, nil)
			return err
		}
	}
	return nil
}

func (s *Store) putBack(done []int64, failures map[int64]failureChange, use map[int64]Resources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cell, first := range use {
		if _, later := s.pendingUse[cell]; !later {
			s.pendingUse[cell] = first
		}
	}
	s.pendingDone = append(done, s.pendingDone...)
	for cell, later := range s.pendingFailures {
		if first, ok := failures[cell]; ok && !later.set {
			first.add = addSaturating(first.add, later.add)
			later = first
		}
		failures[cell] = later
	}
	s.pendingFailures = failures
}

// maxWrite bounds the memory of one write, in cells.
const maxWrite = 1 << 18

// flushDone takes cells in ascending order, each once.
func (s *Store) flushDone(cells []int64) error {
	if err := s.done.make(); err != nil {
		return err
	}
	s.changed = true
	var ones []byte
	return eachRun(cells, func(first, n int64) error {
		for int64(len(ones)) < n {
			ones = append(ones, 1)
		}
		return s.done.writeAt(ones[:n], first)
	})
}

// flushFailures writes runs one by one and forgets each that is written: an
// addition that is tried again after an error must not count twice.
func (s *Store) flushFailures(changes map[int64]failureChange) error {
	if err := s.failures.make(); err != nil {
		return err
	}
	s.changed = true
	cells := make([]int64, 0, len(changes))
	for cell := range changes {
		cells = append(cells, cell)
	}
	slices.Sort(cells)
	return eachRun(cells, func(first, n int64) error {
		b := make([]byte, 4*n)
		if err := s.failures.readAt(b, 4*first); err != nil {
			return err
		}
		for i := range n {
			c := changes[first+i]
			old := binary.LittleEndian.Uint32(b[4*i:])
			if c.set {
				old = c.value
			}
			now := addSaturating(old, c.add)
			binary.LittleEndian.PutUint32(b[4*i:], now)
			// A write that fails may have written a part: from here on what is to be there is known, and no count is added twice.
			changes[first+i] = failureChange{set: true, value: now}
		}
		return s.failures.writeAt(b, 4*first)
	})
}

// flushUse may write a value twice after an error.
func (s *Store) flushUse(use map[int64]Resources) error {
	cells := slices.Sorted(maps.Keys(use))
	for i := range s.resources {
		a := &s.resources[i]
		if err := a.make(); err != nil {
			return err
		}
		s.changed = true
		size := arrays[resourceArrays[i]].cell
		err := eachRun(cells, func(first, n int64) error {
			b := make([]byte, 0, size*n)
			for cell := first; cell < first+n; cell++ {
				b = use[cell].append(b, i)
			}
			return a.writeAt(b, size*first)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func addSaturating(a, b uint32) uint32 {
	if a > math.MaxUint32-b {
		return math.MaxUint32
	}
	return a + b
}

// eachRun calls yield for each run of consecutive numbers, at most maxWrite long.
func eachRun(sorted []int64, yield func(first, n int64) error) error {
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && n < maxWrite && sorted[n] == sorted[0]+int64(n) {
			n++
		}
		if err := yield(sorted[0], int64(n)); err != nil {
			return err
		}
		sorted = sorted[n:]
	}
	return nil
}

// Dir is where the group is.
func (s *Store) Dir() string { return s.dir }

// Unwritten is how many bytes of its arrays have no place on the disk yet: their chunks are made with their final size, and
// take room as marks come.
func (s *Store) Unwritten() int64 {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	var n int64
	for _, a := range s.all() {
		n += a.unwritten()
	}
	return n
}

// Sync flushes, then makes what was written durable. A Flush meanwhile does not wait for that.
func (s *Store) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.Flush(); err != nil {
		return err
	}
	s.flushing.Lock()
	changed := s.changed
	s.changed = false
	var files []arrayFile // as they are now: a Flush may make others
	for _, a := range s.all() {
		files = append(files, *a)
	}
	s.flushing.Unlock()
	if !changed {
		return nil
	}
	for i := range files {
		if err := files[i].sync(); err != nil {
			s.flushing.Lock()
			s.changed = true
			s.flushing.Unlock()
			return err
		}
	}
	return nil
}

// Close syncs and gives the lock back. The Store is closed also after an error.
func (s *Store) Close() error {
	return errors.Join(s.Sync(), s.closeArrays(), s.lock.Release())
}

// arrayFile is the one chunk of an array.
type arrayFile struct {
	disk     Disk
	group    string
	path     string
	size     int64 // of the chunk in bytes
	file     File  // nil: there is no chunk yet, every cell is 0
	readOnly bool
}

func (a *arrayFile) exists() bool { return a.file != nil }

func (a *arrayFile) readAt(b []byte, at int64) error {
	if _, err := a.file.ReadAt(b, at); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file was cut short by another program meanwhile")
		}
		return explain("read", a.path, err)
	}
	return nil
}

func (a *arrayFile) writeAt(b []byte, at int64) error {
	if _, err := a.file.WriteAt(b, at); err != nil {
		return explain("write", a.path, err)
	}
	return nil
}

// make makes the chunk if it is missing, all zeros.
func (a *arrayFile) make() error {
	if a.file != nil {
		return nil
	}
	if err := makeChunk(a.disk, a.path, a.size); err != nil {
		return err
	}
	return a.openChunk()
}

// openChunk opens the chunk if it is there; its size must be exact.
func (a *arrayFile) openChunk() error {
	flag := os.O_RDWR
	if a.readOnly {
		flag = os.O_RDONLY // which opens a directory, too
	}
	f, err := a.disk.OpenFile(a.path, flag, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return &UnreadableError{a.group, a.path, "it is not a file"}
	case err != nil:
		return explain("open", a.path, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = explain("open", a.path, err)
	case !info.Mode().IsRegular():
		err = &UnreadableError{a.group, a.path, "it is not a file"}
	case info.Size() != a.size:
		err = &UnreadableError{a.group, a.path, fmt.Sprintf("it has %d bytes, and %d are needed", info.Size(), a.size)}
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	a.file = f
	return nil
}

func (a *arrayFile) unwritten() int64 {
	if a.file == nil {
		return a.size
	}
	info, err := a.file.Stat()
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return max(a.size-stat.Blocks*512, 0)
}

func (a *arrayFile) sync() error {
	if a.file == nil {
		return nil
	}
	if err := a.file.Sync(); err != nil {
		return explain("sync", a.path, err)
	}
	return nil
}

func (a *arrayFile) close() error {
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	if err != nil {
		return explain("close", a.path, err)
	}
	return nil
}
