package coordinator

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/stats"
	"example.org/daisy/scheduler"
)

// A fold is what the records of a journal say together: all that a resume needs of them. A resume makes it, and so does a compaction, which
// keeps it as a snapshot in place of the records.
type fold struct {
	pipeline *scheduler.Pipeline
	past     *engine.Past
	recorder *stats.Recorder
	mishaps  mishaps

	record engine.Record // memory for the one that is read
	ended  engine.Attempt
}

func newFold(j *job.Job, p *scheduler.Pipeline) *fold {
	return &fold{pipeline: p, past: engine.NewPast(p), recorder: stats.New(taskInfos(j, p))}
}

// read folds the journal in a directory. each, if not nil, is called with the end of every attempt that a record says, and that counted.
func (f *fold) read(dir string, each func(a *engine.Attempt) error, options ...journal.ReadOption) (journal.Report, error) {
	options = append(options, journal.WithSnapshot(f.restore))
	return journal.Read(dir, func(epoch, seq uint64, raw []byte) error {
		err := f.record.Decode(raw)
		if err == nil {
			err = f.add(&f.record, each)
		}
		if err != nil {
			return fmt.Errorf("record %d of epoch %d: %w", seq, epoch, err)
		}
		return nil
	}, options...)
}

func (f *fold) add(r *engine.Record, each func(a *engine.Attempt) error) error {
	var is bool
	var err error
	if f.ended, is, err = f.past.Add(r); err != nil || !is {
		return err
	}
	f.mishaps.note(&f.ended)
	f.recorder.Ended(forRecorder(&f.ended, 0))
	if each != nil {
		return each(&f.ended)
	}
	return nil
}

// snapshotVersion is the version of the state in a snapshot of the journal.
const snapshotVersion = 1

// snapshot is the fold as bytes: the version, and the past, the statistics and the latest bad ends, each with its length before it.
func (f *fold) snapshot() ([]byte, error) {
	recorded, err := f.recorder.State()
	if err != nil {
		return nil, err
	}
	bad, err := json.Marshal(f.mishaps.state())
	if err != nil {
		return nil, err
	}
	b := []byte{snapshotVersion}
	for _, part := range [][]byte{f.past.AppendBytes(nil), recorded, bad} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b, nil
}

// restore makes an empty fold the one that snapshot was called of.
func (f *fold) restore(b []byte) error {
	err := func() error {
		if len(b) == 0 || b[0] != snapshotVersion {
			return fmt.Errorf("it does not begin with version %d, which this program reads", snapshotVersion)
		}
		b = b[1:]
		var parts [3][]byte
		for i := range parts {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return errors.New("it ends too early")
			}
			parts[i], b = b[size:size+int(n)], b[size+int(n):]
		}
		if len(b) > 0 {
			return fmt.Errorf("%d bytes too many", len(b))
		}
		past, err := engine.ReadPast(f.pipeline, parts[0])
		if err != nil {
			return err
		}
		f.past = past
		if err := f.recorder.RestoreState(parts[1]); err != nil {
			return err
		}
		var bad []mishapState
		if err := json.Unmarshal(parts[2], &bad); err != nil {
			return fmt.Errorf("the latest attempts that ended badly: %w", err)
		}
		f.mishaps.restore(bad)
		return nil
	}()
	if err != nil {
		return fmt.Errorf("the snapshot of the journal: %w", err)
	}
	return nil
}

// mishapState is a mishap in a snapshot; names may hold anything, so that they are bytes.
type mishapState struct {
	Task    int32             `json:"task"`
	Attempt int32             `json:"attempt"`
	Block   int64             `json:"block"`
	Outcome scheduler.Outcome `json:"outcome"`
	Worker  []byte            `json:"worker"`
	Node    []byte            `json:"node"`
	Message []byte            `json:"message"`
}

// state lists them in the order in which they are to be forgotten.
func (m *mishaps) state() []mishapState {
	list := make([]mishapState, 0, len(m.list))
	for i := range m.list {
		n := &m.list[(m.next+i)%len(m.list)]
		list = append(list, mishapState{n.task, n.attempt, n.block, n.outcome, []byte(n.worker), []byte(n.node), []byte(n.message)})
	}
	return list
}

func (m *mishaps) restore(list []mishapState) {
	*m = mishaps{}
	for _, s := range list {
		m.keep(mishap{s.Task, s.Attempt, s.Block, s.Outcome, string(s.Worker), string(s.Node), string(s.Message)})
	}
}
