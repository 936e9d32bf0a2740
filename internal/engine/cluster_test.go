package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
	"example.org/daisy/scheduler"
)

// testingT is what tests and property tests have in common.
type testingT interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
	Fatal(...any)
}

// A cluster is an engine over a batch system in memory, with workers that do what they should unless the test says otherwise, all in
// virtual time.
type cluster struct {
	t        testingT
	e        *Engine
	q        *launchertest.Queue
	now      time.Duration
	fx       Effects
	later    []future
	records  []Record
	before   []Record // of earlier lives
	notices  []string
	durable  uint64
	asked    uint64
	holds    bool // commits wait
	hangs    bool // submissions get no answer
	agents   map[string]*agent
	last     SessionID
	block    time.Duration // how long a block takes
	node     func(tag string, element int) string
	starts   func(tag string, element int) time.Duration // after its submission; never = it does not
	says     func(*agent, *Join)                         // what workers say of themselves besides
	final    *Effect
	join     []string // answers to joins
	submits  []*Submission
	lastDone time.Duration     // when a block was done
	served   map[string]string // arrays whose workers got blocks, by tag; over all lives
	told     *strings.Builder  // takes what is told of the run, if it is not nil
}

type future struct {
	at time.Duration
	do func()
}

// An agent is a worker process.
type agent struct {
	id      string
	array   string
	at      launcher.Worker
	slots   int
	session SessionID
	dead    bool
	nonce   uint64
	restart int
	epoch   uint64 // of the leases that it has
	silent  bool   // it lives, and nothing of it comes through
	held    []scheduler.Handout
	seq     uint64
	served  int
	told    bool
	ready   bool // it is welcome
	until   time.Duration
}

func taskOf(blocks int64, id string) job.Task {
	return job.Task{ID: id, Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10, Timeout: 0, Requires: cpus(1), MaxWorkers: 8,
		Runner: job.Runner{Kind: job.RunnerCommand}, Grid: line1D(&testing.T{}, blocks)}
}

func newCluster(t testingT, past []Record, tasks ...job.Task) *cluster {
	t.Helper()
	j := testJob()
	j.Tasks = tasks
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, q: launchertest.NewQueue(), agents: map[string]*agent{}, served: map[string]string{}, block: 10 * time.Second}
	c.node = func(_ string, element int) string { return fmt.Sprint("n", element%4+1) }
	c.starts = func(string, int) time.Duration { return 2 * time.Second }
	cfg := Config{Job: j, Pipeline: p, Launcher: launchertest.QueueProperties(), Epoch: 1, Unlimited: true,
		LogPath: func(worker string) string { return "/runs/x/logs/" + worker + ".log" }}
	if past != nil {
		cfg.Past = NewPast(p)
		for i := range past {
			if _, _, err := cfg.Past.Add(&past[i]); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Epoch = uint64(len(cfg.Past.Epochs())) + 1
	}
	if c.e, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return c
}

// resumed is the next life of a run, over the same batch system.
func (c *cluster) resumed(tasks ...job.Task) *cluster {
	past := append(slices.Clone(c.before), c.records[:c.durable]...)
	n := newCluster(c.t, past, tasks...)
	n.q, n.block, n.node, n.starts, n.served = c.q, c.block, c.node, c.starts, c.served
	n.before = past
	n.last = 1000
	return n
}

func (c *cluster) after(d time.Duration, do func()) {
	c.later = append(c.later, future{c.now + d, do})
}

func (c *cluster) apply(ev Event) {
	c.fx.Reset()
	c.e.Apply(c.now, &ev, &c.fx)
	commit := false
	for _, f := range slices.Clone(c.fx.List) {
		commit = commit || f.Kind == EffectCommit
		c.effect(&f)
	}
	if commit {
		c.asked = uint64(len(c.records))
	}
	c.commit()
	if c.e.More() {
		c.apply(Event{Kind: EventTick})
	}
}

func (c *cluster) commit() {
	if c.asked > c.durable && !c.holds {
		c.durable = c.asked
		c.apply(Event{Kind: EventCommitted, UpTo: c.durable})
	}
}

func (c *cluster) effect(f *Effect) {
	answer := func(a Answer) {
		c.after(100*time.Millisecond, func() { c.apply(Event{Kind: EventAnswered, Answer: &a}) })
	}
	if c.told != nil {
		c.tell(f)
	}
	switch f.Kind {
	case EffectAppend:
		r, err := DecodeRecord(f.Record)
		if err != nil {
			c.t.Fatal(err)
		}
		c.records = append(c.records, r)
	case EffectNotice:
		c.notices = append(c.notices, f.Text)
	case EffectFinished:
		fin := *f
		c.final = &fin
	case EffectSubmit:
		s := *f.Submit
		c.submits = append(c.submits, &s)
		if c.hangs {
			return
		}
		array, err := c.q.Submit(context.Background(), launcher.Request{Tag: s.Tag, Count: s.Count, Throttle: s.Throttle, Exclude: s.Exclude})
		answer(Answer{Array: array, Err: err})
		for i := range s.Count {
			if d := c.starts(s.Tag, i); d != never {
				c.after(d, func() { c.start(s.Tag, i, s.Slots) })
			}
		}
	case EffectBind:
		c.q.Bind(f.Ask.Tag, f.Ask.Array)
	case EffectList:
		l, err := c.q.List(context.Background())
		answer(Answer{Listing: l, Err: err})
	case EffectKnown:
		known, err := c.q.Known(context.Background(), f.Ask.Array)
		answer(Answer{Known: known, Err: err})
	case EffectAccount:
		l, err := c.q.Account(context.Background(), f.Ask.Arrays...)
		answer(Answer{Listing: l, Err: err})
	case EffectThrottle:
		answer(Answer{Err: c.q.Throttle(context.Background(), f.Ask.Array, f.Ask.Count)})
	case EffectExclude:
		answer(Answer{Err: c.q.Exclude(context.Background(), f.Ask.Array, f.Ask.Nodes)})
	case EffectCancelArray:
		answer(Answer{Err: c.q.CancelArray(context.Background(), f.Ask.Tag, f.Ask.Array)})
		c.reap()
	case EffectCancel, EffectKill:
		if f.Kind == EffectKill {
			c.t.Errorf("a Queue is told to kill %v", f.Workers)
		}
		answer(Answer{Err: c.q.Cancel(context.Background(), f.Workers...)})
		c.reap()
	case EffectJoined:
		c.join = append(c.join, "joined "+f.WorkerID)
		if a := c.agents[f.WorkerID]; a != nil {
			a.slots = int(f.Slots)
		}
	case EffectRefused:
		if f.Request != 0 {
			c.join = append(c.join, f.Code)
		}
	case EffectBlocks:
		a := c.by(f.Session)
		a.epoch = c.e.cfg.Epoch
		if was := c.served[a.at.Tag]; was != "" && was != a.array {
			c.t.Fatalf("submission %s: workers of %s get blocks, and those of %s did", a.at.Tag, a.array, was)
		}
		c.served[a.at.Tag] = a.array
		a.held = append(a.held, f.Handouts...)
		c.after(c.block, func() { c.finish(a, scheduler.Success) })
	case EffectWelcome:
		a := c.by(f.Session)
		a.held = slices.DeleteFunc(a.held, func(h scheduler.Handout) bool { return slices.Contains(f.Leases, h.Lease) })
		a.epoch = c.e.cfg.Epoch
		for i := range a.held {
			if k := slices.IndexFunc(f.Kept, func(k Kept) bool { return k.Was == a.held[i].Lease }); k >= 0 {
				a.held[i].Lease = f.Kept[k].Now
			}
		}
		c.after(0, func() {
			if a.session == f.Session && !a.dead {
				c.goOn(a)
			}
		})
	case EffectTimeLeft:
		c.by(f.Session).until = c.now + f.Left
	case EffectDrain, EffectStop:
		if a := c.by(f.Session); a != nil {
			a.told = true
			c.after(0, func() { c.leaveIfIdle(a) })
		}
	case EffectClose:
		if a := c.by(f.Session); a != nil {
			a.session = 0
		}
	}
}

func (c *cluster) by(s SessionID) *agent {
	for _, a := range c.agents {
		if a.session == s && s != 0 {
			return a
		}
	}
	return nil
}

// all is what there is, whether it answers or not, and unnoticed.
func (c *cluster) all() []launcher.Element { return c.q.Elements() }

// reap ends the processes of elements that were cancelled.
func (c *cluster) reap() {
	for _, e := range c.all() {
		if a := c.agents[launcher.Worker{Tag: e.Tag, Element: e.First}.String()]; a != nil && a.array == e.Array && e.State == launcher.Ended && !a.dead {
			c.die(a)
		}
	}
}

// start has an element start, if it is still pending, and its worker join.
func (c *cluster) start(tag string, element, slots int) {
	if !c.q.Room(tag) {
		c.after(5*time.Second, func() { c.start(tag, element, slots) })
		return
	}
	for _, e := range c.all() {
		if e.Tag == tag && e.First == element && e.State == launcher.Pending {
			c.q.Start(tag, element, c.node(tag, element))
			a := &agent{id: launcher.Worker{Tag: tag, Element: element}.String(), array: e.Array, at: launcher.Worker{Tag: tag, Element: element}, slots: slots}
			c.agents[a.id] = a
			c.after(time.Second, func() { c.connect(a) })
			return
		}
	}
}

func (c *cluster) connect(a *agent) {
	if a.dead || a.silent {
		return
	}
	c.introduce(a)
	if !slices.Contains(c.join, "joined "+a.id) {
		return
	}
	c.last++
	a.session = c.last
	held := []Held{}
	for _, h := range a.held {
		held = append(held, Held{Epoch: a.epoch, Lease: h.Lease, Task: h.Task, Block: h.Block, Attempt: h.Attempt})
	}
	a.ready = false
	c.apply(Event{Kind: EventAttach, Session: a.session, Worker: a.id, Nonce: cmp.Or(a.nonce, 7), Held: held})
}

// introduce is the first half of a connection: a worker says who it is.
func (c *cluster) introduce(a *agent) {
	c.join = nil
	join := &Join{Tag: a.at.Tag, Element: a.at.Element, Array: a.array, Restart: a.restart, Nonce: cmp.Or(a.nonce, 7), Slots: a.slots, Node: "vm"} // which is what its host calls itself
	if c.says != nil {
		c.says(a, join)
	}
	c.apply(Event{Kind: EventJoin, Request: 1, Join: join})
}

// goOn is what a worker does once it is welcome.
func (c *cluster) goOn(a *agent) {
	a.ready = true
	c.beat(a, a.session)
	for range a.held {
		c.after(c.block, func() { c.finish(a, scheduler.Success) })
	}
	for range a.slots {
		c.acquire(a)
	}
	c.leaveIfIdle(a)
}

func (c *cluster) acquire(a *agent) {
	if a.session != 0 && !a.told {
		a.seq++
		c.apply(Event{Kind: EventAcquire, Session: a.session, Request: a.seq, N: 1})
	}
}

func (c *cluster) beat(a *agent, s SessionID) {
	if a.dead || a.session != s || c.e.Finished() {
		return
	}
	if !a.silent {
		c.apply(Event{Kind: EventHeartbeat, Session: s})
	}
	c.after(10*time.Second, func() { c.beat(a, s) })
}

// finish ends the oldest block of a worker.
func (c *cluster) finish(a *agent, o scheduler.Outcome) {
	if a.dead || a.silent || a.session == 0 || !a.ready || len(a.held) == 0 {
		return
	}
	h := a.held[0]
	a.held = a.held[1:]
	a.served++
	c.lastDone = c.now
	c.apply(Event{Kind: EventRelease, Session: a.session, Seq: uint64(a.served), Epoch: c.e.cfg.Epoch, Lease: h.Lease, Outcome: o, Use: Use{WallNanos: int64(c.block)}})
	if o == scheduler.Success {
		c.acquire(a)
	}
	c.leaveIfIdle(a)
}

func (c *cluster) leaveIfIdle(a *agent) {
	if a.told && len(a.held) == 0 && a.session != 0 && !a.dead && !a.silent {
		c.apply(Event{Kind: EventLeaving, Session: a.session, Leave: LeaveTold})
		c.q.End(a.at.Tag, a.at.Element, launcher.End{})
		c.die(a)
	}
}

// die ends a process: its connection goes with it.
func (c *cluster) die(a *agent) {
	a.dead = true
	if s := a.session; s != 0 {
		a.session = 0
		c.apply(Event{Kind: EventDetach, Session: s})
	}
}

// leave has a worker give back what it has, and go away.
func (c *cluster) leave(a *agent, why LeaveReason) {
	c.apply(Event{Kind: EventLeaving, Session: a.session, Leave: why})
	for len(a.held) > 0 {
		c.finish(a, scheduler.Returned)
	}
	c.die(a)
}

// crash ends a worker's job in a way of its own.
func (c *cluster) crash(id string, end launcher.End) {
	a := c.agents[id]
	c.q.End(a.at.Tag, a.at.Element, end)
	c.die(a)
}

// run lets time pass, at most until end, or until the run is over.
func (c *cluster) run(end time.Duration) *cluster {
	c.apply(Event{Kind: EventTick})
	for c.final == nil {
		next := never
		for _, f := range c.later {
			next = min(next, f.at)
		}
		wants := false
		if at, ok := c.e.Next(); ok && at < next {
			next, wants = at, true
		}
		if next > end {
			break
		}
		c.now = max(c.now, next)
		if wants {
			c.apply(Event{Kind: EventTick})
			continue
		}
		i := slices.IndexFunc(c.later, func(f future) bool { return f.at == next })
		f := c.later[i]
		c.later = slices.Delete(c.later, i, i+1)
		f.do()
	}
	if c.final == nil {
		c.now = max(c.now, end)
		c.apply(Event{Kind: EventTick})
	}
	return c
}

// ends runs to the end and checks how that is.
func (c *cluster) ends(within time.Duration, want RunState) *cluster {
	c.t.Helper()
	c.run(c.now + within)
	if c.final == nil {
		c.t.Fatalf("after %v the run goes on: %s; notices %q; calls %q", within, c.e.waits(0), c.notices, tail(c.q.Calls(), 20))
	}
	if c.final.State != want {
		c.t.Errorf("it is %v (%s), want %v; notices %q", c.final.State, c.final.Text, want, c.notices)
	}
	return c
}

func tail(list []string, n int) []string { return list[max(len(list)-n, 0):] }

// count is how many calls begin so.
func (c *cluster) count(prefix string) (n int) {
	for _, call := range c.q.Calls() {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

func (c *cluster) said(part string) bool {
	return slices.ContainsFunc(c.notices, func(n string) bool { return strings.Contains(n, part) })
}

func (c *cluster) mustSay(parts ...string) {
	c.t.Helper()
	for _, p := range parts {
		if !c.said(p) {
			c.t.Errorf("nothing is said of %q: %q", p, c.notices)
		}
	}
}

func (c *cluster) waits(want string) {
	c.t.Helper()
	if got := c.e.waits(0); got != want {
		c.t.Errorf("at %v it says\n %q, want\n %q", c.now, got, want)
	}
}
