package engine

import (
	"errors"
	"fmt"
	"time"

	"example.org/daisy/internal/fleet"
	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// Config is what a run is made of.
type Config struct {
	Job *job.Job
	// Pipeline is the job's, with its done bits and masks. Effects and events number tasks as it does.
	Pipeline *scheduler.Pipeline
	// Launcher is what can be relied on; the zero value where nobody launches workers.
	Launcher launcher.Properties
	// Epoch is that of this coordinator, Began when it started, in Unix nanoseconds: for people, and for how long workers were
	// told to wait for it.
	Epoch uint64
	Began int64
	// Budget is what all slots together may take, unless Unlimited.
	Budget    scheduler.Resources
	Unlimited bool
	// MaxSlots bounds the slots of all workers; 0 = no limit. A serial run has 1.
	MaxSlots int
	// StopAtFirstFailure ends the run at the first attempt that fails in any way, without a retry.
	StopAtFirstFailure bool
	// Node is the machine that this coordinator runs on, as its workers call it.
	Node string
	// LogPath is where the log of a launched worker is, for people; nil where there are none.
	LogPath func(worker string) string
	// External: no worker is ever asked for; all come by themselves.
	External bool
	// Past is what earlier epochs of the run have left; nil for a run that begins. It belongs to the engine from then on.
	Past *Past
	// Recovered are what Past knows and the journal does not: ends of attempts, and retries.
	Recovered []Record
	// Left are the workers of earlier epochs that the launcher has found alive here, and has taken over. All others that it, or one like it,
	// had started on this machine have ended.
	Left []launcher.Worker
	// JournalHandouts: workers are part of this process and die with it, so that every hand-out is journalled too.
	JournalHandouts bool
	// NoJournal: nothing of the run is kept. Nobody is asked to append or to commit, and whatever has to be durable first is so at once.
	NoJournal bool
	// NoTracking: nobody wants to hear of every block that is done.
	NoTracking bool
}

const (
	// workUnits is how many blocks bulk work may touch in one Apply: some milliseconds.
	workUnits = 1 << 15
	// defaultAbandonAfter holds where neither the job nor the launcher says how long a silence is too long.
	defaultAbandonAfter = 2 * time.Minute
)

// An Engine is one run. Its methods must not be called at the same time.
type Engine struct {
	cfg   Config
	sched *scheduler.Scheduler
	fleet *fleet.Fleet
	tasks []task
	out   *Effects

	// now is the engine's clock: the time given to Apply less all stalls. wake is the next deadline on it.
	now, last, stalled time.Duration
	wake               time.Duration
	timed              bool
	more               bool

	// appended counts records; committed is how many of them are durable. asked: this Apply wants a commit.
	appended, committed uint64
	wantCommit          bool
	ofBlock             Record // memory for those of single blocks
	urged               uint64 // the last record for which a commit was called urgent
	queue               queue

	workers     map[string]*worker
	sessions    map[SessionID]*worker
	live        []*worker // not ended, in no order
	joins       uint32    // workers that have joined ever
	nodes       map[string]uint32
	submissions map[string]*submission
	excluded    map[string]*Exclusion // by hand, by node
	tags        int
	rows        []*row
	acks        []*worker
	scanAt      time.Duration // when some worker's silence or idleness is to be looked at; never = not at all

	leases   leaseTable
	spare    *lease // list of unused ones
	inHands  int64  // leases that are not bound to a result
	results  int64  // leases that are
	retries  retryHeap
	demand   demand
	began    []TaskRecord       // what the first record says of the tasks
	salvaged uint64             // the last record of Config.Recovered
	sets     []Setting          // the limits that are not those of the job, in the order in which they became so
	carried  []string           // what became of those of earlier epochs, to be said
	lost     []uint32           // workers of earlier epochs that are known to have ended
	away     []*worker          // those that may come back, in the order in which they had joined
	parked   []Event            // of those that have, and have to wait
	held     []PastWorker       // those that cannot, and may live
	patient  time.Duration      // for how long workers of earlier epochs were told to wait for this one
	within   time.Duration      // for how long those of this one are, when it steps aside
	holdTo   time.Duration      // until then blocks are reserved because of held
	reserves bool               // as of the last look: blocks below task.reserved are for those who are away
	shedding int                // workers of worker.sheds
	claims   map[blockOf]*lease // in hands since an earlier epoch
	launched int64              // workers asked for ever
	peak     int64              // most workers alive at once
	proven   []bool             // classes of which a worker has shown that it works
	good     int64              // valid returns
	tight    bool               // limits became smaller, and more may be taken than they allow

	batch // where workers come from a batch system

	phase phase
	stop  stopping
	why   string // why the run ends, as soon as it does
	state RunState
}

// A task is one task's share of the engine.
type task struct {
	spec    *job.Task
	class   int
	timeout time.Duration // from the start of a block until the engine itself ends it; 0 = never
	retimed bool          // it was changed while the run went on
	ready   int64         // blocks, as of the last look
	ended   bool          // as of the last look
	clients bool          // its blocks are for clients that come by themselves: no worker is asked for, and none of another kind gets them

	running leaseList  // those whose timeout runs, oldest first
	waiting workerList // those with an open request, longest first

	// Of its workers: covers are free slots that can be counted on, joined and starting slots of workers that have and have not
	// joined, idle workers with no block at all, starters workers that have not joined, leaving slots on their way out.
	covers, joined, starting, idle, starters, leaving int64
	started, most                                     int64 // blocks that run, and at most ran
	ahead                                             int64 // blocks that could be recalled: not started, in the hands of a connected worker
	recalls                                           int64 // blocks that were recalled, and have neither come back nor started
	results                                           int64 // of it waiting for their commit
	served, checked                                   int64

	estimate estimate
	mark     mark
	reserved int64 // the mark of the epoch before: blocks from here on have never been handed out
	dry      bool  // in this dispatch: nothing from there on is ready
	brake    *fleet.Brake
	tripped  bool
	refused  int           // submissions refused in a row
	pauseTo  time.Duration // no submission before
	failed   int64
	failures []FailedBlock

	hopeless string // why no more workers are asked for
	refusal  string // the last one by a batch system
	times    *times // of blocks, where workers have an end
}

// New checks what it is given and makes a run of it. Nothing happens before the first Apply.
func New(cfg Config) (*Engine, error) {
	if cfg.Job == nil || cfg.Pipeline == nil {
		return nil, errors.New("engine: a run needs a job and its pipeline")
	}
	specs := cfg.Pipeline.Tasks()
	if cfg.StopAtFirstFailure {
		for i := range specs {
			specs[i].MaxRetries, specs[i].MaxLost = 0, 1
		}
		p, err := scheduler.NewPipeline(specs, cfg.Pipeline.Edges())
		if err != nil {
			return nil, err
		}
		cfg.Pipeline = p
	}
	var options scheduler.Options
	if cfg.Past != nil {
		options.Past = cfg.Past.ends()
	}
	sched, err := scheduler.New(cfg.Pipeline, options)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, sched: sched,
		workers: make(map[string]*worker), sessions: make(map[SessionID]*worker), nodes: make(map[string]uint32),
		submissions: make(map[string]*submission), excluded: make(map[string]*Exclusion), claims: make(map[blockOf]*lease),
		tasks: make([]task, len(specs)), scanAt: never,
	}
	kinds := make([]fleet.Kind, len(specs))
	fleetTasks := make([]fleet.Task, len(specs))
	for i, s := range specs {
		spec := cfg.Job.Task(s.ID)
		if spec == nil {
			return nil, fmt.Errorf("engine: the pipeline has a task %q that the job has not", s.ID)
		}
		kinds[i] = fleet.Kind{Requires: spec.Requires, Env: spec.Env, Options: spec.Runner.Kind.String() + "\n" + spec.LauncherClass()}
		fleetTasks[i] = fleet.Task{Requires: spec.Requires, Slots: max(int64(spec.Slots), 1), MaxWorkers: spec.MaxWorkers, Priority: spec.Priority}
		for _, u := range cfg.Pipeline.Upstream(i) {
			fleetTasks[i].Depth = max(fleetTasks[i].Depth, fleetTasks[u].Depth+1)
		}
		t := &e.tasks[i]
		t.spec, t.clients = spec, spec.Runner.Kind == job.RunnerClients
		if spec.Timeout > 0 {
			t.timeout = spec.Timeout + timeoutSlack
		}
		t.brake = fleet.NewBrake(spec.MaxWorkerRestarts, cfg.Launcher.OneNode)
		t.mark.step = markStep(s.Grid.Len())
	}
	for i := range specs {
		e.began = append(e.began, TaskRecordOf(&specs[i]))
	}
	for i, class := range fleet.Classes(kinds) {
		fleetTasks[i].Class, e.tasks[i].class = class, class
		e.proven = append(e.proven, cfg.Launcher.Local)
	}
	e.fleet = fleet.New(fleetTasks, scheduler.NewBudget(cfg.Budget, cfg.Unlimited), int64(cfg.MaxSlots))
	e.demand.init(len(specs))
	if cfg.Launcher.Queue {
		e.openBook()
	}
	if cfg.Past != nil {
		e.resume(cfg.Past)
		e.stillExcluded(cfg.Past.exclude)
	}
	return e, nil
}

// Apply takes in one event at the time now (monotonic, since the coordinator's start) and appends what is to be done to out.
// Times that go back count as standing still.
func (e *Engine) Apply(now time.Duration, ev *Event, out *Effects) {
	if e.open(now, out) {
		e.take(ev)
		e.conclude()
	}
}

// ApplyAll takes in events that came at the same time, in their order, and draws the conclusions once: what a worker returns
// and what it asks for in one message is one question then.
func (e *Engine) ApplyAll(now time.Duration, events []Event, out *Effects) {
	if e.open(now, out) {
		for i := range events {
			e.take(&events[i])
		}
		e.conclude()
	}
}

// open begins an application of events. It is false when the run is over.
func (e *Engine) open(now time.Duration, out *Effects) bool {
	if e.phase == finished {
		return false
	}
	e.out = out
	e.advance(now)
	if e.appended == 0 {
		e.begin()
	}
	return true
}

// take takes in one event.
func (e *Engine) take(ev *Event) {
	if e.phase == finished {
		return
	}
	switch ev.Kind {
	case EventJoin:
		e.join(ev.Request, ev.Join)
	case EventAttach:
		if !e.attachLater(ev) {
			e.attach(ev)
		}
	case EventSubmitted:
		e.submitted(ev.Tag, ev.Text)
	case EventStatus:
		e.status(ev.Status)
	case EventAnswered:
		if e.book != nil && ev.Answer != nil {
			e.book.Answered(e.now, *ev.Answer)
			e.readBook()
		}
	case EventCommitted:
		e.commit(ev.UpTo)
	case EventStop:
		e.stopRun(ev.Stop, ev.Text)
	case EventAside:
		e.stepAside(ev.Left, ev.Text)
	case EventBroken:
		e.breakRun(ev.Text)
	case EventSet:
		e.set(ev.Set)
	case EventStopWorker:
		e.stopWorker(ev.Worker, ev.Text)
	case EventExclude:
		e.exclude(ev.Exclude)
	case EventDetach, EventHeartbeat, EventAcquire, EventRelease, EventSuccesses, EventLeaving, EventEnding:
		if w := e.sessions[ev.Session]; w != nil {
			e.fromWorker(w, ev)
		} else if len(e.parked) > 0 && ev.Kind == EventDetach {
			e.detachParked(ev.Session)
		}
	}
	if e.tight {
		e.shrink()
	}
}

// conclude decides everything that follows from what was taken in.
func (e *Engine) conclude() {
	e.drain()
	if e.phase != finished {
		if e.timed && e.now >= e.wake {
			e.fire()
		}
		e.settle()
	}
	e.out = nil
}

// begin writes the first record.
func (e *Engine) begin() {
	e.append(Record{Kind: RecordStart, Epoch: e.cfg.Epoch, Began: e.cfg.Began, Tasks: e.began})
	for _, w := range e.lost {
		e.append(Record{Kind: RecordGone, Worker: w, Text: "lost"})
	}
	e.lost = nil
	for _, w := range e.away {
		e.append(Record{Kind: RecordServes, Worker: w.number, Task: w.task})
	}
	for _, r := range e.cfg.Recovered {
		e.append(r)
		e.salvaged = e.appended
		if r.Kind == RecordEnd {
			e.queue.push(pending{upTo: e.appended, kind: pendingRecovered, task: r.Task, block: r.Block})
		}
	}
	for _, text := range e.carried {
		e.notice("%s", text)
	}
	e.carried = nil
	for i := range e.tasks {
		e.raiseMark(i, 0)
	}
	for i := range e.binds {
		e.ask(&e.binds[i])
	}
	e.binds = nil
	e.clearNodes()
	e.wantCommit = true
}

// fromWorker takes in what a session says. All of it is a sign of life.
func (e *Engine) fromWorker(w *worker, ev *Event) {
	if ev.Kind == EventDetach {
		e.detach(w, ev.Gone)
		return
	}
	e.hear(w)
	e.shed(w, false)
	switch ev.Kind {
	case EventHeartbeat:
		e.settleDoubts(w)
	case EventAcquire:
		e.settleDoubts(w)
		e.acquire(w, ev.Request, ev.N)
	case EventRelease:
		e.release(w, ev)
	case EventSuccesses:
		one := Event{Kind: EventRelease, Session: ev.Session, Seq: ev.Seq, Epoch: ev.Epoch, Outcome: scheduler.Success}
		for _, s := range ev.Successes {
			one.Lease, one.Use.WallNanos = s.Lease, s.WallNanos
			e.release(w, &one)
			one.Seq++
		}
	case EventLeaving:
		e.settleDoubts(w)
		e.leaving(w, ev.Leave, ev.Failure)
	case EventEnding:
		e.endsSoon(w, ev.Left)
	}
}

// settle draws the conclusions.
func (e *Engine) settle() {
	for {
		e.more = e.sched.Work(workUnits)
		if len(e.parked) > 0 && !e.sched.More() {
			e.attachParked()
		}
		e.look()
		again := false
		if e.phase == running {
			e.dispatch()
			e.recall()
			again = e.orderWorkers()
			e.checkBrakes()
		}
		if e.book != nil && !e.stop.aside {
			again = e.turnBook() || again
			e.checkHopeless()
		}
		if !e.progress() && !again {
			break
		}
	}
	e.more = e.more || e.undrained()
	e.acknowledge()
	e.askCommit()
	e.schedule()
}

// look notes what is ready, and writes down tasks that have ended.
func (e *Engine) look() {
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.ended {
			continue
		}
		tally := e.sched.Tally(i)
		t.ready = tally.Ready
		if e.sched.State(i) != scheduler.Running && t.results == 0 {
			t.ended, t.ready = true, 0
			e.demand.dirty = true
			e.append(Record{Kind: RecordTaskEnd, Task: int32(i), State: uint8(e.sched.State(i)), Tally: tally})
			e.emit(Effect{Kind: EffectTaskEnded, Task: int32(i), Text: e.sched.State(i).String()})
			e.wantCommit = true
			if t.clients {
				e.dismiss(i)
			}
		}
	}
}

// dismiss tells the clients of a task that it has ended: they serve no other.
func (e *Engine) dismiss(task int) {
	for _, w := range e.live {
		if int(w.task) == task {
			e.tell(w, toLeave, "its task has ended")
		}
	}
}

// More reports whether bulk work is left: Apply(EventTick) is to be called again, soon.
func (e *Engine) More() bool { return e.more && e.phase != finished }

// Next returns when Apply(EventTick) must be called at the latest; ok is false when only an event can change anything.
func (e *Engine) Next() (at time.Duration, ok bool) {
	if !e.timed || e.phase == finished {
		return 0, false
	}
	return e.wake + e.stalled, true
}

// Finished reports whether the run is over: EffectFinished has been emitted.
func (e *Engine) Finished() bool { return e.phase == finished }

// State is how the run ended, RunRunning until it has.
func (e *Engine) State() RunState { return e.state }

func (e *Engine) emit(f Effect) { e.out.List = append(e.out.List, f) }

// effect adds an effect to be filled in where it stands; those of every block are made so, as copying one costs more than
// deciding it.
func (e *Engine) effect(kind EffectKind) *Effect {
	f := grow(&e.out.List)
	f.Kind = kind
	return f
}

func (e *Engine) notice(format string, args ...any) {
	e.emit(Effect{Kind: EffectNotice, Text: fmt.Sprintf(format, args...)})
}
