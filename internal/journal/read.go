package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// Report says what Read found.
type Report struct {
	Records  uint64   // records given to the function
	Segments int      // segment files read
	Epochs   int      // epochs that had a segment
	Snapshot Position // the last record that a snapshot stood for; zero if there was none
	First    Position // the first record given; zero if none
	Last     Position // the last record given, or that the snapshot stood for; zero if none
	Cut      []Cut    // what was there and does not count
}

// Cut is the end of a segment that does not count: never committed, or void
// because a later segment or epoch does not build on it.
type Cut struct {
	File   string
	Offset int64 // from the start of the file, in bytes
	Bytes  int64
	Reason string
}

func (c Cut) String() string {
	return fmt.Sprintf("%s: the last %d bytes, from byte %d, do not count: %s", c.File, c.Bytes, c.Offset, c.Reason)
}

// DamageError says that a record which was once durable cannot be read. The
// records before it have been given to the function.
type DamageError struct {
	File   string
	Offset int64  // of the damage or of the batch that holds it, in bytes
	Record uint64 // the first record that is missing
	Epoch  uint64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s: damaged at byte %d: %s; what was committed from record %d of epoch %d on cannot be trusted. "+
		"Restore the file from a copy, or start a new run", e.File, e.Offset, e.Reason, e.Record, e.Epoch)
}

// ReadOption changes what Read reads.
type ReadOption func(*reading)

type reading struct {
	disk     Disk
	snapshot func(state []byte) error
	until    Closed
}

// WithSnapshot sets the function that is given the state which stands for the
// first records, before those that follow it. Without it such a journal is an error.
func WithSnapshot(state func(state []byte) error) ReadOption {
	return func(r *reading) { r.snapshot = state }
}

// ReadFrom has Read read from another disk than that of the system.
func ReadFrom(d Disk) ReadOption { return func(r *reading) { r.disk = d } }

// Until has Read stop at a place of the journal's newest epoch.
func Until(at Closed) ReadOption { return func(r *reading) { r.until = at } }

// Read gives every committed record in dir to the function, in the order in
// which they were appended, epoch after epoch, but for those that a snapshot
// stands for; the record is valid during the call only. Read changes no file.
// One segment is held in memory at a time.
//
// An error of the function ends the reading and is returned as it is; damage
// is a *DamageError or a *SnapshotError. The Report is true also beside an error.
//
// A writer may be alive meanwhile: Read gives a prefix of what it commits, or
// fails with fs.ErrNotExist where the writer dropped a segment just then.
func Read(dir string, record func(epoch, seq uint64, record []byte) error, options ...ReadOption) (Report, error) {
	var report Report
	r := reading{disk: osDisk{}}
	for _, o := range options {
		o(&r)
	}
	files, snapshots, _, err := list(r.disk, dir)
	if err != nil {
		return report, err
	}
	begin, state, err := r.begin(snapshots)
	if err != nil {
		return report, err
	}
	files = slices.DeleteFunc(files, func(f segmentFile) bool { return f.before(begin) })
	chain, err := readHeaders(r.disk, files, begin, &report)
	if err != nil {
		return report, err
	}
	if err := follows(dir, chain, begin); err != nil {
		return report, err
	}
	if state != nil {
		report.Snapshot, report.Last = begin.Last, begin.Last
		if err := r.snapshot(state); err != nil {
			return report, err
		}
		state = nil
	}
	if r.until.segment != 0 {
		chain = slices.DeleteFunc(chain, func(l link) bool { return !segmentFile{"", l.epoch, l.segment}.before(r.until) })
	}
	var data []byte
	for i, s := range chain {
		if i == 0 || chain[i-1].epoch != s.epoch {
			report.Epochs++
		}
		if data, err = r.disk.Read(s.path, data, math.MaxInt64); err != nil {
			return report, fmt.Errorf("read the journal: %w", err)
		}
		report.Segments++
		result, err := scan(data, s.epoch, s.first, s.until, func(seq uint64, rec []byte) error {
			if report.Records == 0 {
				report.First = Position{s.epoch, seq}
			}
			report.Records++
			report.Last = Position{s.epoch, seq}
			return record(s.epoch, seq, rec)
		})
		if err != nil {
			return report, err
		}
		if result.damaged {
			return report, &DamageError{s.path, result.offset, result.next, s.epoch, result.reason}
		}
		if rest := int64(len(data)) - result.offset; rest > 0 {
			report.Cut = append(report.Cut, Cut{s.path, result.offset, rest, result.reason})
		}
	}
	return report, nil
}

// begin reads the newest snapshot, and says where the records begin that are to
// be read: the zero place without a snapshot.
func (r *reading) begin(snapshots []segmentFile) (at Closed, state []byte, err error) {
	if len(snapshots) == 0 {
		return at, nil, nil
	}
	newest := snapshots[len(snapshots)-1]
	if r.snapshot == nil {
		return at, nil, fmt.Errorf("%s stands for the first records of the journal, which are gone", newest.path)
	}
	return readSnapshot(r.disk, newest)
}

// follows checks that the segments go on where a snapshot ends, or begin where nothing is before them.
func follows(dir string, chain []link, begin Closed) error {
	missing := func(path string, epoch, record uint64, what string) error {
		return &DamageError{path, 0, record, epoch, what}
	}
	switch {
	case begin.segment == 0 && len(chain) == 0:
		return nil
	case begin.segment == 0:
		if first := chain[0]; first.first != 1 || first.after.Epoch != 0 {
			return missing(first.path, first.epoch, 1, fmt.Sprintf("what is before it is missing: it begins with record %d, after %v", first.first, first.after))
		}
		return nil
	case len(chain) == 0 || chain[0].epoch != begin.Last.Epoch || chain[0].segment != begin.segment || chain[0].first != begin.Last.Record+1:
		path := filepath.Join(dir, segmentName(begin.Last.Epoch, begin.segment))
		return missing(path, begin.Last.Epoch, begin.Last.Record+1, fmt.Sprintf("the snapshot before it goes on with segment %d of epoch %d, which is missing", begin.segment, begin.Last.Epoch))
	case chain[0].until != 0 && chain[0].until < chain[0].first:
		return missing(chain[0].path, begin.Last.Epoch, chain[0].until, "a later epoch builds on less than the snapshot stands for")
	}
	return nil
}

// link is a segment with what its successors say about it.
type link struct {
	segmentHeader
	path  string
	until uint64 // records from this number on are void; those below must be there. 0: not known
}

// readHeaders reads the headers of all segments and works out from each how
// many records of the one before count. Segments whose header was cut by a
// crash are reported and left out.
func readHeaders(d Disk, files []segmentFile, begin Closed, report *Report) ([]link, error) {
	var chain []link
	for i, f := range files {
		head, err := d.Read(f.path, nil, segmentHeaderSize)
		if err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		h, err := parseSegmentHeader(head)
		var version errVersion
		var whole []byte
		if err != nil && !errors.As(err, &version) {
			// From here on only what is read now counts: a writer that is alive may have gone on.
			if whole, err = d.Read(f.path, nil, math.MaxInt64); err != nil {
				return nil, fmt.Errorf("read the journal: %w", err)
			}
			h, err = parseSegmentHeader(whole)
		}
		switch {
		case errors.As(err, &version):
			return nil, fmt.Errorf("%s: %w", f.path, err)
		case err != nil:
			// A crash leaves a bad header only with nothing behind it. Where
			// segments of the epoch stand before and after, it was left after
			// a failed commit, or connect finds that its records are missing.
			follows := len(chain) > 0 && chain[len(chain)-1].epoch == f.epoch
			between := follows && i+1 < len(files) && files[i+1].epoch == f.epoch
			// The disk may show there what was in a file that a snapshot replaced: records before those that can be in this one.
			from := uint64(1)
			if follows {
				from = chain[len(chain)-1].first
			} else if begin.Last.Epoch == f.epoch {
				from = begin.Last.Record + 1
			}
			if !between && findBatch(whole, f.epoch, from) {
				return nil, &DamageError{f.path, 0, 1, f.epoch, err.Error()}
			}
			report.Cut = append(report.Cut, Cut{f.path, 0, int64(len(whole)), err.Error()})
			continue
		case h.epoch != f.epoch || h.segment != f.segment:
			return nil, &DamageError{f.path, 0, h.first, f.epoch,
				fmt.Sprintf("the file says that it is segment %d of epoch %d; it was renamed or copied", h.segment, h.epoch)}
		}
		chain = append(chain, link{segmentHeader: h, path: f.path})
	}
	return connect(chain)
}

// connect sets until of each segment, drops epochs that no later one builds
// on, and finds missing segments.
func connect(chain []link) ([]link, error) {
	var kept []link
	// Backwards: what the later epoch builds on decides what counts of the earlier.
	bound := Position{} // Epoch 0: no bound
	for end := len(chain); end > 0; {
		start := end - 1
		for start > 0 && chain[start-1].epoch == chain[end-1].epoch {
			start--
		}
		epoch := chain[start:end]
		if start > 0 && epoch[0].first != 1 {
			return nil, &DamageError{epoch[0].path, 0, 1, epoch[0].epoch, fmt.Sprintf("the segment before it is missing: it begins with record %d", epoch[0].first)}
		}
		// Segments are dropped oldest first, so an epoch is not missing between others.
		if bound.Epoch > epoch[0].epoch {
			return nil, &DamageError{chain[end].path, 0, 1, bound.Epoch, "it builds on " + bound.String() + ", and no segment of that epoch is there"}
		}
		if bound.Epoch == 0 || bound.Epoch == epoch[0].epoch {
			until := uint64(0)
			if bound.Epoch == epoch[0].epoch {
				until = bound.Record + 1
			}
			if err := connectEpoch(epoch, until); err != nil {
				return nil, err
			}
			kept = append(slices.Clone(epoch), kept...)
			bound = epoch[0].after
		}
		end = start
	}
	return kept, nil
}

func connectEpoch(epoch []link, until uint64) error {
	for i := range epoch {
		s := &epoch[i]
		if i+1 < len(epoch) {
			s.until = epoch[i+1].first
			if s.until < s.first {
				return &DamageError{epoch[i+1].path, 0, s.until, s.epoch, fmt.Sprintf("it begins with record %d, but the segment before it with record %d", s.until, s.first)}
			}
		} else {
			s.until = until
		}
		if until != 0 && s.until > until {
			s.until = until
		}
	}
	return nil
}

// scanned is where the reading of a segment ended and why.
type scanned struct {
	offset  int64  // bytes that count
	next    uint64 // number of the record that would have followed
	damaged bool
	reason  string // why the rest does not count; "" when there is none
}

// scan reads the batches of a segment whose header has been checked. Records
// from until on are void and those below it must be there (0: not known, then
// a bad batch is damage only if another batch stands behind it). It never
// panics, whatever data holds.
func scan(data []byte, epoch, first, until uint64, yield func(seq uint64, record []byte) error) (scanned, error) {
	at := scanned{offset: min(segmentHeaderSize, int64(len(data))), next: first}
	for {
		if until != 0 && at.next >= until {
			at.reason = "a later segment continues before it"
			return at, nil
		}
		rest := data[at.offset:]
		if len(rest) == 0 {
			if until != 0 {
				at.damaged, at.reason = true, fmt.Sprintf("it ends here, but the journal went on to record %d", until-1)
			}
			return at, nil
		}
		n, err := checkBatch(rest, epoch, at.next)
		if err != nil {
			at.damaged = until != 0 || findBatch(rest, epoch, at.next+1)
			at.reason = err.Error()
			return at, nil
		}
		frames := rest[batchHeaderSize:n]
		for len(frames) > 0 {
			size := little.Uint32(frames)
			// A batch may reach over the bound only in a segment that was left
			// after a failed commit; then the same records come again later.
			if until == 0 || at.next < until {
				if err := yield(at.next, frames[frameHeaderSize:4+size]); err != nil {
					return at, err
				}
				at.next++
			}
			frames = frames[4+size:]
		}
		at.offset += int64(n)
	}
}

// checkBatch checks the batch at the start of b, every frame of it, and gives
// its length.
func checkBatch(b []byte, epoch, next uint64) (int, error) {
	h, ok := parseBatchHeader(b, epoch)
	switch {
	case !ok && len(b) < batchHeaderSize:
		return 0, fmt.Errorf("the batch header before record %d is cut short", next)
	case !ok:
		return 0, fmt.Errorf("the batch header before record %d is not one", next)
	case h.first != next:
		return 0, fmt.Errorf("record %d was expected, and a batch that begins with record %d is there", next, h.first)
	case h.bytes > uint64(len(b)-batchHeaderSize):
		return 0, fmt.Errorf("the batch that begins with record %d is cut short: %d of %d bytes", next, len(b)-batchHeaderSize, h.bytes)
	}
	frames := b[batchHeaderSize : batchHeaderSize+int(h.bytes)]
	for i := range uint64(h.records) {
		_, n, err := parseFrame(frames, epoch, next+i)
		if err != nil {
			return 0, err
		}
		frames = frames[n:]
	}
	if len(frames) > 0 || h.records == 0 {
		return 0, fmt.Errorf("the batch that begins with record %d does not have the %d records that it announces", next, h.records)
	}
	return batchHeaderSize + int(h.bytes), nil
}

// findBatch reports whether a batch header of the epoch, with a first record
// of at least from, stands anywhere in b.
func findBatch(b []byte, epoch, from uint64) bool {
	for {
		i := bytes.Index(b, batchMagic[:])
		if i < 0 {
			return false
		}
		if h, ok := parseBatchHeader(b[i:], epoch); ok && h.first >= from {
			return true
		}
		b = b[i+1:]
	}
}
