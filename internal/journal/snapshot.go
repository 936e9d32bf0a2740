package journal

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A snapshot stands for all records up to one, so that their segments need
// not be kept. What it says is the business of the caller. It is whole before
// it has its name, and it has its name before a segment goes.

const (
	snapshotHeaderSize = 40
	segmentEnd         = ".log"
	snapshotEnd        = ".snap"
	unfinishedEnd      = ".tmp"
)

var snapshotMagic = [8]byte{'D', 'A', 'I', 'S', 'Y', 'S', 'N', 'P'}

// Closed is a place in the journal of an epoch up to which nothing is written any more.
type Closed struct {
	Last    Position // the last record before it
	segment uint32   // of the same epoch, which goes on behind it
	bytes   int64    // in the segments before it
}

// Bytes is the size of the segments before it that no snapshot stands for.
func (c Closed) Bytes() int64 { return c.bytes }

// Closed is the end of the last segment that is full.
func (j *Journal) Closed() Closed {
	j.commit.Lock()
	defer j.commit.Unlock()
	return j.closed
}

// snapshotsOf is how many times the bytes of a snapshot stand beside it before the next one is made, so
// that making it costs less than what it replaces.
const snapshotsOf = 4

// Overgrown reports whether the closed segments have as many bytes as a
// segment may have, and four times those of the latest snapshot: then it is worth its while to
// write another one. Before the epoch has closed a segment of its own it is false.
func (j *Journal) Overgrown() bool {
	j.commit.Lock()
	defer j.commit.Unlock()
	// An epoch that has closed a segment has a record that every later epoch builds on.
	return j.closed.Last.Record > 0 && j.heavy()
}

// heavy reports whether what no snapshot stands for is worth one.
func (j *Journal) heavy() bool { return j.closed.bytes >= max(j.maxBytes, snapshotsOf*j.snapshot) }

// Compact makes durable a state that stands for all records up to a place,
// and removes the segments before it and older snapshots. Records may be
// appended and committed meanwhile. Of two calls the second must wait for the
// first. After an error the journal is as good as before, with more files.
//
// A writer that was taken over leaves everything as it is: check is asked
// after the place is known, so what it stands for has been seen by every later epoch.
func (j *Journal) Compact(at Closed, state []byte) error {
	if err := j.compact(at, state); err != nil {
		return fmt.Errorf("compact the journal: %w", err)
	}
	return nil
}

func (j *Journal) compact(at Closed, state []byte) error {
	final := filepath.Join(j.dir, snapshotName(at.Last.Epoch, at.segment, snapshotEnd))
	temporary := strings.TrimSuffix(final, snapshotEnd) + unfinishedEnd
	parts := appendSnapshot(at, state)
	if err := j.writeFile(temporary, parts[:]...); err != nil {
		return err
	}
	if j.check != nil {
		if err := j.check(); err != nil {
			_ = j.disk.Remove(temporary)
			return err
		}
	}
	if err := j.disk.Rename(temporary, final); err != nil {
		return err
	}
	if err := j.disk.Sync(j.dir); err != nil {
		return err
	}
	j.commit.Lock()
	j.closed.bytes -= at.bytes
	j.snapshot = int64(len(state))
	j.commit.Unlock()
	return j.drop(at)
}

// appendSnapshot gives the bytes of a snapshot: its header, the state, and the checksum of both.
func appendSnapshot(at Closed, state []byte) [3][]byte {
	head := append([]byte(nil), snapshotMagic[:]...)
	head = little.AppendUint32(head, Version)
	head = little.AppendUint32(head, at.segment)
	head = little.AppendUint64(head, at.Last.Epoch)
	head = little.AppendUint64(head, at.Last.Record)
	head = little.AppendUint64(head, uint64(len(state)))
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, state)
	return [3][]byte{head, state, little.AppendUint32(nil, sum)}
}

// drop removes what a snapshot replaces, the oldest first.
func (j *Journal) drop(at Closed) error {
	files, snapshots, unfinished, err := list(j.disk, j.dir)
	if err != nil {
		return err
	}
	for _, f := range slices.Concat(files, snapshots, unfinished) {
		if f.before(at) {
			if err := j.disk.Remove(f.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// before reports whether a file is of what comes before a place.
func (f segmentFile) before(at Closed) bool {
	return f.epoch < at.Last.Epoch || f.epoch == at.Last.Epoch && f.segment < at.segment
}

func snapshotName(epoch uint64, segment uint32, end string) string {
	return fmt.Sprintf("snapshot-%06d-%06d%s", epoch, segment, end)
}

// list gives the files of a journal in the order in which they were written:
// segments, snapshots, and those that were never finished.
func list(d Disk, dir string) (segments, snapshots, unfinished []segmentFile, err error) {
	names, err := d.List(dir)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the journal directory: %w", err)
	}
	for _, name := range names {
		var into *[]segmentFile
		begin, end := name[:strings.IndexByte(name, '-')+1], filepath.Ext(name)
		switch begin + end {
		case "journal-" + segmentEnd:
			into = &segments
		case "snapshot-" + snapshotEnd:
			into = &snapshots
		case "journal-" + unfinishedEnd, "snapshot-" + unfinishedEnd:
			into = &unfinished
		default:
			continue
		}
		first, second, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, begin), end), "-")
		epoch, err1 := strconv.ParseUint(first, 10, 64)
		segment, err2 := strconv.ParseUint(second, 10, 32)
		// Only names that we would write: "journal-1-1.log" beside "journal-000001-000001.log" would be read twice.
		if err1 != nil || err2 != nil || fmt.Sprintf("%s%06d-%06d%s", begin, epoch, segment, end) != name {
			return nil, nil, nil, fmt.Errorf("%s: this is not the name of a journal segment or snapshot; move the file away", filepath.Join(dir, name))
		}
		*into = append(*into, segmentFile{filepath.Join(dir, name), epoch, uint32(segment)})
	}
	for _, files := range [][]segmentFile{segments, snapshots, unfinished} {
		slices.SortFunc(files, func(a, b segmentFile) int {
			return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.segment, b.segment))
		})
	}
	return segments, snapshots, unfinished, nil
}

// readSnapshot reads a snapshot and checks every byte of it.
func readSnapshot(d Disk, f segmentFile) (at Closed, state []byte, err error) {
	data, err := d.Read(f.path, nil, math.MaxInt64)
	if err != nil {
		return at, nil, fmt.Errorf("read the journal: %w", err)
	}
	at, state, err = parseSnapshot(data)
	var version errVersion
	switch {
	case errors.As(err, &version):
		return at, nil, fmt.Errorf("%s: %w", f.path, err)
	case err != nil:
		return at, nil, &SnapshotError{f.path, err.Error()}
	case at.Last.Epoch != f.epoch || at.segment != f.segment:
		return at, nil, &SnapshotError{f.path, fmt.Sprintf("it says that it is of segment %d of epoch %d; it was renamed or copied", at.segment, at.Last.Epoch)}
	}
	return at, state, nil
}

func parseSnapshot(b []byte) (at Closed, state []byte, err error) {
	const around = snapshotHeaderSize + 4
	if len(b) < around || [8]byte(b) != snapshotMagic {
		return at, nil, errors.New("it does not begin like a snapshot")
	}
	if v := little.Uint32(b[8:]); v > Version {
		return at, nil, errVersion(v)
	}
	if size := little.Uint64(b[32:]); size != uint64(len(b)-around) {
		return at, nil, fmt.Errorf("it has %d bytes of state, and its header says %d", len(b)-around, size)
	}
	if end := len(b) - 4; little.Uint32(b[8:]) != Version || crc32.Checksum(b[:end], castagnoli) != little.Uint32(b[end:]) {
		return at, nil, errors.New("its checksum is wrong")
	}
	at = Closed{Last: Position{little.Uint64(b[16:]), little.Uint64(b[24:])}, segment: little.Uint32(b[12:])}
	return at, b[snapshotHeaderSize : len(b)-4], nil
}

// SnapshotError says that a snapshot, which was once durable, cannot be read.
type SnapshotError struct {
	File   string
	Reason string
}

func (e *SnapshotError) Error() string {
	return fmt.Sprintf("%s: damaged: %s; it stands for all that was committed before it. Restore the file from a copy, or start a new run", e.File, e.Reason)
}
