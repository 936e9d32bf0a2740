package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// committed is a segment with the ends of its batches: after cut bytes, the
// records of the batches that end by then are there, and no others.
type committed struct {
	data    []byte
	ends    []int // byte behind each batch
	records []int // records up to there
}

func (c committed) recordsBefore(cut int) int {
	n := 0
	for i, end := range c.ends {
		if end <= cut {
			n = c.records[i]
		}
	}
	return n
}

func writeSegment(t interface{ Fatal(...any) }, dir string, batches [][][]byte) committed {
	j, err := Create(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	var c committed
	n := 0
	for _, batch := range batches {
		for _, record := range batch {
			j.Append(record)
			n++
		}
		if _, err := j.Commit(); err != nil {
			t.Fatal(err)
		}
		c.ends = append(c.ends, int(j.Size()))
		c.records = append(c.records, n)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	c.data, err = os.ReadFile(filepath.Join(dir, segmentName(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func drawBatches(t *rapid.T) [][][]byte {
	record := rapid.SliceOfN(rapid.Byte(), 0, 40)
	return rapid.SliceOfN(rapid.SliceOfN(record, 1, 5), 1, 6).Draw(t, "batches")
}

// inTemp runs f with a directory of its own.
func inTemp(t *rapid.T, f func(dir string)) {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f(dir)
}

func TestACrashAtAnyByteLeavesExactlyTheCommittedPrefix(t *testing.T) {
	t.Run("every byte", func(t *testing.T) {
		dir := t.TempDir()
		c := writeSegment(t, dir, [][][]byte{{[]byte("first"), nil, []byte("third")}, {[]byte("fourth")}, {nil}, {[]byte("sixth")}})
		for cut := range len(c.data) + 1 {
			checkCrash(t, dir, c, cut, "")
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		inTemp(t, func(dir string) {
			c := writeSegment(t, dir, drawBatches(t))
			// A file system may have made the file longer before the data came.
			junk := rapid.SampledFrom([]string{"", "\x00", strings.Repeat("\x00", 100), "\xff\xff\xff\xff", "\xdaB\xa7\x01"}).Draw(t, "junk")
			for _, end := range c.ends {
				checkCrash(t, dir, c, end, junk)
			}
			for _, cut := range rapid.SliceOfN(rapid.IntRange(0, len(c.data)), 5, 5).Draw(t, "cuts") {
				checkCrash(t, dir, c, cut, junk)
			}
		})
	})
}

// checkCrash reads a segment of which a crash left cut bytes and junk behind them.
func checkCrash(t interface{ Fatalf(string, ...any) }, dir string, c committed, cut int, junk string) {
	left := append(bytes.Clone(c.data[:cut]), junk...)
	if err := os.WriteFile(filepath.Join(dir, segmentName(1, 1)), left, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	last := uint64(0)
	report, err := Read(dir, func(epoch, seq uint64, record []byte) error {
		if seq != last+1 {
			return fmt.Errorf("record %d after %d", seq, last)
		}
		last = seq
		return nil
	})
	if err != nil {
		t.Fatalf("cut at byte %d of %d: %v", cut, len(c.data), err)
	}
	// The junk may happen to be what was written.
	for cut < len(left) && cut < len(c.data) && left[cut] == c.data[cut] {
		cut++
	}
	if got, want := last, uint64(c.recordsBefore(cut)); got != want {
		t.Fatalf("cut at byte %d of %d: %d records, want %d", cut, len(c.data), got, want)
	}
	whole := cut == len(left) && (cut == segmentHeaderSize || slices.Contains(c.ends, cut))
	if said := len(report.Cut) == 1; said == whole {
		t.Fatalf("cut at byte %d of %d: reported %v", cut, len(c.data), report.Cut)
	}
}

func TestAFlippedBitIsFoundAndSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inTemp(t, func(dir string) {
			batches := drawBatches(t)
			c := writeSegment(t, dir, batches)
			at := rapid.IntRange(0, len(c.data)-1).Draw(t, "byte")
			bit := rapid.IntRange(0, 7).Draw(t, "bit")
			data := bytes.Clone(c.data)
			data[at] ^= 1 << bit
			path := filepath.Join(dir, segmentName(1, 1))
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			var all [][]byte
			for _, b := range batches {
				all = append(all, b...)
			}
			n := 0
			report, err := Read(dir, func(_, seq uint64, record []byte) error {
				if n >= len(all) || !bytes.Equal(record, all[n]) || seq != uint64(n+1) {
					return fmt.Errorf("record %d is not what was appended", seq)
				}
				n++
				return nil
			})
			// The batches before the flip are there, none behind it is.
			if want := c.recordsBefore(at); n != want {
				t.Fatalf("%d records, want %d (%v)", n, want, err)
			}
			last := len(c.ends) == 1 && at >= segmentHeaderSize || len(c.ends) > 1 && at >= c.ends[len(c.ends)-2]
			var damage *DamageError
			switch {
			case at >= 8 && at < 12: // the version
				if err == nil {
					t.Fatal("flip in the version: no error")
				}
			case last: // nothing behind it: a crash looks the same
				if err != nil || len(report.Cut) != 1 {
					t.Fatalf("flip in the last batch: %v, %v", report.Cut, err)
				}
			case !errors.As(err, &damage):
				t.Fatalf("flip at byte %d: %v", at, err)
			case damage.File != path || damage.Offset > int64(at):
				t.Fatalf("flip at byte %d of %s: %v", at, path, err)
			}
		})
	})
}

func TestDamageMessageNamesFileByteAndRecord(t *testing.T) {
	dir := t.TempDir()
	c := writeSegment(t, dir, [][][]byte{{[]byte("first")}, {[]byte("second")}, {[]byte("third")}})
	path := filepath.Join(dir, segmentName(1, 1))
	c.data[c.ends[1]-1] ^= 1
	if err := os.WriteFile(path, c.data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err := replay(t, dir)
	want := path + ": damaged at byte 93: the checksum of record 2 is wrong; what was committed from record 2 of epoch 1 on cannot be trusted. " +
		"Restore the file from a copy, or start a new run"
	if err == nil || err.Error() != want || len(got) != 1 {
		t.Errorf("got  %v, %v\nwant %v", got, err, want)
	}
}

func TestATailThatStandsTwiceCountsOnce(t *testing.T) {
	dir := t.TempDir()
	c := writeSegment(t, dir, [][][]byte{{[]byte("a")}, {[]byte("b")}})
	data := append(bytes.Clone(c.data), c.data[c.ends[0]:]...)
	if err := os.WriteFile(filepath.Join(dir, segmentName(1, 1)), data, 0o600); err != nil {
		t.Fatal(err)
	}
	report := wantRecords(t, dir, "1/1 a", "1/2 b")
	if len(report.Cut) != 1 || report.Cut[0].Reason != "record 3 was expected, and a batch that begins with record 2 is there" {
		t.Errorf("cut: %v", report.Cut)
	}
}

func TestWhatIsMissingBetweenSegmentsAndEpochsIsDamage(t *testing.T) {
	write := func(t *testing.T) string {
		dir := t.TempDir()
		for epoch := uint64(1); epoch <= 3; epoch++ {
			var options []Option
			if epoch > 1 {
				options = append(options, After(Position{epoch - 1, 3}))
			}
			j := mustCreate(t, dir, epoch, options...)
			for i := range 3 {
				j.Append([]byte("record"))
				mustCommit(t, j, uint64(i+1))
				rotate(t, j)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	remove := func(names ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, n := range names {
				if err := os.Remove(filepath.Join(dir, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string // "" = no error
	}{
		{"nothing", remove(), ""},
		{"the oldest", remove("journal-000001-000001.log"), "what is before it is missing: it begins with record 2, after record 0 of epoch 0"},
		{"the oldest epoch", remove("journal-000001-000001.log", "journal-000001-000002.log", "journal-000001-000003.log", "journal-000001-000004.log"),
			"what is before it is missing: it begins with record 1, after record 3 of epoch 1"},
		{"a segment in between", remove("journal-000002-000002.log"), "it ends here, but the journal went on to record 2"},
		{"the first of a later epoch", remove("journal-000002-000001.log"), "the segment before it is missing: it begins with record 2"},
		{"the end of an epoch that the next builds on", remove("journal-000002-000003.log", "journal-000002-000004.log"), "it ends here, but the journal went on to record 3"},
		{"a whole epoch in between", remove("journal-000002-000001.log", "journal-000002-000002.log", "journal-000002-000003.log", "journal-000002-000004.log"),
			"it builds on record 3 of epoch 2, and no segment of that epoch is there"},
		{"renamed", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "journal-000003-000004.log"), filepath.Join(dir, "journal-000003-000005.log")); err != nil {
				t.Fatal(err)
			}
		}, "the file says that it is segment 4 of epoch 3; it was renamed or copied"},
		{"a copy with an odd name", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "journal-1-1.log"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "this is not the name of a journal segment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t)
			c.change(t, dir)
			_, _, err := replay(t, dir)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAJournalOfANewerVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := writeSegment(t, dir, [][][]byte{{[]byte("a")}})
	c.data[8] = 2
	if err := os.WriteFile(filepath.Join(dir, segmentName(1, 1)), c.data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := replay(t, dir)
	if err == nil || !strings.Contains(err.Error(), "it has format version 2, and this program reads version 1: use the version of daisy that wrote it, or a newer one") {
		t.Errorf("got %v", err)
	}
}

func FuzzASegmentOfAnyBytesIsReadOrRefused(f *testing.F) {
	c := writeSegment(f, f.TempDir(), [][][]byte{{[]byte("first"), nil}, {[]byte("second")}})
	f.Add(c.data, uint64(0))
	f.Add(c.data[:len(c.data)-3], uint64(3))
	f.Add(c.data[:segmentHeaderSize], uint64(0))
	f.Add(append(bytes.Clone(c.data), make([]byte, 64)...), uint64(4))
	f.Add([]byte("DAISYJNL"), uint64(1))
	f.Add([]byte(nil), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, until uint64) {
		h, err := parseSegmentHeader(data)
		if err != nil {
			h = segmentHeader{epoch: 1, first: 1}
		}
		next := h.first
		at, err := scan(data, h.epoch, h.first, until, func(seq uint64, record []byte) error {
			if seq != next || until != 0 && seq >= until {
				t.Fatalf("record %d, want %d (until %d)", seq, next, until)
			}
			next++
			return nil
		})
		if err != nil || at.next != next || at.offset > int64(len(data)) {
			t.Fatalf("scan: %+v, %v; %d records", at, err, next-h.first)
		}
		if at.offset < int64(len(data)) && at.reason == "" {
			t.Fatal("bytes were left out without a word")
		}
	})
}
