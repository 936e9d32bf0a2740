package engine

import (
	"example.org/daisy/internal/fleet"
	"example.org/daisy/launcher"
)

// A pastSubmission is one of an earlier epoch, as far as the journal knows it.
type pastSubmission struct {
	tag, array   string
	task         int32
	count, slots int64
	void         bool  // refused, or not there
	throttle     int64 // how many of it run at once, 0 = all
}

func (s *pastSubmission) fields(c *coder) {
	c.string(&s.tag)
	c.int32(&s.task)
	c.int64(&s.count)
	c.int64(&s.slots)
	c.string(&s.array)
	c.bool(&s.void)
	c.int64(&s.throttle)
}

// submission finds the last one with a tag.
func (p *Past) submission(tag string) *pastSubmission {
	for i := len(p.subs) - 1; i >= 0; i-- {
		if p.subs[i].tag == tag {
			return p.subs[i]
		}
	}
	return nil
}

// lastOf is the last worker of each name: of those that an element was, one after the other.
func (p *Past) lastOf() map[string]*pastWorker {
	last := make(map[string]*pastWorker, len(p.order))
	for _, w := range p.order {
		last[w.ID] = w
	}
	return last
}

// adopt takes over what a batch system may still hold of earlier epochs. Workers that had joined have been inherited; those that had not
// are still to come. A submission of which no answer is known may be there or not, as one whose answer was lost.
func (e *Engine) adopt(p *Past) {
	ended, ran := map[string][]int{}, map[string][]int{}
	last := p.lastOf()
	for _, w := range p.order {
		if at := launcherName(w.ID); last[w.ID] != w || !w.Launched {
			continue
		} else if w.gone {
			ended[at.Tag] = append(ended[at.Tag], at.Element)
		} else {
			ran[at.Tag] = append(ran[at.Tag], at.Element)
		}
	}
	for _, was := range p.subs {
		if was.void {
			e.book.AdoptVoid(was.tag)
			continue
		}
		if was.task < 0 || int(was.task) >= len(e.tasks) || was.count < 0 {
			continue
		}
		e.book.Adopt(was.tag, was.array, int(was.count), ended[was.tag], ran[was.tag])
		e.book.Throttle(was.tag, int(was.throttle))
		e.adoptWorkers(was, ended[was.tag])
		if was.array != "" {
			e.binds = append(e.binds, fleet.Call{Kind: fleet.CallBind, Tag: was.tag, Array: was.array})
		}
	}
}

// adoptWorkers makes workers of those elements of a submission that have not joined.
func (e *Engine) adoptWorkers(was *pastSubmission, ended []int) {
	s := e.inheritedSubmission(launcher.Worker{Tag: was.tag, Element: int(was.count) - 1})
	s.request = Submission{Tag: was.tag, Count: int(was.count), Task: was.task, Slots: int(was.slots), Requires: e.tasks[was.task].spec.Requires}
	over := make([]bool, was.count)
	for _, i := range ended {
		if i >= 0 && i < len(over) {
			over[i] = true
		}
	}
	for i := range over {
		if over[i] || s.workers[i] != nil {
			continue
		}
		w := &worker{id: launcher.Worker{Tag: was.tag, Element: i}.String(), sub: s, element: i, task: was.task, slots: int32(was.slots), answer: never, missed: true, spare: was.throttle > 0}
		e.workers[w.id] = w
		s.workers[i] = w
		s.left++
		if !w.spare {
			e.fleet.Inherit(int(w.task), int64(w.slots))
			e.tight = true
		}
		e.enlist(w)
		e.recount(w)
	}
	s.throttle, s.inForce = was.throttle, was.throttle
	e.reshare(s)
	e.lookAt(e.pendingPatience())
}

// carryOverBatch takes over what a batch system has shown of a task: how many workers it has room for at once, and which blocks were cut
// by the end of a worker. Without one nothing of it counts.
func (e *Engine) carryOverBatch(task int32, was *pastTask) {
	if e.book == nil {
		return
	}
	if was.wave > 0 {
		e.classes[e.tasks[task].class].wave = was.wave
		if was.wave == 1 { // perhaps for want of room: then refusals bound the pace
			e.book.OneByOne()
		}
	}
	for block, n := range was.cuts {
		if e.cuts == nil {
			e.cuts = map[blockOf]int{}
		}
		e.cuts[blockOf{task, block}] = int(n)
	}
}
