//go:build unix && !linux

package process

// Live measures nothing on this system: ok is always false.
func (p *Process) Live() (u Usage, ok bool) { return Usage{}, false }

func (p *Process) rss() (bytes int64, ok bool) { return 0, false }

// LiveIO measures nothing on this system: ok is always false.
func (p *Process) LiveIO() (u IO, ok bool) { return IO{}, false }

func readIO(int) IO { return IO{} }

// ResetPeak has nothing to reset on this system.
func (p *Process) ResetPeak() {}

func peakRSSBytes(int) int64 { return 0 }
