package fleet

import (
	"slices"
	"time"

	"example.org/daisy/launcher"
)

// The pace at which a batch system is asked: it serves others too. All of it is bounded by buckets, so that no rule below, nor
// several of them together, can ask more often.
const (
	// Questions what there is, while: something was just submitted, cancelled or lost; something is pending; it has been for long;
	// all is well.
	askBusy, askPending, askLong, askCalm = 5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute
	// busyFor is how long something was "just" done, longPending after what time without a start it has been pending for long.
	busyFor, longPending = 30 * time.Second, time.Hour
	// An answer that takes longer than slowAnswer doubles the interval, as an error does, up to askCalm.
	slowAnswer = time.Second
	// endTakes is how long the system needs to show that a worker has ended, hurries how often in a row it is asked for that without delay.
	endTakes, hurries = 300 * time.Millisecond, 3
	// changeGap is between two calls that change something.
	changeGap = time.Second
	// So many arrays are cancelled one by one, and of more at most so many in one call.
	fewEnds, manyEnds = 3, 100
	// knownEvery and accountEvery are between two of these questions.
	knownEvery, accountEvery = time.Minute, time.Minute
	// accountsTake is how long an end may need to get into the accounts. Asked sooner they do not have it, and are asked again a minute later.
	accountsTake = 3 * time.Second
	// oneByOne is how many submissions may be made in a burst, and how many more in an hour, where each is one worker.
	oneByOne = 120
	// deafAfter is how many questions in a row without an answer are worth a word.
	deafAfter = 2
	// openEnds is with how many unexplained ends nothing new is submitted.
	openEnds = 3
)

// A bucket allows size calls at once, and one more every refill.
type bucket struct {
	size   int
	refill time.Duration
	full   time.Duration // when all of it is there again
}

// at is when the next call may be made.
func (k *bucket) at() time.Duration { return k.full - time.Duration(k.size-1)*k.refill }

// spare: no more than half of it is used up.
func (k *bucket) spare(now time.Duration) bool { return k.full-now <= time.Duration(k.size/2)*k.refill }

func (k *bucket) take(now time.Duration) { k.full = max(k.full, now) + k.refill }

// pace is when the next call may be made.
type pace struct {
	polls, submits, changes, accounts bucket
	changedAt                         time.Duration // end of the last changing call
	listed                            bool
	listedAt                          time.Duration // when the last question what there is was asked
	startedAt                         time.Duration // when last something that was pending was seen to start, or was submitted
	busyTo                            time.Duration
	doubled                           int    // how often the interval is
	failing                           int    // questions what there is that failed in a row
	asked                             uint64 // questions what there is
	answers                           uint64 // complete answers to it
	urgent                            bool   // the next one is not to wait
	hurries                           int    // so many of the next ones are not to wait, from hurryAt on
	hurryAt                           time.Duration
	wake                              time.Duration
}

func newPace() pace {
	return pace{
		polls:    bucket{size: 30, refill: time.Hour / 120},
		submits:  bucket{size: 20, refill: time.Hour / 40},
		changes:  bucket{size: 20, refill: time.Hour / 40},
		accounts: bucket{size: 6, refill: time.Hour / 14},
		// Far enough back that nothing waits for what has not been.
		changedAt: -changeGap,
	}
}

// stir has Next look again.
func (p *pace) stir() { p.wake = 0 }

// soon has it asked what there is without delay.
func (p *pace) soon() { p.urgent = true; p.stir() }

// Hurry notes that somebody waits for what workers still take that have gone away in good order (Leaves): the system is asked as soon as it may
// show their ends, as long as few questions were asked lately.
func (b *Book) Hurry(now time.Duration) {
	b.pace.hurries, b.pace.hurryAt = hurries, now+endTakes
	b.pace.stir()
}

// submitted notes that something is in the queue since now.
func (p *pace) submitted(now time.Duration) {
	p.startedAt, p.busyTo = now, max(p.busyTo, now+busyFor)
	p.stir()
}

// ended notes the end of a call.
func (p *pace) ended(now, asked time.Duration, kind CallKind, err error) {
	switch kind {
	case CallList:
		switch {
		case err != nil:
			p.doubled++
			p.failing++
		case now-asked > slowAnswer:
			p.doubled++
			p.failing = 0
		default:
			p.doubled, p.failing = 0, 0
		}
	case CallSubmit, CallExclude, CallThrottle, CallCancel, CallCancelArray, CallCancelArrays:
		p.changedAt = now
		p.busyTo = max(p.busyTo, now+busyFor)
	}
}

// interval is the time between two questions what there is.
func (b *Book) interval(now time.Duration) time.Duration {
	p := &b.pace
	d := askPending
	switch {
	case now < p.busyTo || b.lost > 0 || b.unexplained > 0:
		d = askBusy
	case b.queued > 0 && now-p.startedAt >= longPending:
		d = askLong
	case b.queued == 0 && b.unconnected == 0:
		d = askCalm
	}
	d = min(d<<min(p.doubled, 6), askCalm)
	// ± 10 %, the same for the same run and question (the mixer of splitmix64).
	x := (b.cfg.Seed + p.asked) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x ^= x >> 27
	return d - d/10 + time.Duration(x%uint64(d/5+1))
}

// listAt is when to ask what there is; never if nobody needs to know.
func (b *Book) listAt(now time.Duration) time.Duration {
	p := &b.pace
	if len(b.order) == 0 && !slices.ContainsFunc(b.twins, func(t twin) bool { return t.times < maxTries || !t.again }) {
		return never
	}
	if !slices.ContainsFunc(b.order, func(en *entry) bool { return en.state > asked }) && len(b.twins) == 0 {
		return never // nothing has been submitted yet
	}
	at := time.Duration(0)
	if p.listed {
		at = p.listedAt + b.interval(now)
		if p.doubled == 0 && (p.urgent || b.wantsFresh()) {
			at = p.listedAt + changeGap
		}
	}
	if p.hurries > 0 && p.doubled == 0 && p.polls.spare(now) {
		at = min(at, max(p.hurryAt, p.listedAt+changeGap))
	}
	for _, en := range b.order {
		if en.state == unsure && en.lookups < len(lookups) && p.doubled == 0 {
			at = min(at, max(en.since+lookups[en.lookups], p.listedAt+changeGap))
		}
	}
	return max(at, p.polls.at())
}

// toExclude: pending elements are to keep off other nodes than they do. As the call names the array only, which may have become that of others,
// a fresh answer has to show them first.
func (en *entry) toExclude() bool {
	return en.state == bound && !slices.Equal(en.exclude, en.excluded) && en.anyQueued()
}

// wantsFresh: something is to be cancelled, or kept off nodes, once an answer shows it.
func (b *Book) wantsFresh() bool {
	for _, en := range b.order {
		if en.excludeFrom == b.pace.asked && en.toExclude() {
			return true
		}
		if en.state != bound || en.wanted == 0 || en.wanted == en.left {
			continue
		}
		for i := range en.elements {
			if el := &en.elements[i]; el.state != over && el.wanted && !el.fresh && el.cancel.times == 0 && el.absent == 0 {
				return true
			}
		}
	}
	return false
}

// OneByOne says that a submission is one worker here. Then a hundred workers are a hundred submissions, which the pace of arrays would
// spread over two hours.
func (b *Book) OneByOne() {
	s := &b.pace.submits
	if s.size < oneByOne {
		taken := s.full // what was taken so far stays so
		*s = bucket{size: oneByOne, refill: time.Hour / oneByOne, full: taken}
		b.pace.stir()
	}
}

// MaySubmit reports whether a submission would be made at once. A system that does not answer gets none, unless nobody asks it any
// more: then only a submission can show that it answers again.
func (b *Book) MaySubmit(now time.Duration) bool {
	return b.unexplained < openEnds && (b.pace.failing == 0 || len(b.order) == 0) && now >= b.pace.submits.at() && !b.submitting()
}

// submitting: a submission has not been answered yet.
func (b *Book) submitting() bool {
	return slices.ContainsFunc(b.order, func(en *entry) bool { return en.state == planned || en.state == asked })
}

// Silent reports for how many questions in a row the system has given no answer.
func (b *Book) Silent() int { return b.pace.failing }

// Next returns the next call to make, if there is one now. It must be answered (Answered) before there is another, but for CallBind.
func (b *Book) Next(now time.Duration) (Call, bool) {
	if now < b.pace.wake || b.busy != nil {
		return Call{}, false
	}
	call, wake, ok := b.choose(now)
	if !ok {
		b.pace.wake = wake
		return Call{}, false
	}
	b.busy, b.askedAt = &call, now
	return call, true
}

// Due reports whether there is something to ask or to read.
func (b *Book) Due(now time.Duration) bool { return len(b.news) > 0 || now >= b.Wake() }

// Wake is when Next is to be called at the latest; never if only an event can change anything.
func (b *Book) Wake() time.Duration {
	if b.busy != nil {
		return never
	}
	return b.pace.wake
}

// choose finds what is to be done first: what ends something wrong, then what protects, then what is new, then what asks.
func (b *Book) choose(now time.Duration) (call Call, wake time.Duration, ok bool) {
	p := &b.pace
	wake = never
	// due reports whether a time has come, else has it looked at then.
	due := func(at time.Duration) bool {
		if now < at {
			wake = min(wake, at)
			return false
		}
		return true
	}
	free := p.changedAt + changeGap
	paced := max(free, p.changes.at())
	whole := paced
	if b.closing {
		whole = free // nothing is asked for any more: this comes to its end
	}
	for i := range b.twins {
		if t := &b.twins[i]; t.due() && due(free) {
			t.made(now)
			p.changes.take(now)
			return Call{Kind: CallCancelArray, Tag: t.tag, Array: t.array}, 0, true
		}
	}
	var ends []*entry
	for _, en := range b.order {
		if en.wanted > 0 && en.wanted == en.left && en.state == planned {
			b.leave(en, "") // the system has not heard of it
			continue
		}
		if en.wanted > 0 && en.wanted == en.left && en.state == bound && en.cancel.due() {
			ends = append(ends, en)
		}
	}
	if len(ends) > 0 && due(whole) {
		return b.callEnds(now, ends), 0, true
	}
	b.forget()
	if call, ok := b.callThrottle(now, due, paced); ok {
		return call, 0, true
	}
	for _, en := range b.order {
		if en.toExclude() && en.pendingIn > en.excludeFrom && due(paced) {
			en.excluding.made(now)
			p.changes.take(now)
			return Call{Kind: CallExclude, Tag: en.tag, Array: en.array, Nodes: en.exclude}, 0, true
		}
		if en.state == bound && en.wanted > 0 && en.wanted < en.left {
			if list := en.toCancel(); len(list) > 0 && due(max(paced, p.polls.at())) {
				p.changes.take(now)
				p.polls.take(now) // a Queue looks for them before it ends them
				for _, i := range list {
					en.elements[i].cancel.made(now)
				}
				return Call{Kind: CallCancel, Tag: en.tag, Array: en.array, Elements: list}, 0, true
			}
		}
	}
	for _, en := range b.order {
		if en.state == planned && due(max(free, p.submits.at())) {
			p.submits.take(now)
			en.state, en.excluded = asked, en.exclude
			return Call{Kind: CallSubmit, Tag: en.tag, Nodes: en.exclude, Count: en.throttle}, 0, true
		}
	}
	for _, en := range b.order {
		if en.state == bound && en.unknown && due(max(en.askedAt+knownEvery, p.polls.at())) {
			p.polls.take(now)
			return Call{Kind: CallKnown, Array: en.array}, 0, true
		}
	}
	if at := b.listAt(now); at != never && due(at) {
		p.polls.take(now)
		p.listed, p.listedAt, p.urgent = true, now, false
		p.hurries = max(p.hurries-1, 0)
		p.asked++
		return Call{Kind: CallList}, 0, true
	}
	if arrays, all := b.toAccount(); (all || len(arrays) > 0) && due(max(b.accountFrom, b.accountedAt+accountEvery, p.accounts.at())) {
		p.accounts.take(now)
		return Call{Kind: CallAccount, Arrays: arrays}, 0, true
	}
	if b.denied(now) {
		due(p.submits.at())
	}
	return Call{}, wake, false
}

// callEnds cancels arrays of which nothing is wanted any more. A few are cancelled one by one, as the filters of that call need no look what is
// there; many that the last answer has shown, as where each worker is an array of its own, together. The look before that counts as a question.
func (b *Book) callEnds(now time.Duration, ends []*entry) Call {
	p := &b.pace
	p.changes.take(now)
	first := ends[0]
	many := slices.DeleteFunc(ends, func(en *entry) bool { return !en.shown })
	if len(many) <= fewEnds || now < p.polls.at() {
		first.cancel.made(now)
		return Call{Kind: CallCancelArray, Tag: first.tag, Array: first.array}
	}
	p.polls.take(now)
	call := Call{Kind: CallCancelArrays}
	for _, en := range many[:min(len(many), manyEnds)] {
		en.cancel.made(now)
		for i := range en.elements {
			if en.elements[i].state != over {
				call.Workers = append(call.Workers, launcher.Worker{Tag: en.tag, Element: i})
			}
		}
	}
	return call
}

// due: it has not been cancelled, or in vain, and may be once more.
func (t *try) due() bool { return t.times == 0 || t.again && t.times < maxTries }

func (t *try) made(now time.Duration) {
	t.times++
	t.at, t.again = now, false
}

func (en *entry) anyQueued() bool {
	return slices.ContainsFunc(en.elements, func(el element) bool { return el.state < ran && !el.wanted })
}

// toCancel lists the elements that are to be cancelled, that the last answers have shown to be there, and to be of this array.
func (en *entry) toCancel() (list []int) {
	for i := range en.elements {
		if el := &en.elements[i]; el.state != over && el.wanted && el.fresh && el.cancel.due() {
			list = append(list, i)
		}
	}
	return list
}

// toAccount lists the arrays with elements of whose end only the accounts can tell; all is asked for where not even the array is known.
func (b *Book) toAccount() (arrays []string, all bool) {
	for _, en := range b.order {
		all = all || en.state == unsure && en.sought
		if b.asking > 0 && en.state == bound && slices.ContainsFunc(en.elements, func(el element) bool { return el.state != over && el.asking }) {
			arrays = append(arrays, en.array)
		}
	}
	if all {
		arrays = nil
	}
	return arrays, all
}

// denied: nothing can be submitted now for no other reason than that it was done too often.
func (b *Book) denied(now time.Duration) bool { return now < b.pace.submits.at() }

const never = time.Duration(1<<63 - 1)
