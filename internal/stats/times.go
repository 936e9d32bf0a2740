package stats

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// longest is the greatest block time that is told from longer ones.
	longest = 30 * 24 * time.Hour
	// digits that percentiles keep: an error of at most 1 %, for 45 KB a task.
	digits = 2
)

// limits are the upper limits of the histogram's bins, in nanoseconds: 1, 2, 5 × 10^k from a microsecond up to the first
// above longest.
var limits = func() (l []int64) {
	for step := int64(time.Microsecond); ; step *= 10 {
		for _, n := range []int64{1, 2, 5} {
			l = append(l, n*step)
			if n*step > int64(longest) {
				return l
			}
		}
	}
}()

// blockTimes is the distribution and the trend of block times, in constant memory.
type blockTimes struct {
	n         int64
	max       int64 // ns
	mean      float64
	comoment  float64 // Σ (x − mean x)(y − mean y), x = 0, 1, 2, … in order of completion, y = seconds
	quantiles *hdrhistogram.Histogram
	bins      []int64 // by limits
}

func newBlockTimes() *blockTimes {
	return &blockTimes{
		quantiles: hdrhistogram.New(1, int64(longest), digits),
		bins:      make([]int64, len(limits)),
	}
}

// add takes the time of the block that completed next. What is out of range counts as the nearest that is not: a clock's
// resolution may make a block take no time, and the histogram refuses what it cannot hold.
func (b *blockTimes) add(nanos int64) {
	nanos = min(max(nanos, 1), int64(longest))
	seconds := time.Duration(nanos).Seconds()

	// Welford's update of mean and co-moment: x is the number of blocks before this one, so its mean before is (n−1)/2 and
	// x − mean = (n+1)/2.
	dx := float64(b.n+1) / 2
	b.n++
	b.mean += (seconds - b.mean) / float64(b.n)
	b.comoment += dx * (seconds - b.mean)

	b.max = max(b.max, nanos)
	_ = b.quantiles.RecordValue(nanos) // in range
	i, _ := slices.BinarySearch(limits, nanos)
	b.bins[i]++
}

// slope is the least-squares slope of seconds over order of completion; false with fewer than two blocks. The sum of
// squares of 0 … n−1 about their mean is n(n²−1)/12.
func (b *blockTimes) slope() (float64, bool) {
	if b.n < 2 {
		return 0, false
	}
	n := float64(b.n)
	return b.comoment / (n * (n*n - 1) / 12), true
}

// quantile is the least time in seconds that percent of the blocks do not exceed. The histogram rounds the rank of the
// block to look for to the nearest one, so it is given the percentage of the rank above.
func (b *blockTimes) quantile(percent float64) float64 {
	n := float64(b.n)
	rank := math.Ceil(percent / 100 * n)
	return time.Duration(min(b.quantiles.ValueAtQuantile(rank/n*100), b.max)).Seconds()
}

// histogram is the bins from the first to the last that has a block: [upper seconds, count].
func (b *blockTimes) histogram() [][2]float64 {
	first := slices.IndexFunc(b.bins, func(n int64) bool { return n > 0 })
	pairs := [][2]float64{}
	if first < 0 {
		return pairs
	}
	var seen int64
	for i := first; seen < b.n; i++ {
		seen += b.bins[i]
		pairs = append(pairs, [2]float64{time.Duration(limits[i]).Seconds(), float64(b.bins[i])})
	}
	return pairs
}
