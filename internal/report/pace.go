package report

import "time"

const (
	// A rate is taken over at least this long and this many blocks, once there are as many: short enough to follow a change
	// in the number of workers, long enough to be calm when blocks are slow.
	paceTime   = time.Minute
	paceBlocks = 20
)

// pace measures blocks per second from where a task stands at several times. Skipped blocks are none: they come in bulk
// and say nothing of what is left.
type pace struct {
	older, newer sample
	last         sample
	begun        bool
}

type sample struct {
	at    time.Time
	ended int64
}

// update notes where the task stands now.
func (p *pace) update(now time.Time, t *TaskProgress) {
	s := sample{now, t.Success + t.Failed}
	p.last = s
	switch {
	case !p.begun:
		if t.Running > 0 {
			p.older, p.newer, p.begun = s, s, true
		}
	case now.Sub(p.newer.at) >= paceTime && s.ended-p.newer.ended >= paceBlocks:
		p.older, p.newer = p.newer, s
	}
}

// perSecond is the rate; false if there is none yet.
func (p *pace) perSecond() (float64, bool) {
	dt := p.last.at.Sub(p.older.at)
	n := p.last.ended - p.older.ended
	if !p.begun || dt <= 0 || n <= 0 {
		return 0, false
	}
	return float64(n) / dt.Seconds(), true
}

// left is how long the rest takes at this rate; false if that cannot be said, or nobody would believe it.
func (p *pace) left(blocks int64) (time.Duration, bool) {
	const unbelievable = 365 * 24 * time.Hour
	rate, ok := p.perSecond()
	if !ok || blocks <= 0 {
		return 0, false
	}
	seconds := float64(blocks) / rate
	if seconds > unbelievable.Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
