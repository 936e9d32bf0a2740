package sim

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Distribution is how long something takes; the zero value takes no time.
type Distribution struct {
	// quantile is the time that a share of 0 to 1 of all do not exceed.
	quantile func(share float64) time.Duration
}

// Constant always takes the same time.
func Constant(d time.Duration) Distribution {
	return Distribution{func(float64) time.Duration { return d }}
}

// Uniform takes any time between two, all equally often.
func Uniform(low, high time.Duration) Distribution {
	return Distribution{func(u float64) time.Duration { return low + time.Duration(u*float64(high-low)) }}
}

// LogNormal has a median and, as sigma, the standard deviation of the logarithm: of 100 blocks 95 take less than median × e^(1.64 sigma).
func LogNormal(median time.Duration, sigma float64) Distribution {
	return Distribution{func(u float64) time.Duration {
		return time.Duration(min(float64(median)*math.Exp(sigma*math.Sqrt2*math.Erfinv(2*u-1)), float64(longestTime)))
	}}
}

// Exponential is the time until something that happens at random, at the same rate at all times.
func Exponential(mean time.Duration) Distribution {
	return Distribution{func(u float64) time.Duration {
		return time.Duration(min(-math.Log1p(-u)*float64(mean), float64(longestTime)))
	}}
}

// longestTime bounds what distributions without an end give.
const longestTime = 10 * 365 * 24 * time.Hour

// A Quantile is a time that a share of 0 to 1 of all blocks did not exceed.
type Quantile struct {
	Share float64
	Time  time.Duration
}

// Measured goes evenly from one quantile to the next; in any order, at least one. Then all times are stretched so that their mean is
// this one (0: as they are).
func Measured(list []Quantile, mean time.Duration) Distribution {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Quantile) int { return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Time, b.Time)) })
	for i := 1; i < len(list); i++ {
		list[i].Time = max(list[i].Time, list[i-1].Time) // percentiles are rounded
	}
	area := float64(list[0].Time) * list[0].Share
	for i := 1; i < len(list); i++ {
		area += float64(list[i].Time+list[i-1].Time) / 2 * (list[i].Share - list[i-1].Share)
	}
	area += float64(list[len(list)-1].Time) * (1 - list[len(list)-1].Share)
	stretch := 1.0
	if mean > 0 && area > 0 {
		stretch = float64(mean) / area
	}
	return Distribution{func(u float64) time.Duration {
		i, _ := slices.BinarySearchFunc(list, u, func(q Quantile, u float64) int { return cmp.Compare(q.Share, u) })
		switch {
		case i == 0:
			return time.Duration(stretch * float64(list[0].Time))
		case i == len(list):
			return time.Duration(stretch * float64(list[i-1].Time))
		}
		low, high := list[i-1], list[i]
		at := float64(low.Time) + float64(high.Time-low.Time)*(u-low.Share)/(high.Share-low.Share)
		return time.Duration(stretch * at)
	}}
}

// At is the time that a share of 0 to 1 of all do not exceed.
func (d Distribution) At(share float64) time.Duration {
	if d.quantile == nil {
		return 0
	}
	return max(d.quantile(share), 0)
}

// Mean is the mean of a thousand quantiles.
func (d Distribution) Mean() time.Duration {
	sum := 0.0
	for i := range 1000 {
		sum += float64(d.At((float64(i) + 0.5) / 1000))
	}
	return time.Duration(sum / 1000)
}

// share makes a number from 0 up to 1 of a hash.
func share(h uint64) float64 { return float64(h>>11) / (1 << 53) }
