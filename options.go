package daisy

import (
	"time"
)

// An Option changes how Run runs a pipeline.
type Option func(*options)

type options struct {
	name        string
	workers     int
	batch       int
	budget      map[string]float64
	directory   string
	tracking    string
	external    func(dir string)
	observe     func(Snapshot)
	every       time.Duration
	notice      func(string)
	grace       time.Duration
	maxFailures int64
}

// Name is what the run is called in its directory and reports; the default is "run".
func Name(name string) Option { return func(o *options) { o.name = name } }

// Workers is how many blocks run at once at most; the default is the number of cores. Blocks need one core each unless their
// task says otherwise, so this is also the budget of cores.
func Workers(n int) Option { return func(o *options) { o.workers = n } }

// Batch is how many blocks a function of Run takes from the run at once, at most. Blocks that take 10 ms or more are always taken one at a
// time, shorter ones as many as take 0.1 s together, up to 256. What was taken and has not begun goes to functions that have nothing to do;
// with Batch(1) there is nothing such. It does not concern clients.
func Batch(n int) Option { return func(o *options) { o.batch = n } }

// Resources is the budget that running blocks share: "cpu" in cores, "memory" in bytes, anything else in pieces. Without it
// there are as many cores as Workers, and the machine's memory and GPUs.
func Resources(budget map[string]float64) Option { return func(o *options) { o.budget = budget } }

// Directory makes a run directory below dir, with journal, logs and stats.json, as daisy-submit does. Without it the run
// keeps nothing on disk.
func Directory(dir string) Option { return func(o *options) { o.directory = dir } }

// Tracking keeps marks of what is done below dir, one group a task: a later run skips it.
func Tracking(dir string) Option { return func(o *options) { o.tracking = dir } }

// WithoutWorkers starts no workers: the blocks are for clients (Connect) that come by themselves. started is called with
// the run directory once they may come. It needs Directory. The run waits for clients for as long as ctx lets it.
func WithoutWorkers(started func(runDirectory string)) Option {
	return func(o *options) { o.external = started }
}

// Observe calls f with the state of the run, every so often and once at the end. Calls do not overlap; a slow f misses
// states.
func Observe(every time.Duration, f func(Snapshot)) Option {
	return func(o *options) { o.observe, o.every = f, every }
}

// Notices calls f with lines for people: workers that end, blocks that time out. f must not block.
func Notices(f func(string)) Option { return func(o *options) { o.notice = f } }

// Grace is what running blocks get to return when the run is stopped; the default is 10 seconds.
func Grace(d time.Duration) Option { return func(o *options) { o.grace = d } }

// MaxFailures stops the run once that many blocks have failed for good.
func MaxFailures(n int64) Option { return func(o *options) { o.maxFailures = n } }
