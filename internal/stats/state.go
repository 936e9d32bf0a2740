package stats

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// state is all that a Recorder knows, as JSON: numbers come back as they were, and names, which workers sent and which may hold anything, are
// bytes.
type state struct {
	Tasks  []taskState `json:"tasks"`
	Wasted []nodeTime  `json:"wasted"` // in the order of the names
}

type taskState struct {
	Times          *timesState   `json:"times"` // null until the first success
	CPUSeconds     float64       `json:"cpu_seconds"`
	CPUWall        float64       `json:"cpu_wall"`
	PeakRSS        int64         `json:"peak_rss"`
	Read           int64         `json:"read"`
	Written        int64         `json:"written"`
	GPU            gpuUse        `json:"gpu"`
	SkippedByCheck int64         `json:"skipped_by_check"`
	Used           time.Duration `json:"used"`
	Wasted         time.Duration `json:"wasted"`
	TimedOutOn     [][]byte      `json:"timed_out_on"` // in order
	Seen           bool          `json:"seen"`
	Began          time.Duration `json:"began"`
	Ended          time.Duration `json:"ended"`
}

type timesState struct {
	N         int64   `json:"n"`
	Max       int64   `json:"max"`
	Mean      float64 `json:"mean"`
	Comoment  float64 `json:"comoment"`
	Quantiles []int64 `json:"quantiles"` // [place, count, place, count, …] of the counts that are not 0
	Bins      []int64 `json:"bins"`
}

type nodeTime struct {
	Node []byte        `json:"node"`
	Time time.Duration `json:"time"`
}

// State is what RestoreState needs to go on from here.
func (r *Recorder) State() ([]byte, error) {
	s := state{Tasks: make([]taskState, len(r.tasks))}
	for i := range r.tasks {
		t := &r.tasks[i]
		s.Tasks[i] = taskState{Times: t.times.state(), CPUSeconds: t.cpuSeconds, CPUWall: t.cpuWall, PeakRSS: t.peakRSS, Read: t.read, Written: t.written, GPU: t.gpu,
			SkippedByCheck: t.skippedByCheck, Used: t.used, Wasted: t.wasted, Seen: t.seen, Began: t.began, Ended: t.ended}
		for _, w := range slices.Sorted(maps.Keys(t.timedOutOn)) {
			s.Tasks[i].TimedOutOn = append(s.Tasks[i].TimedOutOn, []byte(w))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(r.wasted)) {
		s.Wasted = append(s.Wasted, nodeTime{[]byte(n), r.wasted[n]})
	}
	return json.Marshal(s)
}

// RestoreState makes a new Recorder one that has been told what State knew. It is an error if that was of other tasks.
func (r *Recorder) RestoreState(data []byte) error {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the statistics so far: %w", err)
	}
	if len(s.Tasks) != len(r.tasks) {
		return fmt.Errorf("the statistics so far are of %d tasks, and there are %d", len(s.Tasks), len(r.tasks))
	}
	for i := range s.Tasks {
		was, t := &s.Tasks[i], &r.tasks[i]
		times, err := was.Times.restore()
		if err != nil {
			return fmt.Errorf("the statistics so far: task %q: %w", t.info.ID, err)
		}
		*t = taskRecord{info: t.info, times: times, cpuSeconds: was.CPUSeconds, cpuWall: was.CPUWall, peakRSS: was.PeakRSS, read: was.Read, written: was.Written, gpu: was.GPU,
			skippedByCheck: was.SkippedByCheck, used: was.Used, wasted: was.Wasted, seen: was.Seen, began: was.Began, ended: was.Ended}
		for _, w := range was.TimedOutOn {
			if t.timedOutOn == nil {
				t.timedOutOn = map[string]struct{}{}
			}
			t.timedOutOn[string(w)] = struct{}{}
		}
	}
	for _, n := range s.Wasted {
		r.wasted[string(n.Node)] = n.Time
	}
	return nil
}

func (b *blockTimes) state() *timesState {
	if b == nil {
		return nil
	}
	s := &timesState{N: b.n, Max: b.max, Mean: b.mean, Comoment: b.comoment, Bins: b.bins}
	for i, n := range b.quantiles.Export().Counts {
		if n != 0 {
			s.Quantiles = append(s.Quantiles, int64(i), n)
		}
	}
	return s
}

func (s *timesState) restore() (*blockTimes, error) {
	if s == nil {
		return nil, nil
	}
	b := newBlockTimes()
	counts := b.quantiles.Export()
	if len(s.Bins) != len(b.bins) || len(s.Quantiles)%2 != 0 {
		return nil, fmt.Errorf("a histogram of %d bins, and %d are known", len(s.Bins), len(b.bins))
	}
	for i := 0; i < len(s.Quantiles); i += 2 {
		at := s.Quantiles[i]
		if at < 0 || at >= int64(len(counts.Counts)) {
			return nil, fmt.Errorf("place %d of a histogram of %d", at, len(counts.Counts))
		}
		counts.Counts[at] = s.Quantiles[i+1]
	}
	b.quantiles = hdrhistogram.Import(counts)
	b.n, b.max, b.mean, b.comoment, b.bins = s.N, s.Max, s.Mean, s.Comoment, s.Bins
	return b, nil
}
