//go:build unix && !linux

package process

// Live measures nothing on this system: ok is always false.
func (p *Process) Live() (u Usage, ok bool) { return Usage{}, false }

// ResetPeak has nothing to reset on this system.
func (p *Process) ResetPeak() {}

func peakRSSBytes(int) int64 { return 0 }
