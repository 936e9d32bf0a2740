package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// Config is a run and the world that it is in.
type Config struct {
	Seed uint64
	Job  *job.Job
	// Budget is that of the run, unless Unlimited.
	Budget    scheduler.Resources
	Unlimited bool
	// Code is what the blocks of each task do, in the order of the job.
	Code []Code
	// Delay and Jitter make up the time of a packet; SyncTime is the mean time of a commit.
	Delay, Jitter, SyncTime time.Duration
	// StartTime is how long a worker's program takes to begin.
	StartTime time.Duration
	// Batch is the batch system that starts the workers; nil for processes on one machine.
	Batch *BatchConfig
	// External: nobody starts workers; they come by themselves.
	External bool
	// Nodes is how many machines there are for workers of a batch system, else 1.
	Nodes int
	// NoJournal keeps nothing: no file, no crash that could be survived. For runs that only ask how long something takes.
	NoJournal bool
	// SegmentBytes is the size of a journal segment, 0 = the journal's own default.
	SegmentBytes int64
	// Tracking keeps done marks.
	Tracking bool
	// Faults happen meanwhile.
	Faults []Fault
	// Log takes one line for everything that happens; nil = none.
	Log io.Writer
	// Ran is told of each time that user code ran; nil = nobody.
	Ran func(Ran)
	// Small: the invariants keep something for every block. Large runs check less of each.
	Small bool
	// Retries is how often people run the blocks again that have failed for good.
	Retries int
	// MaxTime and MaxEvents bound the run: beyond them it does not end. 0 = no bound.
	MaxTime   time.Duration
	MaxEvents int64
}

// Ran is one run of user code.
type Ran struct {
	Worker     string
	Number     int // of the worker's process, from 0
	Task       int32
	Block      int64
	Began, End time.Duration
	Outcome    scheduler.Outcome
}

// Result is how a run ended.
type Result struct {
	State engine.RunState
	Why   string
	// Time is when it ended, since it began. Events is how many events there were, Lives how many coordinators.
	Time     time.Duration
	Events   int64
	Lives    int
	Snapshot engine.Snapshot
}

// A World is one run in virtual time.
type World struct {
	cfg       Config
	now       time.Duration
	queue     eventHeap
	net       network
	disk      *memDisk
	diskRng   *rand.Rand
	launcher  launching
	checks    checks
	log       io.Writer
	co        *coordinator // the latest
	listening *coordinator // who answers at the address of the run; nil = nobody
	epoch     uint64
	workers   []*worker // that live, in no special order but the same for one seed
	number    int       // of processes so far
	outbox    []leftover
	packets   []*packet
	pending   *packet // what a worker is about to send
	slowSync  interval
	killAfter int // hand-outs until the coordinator is to die before its next commit; 0 = it is not
	killNext  bool
	retry     bool // the next coordinator is to run again what has failed
	killIn    int  // effects until the coordinator dies; 0 = it does not
	resumeIn  time.Duration
	doneThen  int64 // blocks done when a life last ended, and lives since that have done none
	inVain    int
	over      bool
	lost      bool // it is over, and nothing but another run helps: whatever still runs is left behind
	result    Result
	failure   error
	faults    faultActor
	events    int64
	snapshots int // of the journal
	seen      [sights]int
}

// A leftover is a result in the outbox.
type leftover struct {
	worker string
	nonce  uint64
	u      undelivered
}

// launching is a launcher in virtual time.
type launching interface {
	properties() launcher.Properties
	// begins: a coordinator lives. close: it ends in good order.
	begins(co *coordinator)
	close(co *coordinator)
	submit(co *coordinator, s *engine.Submission)
	cancel(co *coordinator, workers []launcher.Worker)
	kill(co *coordinator, workers []launcher.Worker)
	// ask puts a question to a batch system.
	ask(co *coordinator, kind engine.EffectKind, a engine.Ask)
	// adopt takes over the workers that earlier coordinators have left on this machine.
	adopt(co *coordinator) []launcher.Worker
	// ended: a worker's process is gone.
	ended(x *worker, how launcher.End)
	// held is what the system holds for this run at the moment.
	held() scheduler.Resources
}

// The generators, one for each kind of party.
const (
	streamNet uint64 = iota + 1
	streamDisk
	streamLauncher
	streamScenario
	streamMore // what scenarios got later, so that the worlds before stay what they were
	streamRetries
	streamTrouble
)

func (c *Config) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, stream)) }

// New makes a world in which nothing has happened.
func New(cfg Config) *World {
	w := &World{cfg: cfg, log: cfg.Log}
	w.net = network{rng: cfg.rng(streamNet), base: cfg.Delay, jitter: cfg.Jitter, nodes: make([]cut, max(cfg.Nodes, 1)+1)}
	w.diskRng = cfg.rng(streamDisk)
	w.disk = newMemDisk(w.diskRng)
	w.disk.saw = w.saw
	switch {
	case cfg.External:
		w.launcher = newHost(w)
	case cfg.Batch != nil:
		w.launcher = newQueue(w)
	default:
		w.launcher = newProcesses(w)
	}
	w.checks.world = w
	w.faults.world = w
	return w
}

// Run runs it to its end. The error says what should never happen; the result is as far as it came.
func (w *World) Run() (Result, error) {
	for i := range w.cfg.Faults {
		w.queue.push(event{at: w.cfg.Faults[i].At, to: &w.faults, n: uint64(i)})
	}
	w.begin()
	for !w.over && w.failure == nil && len(w.queue.list) > 0 {
		ev := w.queue.pop()
		if w.cfg.MaxTime > 0 && ev.at > w.cfg.MaxTime || w.cfg.MaxEvents > 0 && w.events >= w.cfg.MaxEvents {
			w.failure = w.stuck()
			break
		}
		w.events++
		w.now = ev.at
		ev.to.act(&ev)
		if ev.packet != nil {
			w.recycle(ev.packet)
		}
	}
	if w.failure == nil && !w.over {
		w.failure = w.stuck()
	}
	if w.failure == nil && !w.lost {
		w.checks.atEnd()
	}
	w.result.Time, w.result.Events, w.result.Lives = w.now, w.events, int(w.epoch)
	return w.result, w.failure
}

// stuck says what a run waits for that does not end.
func (w *World) stuck() error {
	var s strings.Builder
	fmt.Fprintf(&s, "at %v, after %d events and in epoch %d, the run has not ended", w.now, w.events, w.epoch)
	if w.co != nil && w.co.engine != nil {
		var snap engine.Snapshot
		w.co.engine.Snapshot(&snap)
		fmt.Fprintf(&s, " (%s)", snap.Ending)
		for _, t := range snap.Tasks {
			fmt.Fprintf(&s, "\n  %s: %+v, waits: %s", t.ID, t.Tally, t.Waits)
		}
	}
	return fmt.Errorf("%s", s.String())
}

// step counts an effect. The coordinator may die before any.
func (w *World) step() {
	if w.killIn > 0 {
		if w.killIn--; w.killIn == 0 {
			w.saw(sawKilled)
			panic(killed{})
		}
	}
}

// crash ends the coordinator's process. Another begins a while later.
func (w *World) crash(co *coordinator) {
	if co.dead {
		return
	}
	w.killIn, w.killAfter, w.killNext, w.disk.killIn = 0, 0, false, 0
	co.die()
	if w.listening == co {
		w.listening = nil
	}
	if w.co == co {
		w.resumeLater()
	}
}

// longestPause is how long a person leaves a run alone that has ended again and again.
const longestPause = time.Hour

// resumeLater has another coordinator begin: the longer it goes on without a block, the later.
func (w *World) resumeLater() {
	d := max(w.resumeIn, time.Second)
	if done := w.checks.doneBlocks(); done > w.doneThen {
		w.doneThen, w.inVain = done, 0
	} else {
		d = max(d, min(time.Second<<min(w.inVain, 20), longestPause))
		w.inVain++
	}
	w.queue.push(event{at: w.now + d, to: &w.faults, what: faultResumes, n: w.epoch})
}

// ends takes note that a life ended in good order.
func (w *World) ends(co *coordinator) {
	if w.listening == co {
		w.listening = nil
	}
	w.logf("epoch %d ends: %s %s", co.epoch, co.state, co.why)
	w.checks.ends(co)
	if w.co != co {
		return // it was taken over
	}
	w.result.State, w.result.Why = co.state, co.why
	co.engine.Snapshot(&w.result.Snapshot)
	if w.cfg.Retries > 0 && !w.cfg.NoJournal && co.state == engine.RunFailed {
		w.cfg.Retries--
		w.retry = true
	} else if w.cfg.NoJournal || co.state == engine.RunDone || co.state == engine.RunFailed {
		w.over = true
		return
	}
	w.resumeLater() // a person sees to it
}

// cannotStart: the coordinator could not begin. A person tries again later.
func (w *World) cannotStart(co *coordinator, err error) {
	w.logf("epoch %d cannot begin: %v", co.epoch, err)
	co.dead = true
	if errors.Is(err, errLocked) {
		w.resumeLater()
		return
	}
	if w.disk.rotten && co.journal == nil && strings.Contains(err.Error(), journalDir) {
		w.saw(sawRot)
		w.over, w.lost = true, true
		return
	}
	if !w.disk.full && !w.disk.failedSync && !w.disk.forgot {
		w.checks.fail("epoch %d cannot begin: %v", co.epoch, err)
		return
	}
	w.disk.failedSync, w.disk.forgot = w.disk.failSync, false
	w.resumeLater()
}

// syncTime is how long a commit takes.
func (w *World) syncTime() time.Duration {
	d := w.cfg.SyncTime
	if w.slowSync.has(w.now) {
		d += 200 * time.Millisecond
	}
	if d <= 0 {
		return 0
	}
	return d/2 + time.Duration(w.diskRng.Int64N(int64(d)))
}

// patience is what workers are told about time.
func (w *World) patience() patience {
	j := w.cfg.Job
	abandon := j.AbandonAfter
	if abandon == 0 {
		abandon = w.launcher.properties().AbandonAfter
	}
	if abandon == 0 {
		abandon = 2 * time.Minute
	}
	return patience{heartbeat: w.co.heartbeatEvery(), abandon: abandon * 9 / 10, hint: j.HintAfter * 8 / 10, grace: j.Grace}
}

// runs asks what becomes of an attempt.
func (w *World) runs(x *worker, b *heldBlock) (time.Duration, scheduler.Outcome, bool) {
	return w.cfg.Code[b.h.Task].end(w.cfg.Seed, b.h.Task, b.h.Block, w.checks.failures(b.h), b.h.Attempt)
}

// nodeName is how a machine calls itself; 0 is the coordinator's.
func (w *World) nodeName(node int) string {
	if node == 0 {
		return "login"
	}
	return fmt.Sprintf("n%d", node)
}

// process starts a worker's process after a while.
func (w *World) process(at launcher.Worker, node, slots int, in time.Duration) *worker {
	x := &worker{world: w, at: at, id: at.String(), nonce: mix(w.cfg.Seed, uint64(w.number)) | 1, node: node, slots: slots}
	w.enlist(x, in)
	return x
}

// enlist has a worker begin after a while.
func (w *World) enlist(x *worker, in time.Duration) {
	x.number = w.number
	w.number++
	x.index = len(w.workers)
	w.workers = append(w.workers, x)
	w.queue.push(event{at: w.now + in, to: x, what: workerStarts})
}

// gone forgets a worker that is dead.
func (w *World) gone(x *worker) {
	last := w.workers[len(w.workers)-1]
	w.workers[x.index], last.index = last, x.index
	w.workers[len(w.workers)-1] = nil
	w.workers = w.workers[:len(w.workers)-1]
}
