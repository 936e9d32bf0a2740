package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"example.org/daisy/launcher"
	"pgregory.net/rapid"
)

// A site is a small batch system with the habits of a real one: it loses answers, accepts what it seemed to refuse, forgets what has
// ended, starts nothing for long, and is at times not there.
type site struct {
	t       *rapid.T
	b       *Book
	now     time.Duration
	id      int
	arrays  []*siteArray
	late    []*siteArray // accepted, but not to be seen yet
	forgets time.Duration
	calm    bool

	tags    int
	bound   map[string]string
	voids   map[string]bool
	over    map[launcher.Worker]bool
	asked   time.Duration
	wishes  map[launcher.Worker]bool // what the test wants cancelled
	givenUp map[launcher.Worker]bool
	calls   map[CallKind][]time.Duration
	changed time.Duration // end of the last changing call
	heard   map[launcher.Worker]time.Duration
	refuses bool           // exclusions
	ignores bool           // changes of throttles
	inForce map[string]int // as the Book has said
	wanted  map[string]int // throttles
}

type siteArray struct {
	id, tag  string
	throttle int
	elements []siteElement
	appears  time.Duration
}

type siteElement struct {
	state   launcher.State // Unknown = its node failed
	cause   launcher.Cause
	by      launcher.Canceller
	trace   bool // it is in answers once it has ended
	ended   time.Duration
	process bool // a worker lives
	joined  bool
	linked  bool // and is connected
	started bool
}

func newSite(t *rapid.T) *site {
	s := &site{t: t, bound: map[string]string{}, voids: map[string]bool{}, over: map[launcher.Worker]bool{}, wishes: map[launcher.Worker]bool{}, givenUp: map[launcher.Worker]bool{},
		calls: map[CallKind][]time.Duration{}, heard: map[launcher.Worker]time.Duration{}, changed: -time.Hour}
	s.forgets = rapid.SampledFrom([]time.Duration{2 * time.Second, time.Minute, 5 * time.Minute}).Draw(t, "MinJobAge")
	s.refuses = rapid.Bool().Draw(t, "exclusions refused")
	s.ignores = rapid.IntRange(0, 3).Draw(t, "throttles cannot be changed") == 0
	s.inForce, s.wanted = map[string]int{}, map[string]int{}
	s.b = NewBook(BookConfig{Seed: rapid.Uint64().Draw(t, "seed"), Heard: func(w launcher.Worker) time.Duration {
		if at, ok := s.heard[w]; ok {
			return at
		}
		return -1
	}})
	s.b.noAccounts = rapid.Bool().Draw(t, "no accounts")
	return s
}

func TestWhateverTheBatchSystemDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(t)
		for range rapid.IntRange(20, 150).Draw(t, "steps") {
			s.step()
		}
		s.settle()
	})
}

func (s *site) chance(n int, label string) bool {
	return !s.calm && rapid.IntRange(0, n-1).Draw(s.t, label) == n-1
}

func (s *site) step() {
	switch rapid.IntRange(0, 9).Draw(s.t, "step") {
	case 9:
		if a := s.array(); a != nil && s.bound[a.tag] == a.id && s.inForce[a.tag] > 0 {
			s.wanted[a.tag] = rapid.IntRange(1, len(a.elements)).Draw(s.t, "another throttle")
			s.b.Throttle(a.tag, s.wanted[a.tag])
		}
	case 0:
		if s.b.MaySubmit(s.now) {
			s.tags++
			count := rapid.IntRange(1, 4).Draw(s.t, "count")
			s.b.Submit(s.now, strconv.Itoa(s.tags), count, nil)
			if most := rapid.IntRange(0, count).Draw(s.t, "throttle"); most > 0 {
				s.b.Throttle(strconv.Itoa(s.tags), most)
				s.inForce[strconv.Itoa(s.tags)], s.wanted[strconv.Itoa(s.tags)] = most, most
			}
		}
	case 1:
		s.happens()
	case 2:
		s.happens()
	case 3:
		if w, _, ok := s.some(); ok {
			s.wishes[w] = true
			s.b.Cancel(s.now, w)
		}
	case 4:
		if a := s.array(); a != nil && s.bound[a.tag] == a.id {
			s.b.Exclude(a.tag, []string{"n1"})
		}
	case 5:
		for _, a := range s.arrays {
			for i := range a.elements {
				s.link(a, i)
			}
		}
	case 6:
		if w, e, ok := s.some(); ok && !e.linked && e.started { // the engine has waited for long enough
			s.givenUp[w], s.wishes[w] = true, true
			s.b.GiveUp(w)
			s.b.Cancel(s.now, w)
		}
	default:
		s.pass(time.Duration(rapid.Int64Range(1, int64(2*time.Minute)).Draw(s.t, "time")))
	}
	s.serve(0)
	for _, a := range s.arrays {
		s.checkThrottle(a)
	}
}

func (s *site) array() *siteArray {
	if len(s.arrays) == 0 {
		return nil
	}
	return s.arrays[rapid.IntRange(0, len(s.arrays)-1).Draw(s.t, "array")]
}

// some is an element of a bound array.
func (s *site) some() (launcher.Worker, *siteElement, bool) {
	a := s.array()
	if a == nil || s.bound[a.tag] != a.id {
		return launcher.Worker{}, nil, false
	}
	i := rapid.IntRange(0, len(a.elements)-1).Draw(s.t, "element")
	return launcher.Worker{Tag: a.tag, Element: i}, &a.elements[i], true
}

// happens: something befalls an element.
func (s *site) happens() {
	a := s.array()
	if a == nil {
		return
	}
	e := &a.elements[rapid.IntRange(0, len(a.elements)-1).Draw(s.t, "element")]
	switch {
	case e.state == launcher.Pending:
		switch rapid.IntRange(0, 5).Draw(s.t, "befalls a pending one") {
		case 0:
			e.end(s.now, launcher.Cancelled, launcher.CancelledByOwner)
			e.trace = false
		case 1:
			e.started = true
			e.end(s.now, launcher.Cancelled, launcher.CancelledBySystem)
		default:
			if a.throttle == 0 || a.runs() < a.throttle {
				e.state, e.started, e.process = launcher.Running, true, true
				s.checkThrottle(a)
			}
		}
	case e.state == launcher.Running:
		switch rapid.IntRange(0, 5).Draw(s.t, "befalls a running one") {
		case 0:
			e.end(s.now, launcher.Exited, 0)
		case 1:
			e.end(s.now, launcher.TimeLimit, 0)
		case 2:
			e.end(s.now, launcher.Cancelled, launcher.CancelledByOther)
		case 3:
			e.state, e.process = launcher.Unknown, rapid.Bool().Draw(s.t, "the process lives")
		case 4: // a requeue, against orders
			e.state, e.process = launcher.Pending, false
		}
	case e.state == launcher.Unknown && rapid.Bool().Draw(s.t, "the node is back"):
		e.state, e.process = launcher.Running, true
	}
}

// runs is how many elements run.
func (a *siteArray) runs() (n int) {
	for i := range a.elements {
		if a.elements[i].state == launcher.Running {
			n++
		}
	}
	return n
}

// checkThrottle: what the Book thinks that may run is not less than what the system lets start, whatever was called for. What has started
// counts as long as it is there, so that only what has not matters.
func (s *site) checkThrottle(a *siteArray) {
	waits := slices.ContainsFunc(a.elements, func(e siteElement) bool { return e.state == launcher.Pending && !e.started })
	if s.bound[a.tag] != a.id || a.throttle == 0 || !waits {
		return
	}
	s.read()
	if most := max(s.inForce[a.tag], s.wanted[a.tag]); a.throttle > most {
		s.t.Fatalf("at %v array %s may run %d, and the Book has said %d, and wants %d", s.now, a.id, a.throttle, s.inForce[a.tag], s.wanted[a.tag])
	}
}

func (e *siteElement) end(now time.Duration, cause launcher.Cause, by launcher.Canceller) {
	e.state, e.cause, e.by, e.ended, e.process, e.trace = launcher.Ended, cause, by, now, false, true
}

// link has a worker join, lose its connection or say something.
func (s *site) link(a *siteArray, i int) {
	e := &a.elements[i]
	w := launcher.Worker{Tag: a.tag, Element: i}
	switch {
	case e.process && !e.linked:
		admitted := s.b.Admit(s.now, a.tag, a.id)
		s.read()
		if admitted != (s.bound[a.tag] == a.id) {
			s.t.Fatalf("a worker of array %s of tag %s, which is bound to %q, is admitted: %v", a.id, a.tag, s.bound[a.tag], admitted)
		}
		if admitted && !s.over[w] {
			e.joined, e.linked = true, true
			s.heard[w] = s.now
			s.b.Connected(s.now, w, true)
		}
	case e.linked && (!e.process || s.chance(6, "the connection breaks")):
		e.linked = false
		s.b.Connected(s.now, w, false)
	case e.linked:
		s.heard[w] = s.now
	}
}

// pass lets time pass, with calls when the Book wants them.
func (s *site) pass(d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.serve(0)
		s.now = min(end, max(s.b.Wake(), s.now+1))
	}
}

// serve makes the calls that are due.
func (s *site) serve(depth int) {
	for {
		s.read()
		c, ok := s.b.Next(s.now)
		s.read()
		if !ok {
			return
		}
		s.calls[c.Kind] = append(s.calls[c.Kind], s.now)
		s.asked = s.now
		a := s.call(c)
		took := time.Duration(0)
		if s.chance(4, "slow") {
			took = time.Duration(rapid.Int64Range(1, int64(15*time.Second)).Draw(s.t, "took"))
		}
		s.now += took
		if took > 0 && s.chance(2, "somebody speaks meanwhile") {
			for _, arr := range s.arrays {
				for i := range arr.elements {
					s.link(arr, i)
				}
			}
		}
		switch c.Kind {
		case CallSubmit, CallExclude, CallThrottle, CallCancel, CallCancelArray, CallCancelArrays:
			if s.asked-s.changed < time.Second {
				s.t.Fatalf("two changes within %v", s.asked-s.changed)
			}
			s.changed = s.now
		}
		s.b.Answered(s.now, a)
		if depth++; depth > 10_000 {
			s.t.Fatal("calls without end")
		}
	}
}

func (s *site) call(c Call) Answer {
	down := s.chance(8, "down")
	switch c.Kind {
	case CallSubmit:
		return s.submit(c)
	case CallList:
		if down {
			return Answer{Err: errors.New("down")}
		}
		return Answer{Listing: s.listing(false, nil)}
	case CallKnown:
		if down {
			return Answer{Err: errors.New("down")}
		}
		for _, r := range s.listing(false, nil).Elements {
			if r.Array == c.Array {
				return Answer{Known: true}
			}
		}
	case CallAccount:
		if s.b.noAccounts {
			s.t.Fatal("accounts are asked that are not kept")
		}
		if down {
			return Answer{Err: errors.New("down")}
		}
		return Answer{Listing: s.listing(true, c.Arrays)}
	case CallThrottle:
		if c.Count < 1 {
			s.t.Fatal("a throttle of 0 is none")
		}
		for _, a := range s.arrays {
			if a.id == c.Array && !s.ignores && !down {
				a.throttle = c.Count
			}
		}
		if down || s.ignores || s.chance(4, "the answer is lost") {
			return Answer{Err: errors.New("denied, or not answered")}
		}
	case CallExclude:
		if s.refuses {
			return Answer{Err: errors.New("denied")}
		}
	case CallCancel, CallCancelArray:
		s.cancel(c)
	case CallCancelArrays:
		for _, w := range c.Workers { // a Queue looks which of them are there
			if array := s.bound[w.Tag]; slices.ContainsFunc(s.arrays, func(a *siteArray) bool { return a.id == array }) {
				s.cancel(Call{Kind: CallCancel, Tag: w.Tag, Array: array, Elements: []int{w.Element}})
			}
		}
	}
	return Answer{}
}

func (s *site) submit(c Call) Answer {
	n := len(s.b.entries[c.Tag].elements)
	make := func() *siteArray {
		s.id++
		a := &siteArray{id: fmt.Sprint("a", s.id), tag: c.Tag, throttle: c.Count, elements: make([]siteElement, n)}
		for i := range a.elements {
			a.elements[i].state = launcher.Pending
		}
		return a
	}
	what := 0
	if !s.calm {
		what = rapid.IntRange(0, 7).Draw(s.t, "submission")
	}
	switch what {
	case 7:
		return Answer{Err: &launcher.Refusal{Kind: launcher.RefusedForLimits, Text: "QOSMaxSubmitJobPerUserLimit"}}
	case 6:
		return Answer{Err: launcher.ErrUnsure}
	case 5:
		a := make()
		a.appears = s.now + time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(s.t, "appears after"))
		s.late = append(s.late, a)
		return Answer{Err: launcher.ErrUnsure}
	case 4: // twice
		a := make()
		s.arrays = append(s.arrays, a, make())
		return Answer{Array: a.id}
	default:
		a := make()
		s.arrays = append(s.arrays, a)
		return Answer{Array: a.id}
	}
}

// listing is what there is, or what the accounts say.
func (s *site) listing(accounts bool, arrays []string) (l launcher.Listing) {
	kept := s.late[:0]
	for _, a := range s.late {
		if a.appears <= s.now {
			s.arrays = append(s.arrays, a)
		} else {
			kept = append(kept, a)
		}
	}
	s.late = kept
	for _, a := range s.arrays {
		for i := range a.elements {
			e := &a.elements[i]
			r := launcher.Element{Tag: a.tag, Array: a.id, First: i, Last: i, State: e.state}
			if e.state != launcher.Pending {
				r.Job = "j"
			} else {
				r.Throttle = a.throttle
			}
			switch e.state {
			case launcher.Ended:
				if !e.trace || !accounts && s.now >= e.ended+s.forgets {
					continue
				}
				r.End.Cause = e.cause
				if accounts {
					r.By = e.by
				}
			case launcher.Unknown:
				r.End.Cause = launcher.NodeFailed
			}
			l.Elements = append(l.Elements, r)
		}
	}
	// Of another run of the same person.
	l.Elements = append(l.Elements, launcher.Element{Tag: "other", Array: "o", State: launcher.Running})
	return l
}

func (s *site) cancel(c Call) {
	for _, a := range s.arrays {
		if a.id != c.Array {
			continue
		}
		if a.tag != c.Tag {
			s.t.Fatalf("array %s of tag %s is cancelled as one of tag %s", a.id, a.tag, c.Tag)
		}
		list := c.Elements
		if c.Kind == CallCancelArray {
			for i := range a.elements {
				list = append(list, i)
			}
		} else if s.bound[a.tag] != a.id {
			s.t.Fatalf("elements of an array that is not bound are cancelled")
		}
		for _, i := range list {
			e := &a.elements[i]
			w := launcher.Worker{Tag: a.tag, Element: i}
			if s.bound[a.tag] == a.id && !s.wishes[w] && !s.over[w] && !s.refuses {
				s.t.Fatalf("worker %v is cancelled, which nobody wanted", w)
			}
			if s.chance(5, "in vain") {
				continue
			}
			switch e.state {
			case launcher.Pending:
				e.end(s.now, launcher.Cancelled, launcher.CancelledByOwner)
				e.trace = rapid.Bool().Draw(s.t, "a trace")
			case launcher.Running:
				e.end(s.now, launcher.Cancelled, launcher.CancelledByOwner)
			}
		}
		return
	}
	s.t.Fatalf("an array %s is cancelled that is not there", c.Array)
}

// read checks what the Book says against what is.
func (s *site) read() {
	for _, n := range s.b.News() {
		switch n.Kind {
		case NewsBound:
			if s.bound[n.Tag] != "" || s.voids[n.Tag] {
				s.t.Fatalf("tag %s is bound a second time", n.Tag)
			}
			s.bound[n.Tag] = n.Array
		case NewsVoid, NewsRefused:
			s.voids[n.Tag] = true
			for _, a := range s.arrays {
				for i := range a.elements {
					if a.tag == n.Tag && a.elements[i].state != launcher.Ended {
						s.t.Fatalf("tag %s is void, and array %s is there", n.Tag, a.id)
					}
				}
			}
		case NewsTwin:
			if s.bound[n.Tag] == n.Array {
				s.t.Fatalf("the array of tag %s is its own twin", n.Tag)
			}
		case NewsThrottled:
			s.inForce[n.Tag] = n.Count
		case NewsStatus:
			s.status(n)
		}
	}
}

func (s *site) status(n News) {
	w := n.Status.Worker
	if s.over[w] {
		s.t.Fatalf("worker %v is %v after its end", w, n.Status.State)
	}
	if n.Status.State != launcher.Ended {
		return
	}
	s.over[w] = true
	for _, a := range s.arrays {
		if a.tag != w.Tag || a.id != s.bound[w.Tag] {
			continue
		}
		e := a.elements[w.Element]
		lost := e.state == launcher.Unknown && s.givenUp[w]
		// What came back on a failed node after the answer is too late.
		if e.state != launcher.Ended && !lost && !s.givenUp[w] {
			s.t.Fatalf("at %v worker %v has ended (%v), and is %v", s.now, w, n.Status.End, e.state)
		}
		if e.linked && e.process && s.heard[w] >= s.asked && !s.givenUp[w] {
			s.t.Fatalf("worker %v has ended, and was heard since the question", w)
		}
		// Without accounts, what failed to start and was forgotten before the next answer looks the same.
		if n.Wish && !s.b.noAccounts && (e.by != launcher.CancelledByOwner || s.wishes[w]) {
			s.t.Fatalf("worker %v: a wish of whom?", w)
		}
	}
}

// settle ends the faults. What is wanted gone goes, and the Book knows it soon.
func (s *site) settle() {
	s.calm = true
	s.arrays = append(s.arrays, s.late...)
	s.late = nil
	for range 3 {
		s.pass(time.Minute)
		for _, a := range s.arrays {
			for i := range a.elements {
				w := launcher.Worker{Tag: a.tag, Element: i}
				e := &a.elements[i]
				if e.state == launcher.Unknown {
					e.end(s.now, launcher.NodeFailed, 0)
				}
				if e.linked && !e.process {
					e.linked = false
					s.b.Connected(s.now, w, false)
				}
				s.wishes[w] = true
				s.b.Cancel(s.now, w)
			}
		}
	}
	s.pass(10 * time.Minute)
	for _, a := range s.arrays { // time limits
		for i := range a.elements {
			if e := &a.elements[i]; e.state != launcher.Ended {
				e.end(s.now, launcher.TimeLimit, 0)
				e.linked = false
				s.b.Connected(s.now, launcher.Worker{Tag: a.tag, Element: i}, false)
				s.b.GiveUp(launcher.Worker{Tag: a.tag, Element: i})
			}
		}
	}
	s.pass(time.Hour)
	if n := s.b.Left(); n != 0 {
		for _, en := range s.b.order {
			s.t.Logf("%+v", *en)
		}
		s.t.Fatalf("%d elements are in the book, and nothing is there", n)
	}
	if b := s.b; b.queued != 0 || b.running != 0 || b.lost != 0 || b.unexplained != 0 || b.asking != 0 || b.unconnected != 0 {
		s.t.Fatalf("sums after the end: %+v", *b)
	}
	s.checkRates()
}

// checkRates: in no hour more calls than a site is promised.
func (s *site) checkRates() {
	most := func(n int, kinds ...CallKind) {
		s.t.Helper()
		var all []time.Duration
		for _, k := range kinds {
			all = append(all, s.calls[k]...)
		}
		for _, from := range all {
			in := 0
			for _, at := range all {
				if at >= from && at < from+time.Hour {
					in++
				}
			}
			if in > n {
				s.t.Fatalf("%d calls of kinds %v within an hour", in, kinds)
			}
		}
	}
	most(150, CallList, CallKnown, CallCancel, CallCancelArrays) // elements are looked for before they are cancelled
	most(60, CallSubmit)
	most(20, CallAccount)
}

// TestAnHourWithAHundredWorkers: workers end and are replaced all the time, connections break, and the system is asked no more often
// than a site is promised.
func TestAnHourWithAHundredWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(t)
		s.calm, s.forgets = true, 5*time.Minute
		every := time.Duration(rapid.Int64Range(int64(time.Second), int64(2*time.Minute)).Draw(t, "something happens every"))
		for s.now < time.Hour {
			live := 0
			s.arrays = slices.DeleteFunc(s.arrays, func(a *siteArray) bool {
				return !slices.ContainsFunc(a.elements, func(e siteElement) bool { return e.state != launcher.Ended || s.now < e.ended+s.forgets })
			})
			for _, a := range s.arrays {
				for i := range a.elements {
					e := &a.elements[i]
					if e.state == launcher.Pending {
						e.state, e.process, e.started = launcher.Running, true, true
					}
					if e.state != launcher.Ended {
						live++
					}
					s.link(a, i)
				}
			}
			if n := min(100-live, 8); n > 0 && s.b.MaySubmit(s.now) {
				s.tags++
				s.b.Submit(s.now, strconv.Itoa(s.tags), n, nil)
				s.b.Throttle(strconv.Itoa(s.tags), n)
			}
			if a := s.array(); a != nil {
				s.b.Throttle(a.tag, rapid.IntRange(1, 8).Draw(t, "throttle"))
			}
			if w, e, ok := s.some(); ok && e.state != launcher.Ended {
				if rapid.Bool().Draw(t, "by us") {
					s.wishes[w] = true
					s.b.Cancel(s.now, w)
				} else {
					e.end(s.now, launcher.Exited, 0)
				}
			}
			s.pass(every)
		}
		s.checkRates()
		if n := len(s.calls[CallCancel]) + len(s.calls[CallCancelArray]) + len(s.calls[CallCancelArrays]) + len(s.calls[CallExclude]) + len(s.calls[CallThrottle]); n > 60 {
			t.Fatalf("%d changes in an hour", n)
		}
	})
}
