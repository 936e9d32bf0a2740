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

// IO is what processes have read and written by system calls, whatever it came from or went to: files, in the page cache or not,
// pipes, sockets. Both are 0 where it is not known.
type IO struct {
	ReadBytes, WrittenBytes int64
}

// Since is what has come since before. A process that ended without being waited for takes its part with it.
func (u IO) Since(before IO) IO {
	return IO{max(u.ReadBytes-before.ReadBytes, 0), max(u.WrittenBytes-before.WrittenBytes, 0)}
}

// Samples are taken often at first, as many blocks are short, and then seldom, as looking costs time that the block could have.
const (
	firstSample = 10 * time.Millisecond
	lastSample  = 500 * time.Millisecond
)

// A Meter looks from time to time at how much memory a process and its descendants have together.
type Meter struct {
	process    *Process
	quit, done chan struct{}
	peak       int64
}

// Meter starts to look. Stop ends it.
func (p *Process) Meter() *Meter {
	m := &Meter{process: p, quit: make(chan struct{}), done: make(chan struct{})}
	go m.look()
	return m
}

func (m *Meter) look() {
	defer close(m.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for every := firstSample; ; every = min(every*3/2, lastSample) {
		select {
		case <-m.quit:
			return
		case <-timer.C:
		}
		if !m.sample() {
			return
		}
		timer.Reset(every)
	}
}

// sample is false when the process has ended.
func (m *Meter) sample() bool {
	rss, alive := m.process.rss()
	m.peak = max(m.peak, rss)
	return alive
}

// Stop looks once more, and gives the most memory that was seen in bytes, added up over the processes, so that what they share counts for each; 0 if
// none was.
func (m *Meter) Stop() int64 {
	close(m.quit)
	<-m.done
	m.sample()
	return m.peak
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
