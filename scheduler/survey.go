package scheduler

import (
	"bytes"
	"math/bits"
	"slices"
)

// A task of which nearly everything was done before is not skipped block by block, each telling its dependents: that takes seconds
// for 10^8 blocks. A survey finds instead the few blocks that cannot be skipped at once, the tainted: those not done, and what
// waits for a tainted one. All others are marked stBefore in bulk. Nothing ever told the dependents of those, so counters of
// tasks that wait for them begin from states (task.recount), and a scan opens what waits for nothing else.
//
// Until all surveys are through no counter has begun: ends of blocks meanwhile handed out wait in Scheduler.spreads.

const (
	surveyShare  = 16 // a survey is made if at most one block in so many is not done
	surveyLevels = 64 // and the task has at most so many levels, each of which takes a pass
)

// survey is what is known of a task during the survey, and how far it is.
type survey struct {
	task  *task
	taint Bitmap
	stage surveyStage
	pass  int   // edge or level within the stage
	next  int64 // word within the pass; in surveyUpstream, upstream block
	at    int64 // in surveyUpstream: block to go on with in the box below that one, 0 at its begin
}

type surveyStage uint8

const (
	surveyMark     surveyStage = iota // taint what is not done
	surveyUpstream                    // taint what waits for tainted blocks of other tasks
	surveyLevel                       // and of the own task
	surveyFill                        // mark the rest as done before
	surveyRoots                       // and put down the tried blocks that need no others
	surveyEnd
)

// planSurveys chooses the tasks to survey.
func (s *Scheduler) planSurveys() {
	for _, t := range s.tasks {
		if n := t.lattice.n; t.run != nil && n > 0 && n-t.skips <= n/surveyShare && t.levelCount() <= surveyLevels {
			s.surveys = append(s.surveys, &survey{task: t})
			t.surveyed = true
		} else if t.past != nil {
			t.past.triedAt = nil
		}
	}
	for _, t := range s.tasks {
		t.recount = t.surveyed && t.lattice.levels
		for _, e := range t.up {
			t.recount = t.recount || s.tasks[e.up].surveyed
		}
		if t.run != nil && t.recount {
			s.scans = append(s.scans, scan{task: t.id})
			t.tellUnits += statesUnits(min(t.most, stCountMax))
		}
	}
	s.surveyed = slices.Clone(s.surveys)
}

// continueSurvey does a slice of the first survey that is not through.
func (s *Scheduler) continueSurvey(left *int) {
	v := s.surveys[0]
	t := v.task
	if v.taint == nil {
		v.taint = NewBitmap(t.lattice.n)
	}
	if t.run == nil { // abandoned meanwhile: whatever waits for a block of it is not to be skipped unseen
		s.surveyed = slices.DeleteFunc(s.surveyed, func(w *survey) bool { return w == v })
		v.stage = surveyEnd
	}
	for *left > 0 && v.stage < surveyEnd {
		switch v.stage {
		case surveyMark:
			v.mark(left)
		case surveyUpstream:
			s.surveyEdge(v, left)
		case surveyLevel:
			v.level(left)
		case surveyFill:
			v.fill(left)
		case surveyRoots:
			v.roots(left)
		}
	}
	if v.stage < surveyEnd {
		return
	}
	if s.surveys = s.surveys[1:]; len(s.surveys) == 0 {
		s.surveys, s.surveyed = nil, nil
	}
	s.endIfOver(t)
}

// forWords calls do for words of a bitmap from next on, while there is work left, and reports whether it came to the end; then the
// survey is at the begin of its next pass.
func (v *survey) forWords(left *int, do func(word int64) (touched int)) (through bool) {
	for ; v.next < int64(len(v.taint)); v.next++ {
		if *left <= 0 {
			return false
		}
		*left -= do(v.next)
	}
	v.next = 0
	v.pass++
	return true
}

func (v *survey) nextStage() {
	v.stage++
	v.pass, v.next = 0, 0
}

func (v *survey) mark(left *int) {
	t := v.task
	if v.forWords(left, func(w int64) int {
		v.taint[w] = ^t.skip[w] | t.past.triedIn(w)
		if rest := t.lattice.n - w*64; rest < 64 {
			v.taint[w] &= 1<<rest - 1
		}
		return 1
	}) {
		v.nextStage()
	}
}

// surveyEdge taints what waits for tainted blocks of one upstream task; of a task not surveyed, all blocks count as tainted.
func (s *Scheduler) surveyEdge(v *survey, left *int) {
	t := v.task
	if v.pass == len(t.up) {
		v.nextStage()
		return
	}
	e := t.up[v.pass]
	if from := s.surveyOf(e.up); from == nil {
		if !v.taintBox(&e.needs, left) {
			return
		}
	} else {
		for words := int64(len(from.taint)); v.next < words*64; {
			if *left <= 0 {
				return
			}
			*left--
			rest := from.taint[v.next/64] >> (v.next % 64)
			if rest == 0 {
				v.next = (v.next/64 + 1) * 64
				continue
			}
			v.next += int64(bits.TrailingZeros64(rest))
			var k point
			var b box
			from.task.lattice.position(v.next, &k)
			if e.downstream(&k, &b) > 0 && !v.taintBox(&b, left) {
				return
			}
			v.next++
		}
	}
	v.next = 0
	v.pass++
}

// surveyOf returns the survey of a task, nil if there is none.
func (s *Scheduler) surveyOf(task int) *survey {
	for _, v := range s.surveyed {
		if v.task.id == task {
			return v
		}
	}
	return nil
}

// taintBox taints a box of blocks, from v.at on, and reports whether it came to the end; then the next box is at its begin.
func (v *survey) taintBox(b *box, left *int) (through bool) {
	l, last := &v.task.lattice, v.task.lattice.dims-1
	k := b.lo
	if v.at > 0 {
		l.position(v.at, &k)
	}
	for {
		first := l.flat(&k)
		n := min(b.hi[last]-k[last], int64(max(*left, 1))*64)
		v.taint.setRange(first, first+n)
		*left -= 1 + int(n/64)
		if !l.along(b, &k, n) {
			v.at = 0
			return true
		}
		if *left <= 0 {
			v.at = l.flat(&k)
			return false
		}
	}
}

// level taints what waits for tainted blocks of one level.
func (v *survey) level(left *int) {
	t := v.task
	if !t.lattice.levels || v.pass == t.levelCount()-1 {
		v.nextStage()
		return
	}
	v.forWords(left, func(w int64) int {
		return 1 + eachBit(v.taint[w], w*64, func(block int64) int {
			var k point
			t.lattice.position(block, &k)
			if t.lattice.level(&k) != v.pass {
				return 1
			}
			var next family
			n := t.lattice.leadsTo(block, &k, &next)
			for _, b := range next[:n] {
				v.taint.Set(b)
			}
			return 1 + n
		})
	})
}

// fill marks the blocks that are not tainted as done before.
func (v *survey) fill(left *int) {
	t := v.task
	if v.forWords(left, func(w int64) int {
		n := min(64, t.lattice.n-w*64)
		clean := ^v.taint[w] & (1<<n - 1)
		if n == 64 {
			clean = ^v.taint[w]
		}
		group := t.state[w*64 : w*64+64]
		if clean == ^uint64(0) {
			for i := range group {
				group[i] = stBefore
			}
		} else {
			eachBit(clean, 0, func(i int64) int { group[i] = stBefore; return 0 })
		}
		well := t.past.successes(w, clean)
		t.run.skip(int64(bits.OnesCount64(clean)) - well)
		t.run.succeedBefore(well)
		return 8
	}) {
		t.toSkip = 0 // a root is never tainted by another block
		v.nextStage()
		if t.past == nil || t.past.triedAt == nil {
			v.nextStage() // at once: the task may be over
		}
	}
}

// roots puts down the tried blocks that need no others.
func (v *survey) roots(left *int) {
	t := v.task
	if v.forWords(left, func(w int64) int {
		return 1 + eachBit(t.past.triedIn(w), w*64, func(block int64) int {
			if t.isRoot(block) {
				t.endLater(block)
			}
			return 1
		})
	}) {
		t.past.triedAt = nil
		v.nextStage()
	}
}

// scan goes through a task of which some dependencies are stBefore, and opens what waits for nothing else.
type scan struct {
	task int
	next int64
}

// continueScan does a slice of the first scan.
func (s *Scheduler) continueScan(left *int) {
	c := &s.scans[0]
	t := s.tasks[c.task]
	for ; t.run != nil && c.next < t.lattice.n && *left > 0; c.next++ {
		*left--
		if c.next%64 == 0 && t.surveyed && c.next+64 <= t.lattice.n && bytes.IndexByte(t.state[c.next:c.next+64], 0) < 0 {
			c.next += 63 // a whole group that was done before
			continue
		}
		if t.state[c.next] != 0 || t.isRoot(c.next) {
			continue
		}
		var k point
		t.lattice.position(c.next, &k)
		*left -= 4
		if n := t.needs(&k); n > stCountMax {
			t.uncount(c.next)
		} else {
			*left -= statesUnits(n)
			if t.recounted(c.next, &k) == 0 {
				t.open(c.next)
			}
		}
	}
	if t.run == nil || c.next >= t.lattice.n {
		if s.scans = s.scans[1:]; len(s.scans) == 0 {
			s.scans = nil
		}
	}
}

// eachBit calls do with base plus each set bit and returns the sum of what it returned.
func eachBit(w uint64, base int64, do func(int64) int) (sum int) {
	for ; w != 0; w &= w - 1 {
		sum += do(base + int64(bits.TrailingZeros64(w)))
	}
	return sum
}
