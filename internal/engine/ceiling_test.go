package engine

import (
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
)

// A mill is a launcher whose workers all do the same and end.
type mill struct {
	t        *testing.T
	e        *Engine
	now      time.Duration
	fx       Effects
	todo     []Event
	appended uint64
	workers  []launcher.Worker // of session 1, 2, …
	started  int64
	text     string
	// born is what a worker does when it is started, served what it does with its block.
	born   func(m *mill, w launcher.Worker)
	served func(m *mill, w launcher.Worker, session SessionID, l scheduler.Lease)
	// saw, if not nil, is told of each effect.
	saw func(f *Effect)
	// until ends it before the run has ended.
	until func() bool
}

// run has everything happen that follows, and time pass where only time helps, until the run has ended.
func (m *mill) run() {
	m.todo = append(m.todo, Event{Kind: EventTick})
	for range 1_000_000 {
		if m.until != nil && m.until() {
			return
		}
		if len(m.todo) == 0 {
			at, ok := m.e.Next()
			if !ok || m.e.Finished() {
				return
			}
			m.now, m.todo = at, append(m.todo, Event{Kind: EventTick})
		}
		ev := m.todo[0]
		m.todo = m.todo[1:]
		m.e.Apply(m.now, &ev, &m.fx)
		for _, f := range m.fx.List {
			if m.saw != nil {
				m.saw(&f)
			}
			switch f.Kind {
			case EffectAppend:
				m.appended++
			case EffectCommit:
				m.todo = append(m.todo, Event{Kind: EventCommitted, UpTo: m.appended})
			case EffectSubmit:
				for i := range f.Submit.Count {
					m.started++
					m.born(m, launcher.Worker{Tag: f.Submit.Tag, Element: i})
				}
			case EffectBlocks:
				for _, h := range f.Handouts {
					m.served(m, m.workers[f.Session-1], f.Session, h.Lease)
				}
			case EffectFinished:
				m.text = f.Text
			}
		}
		m.fx.Reset()
	}
	m.t.Fatal("it goes on without end")
}

func newMill(t *testing.T, cpu float64, blocks int64, local bool, born func(*mill, launcher.Worker)) *mill {
	j := testJob()
	j.Tasks = []job.Task{{ID: "a", Grid: line1D(t, blocks), Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10, Requires: cpus(1), Runner: job.Runner{Kind: job.RunnerCommand}}}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	has := localProperties()
	if !local {
		has = launcher.Properties{IdleTimeout: 2 * time.Minute, AbandonAfter: 15 * time.Minute}
	}
	e, err := New(Config{Job: j, Pipeline: p, Launcher: has, Epoch: 1, Budget: cpus(cpu)})
	if err != nil {
		t.Fatal(err)
	}
	return &mill{t: t, e: e, born: born}
}

// joins has a worker connect and ask for a block.
func (m *mill) joins(w launcher.Worker) {
	m.workers = append(m.workers, w)
	id := SessionID(len(m.workers))
	m.todo = append(m.todo, Event{Kind: EventJoin, Request: 1, Join: &Join{Tag: w.Tag, Element: w.Element, Nonce: 7, Slots: 1}},
		Event{Kind: EventAttach, Session: id, Worker: w.String(), Nonce: 7}, Event{Kind: EventAcquire, Session: id, Request: 1, N: 1})
}

func (m *mill) ends(w launcher.Worker, node string, end launcher.End) {
	m.todo = append(m.todo, Event{Kind: EventStatus, Status: &launcher.Status{Worker: w, State: launcher.Ended, Node: node, End: end}})
}

// endsAtOnce is the birth of a worker that ends before it has connected.
func endsAtOnce(node string, end launcher.End) func(*mill, launcher.Worker) {
	return func(m *mill, w launcher.Worker) { m.ends(w, node, end) }
}

func TestWorkersThatEndAtOnceAreNotStartedWithoutEnd(t *testing.T) {
	const atOnce, restarts = 4, 10
	brake, ceiling := int64(restarts+atOnce-1), int64(ceilingPerWorker*ceilingAlive)
	for name, c := range map[string]struct {
		local bool
		node  string
		end   launcher.End
		most  int64
		why   string
	}{
		"exits":                           {true, "", launcher.End{Cause: launcher.Exited, Exit: 1}, brake, `task "a" was abandoned`},
		"exits with status 0":             {true, "", launcher.End{Cause: launcher.Exited}, brake, `task "a" was abandoned`},
		"a signal":                        {true, "", launcher.End{Cause: launcher.Signalled, Signal: 11}, brake, `task "a" was abandoned`},
		"cannot be started":               {true, "", launcher.End{Cause: launcher.NeverStarted}, brake, `task "a" was abandoned`},
		"nobody knows where":              {false, "", launcher.End{Cause: launcher.Exited, Exit: 1}, brake, `task "a" was abandoned`},
		"a bad node that is not left out": {false, "n1", launcher.End{Cause: launcher.Exited, Exit: 1}, ceiling, "too many workers were started"},
		"preempted":                       {false, "", launcher.End{Cause: launcher.Preempted}, ceiling, "too many workers were started"},
		"the time limit":                  {false, "", launcher.End{Cause: launcher.TimeLimit}, ceiling, "too many workers were started"},
		"the node fails":                  {false, "", launcher.End{Cause: launcher.NodeFailed}, ceiling, "too many workers were started"},
		"too little memory":               {false, "", launcher.End{Cause: launcher.OutOfMemory}, ceiling, "too many workers were started"},
		"ended by the launcher, unasked":  {true, "", launcher.End{Cause: launcher.Signalled, Signal: 9, Ours: true}, ceiling, "too many workers were started"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMill(t, atOnce, 100, c.local, endsAtOnce(c.node, c.end))
			m.run()
			if m.e.State() != RunBroken || !strings.Contains(m.text, c.why) {
				t.Errorf("the run ended %v: %s; want broken: %s", m.e.State(), m.text, c.why)
			}
			if m.started > c.most || m.started <= c.most-atOnce { // the last ones may have been asked for only on paper
				t.Errorf("%d workers were started, want %d", m.started, c.most)
			}
		})
	}
}

func TestTheCeilingGrowsWithTheWorkersThatWereAliveAtOnce(t *testing.T) {
	m := newMill(t, 250, 1000, true, endsAtOnce("", launcher.End{Cause: launcher.Preempted}))
	m.run()
	if got, want := m.started, int64(ceilingPerWorker*250); got > want || got <= want-250 || m.e.State() != RunBroken {
		t.Errorf("%d workers were started, want %d; the run ended %v", got, want, m.e.State())
	}
}

// Each worker takes one block, gives it back and ends, as with max_blocks_per_worker = 1: more workers than the ceiling would
// allow if nothing came back.
func TestAWorkerForEveryBlockIsNotTooMany(t *testing.T) {
	const blocks = 3 * ceilingPerWorker * ceilingAlive
	for _, outcome := range []scheduler.Outcome{scheduler.Success, scheduler.Skipped} {
		t.Run(outcome.String(), func(t *testing.T) {
			m := newMill(t, 4, blocks, true, func(m *mill, w launcher.Worker) {
				m.joins(w)
			})
			m.served = func(m *mill, w launcher.Worker, session SessionID, l scheduler.Lease) {
				m.todo = append(m.todo, Event{Kind: EventRelease, Session: session, Seq: 1, Epoch: 1, Lease: l, Outcome: outcome},
					Event{Kind: EventLeaving, Session: session, Leave: LeaveDone}, Event{Kind: EventDetach, Session: session})
				m.ends(w, "here", launcher.End{Cause: launcher.Exited})
			}
			m.run()
			if m.e.State() != RunDone || m.started < blocks {
				t.Errorf("the run ended %v after %d workers: %s", m.e.State(), m.started, m.text)
			}
		})
	}
}
