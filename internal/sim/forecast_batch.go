package sim

import (
	"slices"
	"time"

	"example.org/daisy/internal/engine"
	"example.org/daisy/launcher"
)

// The batch system of a forecast makes all that it is asked for, each element after its time in the queue, and always answers.

// answers is what it does a moment later.
func (f *forecaster) answers(a engine.Answer) {
	f.answer = a
	f.at(f.now+AnswerTime, runAnswers, 0, 0)
}

// ask answers a question. The answer is as of the moment of the question.
func (f *forecaster) ask(kind engine.EffectKind, a *engine.Ask) {
	var made engine.Answer
	switch kind {
	case engine.EffectList:
		made.Listing = f.list()
	case engine.EffectKnown:
		made.Known = slices.ContainsFunc(f.arrays, func(c *crew) bool { return c.id == a.Array })
	case engine.EffectAccount:
		made.Err = launcher.ErrNoAccounting
	case engine.EffectCancelArray:
		for _, c := range f.arrays {
			if c.id == a.Array {
				for _, x := range c.members {
					f.signal(x, launcher.End{Cause: launcher.Cancelled})
				}
			}
		}
	}
	f.answers(made)
}

// list is what it knows of this run. What has long ended is forgotten.
func (f *forecaster) list() (l launcher.Listing) {
	f.arrays = slices.DeleteFunc(f.arrays, func(c *crew) bool {
		return !slices.ContainsFunc(c.members, f.listed)
	})
	for _, c := range f.arrays {
		for i, x := range c.members {
			if f.listed(x) {
				l.Elements = f.row(l.Elements, c, i)
			}
		}
	}
	return l
}

func (f *forecaster) listed(x *crewman) bool {
	return x.state != crewEnded || !x.gone && f.now < x.left+minJobAge
}

// row adds an element, to the row before it where both are pending.
func (f *forecaster) row(rows []launcher.Element, c *crew, i int) []launcher.Element {
	x := c.members[i]
	r := launcher.Element{Tag: c.tag, Array: c.id, First: i, Last: i}
	switch x.state {
	case crewWaits:
		r.State, r.Word, r.Reason = launcher.Pending, "PENDING", launcher.Reason{Word: "Priority", Plain: "others go first"}
		if n := len(rows); n > 0 && rows[n-1].Array == c.id && rows[n-1].State == launcher.Pending && rows[n-1].Last == i-1 {
			rows[n-1].Last = i
			return rows
		}
	case crewEnded:
		r.State, r.Word, r.End, r.Node = launcher.Ended, endedWords[x.end.Cause], x.end, f.node(x)
		if x.end.Cause == launcher.Cancelled {
			r.By = launcher.CancelledByOwner
		}
	default:
		r.State, r.Word, r.Node = launcher.Running, "RUNNING", f.node(x)
		if x.until != never {
			r.Left = max(x.until-f.now, time.Second)
		}
	}
	return append(rows, r)
}

var endedWords = map[launcher.Cause]string{launcher.Exited: "COMPLETED", launcher.Signalled: "FAILED", launcher.TimeLimit: "TIMEOUT",
	launcher.Preempted: "PREEMPTED", launcher.Cancelled: "CANCELLED"}
