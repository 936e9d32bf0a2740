package engine

import (
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.org/daisy/internal/job"
	"example.org/daisy/scheduler"
)

// withSnapshots folds records, and forgets all but the bytes of what they have made now and then; the outcome must be that of the records
// alone. It returns it.
func withSnapshots(t *rapid.T, p *scheduler.Pipeline, records []Record, alone *Past) *Past {
	past := NewPast(p)
	for i := range records {
		if rapid.IntRange(0, 7).Draw(t, "snapshot") == 0 {
			past = rereadPast(t, p, past)
		}
		if _, _, err := past.Add(&records[i]); err != nil {
			t.Fatalf("record %d after a snapshot: %v", i, err)
		}
	}
	past = rereadPast(t, p, past)
	if !reflect.DeepEqual(past, alone) {
		t.Fatalf("by snapshots\n%+v\nby all records\n%+v", past, alone)
	}
	return past
}

func rereadPast(t rapid.TB, p *scheduler.Pipeline, past *Past) *Past {
	b := past.AppendBytes(nil)
	got, err := ReadPast(p, b)
	if err != nil {
		t.Fatalf("%+v: %v", past, err)
	}
	return got
}

// pastPipeline has two tasks, and records of every kind that are about them.
func pastPipeline(t rapid.TB) (*scheduler.Pipeline, func(*rapid.T) Record) {
	j := testJob()
	for i, blocks := range []int64{70, 3} {
		j.Tasks = append(j.Tasks, job.Task{ID: fmt.Sprint("t", i), Grid: line1D(nil, blocks), Runner: job.Runner{Kind: job.RunnerCommand}})
	}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	var tasks []TaskRecord
	for _, task := range p.Tasks() {
		tasks = append(tasks, TaskRecordOf(&task))
	}
	return p, func(t *rapid.T) Record {
		kind := RecordKind(rapid.SampledFrom([]int{1, 2, 3, 4, 4, 5, 5, 5, 5, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 16, 17, 20, 20, 21, 22, 23, 23, 24, 24, 25}).Draw(t, "kind"))
		number := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
		r := Record{Kind: kind, Task: int32(number("task", 1)), Attempt: int32(number("attempt", 3)), Worker: uint32(number("worker", 5)), At: number("at", 1e9)}
		r.Block = number("block", []int64{69, 2}[r.Task])
		r.Count = number("count", 5)
		r.Text = rapid.SampledFrom([]string{"", "left", "lost", "\xff"}).Draw(t, "text")
		switch kind {
		case RecordStart:
			r.Epoch, r.Began, r.Tasks = uint64(number("epoch", 9)), number("began", 1e18), tasks
		case RecordJoin:
			r.ID, r.Nonce, r.PID, r.Launched = fmt.Sprint("w", r.Worker%3), uint64(number("nonce", 2)), number("pid", 1e5), number("launched", 1) == 1
			r.Grant = Grant{number("cpus", 4000), number("memory", 1e12), number("gpus", 4)}
		case RecordEnd, RecordFailed:
			r.Outcome, r.Blameless, r.Final = uint8(number("outcome", int64(scheduler.Recalled))), number("blameless", 1) == 1, number("final", 3) == 0
			r.Held, r.Use.PeakRSSBytes, r.Tail = number("held", 1e6), number("peak", 1e9), "out"
		case RecordSubmission, RecordAccepted, RecordBound, RecordVoid, RecordShare:
			r.ID, r.Slots = fmt.Sprint(r.Worker%3), r.Count
		case RecordSet:
			r.State = uint8(number("setting", 2))
			if SettingKey(r.State) == SetResources {
				r.ID, r.Task = rapid.SampledFrom([]string{"cpu", "gpu"}).Draw(t, "name"), 0
			}
		case RecordExclude:
			r.ID, r.Tail, r.Final = fmt.Sprint("n", r.Worker%3), "ada", r.Count > 1
		case RecordRunEnd:
			r.State = uint8(number("state", int64(RunBroken)))
		}
		return r
	}
}

func TestASnapshotAndTheRecordsBehindItMakeWhatAllRecordsMake(t *testing.T) {
	p, record := pastPipeline(t)
	rapid.Check(t, func(t *rapid.T) {
		alone := NewPast(p)
		var records []Record
		for range rapid.IntRange(0, 150).Draw(t, "records") {
			r := record(t)
			if len(records) == 0 {
				for r.Kind != RecordStart {
					r = record(t)
				}
			}
			if r.Kind == RecordJoin && alone.workers[r.Worker] != nil {
				continue
			}
			if _, _, err := alone.Add(&r); err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		past := withSnapshots(t, p, records, alone)
		for i := range 3 {
			for nonce := range uint64(3) {
				want := uint32(0)
				for _, w := range past.order {
					if w.ID == fmt.Sprint("w", i) && w.Nonce == nonce && want == 0 {
						want = w.number
					}
				}
				if got := past.Number(fmt.Sprint("w", i), nonce); got != want {
					t.Fatalf("worker w%d with the nonce %d has number %d, want %d", i, nonce, got, want)
				}
			}
		}
		if next := past.NextNumber(); past.workers[next] != nil || next > 1 && past.workers[next-1] == nil {
			t.Fatalf("%d comes next", next)
		}
	})
}

// TestTheBytesOfAPastHaveAllOfIt is for who adds a field: the property below does not know of records that it does not make.
func TestTheBytesOfAPastHaveAllOfIt(t *testing.T) {
	for _, c := range []struct {
		of    any
		known int // fields that are written, or follow from others
	}{{Past{}, 14}, {pastSubmission{}, 7}, {pastTask{}, 12}, {pastWorker{}, 6}, {PastWorker{}, 6}, {Grant{}, 3}, {row{}, 11}, {PastEpoch{}, 3}, {FailedBlock{}, 8}, {Exclusion{}, 4}, {Setting{}, 6}} {
		if n := reflect.TypeOf(c.of).NumField(); n != c.known {
			t.Errorf("%T has %d fields, and its bytes are known to have %d: see Past.fields, and docs/journal.md", c.of, n, c.known)
		}
	}
}

func TestThePastOfARunHasTheDocumentedBytes(t *testing.T) {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, 3), Runner: job.Runner{Kind: job.RunnerCommand}}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	past := NewPast(p)
	for _, r := range []Record{
		{Kind: RecordStart, Epoch: 1, Began: 5, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0])}},
		{Kind: RecordSubmission, ID: "1", Count: 1, Slots: 2},
		{Kind: RecordBound, ID: "1", Text: "42"},
		{Kind: RecordJoin, Worker: 1, ID: "1.0", Nonce: 7, Count: 2, Text: "n", PID: 9, Launched: true, At: 1, Grant: Grant{4000, 1024, 1}},
		{Kind: RecordMark, Block: 3},
		{Kind: RecordPeak, Count: 2},
		{Kind: RecordSet, State: uint8(SetMaxWorkers), Count: 4, Text: "ada"},
		{Kind: RecordExclude, Final: true, ID: "m", Text: "hot", Tail: "bob"},
		{Kind: RecordEnd, Block: 0, Lease: 1, Attempt: 1, Worker: 1, At: 3, Held: 2, Use: Use{PeakRSSBytes: 6}},
		{Kind: RecordEnd, Block: 1, Lease: 2, Attempt: 1, Worker: 1, Outcome: uint8(scheduler.Failed), Final: true, At: 4, Held: 2},
		{Kind: RecordFailed, Block: 1, Attempt: 1, Worker: 1, Outcome: uint8(scheduler.Failed), Text: "no", Tail: "o"},
		{Kind: RecordGone, Worker: 1, Text: "left", At: 8},
		{Kind: RecordWave, Count: 8},
		{Kind: RecordCut, Block: 2},
	} {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```text\n")
	example, _, _ = strings.Cut(example, "```")
	want := ""
	for line := range strings.Lines(example) {
		bytes, _, _ := strings.Cut(strings.TrimLeft(line, " "), "  ")
		if !strings.HasPrefix(line, strings.Repeat(" ", 20)) { // else it is all words
			want += bytes
		}
	}
	want = strings.NewReplacer(" ", "", "HASH", fmt.Sprintf("%016x", TaskRecordOf(&p.Tasks()[0]).Hash)).Replace(want)
	if got := hex.EncodeToString(past.AppendBytes(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBytesThatAreNotThePastOfThisRunAreRefused(t *testing.T) {
	p, _ := pastPipeline(t)
	past := NewPast(p)
	for _, r := range []Record{
		{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0]), TaskRecordOf(&p.Tasks()[1])}},
		{Kind: RecordJoin, Worker: 1, ID: "w", Nonce: 5, Count: 1},
		{Kind: RecordEnd, Block: 3, Outcome: uint8(scheduler.Failed), Final: true, Worker: 1},
	} {
		if _, _, err := past.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	whole := past.AppendBytes(nil)
	for n := range whole {
		if _, err := ReadPast(p, whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are taken for a whole", n, len(whole))
		}
	}
	if _, err := ReadPast(p, append(whole, 0)); err == nil {
		t.Error("a byte too many is taken")
	}
	j := testJob()
	j.Tasks = []job.Task{{ID: "t0", Grid: line1D(t, 70), Runner: job.Runner{Kind: job.RunnerCommand}}}
	other, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPast(other, whole); err == nil || !strings.Contains(err.Error(), "the job has 1 task now, and had 2 tasks") {
		t.Errorf("another pipeline: got %v", err)
	}
}

func FuzzReadPast(f *testing.F) {
	p, _ := pastPipeline(f)
	past := NewPast(p)
	f.Add(past.AppendBytes(nil))
	for _, r := range []Record{
		{Kind: RecordStart, Epoch: 1, Tasks: []TaskRecord{TaskRecordOf(&p.Tasks()[0]), TaskRecordOf(&p.Tasks()[1])}},
		{Kind: RecordJoin, Worker: 1, ID: "w", Nonce: 5, Count: 1},
		{Kind: RecordEnd, Block: 3, Outcome: uint8(scheduler.Failed), Final: true, Worker: 1},
		{Kind: RecordSet, State: uint8(SetTimeout), Count: 5},
	} {
		if _, _, err := past.Add(&r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(past.AppendBytes(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ReadPast(p, b)
		if err != nil {
			return
		}
		if again := rereadPast(t, p, got); !reflect.DeepEqual(again, got) {
			t.Fatalf("read %+v, and then %+v", got, again)
		}
	})
}
