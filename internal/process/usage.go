package process

import (
	"syscall"
	"time"
)

// A Usage is what a living tree of processes uses.
type Usage struct {
	// CPU is user and system time of all of them and of those that they waited for. A process that ended without being waited
	// for takes its time with it.
	CPU time.Duration
	// PeakRSSBytes is the peak of the largest of them.
	PeakRSSBytes int64
}

// Self measures this process: CPU and PeakRSSBytes of its whole life, without children.
func Self() Usage {
	var u Usage
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) == nil {
		u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
		u.PeakRSSBytes = maxRSSBytes(&r)
	}
	// The peak of rusage counts what was in memory before exec, in the parent; where the system tells, take our own.
	if peak := peakRSSBytes(syscall.Getpid()); peak > 0 {
		u.PeakRSSBytes = peak
	}
	return u
}
