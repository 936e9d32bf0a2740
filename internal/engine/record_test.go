package engine

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"example.org/daisy/scheduler"
	"github.com/google/go-cmp/cmp"
)

// records has one record of each kind, with its bytes: the format on disk.
var records = []struct {
	bytes  string
	record Record
}{
	{"01 01 03 e8 07 02 01 61 0a 0102030405060708 01 62 00 0000000000000000", Record{Kind: RecordStart, Epoch: 3, Began: 1000, Tasks: []TaskRecord{{"a", 10, 0x0102030405060708}, {"b", 0, 0}}}},
	{"01 02 01 37 01 04 02", Record{Kind: RecordSubmission, ID: "7", Task: 1, Count: 4, Slots: 2}},
	{"01 03 01 37 02 6e 6f", Record{Kind: RecordAccepted, ID: "7", Text: "no"}},
	{"01 04 05 03 37 2e 31 0102030405060708 01 02 01 6e 90 4e 01 09", Record{Kind: RecordJoin, Worker: 5, ID: "7.1", Nonce: 0x0102030405060708, Task: 1, Count: 2, Text: "n", PID: 10000, Launched: true, At: 9}},
	{"01 05 01 ac 02 81 80 80 08 02 05 05 01 01 e8 07 00 80 20 0a 0b", Record{Kind: RecordEnd, Task: 1, Block: 300, Lease: 1<<24 + 1, Attempt: 2, Worker: 5,
		Outcome: uint8(scheduler.Lost), Blameless: true, Final: true, Use: Use{WallNanos: 1000, PeakRSSBytes: 4096}, At: 10, Held: 11}},
	{"01 06 01 01 0f 00 00 00 05 01 02 03 04 07 06 08 09 0a 0b", Record{Kind: RecordTaskEnd, Task: 1, State: 1, Tally: scheduler.Tally{Total: 15, Success: 5,
		Skipped: 1, Failed: 2, Orphaned: 3, Abandoned: 4, Processed: 7, Retries: 6, TimedOut: 8, Lost: 9, Returned: 10, OutOfMemory: 11}}},
	{"01 07 02 80 08", Record{Kind: RecordMark, Task: 2, Block: 1024}},
	{"01 08 00 07 03 01 02", Record{Kind: RecordHandout, Block: 7, Lease: 3, Attempt: 1, Worker: 2}},
	{"01 09 00 00 03 01 01 01 00 00 00 00 00 00 00 00 00 00 00", Record{Kind: RecordCheckpoint, Tally: scheduler.Tally{Total: 3, Waiting: 1, Ready: 1, Leased: 1}}},
	{"01 0a 03 03 77 68 79", Record{Kind: RecordRunEnd, State: uint8(RunStopped), Text: "why"}},
	{"01 0b 05 01 09", Record{Kind: RecordServes, Worker: 5, Task: 1, At: 9}},
	{"01 0c 05 04 6c 65 66 74 09", Record{Kind: RecordGone, Worker: 5, Text: "left", At: 9}},
	{"01 0d 01 ac 02 03 05 02 02 6e 6f 03 6f 75 74", Record{Kind: RecordFailed, Task: 1, Block: 300, Attempt: 3, Worker: 5, Outcome: uint8(scheduler.Failed), Text: "no", Tail: "out"}},
	{"01 11 01 02 6e 37 03 77 68 79 04 61 6e 6e 61", Record{Kind: RecordExclude, Final: true, ID: "n7", Text: "why", Tail: "anna"}},
	{"01 0e 01 08", Record{Kind: RecordPeak, Task: 1, Count: 8}},
	{"01 0f 01", Record{Kind: RecordRetry, Task: 1}},
	{"01 10 01 02 03 63 70 75 08 03 61 64 61", Record{Kind: RecordSet, State: uint8(SetMaxWorkers), Task: 2, ID: "cpu", Count: 8, Text: "ada"}},
	{"01 14 01 37 03 31 30 31", Record{Kind: RecordBound, ID: "7", Text: "101"}},
	{"01 15 01 37", Record{Kind: RecordVoid, ID: "7"}},
	{"01 16 01 08", Record{Kind: RecordWave, Task: 1, Count: 8}},
	{"01 18 01 37 08", Record{Kind: RecordShare, ID: "7", Count: 8}},
	{"01 19 08 09", Record{Kind: RecordAside, Count: 8, At: 9}},
	{"01 1a 05 08", Record{Kind: RecordUnheard, Worker: 5, Count: 8}},
	{"01 17 01 ac 02", Record{Kind: RecordCut, Task: 1, Block: 300}},
}

func TestGoldenBytesOfRecords(t *testing.T) {
	for _, c := range records {
		want := strings.ReplaceAll(c.bytes, " ", "")
		if got := hex.EncodeToString(c.record.Append(nil)); got != want {
			t.Errorf("kind %d: got %s, want %s", c.record.Kind, got, want)
		}
		raw, err := hex.DecodeString(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(raw)
		if err != nil {
			t.Errorf("kind %d: %v", c.record.Kind, err)
		} else if d := cmp.Diff(c.record, got); d != "" {
			t.Errorf("kind %d: (-want +got)\n%s", c.record.Kind, d)
		}
	}
}

func TestTheEndOfAnAttemptSaysWhatWasReadAndWrittenWhereThatIsKnown(t *testing.T) {
	without := Record{Kind: RecordEnd, Block: 3, Use: Use{WallNanos: 5}}
	with := without
	with.Use.ReadBytes, with.Use.WrittenBytes = 300, 7
	raw := with.Append(nil)
	if got, want := hex.EncodeToString(raw), hex.EncodeToString(without.Append(nil))+"ac0207"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := DecodeRecord(raw); err != nil || !cmp.Equal(got, with) {
		t.Errorf("got %+v, %v, want %+v", got, err, with)
	}
	for _, cut := range []int{1, 2} {
		if got, err := DecodeRecord(raw[:len(raw)-cut]); err == nil {
			t.Errorf("cut by %d: accepted as %+v", cut, got)
		}
	}
}

func TestTheEndOfAnAttemptSaysWhatGPUsDidWhereThatIsKnown(t *testing.T) {
	without := Record{Kind: RecordEnd, Block: 3, Use: Use{WallNanos: 5}}
	with := without
	with.Use.GPU = GPU{Measured: true, Percent: 12.5, MemBytes: 300}
	raw := with.Append(nil)
	if got, want := hex.EncodeToString(raw), hex.EncodeToString(without.Append(nil))+"0000"+"8080a08a04"+"ac02"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := DecodeRecord(raw); err != nil || !cmp.Equal(got, with) {
		t.Errorf("got %+v, %v, want %+v", got, err, with)
	}
	if got, err := DecodeRecord(raw[:len(raw)-1]); err == nil {
		t.Errorf("cut: accepted as %+v", got)
	}
	with.Use.GPU.Percent = float32(math.NaN())
	if got, err := DecodeRecord(with.Append(nil)); err == nil {
		t.Errorf("no number: accepted as %+v", got)
	}
}

func TestAJoinSaysWhatABatchSystemGaveTheWorkerWhereThatIsKnown(t *testing.T) {
	without := Record{Kind: RecordJoin, Worker: 5, ID: "7.1", Nonce: 9, Count: 2, Text: "n"}
	with := without
	with.Grant = Grant{CPUMilli: 4000, MemoryBytes: 1 << 30, GPUs: 2}
	raw := with.Append(nil)
	if got, want := hex.EncodeToString(raw), hex.EncodeToString(without.Append(nil))+"a01f"+"8080808004"+"02"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := DecodeRecord(raw); err != nil || !cmp.Equal(got, with) {
		t.Errorf("got %+v, %v, want %+v", got, err, with)
	}
}

func TestARecordThatIsNotWholeIsRefused(t *testing.T) {
	for _, c := range records {
		raw := c.record.Append(nil)
		for n := range raw {
			if _, err := DecodeRecord(raw[:n]); err == nil {
				t.Errorf("kind %d: no error for the first %d of %d bytes", c.record.Kind, n, len(raw))
			}
		}
		if _, err := DecodeRecord(append(raw, 0)); err == nil {
			t.Errorf("kind %d: no error for a byte too many", c.record.Kind)
		}
	}
	for _, c := range []struct{ bytes, want string }{
		{"0207", "a record of version 2: this program reads version 1"},
		{"0163", "a record of the unknown kind 99"},
		{"010203", "a record of kind 2: it ends too early"},
		{"0107ffffffffff0f00", "a record of kind 7: a number is too large"},
	} {
		raw, _ := hex.DecodeString(c.bytes)
		if _, err := DecodeRecord(raw); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.bytes, err, c.want)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, c := range records {
		f.Add(c.record.Append(nil))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := DecodeRecord(raw)
		if err != nil {
			return
		}
		again, err := DecodeRecord(r.Append(nil))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Fatal(d)
		}
	})
}
