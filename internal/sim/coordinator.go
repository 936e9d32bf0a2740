package sim

import (
	"slices"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/internal/journal"
	"example.org/daisy/internal/tracking"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// What happens to a coordinator.
const (
	coStarts    what = iota
	coPacket         // packet: joins, hellos, messages
	coClosed         // packet.link is closed
	coTick           // a deadline of the engine, or work that is left
	coCommits        // the flusher begins a commit
	coCommitted      // it has ended; n = durable records
	coFailed         // it has failed
	coTracks         // marks are written
	coBeats          // heartbeats to all
	coLazy           // acknowledgements that waited go out
	coStatus         // n = index in pendingStatus
	coSubmitted      // n = index in pendingAnswer
	coAnswered       // n = index in asked: what a batch system says
	coLooks          // it looks whether its directory can be written to
	coStops          // a person ends the run; n = engine.StopKind
	coOrdered        // a person wants something; n = index in orders
	coWarned         // the job that it is ends soon
	coTold           // that job is told to end
	coLearns         // it is answered why
)

// Times of internal/coordinator.
const (
	commitWithin = 20 * time.Millisecond
	lazyDelay    = 2 * time.Millisecond
	trackEvery   = time.Second
	renewEvery   = 5 * time.Second
)

// A coordinator is one life of the coordinator: the shell that does what the engine says. Its process may die at any effect.
type coordinator struct {
	world *World
	epoch uint64
	began time.Duration
	dead  bool
	node  int // where it runs, 0 = on the login node
	// stalledTo: the process is stopped until then; lag is how much the machine's clock has stood still since it began.
	stalledTo, lag time.Duration

	engine   *engine.Engine
	pipeline *scheduler.Pipeline
	past     *engine.Past
	fx       engine.Effects
	journal  *journal.Journal
	stores   []*tracking.Store

	appended, committed uint64
	committing          bool
	commitAt            time.Duration // a commit is to begin then; never = none
	again, urgent       bool          // one was asked for meanwhile
	marks               []mark
	tickAt              time.Duration // armed; never = not at all
	lastSession         engine.SessionID
	lastRequest         uint64
	joins               map[uint64]*link
	sessions            map[engine.SessionID]*link
	open                []*link // that have said something
	lazy                []*link
	statuses            []launcher.Status
	answers             []answer
	asked               []engine.Answer
	orders              []engine.Event
	unwritable          bool
	unsynced            bool // tracking could not be closed in order
	broken, finished    bool
	state               engine.RunState
	why                 string
	closed              bool
}

// A mark is one change for tracking.
type mark struct {
	task  int32
	done  bool
	block int64
}

// An answer is the launcher's to a submission.
type answer struct {
	tag, refusal string
}

// journalDir is where the journal is on the disk.
const journalDir = "/run/journal"

// begin starts a life with what the lives before have left.
func (w *World) begin() {
	w.epoch++
	co := &coordinator{world: w, epoch: w.epoch, began: w.now, commitAt: never, tickAt: never,
		joins: make(map[uint64]*link), sessions: make(map[engine.SessionID]*link)}
	w.co, w.listening = co, nil
	w.logf("epoch %d begins", w.epoch)
	w.queue.push(event{at: w.now, to: co, what: coStarts})
}

// start is what a coordinator does before it listens.
func (co *coordinator) start() error {
	w := co.world
	pipeline, err := w.cfg.Job.Pipeline()
	if err != nil {
		return err
	}
	var recovered []engine.Record
	if !w.cfg.NoJournal {
		var last journal.Position
		if co.epoch > 1 {
			if last, err = co.readPast(pipeline); err != nil {
				return err
			}
		}
		co.journal, err = journal.Create(journalDir, co.epoch, journal.OnDisk(w.disk), journal.After(last), journal.WithCheck(co.mine), journal.WithSegmentBytes(w.cfg.SegmentBytes))
		if err != nil {
			return err
		}
	}
	if pipeline, err = co.openTracking(pipeline); err != nil {
		return err
	}
	if co.past != nil {
		recovered = append(co.readOutbox(pipeline), co.retries()...)
	}
	co.pipeline = pipeline
	var left []launcher.Worker
	if co.past != nil {
		left = w.launcher.adopt(co)
	}
	co.engine, err = engine.New(engine.Config{
		Job: w.cfg.Job, Pipeline: pipeline, Launcher: w.launcher.properties(), Node: w.nodeName(co.node), Epoch: co.epoch, Began: int64(co.began),
		Budget: w.cfg.Budget, Unlimited: w.cfg.Unlimited, External: w.cfg.External, Past: co.past, Recovered: recovered, Left: left,
	})
	if err != nil {
		return err
	}
	w.listening = co
	w.launcher.begins(co)
	w.checks.begins(co, pipeline)
	w.home.listens(co)
	w.queue.push(event{at: w.now + co.heartbeatEvery(), to: co, what: coBeats})
	if co.journal != nil {
		w.queue.push(event{at: w.now + renewEvery, to: co, what: coLooks})
	}
	co.apply(engine.Event{Kind: engine.EventTick})
	return nil
}

// now is the engine's time.
func (co *coordinator) now() time.Duration { return co.world.now - co.began - co.lag }

// worldTime is when the engine's time will be so.
func (co *coordinator) worldTime(at time.Duration) time.Duration { return at + co.began + co.lag }

func (co *coordinator) act(ev *event) {
	w := co.world
	if co.dead {
		if ev.what == coPacket {
			w.reset(ev.packet.link)
		}
		return
	}
	if w.now < co.stalledTo {
		w.saw(sawStalled)
		w.queue.postpone(ev, co.stalledTo)
		return
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case killed:
			w.logf("epoch %d: killed", co.epoch)
			w.crash(co)
		default:
			panic(r)
		}
	}()
	switch ev.what {
	case coStarts:
		if err := co.start(); err != nil {
			w.cannotStart(co, err)
		}
		return
	case coPacket:
		co.take(ev.packet)
	case coClosed:
		co.connectionEnded(ev.packet.link)
	case coTick:
		if co.tickAt > w.now {
			return // armed anew meanwhile
		}
		co.tickAt = never
		co.apply(engine.Event{Kind: engine.EventTick})
	case coCommits:
		if co.commitAt <= w.now && !co.committing {
			co.commit()
		}
	case coCommitted:
		co.committing, co.committed = false, max(co.committed, ev.n)
		w.checks.committed(co, ev.n)
		co.compact()
		co.apply(engine.Event{Kind: engine.EventCommitted, UpTo: ev.n})
		if co.again && !co.dead {
			co.again = false
			co.askCommit(co.urgent)
		}
	case coFailed:
		co.committing = false
		co.breaks("the journal cannot be written")
	case coTracks:
		co.writeMarks()
	case coBeats:
		co.beat()
	case coLazy:
		co.sendLazy()
	case coStatus:
		s := co.statuses[ev.n]
		co.apply(engine.Event{Kind: engine.EventStatus, Status: &s})
	case coSubmitted:
		a := co.answers[ev.n]
		co.apply(engine.Event{Kind: engine.EventSubmitted, Tag: a.tag, Text: a.refusal})
	case coAnswered:
		co.apply(engine.Event{Kind: engine.EventAnswered, Answer: &co.asked[ev.n]})
	case coLooks:
		co.lookAtDisk()
	case coOrdered:
		co.obey(&co.orders[ev.n])
	case coWarned, coTold, coLearns:
		co.signalled(ev)
	case coStops:
		co.apply(engine.Event{Kind: engine.EventStop, Stop: engine.StopKind(ev.n), Text: "a person wants it so"})
	}
	co.after()
}

// after ends the life when the run is over and all of it is durable, or never will be.
func (co *coordinator) after() {
	if co.dead || co.closed || !co.finished || co.committed < co.appended && !co.broken {
		return
	}
	co.close()
}

func (co *coordinator) apply(ev engine.Event) {
	one := [1]engine.Event{ev}
	co.applyAll(one[:])
}

func (co *coordinator) applyAll(events []engine.Event) {
	w := co.world
	if co.closed {
		return
	}
	if co != w.co {
		w.saw(sawAwake)
	}
	if w.log != nil {
		for i := range events {
			w.logEvent(co, &events[i])
		}
	}
	co.engine.ApplyAll(co.now(), events, &co.fx)
	co.perform()
	w.checks.applied(co)
	co.arm()
}

// arm has the engine called again in time.
func (co *coordinator) arm() {
	at := time.Duration(never)
	if co.engine.More() {
		at = co.world.now
	} else if next, timed := co.engine.Next(); timed {
		at = max(co.worldTime(next), co.world.now)
	}
	if at < co.tickAt {
		co.tickAt = at
		co.world.queue.push(event{at: at, to: co, what: coTick})
	}
}

// perform does what the engine wants done, in its order.
func (co *coordinator) perform() {
	w := co.world
	var closing []*link
	for i := range co.fx.List {
		f := &co.fx.List[i]
		w.step()
		if w.log != nil {
			w.logEffect(co, f)
		}
		w.checks.effect(co, f)
		switch f.Kind {
		case engine.EffectAppend:
			co.appended++
			if co.journal != nil {
				co.journal.Append(f.Record)
			}
		case engine.EffectCommit:
			co.askCommit(f.Urgent)
		case engine.EffectTrack:
			co.track(f)
		case engine.EffectJoined, engine.EffectRefused, engine.EffectWelcome, engine.EffectBlocks, engine.EffectAcknowledge,
			engine.EffectRecall, engine.EffectReassign, engine.EffectDrain, engine.EffectStop, engine.EffectKillBlock, engine.EffectAway:
			co.tell(f)
			if f.Kind == engine.EffectBlocks && w.killAfter > 0 {
				w.killAfter--
				w.killNext = w.killAfter == 0
			}
		case engine.EffectClose:
			if l := co.sessions[f.Session]; l != nil {
				closing = append(closing, l)
			}
		case engine.EffectSubmit:
			w.launcher.submit(co, f.Submit)
		case engine.EffectCancel:
			w.launcher.cancel(co, slices.Clone(f.Workers))
		case engine.EffectKill:
			w.launcher.kill(co, slices.Clone(f.Workers))
		case engine.EffectBind, engine.EffectList, engine.EffectKnown, engine.EffectAccount, engine.EffectThrottle, engine.EffectExclude, engine.EffectCancelArray:
			w.launcher.ask(co, f.Kind, *f.Ask)
		case engine.EffectFinished:
			co.finished, co.state, co.why = true, f.State, f.Text
		}
	}
	co.fx.Reset()
	co.send()
	for _, l := range closing {
		if l.coOpen {
			co.sendLazyTo(l)
			w.closeByCo(l)
			co.drop(l)
		}
	}
}

// breaks: nothing will be durable any more.
func (co *coordinator) breaks(why string) {
	co.broken = true
	co.apply(engine.Event{Kind: engine.EventBroken, Text: why})
}

// lookAtDisk hands out no more blocks once nothing can be written, and sees when another coordinator has taken over.
func (co *coordinator) lookAtDisk() {
	w := co.world
	w.queue.push(event{at: w.now + renewEvery, to: co, what: coLooks})
	switch {
	case co.mine() != nil:
		co.breaks(co.mine().Error())
	case w.disk.full && !co.unwritable:
		co.unwritable = true
		co.apply(engine.Event{Kind: engine.EventStop, Stop: engine.StopDrain, Text: "no space left on device"})
	}
}

// close ends the life in good order.
func (co *coordinator) close() {
	w := co.world
	co.closed = true
	if co.state == engine.RunAside {
		w.checks.wentAside(co) // all that the launcher has is the next one's
	} else {
		w.launcher.close(co)
	}
	for _, l := range co.open {
		w.closeByCo(l)
	}
	if co.journal != nil {
		if !co.committing {
			_, _ = co.journal.Commit()
		}
		co.writeMarks()
		_ = co.journal.Close()
	}
	co.closeTracking()
	w.ends(co)
	co.dead = true
}

// die is the end of the process. The system closes its connections.
func (co *coordinator) die() {
	co.dead = true
	for _, l := range co.open {
		co.world.closeByCo(l)
	}
}
