package scheduler

import (
	"math/bits"
	"slices"
)

// Wave is a moment of a run in which everything ready is running at once.
type Wave struct {
	Repeat int64   // so many such waves follow each other, at least 1
	Blocks []int64 // blocks that run at once, by task
}

// maxWaves bounds the answer of Waves.
const maxWaves = 4096

// Waves says how many blocks of each task can run at once over the course of a run in which every block succeeds and all blocks take
// equally long: all that is ready runs, then all that became ready, and so on. Blocks that are done or masked take no wave.
//
// Of a pipeline of at most limit blocks the answer is exact: the run is played through. Of a larger one it is an estimate that takes no
// longer for more blocks: levels are counted by formula, a task begins when everything upstream of it has ended, done bits
// and masks shorten every level alike, and levels past the first few thousand are given as their average.
func Waves(p *Pipeline, limit int64) (waves []Wave, exact bool) {
	total := int64(0)
	for _, t := range p.tasks {
		if total += min(t.Grid.Len(), MaxBlocks+1); total > min(limit, MaxBlocks) {
			return estimateWaves(p), false
		}
	}
	s, err := New(p, Options{})
	if err != nil {
		return estimateWaves(p), false
	}
	for !s.Ended() {
		for s.Work(1 << 20) {
		}
		blocks := make([]int64, len(p.tasks))
		var leases []Lease
		for task := range p.tasks {
			for {
				h, ok := s.Acquire(task, Holder{})
				if !ok {
					break
				}
				blocks[task]++
				leases = append(leases, h.Lease)
			}
		}
		if len(leases) == 0 {
			break
		}
		for _, l := range leases {
			s.Release(l, Ending{Outcome: Success})
		}
		waves = appendWave(waves, Wave{1, blocks})
	}
	return waves, true
}

// appendWave adds a wave, to the last one if it is alike.
func appendWave(waves []Wave, w Wave) []Wave {
	if n := len(waves); n > 0 {
		same := true
		for i := range w.Blocks {
			same = same && waves[n-1].Blocks[i] == w.Blocks[i]
		}
		if same {
			waves[n-1].Repeat += w.Repeat
			return waves
		}
	}
	return append(waves, w)
}

// estimateWaves lays the levels of each task end to end behind everything upstream.
func estimateWaves(p *Pipeline) []Wave {
	type stretch struct {
		begin, end int64 // waves
		blocks     int64 // in each
	}
	lists := make([][]stretch, len(p.tasks))
	ends := make([]int64, len(p.tasks))
	var bounds []int64
	for i, t := range p.tasks {
		begin := int64(0)
		for _, u := range p.up[i] {
			begin = max(begin, ends[u])
		}
		ends[i] = begin
		left := t.Grid.Len()
		if left == 0 {
			continue
		}
		open := float64(left-blocksSkipped(t)) / float64(left)
		add := func(waves, blocks int64) {
			if blocks = int64(open*float64(blocks) + 0.5); blocks > 0 {
				lists[i] = append(lists[i], stretch{ends[i], ends[i] + waves, blocks})
				bounds = append(bounds, ends[i], ends[i]+waves)
				ends[i] += waves
			}
		}
		levels := int64(t.Grid.Levels())
		each := min(levels, maxWaves/int64(len(p.tasks)))
		for level := range each {
			n := levelLen(t, int(level))
			left -= n
			add(1, n)
		}
		if rest := levels - each; rest > 0 {
			add(rest, left/rest)
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	var waves []Wave
	at := make([]int, len(lists))
	for i := 0; i+1 < len(bounds); i++ {
		w := Wave{bounds[i+1] - bounds[i], make([]int64, len(lists))}
		for task, list := range lists {
			for at[task] < len(list) && list[at[task]].end <= bounds[i] {
				at[task]++
			}
			if at[task] < len(list) && list[at[task]].begin <= bounds[i] {
				w.Blocks[task] = list[at[task]].blocks
			}
		}
		waves = appendWave(waves, w)
	}
	return waves
}

// blocksSkipped counts the blocks of a task that are done or masked.
func blocksSkipped(t Task) int64 {
	n := int64(0)
	for i := range max(len(t.Done), len(t.Mask)) {
		w := uint64(0)
		if i < len(t.Done) {
			w |= t.Done[i]
		}
		if i < len(t.Mask) {
			w |= t.Mask[i]
		}
		n += int64(bits.OnesCount64(w))
	}
	return min(n, t.Grid.Len())
}

// levelLen returns the number of blocks of a level.
func levelLen(t Task, level int) int64 {
	shape, stride, offset := t.Grid.Shape(), t.Grid.LevelStride(), t.Grid.LevelOffset(level)
	n := int64(1)
	for i := range t.Grid.Dims() {
		n *= (shape.At(i) - offset.At(i) + stride.At(i) - 1) / stride.At(i)
	}
	return n
}
