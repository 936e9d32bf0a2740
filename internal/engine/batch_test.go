package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
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
	cfg := Config{Job: j, Pipeline: p, Launcher: launchertest.QueueProperties(), Epoch: 1, Unlimited: true}
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
	c.join = nil
	join := &Join{Tag: a.at.Tag, Element: a.at.Element, Array: a.array, Restart: a.restart, Nonce: cmp.Or(a.nonce, 7), Slots: a.slots, Node: "vm"} // which is what its host calls itself
	if c.says != nil {
		c.says(a, join)
	}
	c.apply(Event{Kind: EventJoin, Request: 1, Join: join})
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
	if a.told && len(a.held) == 0 && a.session != 0 && !a.dead {
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

func TestARunOnABatchSystem(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a")).ends(time.Hour, RunDone)
	// A first wave of four, then the rest.
	if got := c.count("submit"); got != 2 || c.submits[0].Count != 4 || c.submits[1].Count != 4 {
		t.Errorf("%d submissions: %q", got, c.q.Calls())
	}
	if n := c.count("cancel"); n != 0 {
		t.Errorf("%d cancels: %q", n, c.q.Calls())
	}
	if c.now > c.lastDone+time.Second {
		t.Errorf("the last block was done at %v, and the run at %v", c.lastDone, c.now)
	}
	for i, r := range c.records {
		if r.Kind == RecordBound && (r.ID != "1" || r.Text != "101") && (r.ID != "2" || r.Text != "102") {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

func TestPendingWorkersSayWhatTheyWaitFor(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(_ string, i int) time.Duration {
		if i == 0 {
			return 5 * time.Second
		}
		return never
	}
	c.node = func(string, int) string { return "n1" }
	c.run(50 * time.Millisecond)
	c.waits("4 workers asked for")
	c.run(4 * time.Second)
	c.waits("waiting for 4 pending workers: Priority (others are ahead in the queue)")
	c.q.Set("1", 3, func(e *launcher.Element) { e.Reason = launcher.Reason{Word: "Resources"} })
	for _, a := range c.agents {
		a.silent = true
	}
	c.run(5*time.Second + 500*time.Millisecond)
	c.agents["1.0"].silent = true
	c.run(50 * time.Second)
	c.waits("waiting for 2 pending workers: Priority (others are ahead in the queue); waiting for 1 pending worker: Resources; 1 job running, none connected for 44s; see the log of worker 1.0")
	c.q.Down = fmt.Errorf("Unable to contact slurm controller")
	c.run(4 * time.Minute)
	if got := c.e.waits(0); !strings.Contains(got, "the batch system has not answered") {
		t.Errorf("it says %q", got)
	}
	c.mustSay("the batch system does not answer: Unable to contact slurm controller")
}

func TestASubmissionOfUnknownFateCountsUntilItIsFound(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		c := newCluster(t, nil, taskOf(8, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			return launchertest.Outcome{Accepted: accepted, Err: fmt.Errorf("sbatch: %w", launcher.ErrUnsure)}
		}
		c.ends(time.Hour, RunDone)
		c.mustSay("it is not known whether submission 1 was accepted")
		if _, used := c.agents["1.0"]; accepted != used || accepted == c.said("submission 1 is not there") {
			t.Errorf("accepted %v: %q", accepted, c.notices)
		}
		if !accepted && c.now < time.Minute {
			t.Errorf("asked for again after %v", c.now)
		}
		voids := 0
		for _, r := range c.records {
			if r.Kind == RecordVoid && r.ID == "1" {
				voids++
			}
		}
		if accepted != (voids == 0) {
			t.Errorf("accepted %v: %d records say that it is void", accepted, voids)
		}
	}
}

func TestATwinGetsNothingToDo(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(10 * time.Second)
	twin := c.q.Twin("1", 4)
	c.connect(&agent{id: "1.0", array: twin, at: launcher.Worker{Tag: "1"}, slots: 1})
	if !slices.Equal(c.join, []string{"twin"}) {
		t.Errorf("the twin is answered %q", c.join)
	}
	c.ends(time.Hour, RunDone)
	if c.count("cancel array "+twin) != 1 || c.count("cancel") != 1 {
		t.Errorf("calls %q", c.q.Calls())
	}
	c.mustSay("is a second array of submission 1")
}

// TestAWorkerThatIsQuickerThanTheAnswerWaitsForTheDisk: no block goes to an array that the next epoch may not know.
func TestAWorkerThatIsQuickerThanTheAnswerWaitsForTheDisk(t *testing.T) {
	c := newCluster(t, nil, taskOf(4, "a"))
	c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
		return launchertest.Outcome{Accepted: true, Err: launcher.ErrUnsure}
	}
	c.starts = func(string, int) time.Duration { return never }
	c.run(50 * time.Millisecond)
	c.holds = true
	a := &agent{id: "1.0", array: "101", at: launcher.Worker{Tag: "1"}, slots: 1}
	c.agents[a.id] = a
	c.connect(a)
	if len(c.join) != 0 {
		t.Errorf("it is answered %q before its submission is durable", c.join)
	}
	c.holds = false
	c.commit()
	if !slices.Equal(c.join, []string{"joined 1.0"}) {
		t.Errorf("then it is answered %q", c.join)
	}
}

func TestRefusals(t *testing.T) {
	refuse := func(k launcher.RefusalKind) launchertest.Outcome {
		return launchertest.Outcome{Err: &launcher.Refusal{Kind: k, Text: "no"}}
	}
	t.Run("for limits: halved", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(40, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
			c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForLimits) }
			return refuse(launcher.RefusedForLimits)
		}
		c.ends(time.Hour, RunDone)
		var counts []int
		for _, s := range c.submits {
			counts = append(counts, s.Count)
		}
		if !slices.Equal(counts[:4], []int{4, 2, 1, 1}) {
			t.Errorf("submissions of %v", counts)
		}
	})
	t.Run("for more than an array may have: as many as it may", func(t *testing.T) {
		for _, most := range []int{1, 3} {
			c := newCluster(t, nil, taskOf(40, "a"))
			c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
				return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Most: most, Text: "no"}}
			}
			c.ends(time.Hour, RunDone)
			workers := 0
			for i, s := range c.submits[1:] {
				if workers += s.Count; s.Count > most || i == 0 && s.Count < most {
					t.Errorf("of at most %d, %d are asked for at once", most, s.Count)
				}
			}
			if workers != 8 || c.said("refused") {
				t.Errorf("%d workers, want 8; nobody was refused: %q", workers, c.notices)
			}
		}
	})
	t.Run("for more than one worker: soon as many submissions as there is room for, after a resume too", func(t *testing.T) {
		task := taskOf(4000, "a")
		task.MaxWorkers = 100
		for _, killed := range []bool{false, true} {
			c := newCluster(t, nil, task)
			c.block = time.Minute
			c.q.NextSubmit = func(r launcher.Request) launchertest.Outcome {
				if r.Count == 1 {
					return launchertest.Outcome{Accepted: true}
				}
				return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Most: 1, Text: "no"}}
			}
			if killed {
				c.run(500 * time.Millisecond)
				c = c.resumed(task)
			}
			c.run(5 * time.Minute)
			if got := c.e.fleet.Slots(0); got != 100 {
				t.Errorf("killed before: %v; %d workers after minutes, want 100", killed, got)
			}
		}
	})
	t.Run("for now: later", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(4, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForNow) }
		c.run(500 * time.Millisecond)
		c.waits("the batch system refused workers (no); next try in 1s")
		c.ends(time.Hour, RunDone)
		if c.e.tasks[0].brake.Ends() != 0 {
			t.Error("it counts as a fault of the workers")
		}
	})
	t.Run("for good: the job is wrong", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(4, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForGood) }
		c.ends(time.Minute, RunBroken)
		if !c.final.Wrong || !strings.Contains(c.final.Text, "the batch system refused its workers: no") {
			t.Errorf("the end is %+v", c.final)
		}
	})
	t.Run("for good, later: what there is goes on", func(t *testing.T) {
		c := newCluster(t, nil, taskOf(40, "a"))
		c.run(3500 * time.Millisecond)
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return refuse(launcher.RefusedForGood) }
		c.ends(time.Hour, RunDone)
		c.mustSay("no more workers are asked for")
	})
}

// TestNoMoreAreSubmittedThanMay: several tasks that are no workers of each other may have six together.
func TestNoMoreAreSubmittedThanMay(t *testing.T) {
	a, b := taskOf(40, "a"), taskOf(40, "b")
	b.Env = []string{"B=1"}
	c := newCluster(t, nil, a, b)
	c.e.cfg.Job.MaxSubmitted = 6
	most := 0
	for range 1000 {
		if c.run(c.now + time.Second); c.final != nil {
			break
		}
		there := 0
		for _, e := range c.all() {
			if e.State == launcher.Pending || e.State == launcher.Running {
				there++
			}
		}
		if most = max(most, there); there == 6 && c.e.tasks[1].starters == 0 && c.e.tasks[1].joined == 0 {
			if got := c.e.waits(1); !strings.Contains(got, "no more may be queued: max_submitted 6") {
				t.Errorf("it waits for %q", got)
			}
		}
	}
	if most != 6 {
		t.Errorf("%d workers were there at once, want 6", most)
	}
	c.ends(time.Hour, RunDone)
}

func TestAReasonThatNeverEndsEndsTheRun(t *testing.T) {
	c := newCluster(t, nil, taskOf(4, "a"))
	c.starts = func(string, int) time.Duration { return never }
	c.run(time.Second)
	for i := range 4 {
		c.q.Set("1", i, func(e *launcher.Element) {
			e.Reason = launcher.Reason{Word: "PartitionTimeLimit", Plain: "it asks for more time than the partition allows", Never: true}
		})
	}
	c.ends(2*time.Minute, RunBroken)
	if !c.final.Wrong || !strings.Contains(c.final.Text, "PartitionTimeLimit (it asks for more time than the partition allows)") {
		t.Errorf("the end is %+v", c.final)
	}
	if c.count("cancel array 101") != 1 {
		t.Errorf("calls %q", c.q.Calls())
	}
}

func TestABadNodeIsKeptFromPendingWorkers(t *testing.T) {
	for _, refused := range []bool{false, true} {
		c := newCluster(t, nil, taskOf(40, "a"))
		if refused {
			c.q.CannotExclude = fmt.Errorf("Access denied")
		}
		c.node = func(tag string, i int) string {
			if tag == "1" && i < 2 {
				return "bad"
			}
			return "n1"
		}
		c.starts = func(tag string, i int) time.Duration {
			if tag == "1" && i == 3 {
				return 20 * time.Second
			}
			return 2 * time.Second
		}
		c.run(2500 * time.Millisecond)
		c.crash("1.0", launcher.End{Cause: launcher.Exited, Exit: 127})
		c.crash("1.1", launcher.End{Cause: launcher.Exited, Exit: 127})
		c.ends(time.Hour, RunDone)
		c.mustSay("node bad is not used any more")
		if c.count("exclude 101 bad") != 1 {
			t.Errorf("calls %q", c.q.Calls())
		}
		for _, s := range c.submits[1:] {
			if !slices.Equal(s.Exclude, []string{"bad"}) {
				t.Errorf("submission %+v", s)
			}
		}
		if refused != (c.count("cancel 1.3") == 1) {
			t.Errorf("refused %v: calls %q", refused, c.q.Calls())
		}
	}
}

func TestANodeIsWhatTheBatchSystemCallsIt(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a")).run(20 * time.Second)
	for i := range 4 {
		if got, want := c.e.workers[fmt.Sprint("1.", i)].node, c.node("1", i); got != want {
			t.Errorf("worker 1.%d is on %s, want %s", i, got, want)
		}
	}
}

func TestANodeThatCannotLaunchIsKeptFromPendingWorkers(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.q.Accounting = true
	c.starts = func(tag string, i int) time.Duration {
		if tag == "1" && i < 2 {
			return never
		}
		return 2 * time.Second
	}
	c.run(8 * time.Second)
	for i := range 2 { // a failing prolog looks like this where a job is not to be requeued
		c.q.Set("1", i, func(e *launcher.Element) {
			e.State, e.End, e.By, e.Node = launcher.Ended, launcher.End{Cause: launcher.Cancelled}, launcher.CancelledBySystem, "bad"
		})
	}
	c.ends(time.Hour, RunDone)
	c.mustSay("node bad is not used any more", "never started (cancelled by the batch system: it could not be launched)")
	if last := c.submits[len(c.submits)-1]; !slices.Equal(last.Exclude, []string{"bad"}) {
		t.Errorf("the last submission is %+v", last)
	}
}

// TestAWorkerThatIsStartedAgainTakesTheOldOnesPlace: a site requeues it against orders, or was told to.
func TestAWorkerThatIsStartedAgainTakesTheOldOnesPlace(t *testing.T) {
	for _, lives := range []bool{false, true} {
		c := newCluster(t, nil, taskOf(8, "a"))
		c.block = 3 * time.Minute
		c.run(30 * time.Second)
		old := c.agents["1.0"]
		if !lives {
			c.die(old)
		}
		c.q.Set("1", 0, func(e *launcher.Element) { e.State, e.Word = launcher.Pending, "PENDING" })
		c.run(time.Minute)
		if got := c.e.fleet.Slots(0); got != 8 && got != 4 {
			t.Errorf("%d slots are taken", got)
		}
		taken := c.e.fleet.Slots(0)
		c.q.Start("1", 0, "n9")
		again := &agent{id: "1.0", array: old.array, at: old.at, slots: 1, nonce: 8, restart: 1}
		c.agents["1.0 before"], c.agents["1.0"] = old, again
		c.connect(again)
		if again.session == 0 {
			t.Fatalf("lives %v: it is answered %q", lives, c.join)
		}
		if got := c.e.fleet.Slots(0); got != taken {
			t.Errorf("lives %v: %d slots are taken, then %d", lives, taken, got)
		}
		if lives && !old.told {
			t.Error("the old one is not told to stop")
		}
		c.run(c.now + 6*time.Minute)
		c.ends(time.Hour, RunDone)
		if got := c.e.sched.Tally(0); got.Success != 8 || !lives && got.Lost != 1 {
			t.Errorf("lives %v: the counts are %+v", lives, got)
		}
		if got := c.e.fleet.Slots(0); got != 0 {
			t.Errorf("%d slots are taken after the end", got)
		}
	}
}

func TestALossIsSeenWithinSeconds(t *testing.T) {
	c := newCluster(t, nil, taskOf(8, "a"))
	c.block = 10 * time.Minute
	c.run(5 * time.Minute)
	c.crash("1.0", launcher.End{Cause: launcher.Signalled, Signal: 9})
	at := c.now
	c.run(at + 7*time.Second)
	if w := c.e.workers["1.0"]; !w.ended {
		t.Error("the end has not been seen")
	}
	if c.count("submit") < 2 {
		t.Errorf("calls %q", c.q.Calls())
	}
}

func TestASilentWorkerOnAFailedNodeIsGivenUpAfterItsHint(t *testing.T) {
	c := newCluster(t, nil, taskOf(4, "a"))
	c.block = time.Minute
	c.run(30 * time.Second)
	c.agents["1.2"].silent = true
	c.q.Set("1", 2, func(e *launcher.Element) {
		e.State, e.Word, e.End.Cause = launcher.Unknown, "NODE_FAIL", launcher.NodeFailed
	})
	c.run(4 * time.Minute)
	if c.said("has been silent") {
		t.Error("it is given up too early")
	}
	c.ends(10*time.Minute, RunDone)
	c.mustSay("worker 1.2 on n3 has been silent for 5m")
	if got := c.e.sched.Tally(0); got.Success != 4 || got.Lost != 1 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestWhatAFailedNodeTookIsFreeOnceItIsGivenUp(t *testing.T) {
	task := taskOf(8, "a")
	task.MaxWorkers = 2
	c := newCluster(t, nil, task)
	c.block = time.Minute
	c.run(30 * time.Second)
	for i := range 2 {
		c.agents[fmt.Sprint("1.", i)].silent = true
		c.q.Set("1", i, func(e *launcher.Element) {
			e.State, e.Word, e.End.Cause = launcher.Unknown, "NODE_FAIL", launcher.NodeFailed
		})
	}
	c.ends(time.Hour, RunDone)
	if c.now > 15*time.Minute {
		t.Errorf("it took %v", c.now)
	}
}

func TestAWorkerCancelledByHandIsNotReplaced(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(_ string, i int) time.Duration {
		if i == 3 {
			return never
		}
		return 2 * time.Second
	}
	c.run(12 * time.Second)
	c.q.Forget("1", 3) // pending elements that are cancelled leave no trace
	c.ends(time.Hour, RunDone)
	c.mustSay("max_workers is 7 from now on (worker 1.3 was cancelled by hand, and is not replaced)")
	for _, s := range c.submits {
		if s.Tag > "2" {
			t.Errorf("a submission %+v", s)
		}
	}
}

func TestWhoCancelsEverythingEndsTheRun(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.q.Accounting = true
	c.starts = func(string, int) time.Duration { return never }
	c.run(12 * time.Second)
	for i := range 4 {
		c.q.Set("1", i, func(e *launcher.Element) {
			e.State, e.End, e.By = launcher.Ended, launcher.End{Cause: launcher.Cancelled}, launcher.CancelledByOwner
		})
	}
	c.ends(time.Hour, RunFailed)
	if c.count("submit") != 1 || !strings.Contains(c.final.Text, "they were cancelled by hand") {
		t.Errorf("%s: calls %q", c.final.Text, c.q.Calls())
	}
}

func TestAnInterruptEmptiesTheQueue(t *testing.T) {
	c := newCluster(t, nil, taskOf(400, "a"))
	c.starts = func(tag string, i int) time.Duration {
		if tag != "1" {
			return never
		}
		return 2 * time.Second
	}
	c.block = time.Hour
	c.run(2 * time.Minute)
	if c.count("submit") != 2 {
		t.Fatalf("calls %q", c.q.Calls())
	}
	began := c.now
	c.apply(Event{Kind: EventStop, Stop: StopInterrupt, Text: "interrupted"})
	c.run(began + 2*time.Second)
	if c.count("cancel array 102") != 1 {
		t.Errorf("after 2 s: calls %q", c.q.Calls())
	}
	c.ends(2*time.Minute, RunInterrupted)
	if c.now-began > 40*time.Second {
		t.Errorf("it took %v", c.now-began)
	}
	for _, e := range c.all() {
		if e.State != launcher.Ended {
			t.Errorf("left behind: %+v", e)
		}
	}
}

func TestAResumeAdoptsWhatIsInTheQueue(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.starts = func(_ string, i int) time.Duration {
		if i >= 2 {
			return time.Minute
		}
		return 2 * time.Second
	}
	c.run(30 * time.Second)
	held := len(c.submits)
	// The coordinator is killed: what it had in flight is lost, its workers go on.
	n := c.resumed(taskOf(40, "a"))
	for id, a := range c.agents {
		b := &agent{id: id, array: a.array, at: a.at, slots: a.slots, held: a.held, epoch: a.epoch, served: a.served}
		n.agents[id] = b
		n.after(5*time.Second, func() { n.connect(b) })
	}
	for _, s := range c.submits {
		for i := 2; i < s.Count; i++ {
			n.after(30*time.Second, func() { n.start(s.Tag, i, 1) })
		}
	}
	n.run(2 * time.Second)
	if got := n.e.fleet.Slots(0); got != 4 && got != 8 {
		t.Errorf("%d slots are taken", got)
	}
	n.run(40 * time.Second)
	if got := n.e.sched.Tally(0); got.Leased == 0 {
		t.Errorf("all are back, and blocks wait: %+v, %s", got, n.e.waits(0))
	}
	n.ends(time.Hour, RunDone)
	if n.count("bind 1 101") < 2 {
		t.Errorf("the launcher is not told: %q", n.q.Calls())
	}
	if n.count("submit")-held > 2 {
		t.Errorf("what is in the queue is asked for again: %q", n.q.Calls())
	}
	if got := n.e.sched.Tally(0); got.Success != 40 {
		t.Errorf("the counts are %+v", got)
	}
}

func TestASubmissionInFlightAtTheCrashIsLookedFor(t *testing.T) {
	for _, there := range []bool{true, false} {
		c := newCluster(t, nil, taskOf(8, "a"))
		c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return launchertest.Outcome{Accepted: there} }
		c.starts = func(string, int) time.Duration { return never }
		c.run(50 * time.Millisecond) // no answer yet
		n := c.resumed(taskOf(8, "a"))
		n.starts = func(string, int) time.Duration { return 2 * time.Second }
		for i := range 4 {
			n.after(20*time.Second, func() { n.start("1", i, 1) })
		}
		n.run(10 * time.Second)
		if got := n.count("submit"); got != 1 {
			t.Errorf("there %v: %d submissions", there, got)
		}
		n.ends(time.Hour, RunDone)
		if there != (n.submits == nil || n.submits[0].Tag != "2" || n.submits[0].Count != 4 || !n.said("submission 1 is not there")) {
			t.Errorf("there %v: %q, %q", there, n.notices, n.q.Calls())
		}
	}
}

func TestAClassThatOnlyWaitsGivesUpItsShare(t *testing.T) {
	for needs, cancelled := range map[int64]string{1: "cancel 1.3", 4: "cancel 1.1,1.2,1.3"} {
		givesUpItsShare(t, needs, cancelled)
	}
}

func givesUpItsShare(t *testing.T, needs int64, cancelled string) {
	a, b := taskOf(40, "a"), taskOf(40, "b")
	a.Priority, b.Env = 1, []string{"B=1"}
	a.MaxWorkers, b.MaxWorkers = 4, needs
	c := newCluster(t, nil, a, b)
	cfg := c.e.cfg
	cfg.Unlimited, cfg.Budget = false, cpus(4)
	var err error
	if c.e, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	open := false
	c.starts = func(tag string, i int) time.Duration {
		for _, s := range c.submits {
			if s.Tag == tag && s.Task == 0 && !open {
				return never
			}
		}
		return 2 * time.Second
	}
	c.run(9 * time.Minute)
	if len(c.submits) != 1 || c.submits[0].Task != 0 {
		t.Fatalf("submissions %+v", c.submits)
	}
	c.run(12 * time.Minute)
	if got := c.e.sched.Tally(1); got.Success == 0 {
		t.Errorf("b has had nothing: %q", c.q.Calls())
	}
	pending := 0
	for _, e := range c.all() {
		if e.Tag == "1" && e.State == launcher.Pending {
			pending++
		}
	}
	if want := 4 - int(min(needs, 3)); pending != want {
		t.Errorf("%d of a keep their place, want %d", pending, want)
	}
	if calls := c.q.Calls(); !slices.Contains(calls, cancelled) {
		t.Errorf("the newest do not go first: %q", calls)
	}
	open = true
	for i := range 4 {
		c.start("1", i, 1)
	}
	c.ends(time.Hour, RunDone)
}

func TestAWorkerGetsOnlyBlocksThatFit(t *testing.T) {
	task := taskOf(60, "a")
	task.MaxWorkers = 1
	c := newCluster(t, nil, task)
	c.block = time.Minute
	until := map[string]time.Duration{}
	c.starts = func(tag string, i int) time.Duration {
		until[tag] = c.now + 15*time.Minute + 2*time.Second
		return 2 * time.Second
	}
	for range 6000 {
		c.run(c.now + time.Second)
		for tag, at := range until {
			c.q.Set(tag, 0, func(e *launcher.Element) {
				if e.State == launcher.Running {
					e.Left = at - c.now
				}
			})
			if a := c.agents[tag+".0"]; a != nil && !a.dead && c.now >= at {
				t.Fatalf("worker %s runs into its limit", a.id)
			} else if a != nil && !a.dead && a.served > 0 && (a.until > at+15*time.Second || a.until < at-15*time.Second) {
				t.Fatalf("at %v worker %s thinks that its end is at %v, and it is at %v", c.now, a.id, a.until, at)
			}
		}
		if c.final != nil {
			break
		}
	}
	c.ends(2*time.Hour, RunDone)
	if got := c.e.sched.Tally(0); got.Success != 60 || got.Returned != 0 || got.Lost != 0 {
		t.Errorf("the counts are %+v", got)
	}
	if n := len(c.submits); n < 5 || n > 6 {
		t.Errorf("%d workers for an hour of blocks", n)
	}
}

func TestABlockThatNeverFitsFails(t *testing.T) {
	task := taskOf(1, "a")
	c := newCluster(t, nil, task)
	c.block = time.Hour
	for range 2 {
		c.run(c.now + 10*time.Minute)
		tag := strconv.Itoa(len(c.submits))
		c.crash(tag+".0", launcher.End{Cause: launcher.TimeLimit})
	}
	c.ends(time.Hour, RunFailed)
	var s Snapshot
	c.e.Snapshot(&s)
	if len(s.Failures) != 1 || !strings.HasPrefix(s.Failures[0].Message, "does not fit the time limit: it had a worker to itself 2 times, the last time for 9m") {
		t.Errorf("the failures are %+v", s.Failures)
	}
	if got := c.e.sched.Tally(0); got.Failed != 1 {
		t.Errorf("the counts are %+v", got)
	}
}

// TestABlockThatNeverFitsFailsOverTwoLives: the count goes on in the next life.
func TestABlockThatNeverFitsFailsOverTwoLives(t *testing.T) {
	c := newCluster(t, nil, taskOf(1, "a"))
	c.block = time.Hour
	c.run(10 * time.Minute)
	c.starts = func(string, int) time.Duration { return never }
	c.crash("1.0", launcher.End{Cause: launcher.TimeLimit})
	c.run(c.now + time.Minute)
	if !slices.ContainsFunc(c.records[:c.durable], func(r Record) bool { return r.Kind == RecordCut }) {
		t.Fatal("the cut is not written down")
	}
	n := c.resumed(taskOf(1, "a"))
	n.after(time.Second, func() { n.start("2", 0, 1) })
	n.run(10 * time.Minute)
	n.crash("2.0", launcher.End{Cause: launcher.TimeLimit})
	n.ends(time.Hour, RunFailed)
	if got := n.e.sched.Tally(0); got.Failed != 1 {
		t.Errorf("the counts are %+v", got)
	}
}

// TestAResumeKnowsHowMuchRoomThereIs: what was refused is not tried again.
func TestAResumeKnowsHowMuchRoomThereIs(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.q.NextSubmit = func(launcher.Request) launchertest.Outcome {
		return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Text: "no"}}
	}
	c.starts = func(string, int) time.Duration { return never }
	c.run(500 * time.Millisecond)
	n := c.resumed(taskOf(40, "a"))
	n.starts = func(string, int) time.Duration { return 2 * time.Second }
	n.run(time.Minute)
	for _, s := range n.submits {
		if s.Count > 2 {
			t.Errorf("after a refusal of 4, %d are asked for", s.Count)
		}
	}
	n.ends(time.Hour, RunDone)
}

func TestPercentilesAreKnownToAnEighth(t *testing.T) {
	var ts times
	for i := range 1000 {
		ts.add(time.Duration(i+1) * time.Second)
	}
	if got := ts.p95(); got < 950*time.Second || got > 1000*time.Second {
		t.Errorf("p95 of 1 s to 1000 s is %v", got)
	}
	ts = times{}
	for range 10 {
		ts.add(3)
	}
	if got := ts.p95(); got != 3 {
		t.Errorf("p95 of 3 ns is %v", got)
	}
}

// TestWhatASubmissionIsOutlivesTheCoordinator: the array that was seen first, and that there is none.
func TestWhatASubmissionIsOutlivesTheCoordinator(t *testing.T) {
	c := newCluster(t, nil, taskOf(40, "a"))
	c.run(10 * time.Second)
	twin := c.q.Twin("1", 4)
	n := c.resumed(taskOf(40, "a"))
	n.apply(Event{Kind: EventTick})
	n.connect(&agent{id: "1.0", array: twin, at: launcher.Worker{Tag: "1"}, slots: 1})
	if !slices.Equal(n.join, []string{"twin"}) {
		t.Errorf("the first worker after a resume, of a twin, is answered %q", n.join)
	}

	c = newCluster(t, nil, taskOf(8, "a"))
	c.q.NextSubmit = func(launcher.Request) launchertest.Outcome { return launchertest.Outcome{Err: launcher.ErrUnsure} }
	c.starts = func(string, int) time.Duration { return never }
	c.run(5 * time.Minute)
	c.mustSay("submission 1 is not there")
	late := c.q.Twin("1", 4)
	n = c.resumed(taskOf(8, "a"))
	n.run(5 * time.Second)
	if n.count("cancel array "+late) != 1 {
		t.Errorf("an array that came late after all stays: %q", n.q.Calls())
	}
}

func TestAnInterruptCancelsManyArraysAtOnePaceOnly(t *testing.T) {
	var tasks []job.Task
	for i := range 28 {
		task := taskOf(1, fmt.Sprint("t", i))
		task.Env = []string{fmt.Sprint("N=", i)}
		tasks = append(tasks, task)
	}
	c := newCluster(t, nil, tasks...)
	c.starts = func(string, int) time.Duration { return never }
	c.run(20 * time.Minute)
	if got := c.count("submit"); got != 28 {
		t.Fatalf("%d submissions", got)
	}
	began := c.now
	c.apply(Event{Kind: EventStop, Stop: StopInterrupt, Text: "interrupted"})
	c.ends(5*time.Minute, RunInterrupted)
	if got := c.count("cancel array"); got != 28 || c.now-began > time.Minute {
		t.Errorf("%d arrays were cancelled, and it took %v", got, c.now-began)
	}
}
