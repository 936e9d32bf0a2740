package sim

import (
	"fmt"

	"example.org/daisy/internal/engine"
)

// logf writes a line of the event log.
func (w *World) logf(format string, args ...any) {
	if w.log != nil {
		fmt.Fprintf(w.log, "%14.6f  %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

// logEvent writes down what goes into the engine.
func (w *World) logEvent(co *coordinator, ev *engine.Event) {
	what := ""
	switch ev.Kind {
	case engine.EventTick:
		what = "tick"
	case engine.EventJoin:
		what = fmt.Sprintf("join %s.%d %s from %s (request %d)", ev.Join.Tag, ev.Join.Element, ev.Join.Name, ev.Join.Node, ev.Request)
	case engine.EventAttach:
		what = fmt.Sprintf("attach %s session %d, holds %v", ev.Worker, ev.Session, ev.Held)
	case engine.EventDetach:
		what = fmt.Sprintf("detach session %d", ev.Session)
	case engine.EventHeartbeat:
		what = fmt.Sprintf("heartbeat session %d", ev.Session)
	case engine.EventAcquire:
		what = fmt.Sprintf("acquire %d session %d (request %d)", ev.N, ev.Session, ev.Request)
	case engine.EventRelease:
		what = fmt.Sprintf("release session %d seq %d lease %d.%x %v", ev.Session, ev.Seq, ev.Epoch, uint64(ev.Lease), ev.Outcome)
	case engine.EventLeaving:
		what = fmt.Sprintf("leaving session %d (%d)", ev.Session, ev.Leave)
	case engine.EventCommitted:
		what = fmt.Sprintf("committed %d", ev.UpTo)
	case engine.EventSubmitted:
		what = fmt.Sprintf("submitted %s %s", ev.Tag, ev.Text)
	case engine.EventStatus:
		what = fmt.Sprintf("status %v %v on %q %v", ev.Status.Worker, ev.Status.State, ev.Status.Node, ev.Status.End)
	case engine.EventStop:
		what = fmt.Sprintf("stop %d", ev.Stop)
	case engine.EventAnswered:
		what = fmt.Sprintf("answer: array %q known %v error %v rows %+v", ev.Answer.Array, ev.Answer.Known, ev.Answer.Err, ev.Answer.Listing.Elements)
	case engine.EventSet:
		what = fmt.Sprintf("set %+v", *ev.Set)
	case engine.EventExclude:
		what = fmt.Sprintf("exclude %+v", *ev.Exclude)
	case engine.EventStopWorker:
		what = "stop worker " + ev.Worker
	case engine.EventAside:
		what = fmt.Sprintf("aside for %v: %s", ev.Left, ev.Text)
	case engine.EventEnding:
		what = fmt.Sprintf("ending session %d in %v", ev.Session, ev.Left)
	case engine.EventBroken:
		what = "broken " + ev.Text
	default:
		what = fmt.Sprintf("event %d", ev.Kind)
	}
	w.logf("%d <- %s", co.epoch, what)
}

// logEffect writes down what comes out.
func (w *World) logEffect(co *coordinator, f *engine.Effect) {
	what := ""
	switch f.Kind {
	case engine.EffectAppend:
		r, err := engine.DecodeRecord(f.Record)
		what = fmt.Sprintf("append %d: kind %d task %d block %d lease %x attempt %d worker %d outcome %d id %q text %q (%v)",
			co.appended+1, r.Kind, r.Task, r.Block, r.Lease, r.Attempt, r.Worker, r.Outcome, r.ID, r.Text, err)
	case engine.EffectCommit:
		what = fmt.Sprintf("commit (urgent %v)", f.Urgent)
	case engine.EffectTrack:
		what = fmt.Sprintf("track task %d block %d done %v", f.Task, f.Block, f.Done)
	case engine.EffectJoined:
		what = fmt.Sprintf("joined %s task %d (request %d)", f.WorkerID, f.Task, f.Request)
	case engine.EffectRefused:
		what = fmt.Sprintf("refused request %d session %d lease %x %s: %s", f.Request, f.Session, uint64(f.Lease), f.Code, f.Text)
	case engine.EffectWelcome:
		what = fmt.Sprintf("welcome session %d, gone %x", f.Session, f.Leases)
	case engine.EffectBlocks:
		what = fmt.Sprintf("blocks session %d request %d %v", f.Session, f.Request, f.Handouts)
	case engine.EffectAcknowledge:
		what = fmt.Sprintf("acknowledge session %d seq %d", f.Session, f.Seq)
	case engine.EffectRecall:
		what = fmt.Sprintf("recall session %d %x", f.Session, f.Leases)
	case engine.EffectReassign:
		what = fmt.Sprintf("reassign session %d task %d", f.Session, f.Task)
	case engine.EffectDrain, engine.EffectStop, engine.EffectClose:
		what = fmt.Sprintf("%s session %d: %s", map[engine.EffectKind]string{engine.EffectDrain: "drain", engine.EffectStop: "stop", engine.EffectClose: "close"}[f.Kind], f.Session, f.Text)
	case engine.EffectKillBlock:
		what = fmt.Sprintf("kill block session %d lease %x", f.Session, uint64(f.Lease))
	case engine.EffectSubmit:
		what = fmt.Sprintf("submit %s: %d × %d slots for task %d, not on %v", f.Submit.Tag, f.Submit.Count, f.Submit.Slots, f.Submit.Task, f.Submit.Exclude)
	case engine.EffectCancel:
		what = fmt.Sprintf("cancel %v", f.Workers)
	case engine.EffectKill:
		what = fmt.Sprintf("kill %v", f.Workers)
	case engine.EffectBind, engine.EffectList, engine.EffectKnown, engine.EffectAccount, engine.EffectThrottle, engine.EffectExclude, engine.EffectCancelArray:
		what = fmt.Sprintf("%s tag %q array %q arrays %v nodes %v", map[engine.EffectKind]string{engine.EffectBind: "bind", engine.EffectList: "list", engine.EffectKnown: "known",
			engine.EffectAccount: "account", engine.EffectThrottle: "throttle", engine.EffectExclude: "exclude", engine.EffectCancelArray: "cancel array"}[f.Kind], f.Ask.Tag, f.Ask.Array, f.Ask.Arrays, f.Ask.Nodes)
	case engine.EffectEnded:
		a := f.Attempt
		what = fmt.Sprintf("ended task %d block %d attempt %d %v: %v", a.Handout.Task, a.Handout.Block, a.Handout.Attempt, a.Outcome, a.Verdict)
	case engine.EffectAway:
		what = fmt.Sprintf("away session %d for %v", f.Session, f.Left)
	case engine.EffectNotice:
		what = "notice: " + f.Text
	case engine.EffectFinished:
		what = fmt.Sprintf("finished %v %s", f.State, f.Text)
	default:
		what = fmt.Sprintf("effect %d", f.Kind)
	}
	w.logf("%d -> %s", co.epoch, what)
}
