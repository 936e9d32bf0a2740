package worker

import (
	"time"

	"example.org/daisy/internal/process"
	"example.org/daisy/internal/wire"
)

// A Result is how an attempt ended and what it used.
type Result struct {
	Outcome wire.Outcome
	// Message is for people, Tail the end of the attempt's output; both are empty when it went well.
	Message, Tail string
	// Wall is from the block's start to its end, CPU user and system time of its processes; zero = not measured.
	Wall, CPU    time.Duration
	PeakRSSBytes int64
	// IO is what they read and wrote, only of a task with resource tracking.
	IO process.IO

	measured bool // Wall, CPU, PeakRSSBytes and IO are what user code says itself
	crashed  bool // a signal ended it that it brought on itself
}
