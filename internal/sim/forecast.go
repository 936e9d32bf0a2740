package sim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// What a forecast takes for granted; docs/simulation.md has a table of it.
const (
	// Turnaround is from the end of a block to the begin of the next one on that slot, SyncTime how long a commit takes, and AnswerTime
	// a command of a batch system.
	Turnaround = time.Millisecond
	SyncTime   = 2 * time.Millisecond
	AnswerTime = time.Second
	// EndSeen is how long a launcher on this machine takes to see the end of a worker.
	EndSeen = 2 * time.Millisecond
	// minJobAge is how long a batch system lists what has ended.
	minJobAge = 5 * time.Minute
)

// ForecastConfig is a run of which somebody wants to know how it would go.
type ForecastConfig struct {
	Seed uint64
	// Job is the job, Pipeline its pipeline with what is done already.
	Job      *job.Job
	Pipeline *scheduler.Pipeline
	// Budget is that of the run, unless Unlimited; MaxSlots bounds all slots together, 0 = no limit.
	Budget    scheduler.Resources
	Unlimited bool
	MaxSlots  int
	// Code is what the blocks of each task of the pipeline do.
	Code []ForecastCode
	// Batch: workers come from a batch system. Each waits there for QueueWait, and may run for TimeLimit (0 = no limit).
	Batch     bool
	QueueWait Distribution
	TimeLimit time.Duration
	// TimeLimits, where TimeLimit is 0, are those of workers that are asked for each task, in the order of the pipeline.
	TimeLimits []time.Duration
	// StartTime is from the start of a worker until it asks for blocks.
	StartTime time.Duration
	// WorkerFailures is how often a worker ends by itself, in an hour of its life.
	WorkerFailures float64
	// Picture has it note who did what when.
	Picture bool
}

// ForecastCode is the user code of a task.
type ForecastCode struct {
	// Times is how long its blocks take, each Scale times as long.
	Times Distribution
	Scale float64
	// Failures is the share of attempts that fail, from 0 to 1, anywhere in their time.
	Failures float64
}

// timeLimit is how long a worker that was asked for a task may run, 0 = without limit.
func (c *ForecastConfig) timeLimit(task int32) time.Duration {
	if c.TimeLimit == 0 && int(task) < len(c.TimeLimits) {
		return c.TimeLimits[task]
	}
	return c.TimeLimit
}

// ErrBroken is that a forecast has broken one of its invariants: a fault of this program, and nothing of it can be believed.
var ErrBroken = errors.New("a fault of this program")

// A Forecast is how the run went.
type Forecast struct {
	State engine.RunState
	Why   string
	// Wall is the time of the whole run.
	Wall time.Duration
	// Used, Wasted and Idle are times of slots: of attempts that ended well, of others, and of workers without a block. Queued is how long
	// workers of a batch system waited, each counted once.
	Used, Wasted, Idle, Queued time.Duration
	// Workers is how many were started, MostSlots how many slots there were at once.
	Workers, MostSlots int64
	Tasks              []TaskForecast
	Path               Path
	Picture            *Picture // nil unless it was wanted
	Events             int64
}

// TaskForecast is one task, in the order of the pipeline.
type TaskForecast struct {
	ID    string
	Tally scheduler.Tally
	// Began and Ended are of the first and the last block that ran; zero if none did. Most is how many ran at once.
	Began, Ended time.Duration
	Most         int64
}

// Hours is the slot time of the workers.
func (f *Forecast) Hours() time.Duration { return f.Used + f.Wasted + f.Idle }

// IdleShare is the share of it in which there was no block, from 0 to 1.
func (f *Forecast) IdleShare() float64 {
	if f.Hours() == 0 {
		return 0
	}
	return float64(f.Idle) / float64(f.Hours())
}

// A forecaster is a lean shell of the engine: without bytes, packets and faults of the network, an event for each block.
type forecaster struct {
	cfg    ForecastConfig
	tasks  []*job.Task // in the order of the pipeline
	engine *engine.Engine
	fx     engine.Effects
	now    time.Duration
	queue  forecastHeap
	inbox  []engine.Event
	events int64
	seq    uint64        // of what will happen
	coming int64         // how much of that will happen to workers
	lived  time.Duration // when something last did

	appended          uint64
	commitAt          time.Duration // a commit is to begin then; never = none
	committing, again bool
	urgent            bool
	tickAt            time.Duration

	workers []*crewman // by number; nil once nobody will ask for it
	arrays  []*crew
	answer  engine.Answer // the batch system's next one; there is one question at a time
	made    int           // arrays, ever
	slots   int64         // of workers that have joined
	lanes   lanes
	out     Forecast
	paths   paths
	checks  forecastChecks
	over    bool
}

// What happens. The first belong to a worker, whose number the event has.
const (
	crewStarts   uint8 = iota // the batch system starts it
	crewJoins                 // its program is ready
	crewBlock                 // the block in slot n ends
	crewFails                 // it ends by itself
	crewLimit                 // its time is over
	crewEndSeen               // the launcher sees its end
	runTick                   // a deadline of the engine, or work that is left
	runCommits                // a commit begins
	runCommitted              // it has ended; n = records
	runBeats                  // workers say that they live
	runSubmitted              // n = number of the tag
	runAnswers                // the batch system answers
)

// Predict plays the run through. The error says what cannot be: the run cannot begin, does not end, or broke a rule.
func Predict(cfg ForecastConfig) (Forecast, error) {
	f := &forecaster{cfg: cfg, commitAt: never, tickAt: never}
	j := *cfg.Job
	f.cfg.Job = &j
	for _, t := range cfg.Pipeline.Tasks() {
		f.tasks = append(f.tasks, j.Task(t.ID))
		f.out.Tasks = append(f.out.Tasks, TaskForecast{ID: t.ID})
	}
	properties := launcher.Properties{OneNode: true, Local: true, IdleTimeout: 5 * time.Second, AbandonAfter: 2 * time.Minute}
	if cfg.Batch {
		properties = launcher.Properties{Queue: true, IdleTimeout: 2 * time.Minute, AbandonAfter: 15 * time.Minute}
	}
	var err error
	f.engine, err = engine.New(engine.Config{Job: &j, Pipeline: cfg.Pipeline, Launcher: properties, Node: "here", Epoch: 1,
		Budget: cfg.Budget, Unlimited: cfg.Unlimited, MaxSlots: cfg.MaxSlots})
	if err != nil {
		return f.out, err
	}
	// Only now: the engine has refused more blocks than memory is to be had for.
	f.paths.init(cfg.Pipeline)
	f.checks.init(f)
	if cfg.Picture {
		f.out.Picture = newPicture(len(f.tasks))
	}
	f.at(j.HeartbeatTimeout/2, runBeats, 0, 0)
	f.say(engine.Event{Kind: engine.EventTick})
	f.settle()
	return f.run()
}

const (
	// longestForecast bounds a run that goes on for ever, and the time that this program spends on one.
	longestForecast = 10 * 365 * 24 * time.Hour
	// stuckAfter is how long after anything has happened to a worker, and when nothing will, a run is not expected to end any more.
	stuckAfter = 24 * time.Hour
)

func (f *forecaster) run() (Forecast, error) {
	for !f.over && f.checks.err == nil {
		long := len(f.queue) > 0 && f.queue[0].at > longestForecast
		if len(f.queue) == 0 || long || f.coming == 0 && f.queue[0].at > f.lived+stuckAfter {
			f.out.Wall, f.out.Events = f.now, f.events
			return f.out, f.stuck(long)
		}
		ev := f.queue.pop()
		f.events++
		f.now = ev.at
		if ev.kind < runTick {
			f.coming--
			f.lived = f.now
		}
		f.act(&ev)
		f.settle()
	}
	f.finish()
	return f.out, f.checks.err
}

// stuck says why there is no answer; long: there may be one, too far away.
func (f *forecaster) stuck(long bool) error {
	var snap engine.Snapshot
	f.engine.Overview(&snap)
	text := "the run does not end"
	if long {
		text = "the run has not ended after 10 years"
	}
	for _, t := range snap.Tasks {
		if t.Waits != "" {
			text += fmt.Sprintf(", task %q waits: %s", t.ID, t.Waits)
		}
	}
	return errors.New(text)
}

// at has something happen.
func (f *forecaster) at(when time.Duration, kind uint8, number int, n uint64) {
	if when < f.now { // beyond all time: never
		return
	}
	f.seq++
	if kind < runTick {
		f.coming++
	}
	f.queue.push(forecastEvent{at: when, seq: f.seq, kind: kind, number: int32(number), n: n})
}

func (f *forecaster) act(ev *forecastEvent) {
	switch ev.kind {
	case runTick:
		if f.tickAt > f.now {
			return // armed anew meanwhile
		}
		f.tickAt = never
		f.say(engine.Event{Kind: engine.EventTick})
	case runCommits:
		if f.commitAt <= f.now && !f.committing {
			f.commitAt, f.committing = never, true
			f.at(f.now+SyncTime, runCommitted, 0, f.appended)
		}
	case runCommitted:
		f.committing = false
		f.say(engine.Event{Kind: engine.EventCommitted, UpTo: ev.n})
		if f.again {
			f.again = false
			f.commit(f.urgent)
		}
	case runBeats:
		f.beat()
	case runSubmitted:
		f.say(engine.Event{Kind: engine.EventSubmitted, Tag: strconv.FormatUint(ev.n, 10)})
	case runAnswers:
		f.say(engine.Event{Kind: engine.EventAnswered, Answer: &f.answer})
	default:
		if x := f.workers[ev.number]; x != nil {
			f.happens(x, ev)
		}
	}
}

// say queues an event for the engine; settle hands over what is queued, and does what comes of it, until nothing is left.
func (f *forecaster) say(ev engine.Event) { f.inbox = append(f.inbox, ev) }

func (f *forecaster) settle() {
	for len(f.inbox) > 0 && !f.over {
		f.fx.Reset()
		f.engine.ApplyAll(f.now, f.inbox, &f.fx)
		clear(f.inbox)
		f.inbox = f.inbox[:0]
		f.perform()
		f.checks.applied()
	}
	at := time.Duration(never)
	if f.engine.More() {
		at = f.now
	} else if next, timed := f.engine.Next(); timed {
		at = max(next, f.now)
	}
	if at < f.tickAt {
		f.tickAt = at
		f.at(at, runTick, 0, 0)
	}
}

// commit has what was appended become durable, as the coordinator does it.
func (f *forecaster) commit(urgent bool) {
	if f.committing {
		f.urgent = urgent || f.again && f.urgent
		f.again = true
		return
	}
	at := f.now
	if !urgent {
		at += commitWithin
	}
	if at < f.commitAt {
		f.commitAt = at
		f.at(at, runCommits, 0, 0)
	}
}

// perform does what the engine wants done.
func (f *forecaster) perform() {
	for i := range f.fx.List {
		e := &f.fx.List[i]
		switch e.Kind {
		case engine.EffectAppend:
			f.appended++
		case engine.EffectCommit:
			f.commit(e.Urgent)
		case engine.EffectEnded:
			f.ended(e.Attempt)
		case engine.EffectSubmit:
			f.submit(e.Submit)
		case engine.EffectCancel:
			f.cancel(e.Workers)
			if f.cfg.Batch {
				f.answers(engine.Answer{})
			}
		case engine.EffectKill:
			for _, w := range e.Workers {
				if x := f.find(w); x != nil {
					f.die(x, launcher.End{Cause: launcher.Signalled, Signal: 9, Ours: true})
				}
			}
		case engine.EffectList, engine.EffectKnown, engine.EffectAccount, engine.EffectThrottle, engine.EffectExclude, engine.EffectCancelArray:
			f.ask(e.Kind, e.Ask)
		case engine.EffectFinished:
			f.over, f.out.State, f.out.Why = true, e.State, e.Text
		case engine.EffectJoined:
			f.joined(f.workers[e.Request-1], e.Task)
		case engine.EffectRefused:
			if e.Code != "" {
				f.die(f.workers[e.Request-1], launcher.End{Cause: launcher.Exited})
			}
		case engine.EffectWelcome, engine.EffectBlocks, engine.EffectReassign, engine.EffectDrain, engine.EffectStop,
			engine.EffectKillBlock, engine.EffectClose:
			if x := f.workers[e.Session-1]; x != nil && x.state == crewServes {
				f.hears(x, e)
			}
		}
	}
}

// ended takes an attempt into the account.
func (f *forecaster) ended(a *engine.Attempt) {
	f.checks.ended(a)
	switch a.Verdict {
	case scheduler.Succeeded, scheduler.WasSkipped:
		f.out.Used += a.Held
	default:
		f.out.Wasted += a.Held
	}
}

// finish adds the account up.
func (f *forecaster) finish() {
	f.out.Wall, f.out.Events = f.now, f.events
	var snap engine.Snapshot
	f.engine.Snapshot(&snap)
	for i := range snap.Workers {
		f.out.Idle += snap.Workers[i].Idle
	}
	for i := range snap.Tasks {
		f.out.Tasks[i].Tally, f.out.Tasks[i].Most = snap.Tasks[i].Tally, snap.Tasks[i].MaxConcurrency
	}
	f.out.Path = f.paths.last
	f.out.Path.Before += f.now - f.paths.last.end
	if f.out.Picture != nil {
		f.out.Picture.End = f.now
		for _, x := range f.workers {
			if x != nil && x.state == crewServes {
				f.leaves(x)
			}
		}
	}
	f.checks.atEnd(&snap)
}

// draw is a number from 0 up to 1 that only depends on the seed and on what it is for.
func (f *forecaster) draw(what ...uint64) float64 {
	h := f.cfg.Seed
	for _, x := range what {
		h = mix(h, x)
	}
	return share(h)
}

// attempt is how an attempt goes.
func (f *forecaster) attempt(h scheduler.Handout) (time.Duration, scheduler.Outcome) {
	c := &f.cfg.Code[h.Task]
	key := mix(f.cfg.Seed, uint64(h.Task), uint64(h.Block), uint64(h.Attempt))
	d := float64(c.Times.At(share(key))) * c.Scale
	took, outcome := time.Duration(min(d, float64(longestTime))), scheduler.Success
	if c.Failures > 0 && share(mix(key, 1)) < c.Failures {
		took, outcome = time.Duration(float64(took)*share(mix(key, 2))), scheduler.Failed
	}
	if limit := f.tasks[h.Task].Timeout; limit > 0 && took > limit {
		return limit, scheduler.TimedOut
	}
	return took, outcome
}

// lifetime is how long a worker lives unless something else ends it.
func (f *forecaster) lifetime(number int) time.Duration {
	if f.cfg.WorkerFailures <= 0 {
		return never
	}
	mean := time.Duration(min(float64(time.Hour)/f.cfg.WorkerFailures, math.MaxInt64/2))
	return Exponential(mean).At(f.draw(1, uint64(number)))
}
