package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/daisy/geom"
	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/scheduler"
	"github.com/cockroachdb/datadriven"
)

// TestScenarios reads testdata/scenarios: events in, decisions out. Records and commits are left out of the output; a commit is
// answered at once unless the run has "manual-commits". A file that begins with "cluster" is told by a clusterScenario.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		var s *scenario
		var k *clusterScenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				k = newClusterScenario(t, d)
			}
			if k != nil {
				return k.do(t, d)
			}
			if d.Cmd == "run" {
				s = newScenario(t, d)
				s.apply(Event{Kind: EventTick})
				return s.output()
			}
			s.do(t, d)
			return s.output()
		})
	})
}

type scenario struct {
	e        *Engine
	cfg      Config
	records  []Record
	durable  uint64
	handouts map[scheduler.Lease]Held // by what a worker knows it
	now      time.Duration
	fx       Effects
	out      strings.Builder
	manual   bool
	appended uint64
	session  map[string]SessionID
	name     map[SessionID]string
	seq      map[string]uint64
	request  map[string]uint64
	next     SessionID
	leases   []scheduler.Lease // in the order in which they were handed out: people call them 1, 2, 3
}

func (s *scenario) short(l scheduler.Lease) int {
	i := slices.Index(s.leases, l)
	if i < 0 {
		s.leases = append(s.leases, l)
		i = len(s.leases) - 1
	}
	return i + 1
}

func (s *scenario) long(n int64) scheduler.Lease {
	if n < 1 || n > int64(len(s.leases)) {
		return scheduler.Lease(n)
	}
	return s.leases[n-1]
}

// line1D is a grid of n blocks in a row.
func line1D(t testing.TB, n int64) *geom.Grid {
	roi := geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(1)}
	if n == 0 { // a block that fits nowhere
		n, roi.Shape = 1, geom.Coord(2)
	}
	g, err := geom.NewGrid(geom.GridSpec{TotalRead: geom.Roi{Offset: geom.Coord(0), Shape: geom.Coord(n)}, Read: roi, Write: roi, Fit: geom.Valid})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// testJob has the defaults that the scenarios speak of.
func testJob() *job.Job {
	return &job.Job{Name: "test", Grace: 10 * time.Second, ReconnectGrace: 5 * time.Second, HeartbeatTimeout: 30 * time.Second,
		HintAfter: 5 * time.Minute, IdleTimeout: -1}
}

func localProperties() launcher.Properties {
	return launcher.Properties{OneNode: true, Local: true, IdleTimeout: 5 * time.Second, AbandonAfter: 2 * time.Minute}
}

func cpus(n float64) scheduler.Resources {
	return scheduler.NewResources(map[string]int64{"cpu": int64(n * 1000)})
}

func number(t testing.TB, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func duration(t testing.TB, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newScenario(t *testing.T, d *datadriven.TestData) *scenario {
	j := testJob()
	cfg := Config{Job: j, Launcher: localProperties(), Node: "here", Epoch: 1, Budget: cpus(4)}
	markStep := int64(0)
	s := &scenario{handouts: map[scheduler.Lease]Held{}, session: map[string]SessionID{}, name: map[SessionID]string{}, seq: map[string]uint64{}, request: map[string]uint64{}}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "cpu":
			cfg.Budget = cpus(float64(number(t, a.Vals[0])))
		case "external":
			cfg.External, cfg.Unlimited, cfg.Launcher = true, true, launcher.Properties{}
		case "batch":
			cfg.Launcher = launcher.Properties{IdleTimeout: 2 * time.Minute, AbandonAfter: 15 * time.Minute}
		case "serial":
			cfg.MaxSlots, cfg.StopAtFirstFailure = 1, true
		case "manual-commits":
			s.manual = true
		case "mark-step":
			markStep = number(t, a.Vals[0])
		case "max-failures":
			j.MaxFailures = number(t, a.Vals[0])
		case "grace":
			j.Grace = duration(t, a.Vals[0])
		case "idle-timeout":
			j.IdleTimeout = duration(t, a.Vals[0])
		case "journal-handouts":
			cfg.JournalHandouts = true
		default:
			d.Fatalf(t, "unknown argument %s", a.Key)
		}
	}
	for _, line := range strings.Split(d.Input, "\n") {
		words := strings.Fields(line)
		task := job.Task{ID: words[0], Slots: 1, MaxRetries: 2, MaxLost: 5, MaxWorkerRestarts: 10, Timeout: 10 * time.Minute, Requires: cpus(1),
			Runner: job.Runner{Kind: job.RunnerCommand}}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "blocks":
				task.Grid = line1D(t, number(t, value))
			case "after":
				task.After = strings.Split(value, ",")
			case "cpu":
				task.Requires = cpus(float64(number(t, value)))
			case "slots":
				task.Slots = int(number(t, value))
			case "max-workers":
				task.MaxWorkers = number(t, value)
			case "timeout":
				task.Timeout = duration(t, value)
			case "retries":
				task.MaxRetries = int(number(t, value))
			case "max-lost":
				task.MaxLost = int(number(t, value))
			case "restarts":
				task.MaxWorkerRestarts = int(number(t, value))
			case "backoff":
				task.RetryBackoff = duration(t, value)
			case "priority":
				task.Priority = int(number(t, value))
			case "env":
				task.Env = []string{value}
			default:
				d.Fatalf(t, "unknown key %s", key)
			}
		}
		j.Tasks = append(j.Tasks, task)
	}
	p, err := j.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pipeline = p
	if s.e, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	s.cfg = cfg
	for i := range s.e.tasks {
		if markStep > 0 {
			s.e.tasks[i].mark.step = markStep
		}
	}
	return s
}

func (s *scenario) output() string {
	text := s.out.String()
	s.out.Reset()
	if text == "" {
		return "-"
	}
	return text
}

func (s *scenario) apply(ev Event) {
	if ev.Kind == EventCommitted {
		s.durable = max(s.durable, ev.UpTo)
	}
	s.fx.Reset()
	s.e.Apply(s.now, &ev, &s.fx)
	commit := false
	for i := range s.fx.List {
		f := &s.fx.List[i]
		if f.Kind == EffectAppend {
			s.appended++
			r, err := DecodeRecord(f.Record)
			if err != nil {
				panic(err) // the engine's own
			}
			s.records = append(s.records, r)
		}
		for _, h := range f.Handouts {
			s.handouts[h.Lease] = Held{Epoch: s.cfg.Epoch, Lease: h.Lease, Task: h.Task, Block: h.Block, Attempt: h.Attempt}
		}
		commit = commit || f.Kind == EffectCommit
		s.print(f)
	}
	if commit && !s.manual {
		s.apply(Event{Kind: EventCommitted, UpTo: s.appended})
	}
	if s.e.More() {
		s.apply(Event{Kind: EventTick})
	}
}

// resume is the next life of the run, with what was durable of this one. In it time begins anew.
func (s *scenario) resume(t *testing.T) {
	p, err := s.cfg.Job.Pipeline()
	if err != nil {
		t.Fatal(err)
	}
	s.records = s.records[:len(s.records)-int(s.appended-s.durable)]
	s.cfg.Pipeline, s.cfg.Past = p, NewPast(p)
	for i := range s.records {
		if _, _, err := s.cfg.Past.Add(&s.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	s.cfg.Epoch++
	if s.e, err = New(s.cfg); err != nil {
		t.Fatal(err)
	}
	s.now, s.appended, s.durable = 0, 0, 0
	s.apply(Event{Kind: EventTick})
}

// until lets time pass, with a tick whenever the engine wants one.
func (s *scenario) until(end time.Duration) {
	for {
		at, ok := s.e.Next()
		if !ok || at > end {
			break
		}
		s.now = max(s.now, at)
		fmt.Fprintf(&s.out, "[%v]\n", s.now)
		s.apply(Event{Kind: EventTick})
	}
	s.now = end
	s.apply(Event{Kind: EventTick})
	// A wake-up at which nothing happened is not worth a line.
	lines, kept := strings.Split(strings.TrimSuffix(s.out.String(), "\n"), "\n"), []string(nil)
	for i, l := range lines {
		if l == "" || strings.HasPrefix(l, "[") && (i+1 == len(lines) || strings.HasPrefix(lines[i+1], "[")) {
			continue
		}
		kept = append(kept, l)
	}
	s.out.Reset()
	for _, l := range kept {
		s.out.WriteString(l + "\n")
	}
}

func (s *scenario) print(f *Effect) {
	say := func(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }
	task := func() string { return s.e.tasks[f.Task].spec.ID }
	who := s.name[f.Session]
	var leases []string
	for _, l := range f.Leases {
		leases = append(leases, strconv.Itoa(s.short(l)))
	}
	list := strings.Join(leases, ",")
	switch f.Kind {
	case EffectTrack:
		say("track %s block %d done=%v", task(), f.Block, f.Done)
	case EffectJoined:
		say("joined %s for %s", f.WorkerID, task())
	case EffectRefused:
		if f.Request != 0 {
			say("refused %s: %s", f.Code, f.Text)
		} else {
			say("%s: lease %d refused: %s", who, s.short(f.Lease), f.Text)
		}
	case EffectWelcome:
		say("%s: welcome, gone [%s]", who, list)
	case EffectBlocks:
		var blocks []string
		for _, h := range f.Handouts {
			b := fmt.Sprintf("%d(lease %d", h.Block, s.short(h.Lease))
			if h.Attempt > 1 {
				b += fmt.Sprintf(", attempt %d", h.Attempt)
			}
			blocks = append(blocks, b+")")
		}
		say("%s: blocks of %s: %s", who, task(), strings.Join(blocks, " "))
	case EffectAcknowledge:
		say("%s: acknowledged %d", who, f.Seq)
	case EffectRecall:
		say("%s: recall [%s]", who, list)
	case EffectAway:
		say("%s: keep what runs for %v", who, f.Left)
	case EffectReassign:
		say("%s: works for %s from now on", who, task())
	case EffectDrain:
		say("%s: drain: %s", who, f.Text)
	case EffectStop:
		say("%s: stop: %s", who, f.Text)
	case EffectKillBlock:
		say("%s: kill the block of lease %d", who, s.short(f.Lease))
	case EffectClose:
		say("%s: close: %s", who, f.Text)
	case EffectSubmit:
		say("submit %s: %d workers of %d slots for %s", f.Submit.Tag, f.Submit.Count, f.Submit.Slots, task())
		if f.Submit.Exclude != nil {
			say("  not on %v", f.Submit.Exclude)
		}
	case EffectCancel:
		say("cancel %v", f.Workers)
	case EffectKill:
		say("kill %v", f.Workers)
	case EffectEnded:
		why := ""
		if f.Attempt.Failure != nil {
			why = ": " + f.Attempt.Failure.Message
		}
		say("attempt %d of block %d of %s: %v, %v%s", f.Attempt.Handout.Attempt, f.Attempt.Handout.Block, task(), f.Attempt.Outcome, f.Attempt.Verdict, why)
	case EffectNotice:
		say("notice: %s", f.Text)
	case EffectFinished:
		say("finished: %v %s", f.State, f.Text)
	}
}

// do runs one command; its first argument is nearly always a worker.
func (s *scenario) do(t *testing.T, d *datadriven.TestData) {
	who, args := "", map[string]string{}
	for i, a := range d.CmdArgs {
		if i == 0 && len(a.Vals) == 0 {
			who = a.Key
			continue
		}
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	get := func(key string, otherwise int64) int64 {
		if v, ok := args[key]; ok && v != "" {
			return number(t, v)
		}
		return otherwise
	}
	ev := Event{Session: s.session[who]}
	switch d.Cmd {
	case "at":
		s.until(duration(t, who))
		return
	case "resume":
		s.resume(t)
		return
	case "stall":
		s.now = duration(t, who)
		s.apply(Event{Kind: EventTick})
		return
	case "join":
		s.join(t, who, args)
		return
	case "attach":
		s.attach(t, who, args)
		return
	case "start":
		s.join(t, who, args)
		s.attach(t, who, args)
		return
	case "acquire":
		s.request[who]++
		ev.Kind, ev.Request, ev.N = EventAcquire, s.request[who], int32(get("n", 1))
	case "release":
		s.seq[who]++
		ev.Kind, ev.Seq, ev.Epoch, ev.Lease = EventRelease, uint64(get("seq", int64(s.seq[who]))), uint64(get("epoch", 1)), s.long(get("lease", 0))
		ev.Use.WallNanos = get("ms", 1000) * 1_000_000
		if m, ok := args["message"]; ok {
			ev.Failure = &Failure{Message: m}
		}
		for o := scheduler.Success; o <= scheduler.Recalled; o++ {
			if _, ok := args[o.String()]; ok {
				ev.Outcome = o
			}
		}
	case "detach":
		ev.Kind = EventDetach
	case "heartbeat":
		ev.Kind = EventHeartbeat
	case "leaving":
		ev.Kind = EventLeaving
		for i, word := range []string{"told", "signal", "done", "broken"} {
			if _, ok := args[word]; ok {
				ev.Leave = LeaveReason(i)
			}
		}
		if m, ok := args["message"]; ok {
			ev.Failure = &Failure{Message: m}
		}
	case "submitted":
		ev.Kind, ev.Tag, ev.Text = EventSubmitted, who, args["refused"]
	case "ended", "status":
		tag, element, _ := strings.Cut(who, ".")
		st := &launcher.Status{Worker: launcher.Worker{Tag: tag, Element: int(number(t, element))}, State: launcher.Ended, Node: args["node"]}
		_, st.End.Ours = args["ours"]
		if v, ok := args["signal"]; ok {
			st.End.Cause, st.End.Signal = launcher.Signalled, int(number(t, v))
		}
		for c := launcher.NeverStarted; c <= launcher.OutOfMemory; c++ {
			if _, ok := args[strings.ReplaceAll(c.String(), " ", "_")]; ok {
				st.End.Cause = c
			}
		}
		st.End.Exit = int(get("exit", 0))
		for _, state := range []launcher.State{launcher.Unknown, launcher.Pending, launcher.Running} {
			if _, ok := args[state.String()]; ok {
				st.State = state
			}
		}
		ev.Kind, ev.Status = EventStatus, st
	case "commit":
		ev.Kind, ev.UpTo = EventCommitted, s.appended
	case "broken":
		ev.Kind, ev.Text = EventBroken, "the disk is full"
	case "aside":
		ev.Kind, ev.Left, ev.Text = EventAside, duration(t, who), "its time is over"
	case "stop":
		ev.Kind, ev.Text = EventStop, "told to stop"
		ev.Stop = map[string]StopKind{"drain": StopDrain, "cancel": StopCancel, "interrupt": StopInterrupt, "now": StopNow}[who]
	case "tally", "workers", "waits", "slots":
		s.report(d.Cmd)
		return
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	s.apply(ev)
}

func (s *scenario) join(t *testing.T, who string, args map[string]string) {
	j := &Join{Nonce: 7, Slots: 1, Node: "here", Task: args["task"]}
	if v, ok := args["nonce"]; ok {
		j.Nonce = uint64(number(t, v))
	}
	if v, ok := args["slots"]; ok {
		j.Slots = int(number(t, v))
	}
	if v, ok := args["node"]; ok {
		j.Node = v
	}
	tag, element, launched := strings.Cut(who, ".")
	if launched {
		j.Tag, j.Element = tag, int(number(t, element))
	} else {
		j.Name = who
	}
	s.apply(Event{Kind: EventJoin, Request: 99, Join: j})
}

func (s *scenario) attach(t *testing.T, who string, args map[string]string) {
	s.next++
	s.session[who], s.name[s.next] = s.next, who
	ev := Event{Kind: EventAttach, Session: s.next, Worker: who, Nonce: 7}
	if v, ok := args["nonce"]; ok {
		ev.Nonce = uint64(number(t, v))
	}
	if v := args["held"]; v != "" {
		for _, l := range strings.Split(v, ",") {
			lease := s.long(number(t, l))
			held, known := s.handouts[lease]
			if !known {
				held = Held{Epoch: 1, Lease: lease}
			}
			ev.Held = append(ev.Held, held)
		}
	}
	s.apply(ev)
}

func (s *scenario) report(what string) {
	var snap Snapshot
	s.e.Snapshot(&snap)
	for _, x := range snap.Tasks {
		c := x.Tally
		switch what {
		case "tally":
			fmt.Fprintf(&s.out, "%s %v: waiting %d ready %d leased %d success %d skipped %d failed %d orphaned %d abandoned %d; processed %d retries %d timed_out %d lost %d returned %d\n",
				x.ID, x.State, c.Waiting, c.Ready, c.Leased, c.Success, c.Skipped, c.Failed, c.Orphaned, c.Abandoned, c.Processed, c.Retries, c.TimedOut, c.Lost, c.Returned)
		case "slots":
			fmt.Fprintf(&s.out, "%s: %d slots are taken\n", x.ID, s.e.fleet.Slots(s.cfg.Pipeline.Index(x.ID)))
		case "waits":
			fmt.Fprintf(&s.out, "%s: busy %d idle %d starting %d: %s\n", x.ID, x.SlotsBusy, x.SlotsIdle, x.SlotsStarting, x.Waits)
		}
	}
	if what == "workers" {
		for _, w := range snap.Workers {
			fmt.Fprintf(&s.out, "%s for %s: %s %s: processed %d failed %d busy %v idle %v\n", w.ID, s.e.tasks[w.Task].spec.ID, w.State, w.End, w.Processed, w.Failed, w.Busy, w.Idle)
		}
	}
}
