package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/internal/job"
	"example.org/daisy/launcher"
	"example.org/daisy/launcher/launchertest"
	"example.org/daisy/scheduler"
	"github.com/cockroachdb/datadriven"
)

// A clusterScenario tells a run on a batch system, in which workers do what they should unless a command says otherwise. Its output is what
// the run says, whom it lets in, what it hands out and how it ends. Commands:
//
//	cluster [starts=never]     a run of the tasks below: "a blocks=40 [max-workers=8] [timeout=5s]"
//	resume                     its next life, of which time begins anew; [starts=never]
//	for 15s, ends within=1h    time passes, up to the end of the run
//	element 1.0 start|end|forget|foreign|known   what the system says of it: [node=n1] [exit=3]; "foreign": its id stands for another's
//	forget [1]                 the system knows nothing of what there is, or of one submission
//	refuse for-good            every submission is refused from now on, until "accept"
//	deaf, answers              it does not answer; it does again
//	worker 1.0 silent|heard|knocks|dies|finishes   "knocks": it joins, and no more of it is heard
//	join 1.0 [array=101] [nonce=8] [restart=1] [held=TASK:BLOCK[:ATTEMPT]]
//	guest x task=a             one that came by itself and asks for blocks
//	hold, commit               commits wait; all is durable
//	stop now, exclude n1, include n1, set-max a=1, throttle 1=2
//	slots, rows, waits, calls  what there is; calls: since the last time, but those that only ask
type clusterScenario struct {
	c        *cluster
	tasks    []job.Task
	calls    int
	refusing bool
}

func newClusterScenario(t *testing.T, d *datadriven.TestData) *clusterScenario {
	k := &clusterScenario{}
	for _, line := range strings.Split(d.Input, "\n") {
		words := strings.Fields(line)
		task := taskOf(1, words[0])
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "blocks":
				task.Grid = line1D(t, number(t, value))
			case "max-workers":
				task.MaxWorkers = number(t, value)
			case "array-limit":
				task.Options = map[string][]string{"array_limit": {value}}
			case "timeout":
				task.Timeout = duration(t, value)
			case "restarts":
				task.MaxWorkerRestarts = int(number(t, value))
			default:
				d.Fatalf(t, "unknown key %s", key)
			}
		}
		k.tasks = append(k.tasks, task)
	}
	k.c = newCluster(t, nil, k.tasks...)
	k.c.told = &strings.Builder{}
	return k
}

// tell writes down what an effect tells of the run.
func (c *cluster) tell(f *Effect) {
	say := func(format string, args ...any) {
		fmt.Fprintf(c.told, "[%v] "+format+"\n", append([]any{c.now}, args...)...)
	}
	switch f.Kind {
	case EffectNotice:
		say("%s", f.Text)
	case EffectJoined:
		say("%s is let in", f.WorkerID)
	case EffectRefused:
		if f.Request != 0 {
			say("refused: %s", f.Code)
		}
	case EffectFinished:
		say("%v: %s", f.State, f.Text)
	}
}

func (k *clusterScenario) do(t *testing.T, d *datadriven.TestData) string {
	c := k.c
	args := map[string]string{}
	var words []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			words = append(words, a.Key)
		} else {
			args[a.Key] = strings.Join(a.Vals, ",")
		}
	}
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch d.Cmd {
	case "cluster":
		k.starts(args)
		c.apply(Event{Kind: EventTick})
	case "resume":
		k.c = c.resumed(k.tasks...)
		k.c.told = c.told
		k.starts(args)
		k.c.apply(Event{Kind: EventTick})
	case "for":
		c.run(c.now + duration(t, word(0)))
	case "ends":
		c.run(c.now + duration(t, args["within"]))
		if c.final == nil {
			fmt.Fprintf(c.told, "it goes on: %s\n", c.e.waits(0))
		}
	case "element":
		k.element(t, d, word(0), word(1), args)
	case "forget":
		for _, e := range c.all() {
			if word(0) == "" || e.Tag == word(0) {
				c.q.Forget(e.Tag, e.First)
			}
		}
	case "refuse":
		k.refusing, c.q.NextSubmit = true, k.refuse
	case "accept":
		k.refusing, c.q.NextSubmit = false, nil
	case "deaf":
		c.q.Down = errors.New("Unable to contact slurm controller")
	case "answers":
		c.q.Down = nil
	case "worker":
		k.worker(d, t, word(0), word(1))
	case "join":
		k.join(t, word(0), args)
	case "guest":
		c.guest(word(0), args["task"])
	case "hold":
		c.holds = true
	case "commit":
		c.holds = false
		c.commit()
	case "stop":
		c.apply(Event{Kind: EventStop, Stop: map[string]StopKind{"drain": StopDrain, "cancel": StopCancel, "now": StopNow}[word(0)], Text: "enough"})
	case "exclude", "include":
		c.apply(Event{Kind: EventExclude, Exclude: &Exclusion{Node: word(0), By: "ada", Include: d.Cmd == "include"}})
	case "set-max":
		for id, n := range args {
			c.apply(Event{Kind: EventSet, Set: &Setting{Key: SetMaxWorkers, Task: int32(c.e.cfg.Pipeline.Index(id)), N: number(t, n), By: "ada"}})
		}
	default:
		k.report(t, d)
	}
	return k.output()
}

// refuse refuses a submission for good, and the next ones.
func (k *clusterScenario) refuse(launcher.Request) launchertest.Outcome {
	k.c.after(0, func() {
		if k.refusing {
			k.c.q.NextSubmit = k.refuse
		}
	})
	return launchertest.Outcome{Err: &launcher.Refusal{Kind: launcher.RefusedForGood, Text: "Requested node configuration is not available"}}
}

func (k *clusterScenario) starts(args map[string]string) {
	if args["starts"] == "never" {
		k.c.starts = func(string, int) time.Duration { return never }
	}
}

func (k *clusterScenario) element(t *testing.T, d *datadriven.TestData, id, what string, args map[string]string) {
	at := launcherName(id)
	switch what {
	case "start":
		k.c.q.Start(at.Tag, at.Element, args["node"])
	case "end":
		exit := int64(0)
		if args["exit"] != "" {
			exit = number(t, args["exit"])
		}
		k.c.q.End(at.Tag, at.Element, launcher.End{Cause: launcher.Exited, Exit: int(exit)})
	case "forget":
		k.c.q.Forget(at.Tag, at.Element)
	case "foreign":
		k.c.q.Set(at.Tag, at.Element, func(e *launcher.Element) { e.Tag = "of somebody else" })
	default:
		d.Fatalf(t, "what becomes of element %s? %q", id, what)
	}
}

func (k *clusterScenario) worker(d *datadriven.TestData, t *testing.T, id, what string) {
	for _, name := range slices.Sorted(maps.Keys(k.c.agents)) {
		a := k.c.agents[name]
		if id != "all" && name != id {
			continue
		}
		switch what {
		case "silent":
			a.silent = true
		case "heard":
			k.c.apply(Event{Kind: EventHeartbeat, Session: a.session})
		case "knocks":
			k.c.introduce(a)
		case "dies":
			k.c.die(a)
		case "finishes":
			k.c.finish(a, scheduler.Success)
		case "leaves":
			k.c.leave(a, LeaveDone)
		case "terminated":
			k.c.leave(a, LeaveSignal)
		default:
			d.Fatalf(t, "what does worker %s do? %q", id, what)
		}
	}
}

// join has a worker come, which may be one of an earlier life with a block.
func (k *clusterScenario) join(t *testing.T, id string, args map[string]string) {
	c := k.c
	a := &agent{id: id, at: launcherName(id), slots: 1, array: args["array"]}
	if n := args["nonce"]; n != "" {
		a.nonce = uint64(number(t, n))
	}
	if n := args["restart"]; n != "" {
		a.restart = int(number(t, n))
	}
	if task, block, has := strings.Cut(args["held"], ":"); has {
		a.epoch = c.e.cfg.Epoch - 1
		block, attempt, _ := strings.Cut(block, ":")
		a.held = []scheduler.Handout{{Lease: 99, Task: int32(c.e.cfg.Pipeline.Index(task)), Block: number(t, block), Attempt: int32(number(t, cmp.Or(attempt, "1")))}}
	}
	c.agents[id] = a
	c.connect(a)
	if a.session != 0 {
		c.goOn(a)
	}
	fmt.Fprintf(c.told, "%s has %d blocks\n", id, len(a.held))
}

// guest has a worker come that nobody asked for.
func (c *cluster) guest(name, task string) {
	a := &agent{id: name, slots: 1}
	c.agents[name] = a
	c.says = func(_ *agent, j *Join) { j.Name, j.Task = name, task }
	c.connect(a)
	c.says = nil
	c.goOn(a)
}

func (k *clusterScenario) report(t *testing.T, d *datadriven.TestData) {
	c := k.c
	say := func(format string, args ...any) { fmt.Fprintf(c.told, format+"\n", args...) }
	var snap Snapshot
	c.e.Snapshot(&snap)
	switch d.Cmd {
	case "slots":
		for i := range k.tasks {
			say("%s: %d slots are taken", k.tasks[i].ID, c.e.fleet.Slots(i))
		}
	case "rows":
		for _, x := range snap.Tasks {
			say("%s: processed %d, lost %d, success %d", x.ID, x.Tally.Processed, x.Tally.Lost, x.Tally.Success)
		}
		for _, w := range snap.Workers {
			say("%s for %s: %s %s: processed %d", w.ID, k.tasks[w.Task].ID, w.State, w.End, w.Processed)
		}
	case "waits":
		say("%s", c.e.waits(0))
	case "calls":
		all := c.q.Calls()
		for _, call := range all[k.calls:] {
			if call != "list" && !strings.HasPrefix(call, "known") && !strings.HasPrefix(call, "account") {
				say("%s", call)
			}
		}
		k.calls = len(all)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

func (k *clusterScenario) output() string {
	text := k.c.told.String()
	k.c.told.Reset()
	if text == "" {
		return "-"
	}
	return text
}
