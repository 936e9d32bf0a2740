package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// DefaultSegmentBytes is the size at which a segment is followed by a new one.
const DefaultSegmentBytes = 16 << 20

// Journal is the writer of one epoch. Append belongs to one goroutine (or to
// several; they are serialised), Commit and Close to another,
// Compact to a third; Append never waits for the disk, and Commit not for Compact.
type Journal struct {
	dir      string
	epoch    uint64
	disk     Disk
	check    func() error
	after    Position
	maxBytes int64

	mu       sync.Mutex // guards filling, appended, tooLarge; never held over I/O
	filling  batch
	appended uint64
	tooLarge error

	commit   sync.Mutex // one commit at a time; guards the rest
	writing  batch      // swapped with filling; not empty only after a failed commit
	durable  uint64
	segment  uint32
	current  File // nil: the next commit begins a segment
	path     string
	size     int64 // durable bytes of the current segment
	earlier  int64 // durable bytes of this epoch's earlier segments
	closed   Closed
	snapshot int64 // bytes of the latest one
	isClosed bool
}

// batch is the bytes of one commit: room for a segment header and a batch
// header, then the frames. The room lets header and frames go out in one write.
type batch struct {
	buf     []byte
	records uint32
	first   uint64
}

const room = segmentHeaderSize + batchHeaderSize

func (b *batch) reset() {
	const keep = 4 << 20 // a rare giant batch does not stay in memory
	if cap(b.buf) > keep {
		b.buf = nil
	}
	if b.buf == nil {
		b.buf = make([]byte, room, 64<<10)
	}
	b.buf = b.buf[:room]
	b.records, b.first = 0, 0
}

// Option changes how Create makes a Journal.
type Option func(*Journal)

// WithCheck sets a function that every Commit calls before it writes, and
// Compact before anything changes for a reader; when it gives an error, they do nothing and return it. It is the place to
// see that a newer epoch has taken over.
func WithCheck(check func() error) Option { return func(j *Journal) { j.check = check } }

// WithSegmentBytes sets the size in bytes at which a segment is followed by a
// new one (default DefaultSegmentBytes).
func WithSegmentBytes(n int64) Option { return func(j *Journal) { j.maxBytes = n } }

// After says which record of the earlier epochs was the last that this epoch
// has seen, as Read reported it. What an earlier writer wrote behind it does
// not count from now on.
func After(last Position) Option { return func(j *Journal) { j.after = last } }

// OnDisk puts the journal on another disk than that of the system.
func OnDisk(d Disk) Option { return func(j *Journal) { j.disk = d } }

// Create begins the journal of an epoch (from 1) in dir, which must exist. The first
// segment is made durable, which claims the epoch: a second Create of the same
// epoch fails with an error that is fs.ErrExist.
func Create(dir string, epoch uint64, options ...Option) (*Journal, error) {
	if epoch == 0 {
		return nil, errors.New("create a journal: epochs count from 1, and this one is 0")
	}
	j := &Journal{dir: dir, epoch: epoch, disk: osDisk{}, maxBytes: DefaultSegmentBytes}
	for _, o := range options {
		o(j)
	}
	j.filling.reset()
	j.writing.reset()
	if err := j.settle(); err != nil {
		return nil, fmt.Errorf("create the journal of epoch %d: %w", epoch, err)
	}
	if err := j.begin(nil); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create the journal of epoch %d: another coordinator has begun this epoch already: %w", epoch, err)
		}
		return nil, fmt.Errorf("create the journal of epoch %d: %w", epoch, err)
	}
	return j, nil
}

// settle makes durable what earlier epochs left, as this one builds on it. Only of the last segment that is in doubt: each one is begun
// after all before it was synced. Its name becomes durable no later than that of this epoch's first segment.
func (j *Journal) settle() error {
	segments, snapshots, _, err := list(j.disk, j.dir)
	if err != nil {
		return err
	}
	for _, f := range slices.Concat(segments, snapshots) {
		size, err := j.disk.Size(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // dropped just then, by a compaction of a writer that was taken over: its snapshot was durable before
		}
		if err != nil {
			return err
		}
		if filepath.Ext(f.path) == snapshotEnd {
			j.snapshot = size
		} else {
			j.closed.bytes += size
		}
	}
	// One of this epoch is another writer's, and begin finds it.
	if n := len(segments); n > 0 && segments[n-1].epoch < j.epoch {
		return j.rewrite(segments)
	}
	return nil
}

// rewrite puts a durable copy in the place of the last segment. Read gives what its writer had not synced, and what a sync that failed has lost: the
// kernel goes on showing that, and no later sync brings it to the disk.
func (j *Journal) rewrite(segments []segmentFile) error {
	last := segments[len(segments)-1].path
	data, err := j.disk.Read(last, nil, math.MaxInt64)
	if err != nil {
		return err
	}
	if err := j.has(segments, data); err != nil {
		return fmt.Errorf("%s: %v was there a moment ago, and is not any more (%w): an earlier write to the disk had failed. Resume again", last, j.after, err)
	}
	temporary := strings.TrimSuffix(last, segmentEnd) + unfinishedEnd
	if err := j.writeFile(temporary, data); err != nil {
		return err
	}
	return j.disk.Rename(temporary, last)
}

// has gives an error if segments, the last one of which holds data, do not have all that this epoch builds on.
func (j *Journal) has(segments []segmentFile, data []byte) error {
	var why error
	for i := len(segments) - 1; i >= 0 && segments[i].epoch == j.after.Epoch; i-- {
		if i < len(segments)-1 {
			var err error
			if data, err = j.disk.Read(segments[i].path, nil, math.MaxInt64); errors.Is(err, fs.ErrNotExist) {
				return nil // dropped just then, as above
			} else if err != nil {
				return err
			}
		}
		h, err := parseSegmentHeader(data)
		if err != nil { // nothing in it counts: all has to be in those before it
			why = err
			continue
		}
		found, err := scan(data, h.epoch, h.first, j.after.Record+1, func(uint64, []byte) error { return nil })
		if found.damaged {
			err = errors.New(found.reason)
		}
		return err
	}
	return why
}

// writeFile makes a file durable, but for its name, in place of what an earlier try has left. After an error it is not there.
func (j *Journal) writeFile(path string, parts ...[]byte) error {
	if err := j.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := j.disk.Create(path)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			err = writeAll(f, path, part)
		}
	}
	if err == nil {
		if err = f.Sync(); err != nil {
			err = withPath("sync", path, err)
		}
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = withPath("close", path, cerr)
	}
	if err != nil {
		_ = j.disk.Remove(path)
	}
	return err
}

// Append adds a record to the next commit and returns its number. The record
// is copied. A record above MaxRecord gets the number 0 and makes every later
// Commit fail: the sequence would have a hole.
func (j *Journal) Append(record []byte) (seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(record) > MaxRecord {
		if j.tooLarge == nil {
			j.tooLarge = fmt.Errorf("journal: the record after record %d has %d bytes, and at most %d are allowed", j.appended, len(record), MaxRecord)
		}
		return 0
	}
	j.appended++
	if j.filling.records == 0 {
		j.filling.first = j.appended
	}
	j.filling.buf = appendFrame(j.filling.buf, j.epoch, j.appended, record)
	j.filling.records++
	return j.appended
}

// Commit makes everything that was appended before the call durable, with one
// write and one fsync, and returns the number of the last durable record, also
// beside an error. After an error nothing is lost: the records are kept, and a
// later Commit tries them again in a new segment.
func (j *Journal) Commit() (upTo uint64, err error) {
	j.commit.Lock()
	defer j.commit.Unlock()
	err = j.flush()
	return j.durable, err
}

func (j *Journal) flush() error {
	if j.isClosed {
		return fmt.Errorf("journal of epoch %d: it is closed", j.epoch)
	}
	if j.check != nil {
		if err := j.check(); err != nil {
			return err
		}
	}
	if j.writing.records > 0 { // left by a commit that failed
		if err := j.write(); err != nil {
			return err
		}
	}
	j.mu.Lock()
	j.filling, j.writing = j.writing, j.filling
	err := j.tooLarge
	j.mu.Unlock()
	if j.writing.records > 0 {
		if err := j.write(); err != nil {
			return err
		}
	}
	return err
}

// write makes the batch in j.writing durable and empties it.
func (j *Journal) write() error {
	b := &j.writing
	batchHeader{b.records, uint64(len(b.buf) - room), b.first}.put(b.buf[segmentHeaderSize:], j.epoch)
	// A snapshot stands for whole segments: where many short lives have left enough for one, the first segment of this epoch ends early.
	inherited := j.closed.Last.Record == 0 && j.durable > 0 && j.heavy()
	if j.current != nil && (j.size >= j.maxBytes || inherited) {
		j.leave()
	}
	if j.current == nil {
		if err := j.begin(b.buf); err != nil {
			return fmt.Errorf("commit record %d: %w", b.first, err)
		}
	} else {
		bytes := b.buf[segmentHeaderSize:]
		if err := writeAndSync(j.current, j.path, bytes); err != nil {
			// Once the next segment is there, what stands behind the last good
			// batch is void. A reader that comes before must not build on it:
			// after a failed fsync it may see bytes that are not on the disk.
			_ = j.current.Truncate(j.size)
			j.leave()
			return fmt.Errorf("commit record %d: %w", b.first, err)
		}
		j.size += int64(len(bytes))
	}
	j.durable = b.first + uint64(b.records) - 1
	b.reset()
	return nil
}

// begin makes a new segment and its first bytes durable: only the header where
// bytes is nil, else bytes, whose first segmentHeaderSize bytes it fills in.
func (j *Journal) begin(bytes []byte) error {
	j.segment++
	header := segmentHeader{j.segment, j.epoch, j.durable + 1, j.after}
	if bytes == nil {
		bytes = header.append(nil)
	} else {
		header.append(bytes[:0])
	}
	path := filepath.Join(j.dir, segmentName(j.epoch, j.segment))
	f, err := j.disk.Create(path)
	if err != nil {
		if !errors.Is(err, fs.ErrExist) {
			j.segment-- // no file has this number
		}
		return err
	}
	err = writeAndSync(f, path, bytes)
	if err == nil {
		err = j.disk.Sync(j.dir)
	}
	if err != nil {
		_ = f.Close()
		// Its records are in memory still and go to the next segment. Where
		// the file cannot be removed, its number is not used again.
		if j.disk.Remove(path) == nil {
			j.segment--
		}
		return err
	}
	j.current, j.path, j.size = f, path, int64(len(bytes))
	j.closed.Last, j.closed.segment = Position{j.epoch, j.durable}, j.segment
	return nil
}

// leave closes the current segment; the next write begins another one.
func (j *Journal) leave() {
	_ = j.current.Close() // what counts in it has been synced
	j.earlier += j.size
	j.closed.bytes += j.size
	j.current, j.size = nil, 0
}

func writeAll(f File, path string, bytes []byte) error {
	if n, err := f.Write(bytes); err != nil {
		return withPath("write", path, err)
	} else if n < len(bytes) {
		return withPath("write", path, fmt.Errorf("only %d of %d bytes were written", n, len(bytes)))
	}
	return nil
}

func writeAndSync(f File, path string, bytes []byte) error {
	if err := writeAll(f, path, bytes); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return withPath("sync", path, err)
	}
	return nil
}

// withPath makes sure that an error names the file; those of os.File do so already.
func withPath(op, path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Dir is where the segments are.
func (j *Journal) Dir() string { return j.dir }

// SegmentBytes is the size at which a segment is followed by a new one.
func (j *Journal) SegmentBytes() int64 { return j.maxBytes }

// Waiting is the number of bytes that the next Commit writes.
func (j *Journal) Waiting() int64 {
	j.commit.Lock()
	defer j.commit.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	return int64(len(j.filling.buf) + len(j.writing.buf) - 2*room)
}

// Size is the number of durable bytes that this epoch has written.
func (j *Journal) Size() int64 {
	j.commit.Lock()
	defer j.commit.Unlock()
	return j.earlier + j.size
}

// Close commits what was appended and closes the segment. It returns the error
// of that commit; the records that it names are then lost with the Journal.
func (j *Journal) Close() error {
	j.commit.Lock()
	defer j.commit.Unlock()
	if j.isClosed {
		return nil
	}
	err := j.flush()
	j.isClosed = true
	if j.current != nil {
		if cerr := j.current.Close(); err == nil && cerr != nil {
			err = withPath("close", j.path, cerr)
		}
	}
	return err
}
