package fleet

import (
	"errors"
	"slices"
	"time"

	"example.org/daisy/launcher"
)

const (
	// An element is gone if it is not in goneAnswers complete answers over goneAfter, nor in any before youngest after its submission,
	// and the system says itself that it does not know its array.
	goneAnswers = 3
	goneAfter   = 2 * time.Minute
	youngest    = time.Minute
	// A pending element is withdrawn if it is not in withdrawnAnswers answers that list the rest of its array.
	withdrawnAnswers = 2
	// neverAnswers is in how many answers a reason that never ends is believed.
	neverAnswers = 2
	// cancelledAnswers is in how many answers in a row an element that was never on a node has to be cancelled, where the accounts do not
	// say so.
	cancelledAnswers = 4
	// unwrittenAnswers is in how many accounts an element may be missing before they are not asked again.
	unwrittenAnswers = 2
	// maxUnaccounted is after how many errors in a row the accounts are not asked any more.
	maxUnaccounted = 5
	// What was cancelled is cancelled again if it is still pending, or still runs, so long after.
	stillPending, stillRunning = 10 * time.Second, time.Minute
	// silentFor is how long a connected worker may say nothing and still be thought alive.
	silentFor = time.Minute
	// A time that is left is news if it differs by more than this from what was expected.
	leftDiffers = 15 * time.Second
)

// lookups are how long after a submission of unknown fate it is looked for.
var lookups = [...]time.Duration{0, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// listed takes in an answer to the question what there is. One that is not complete proves nothing.
func (b *Book) listed(now time.Duration, a Answer) {
	if a.Err != nil {
		return
	}
	b.pace.answers++
	b.listedAt = now
	for _, en := range b.order {
		en.shown, en.reasons = false, en.reasons[:0]
	}
	for i := range a.Listing.Elements {
		b.row(now, &a.Listing.Elements[i])
	}
	if b.pace.hurries > 0 && !b.someLeave() {
		b.pace.hurries = 0
	}
	for _, en := range b.order {
		switch en.state {
		case bound:
			b.absentees(en)
			b.unthrottled(en)
			b.resolve(en)
		case unsure:
			b.lookup(en)
		}
	}
}

// someLeave: a worker has gone away in good order, and has not been seen to end.
func (b *Book) someLeave() bool {
	for _, en := range b.order {
		if slices.ContainsFunc(en.elements, func(el element) bool { return el.left && el.state != over }) {
			return true
		}
	}
	return false
}

// row takes in one row of an answer.
func (b *Book) row(now time.Duration, r *launcher.Element) {
	en := b.entries[r.Tag]
	switch {
	case en == nil || en.state == planned:
		return // nothing that we know of asked for it: not ours, whatever its name says
	case en.state == void || en.state == bound && en.array != r.Array:
		b.twinRow(r)
		return
	case en.state != bound:
		b.bind(now, en, r.Array)
	}
	en.shown = true
	b.throttled(en, r)
	first, last := max(r.First, 0), min(r.Last, len(en.elements)-1)
	waiting := 0
	for i := first; i <= last; i++ {
		if el := &en.elements[i]; el.state != over {
			el.answer = b.pace.answers
			el.absent, el.without = 0, 0
			b.judge(now, en, i, r)
			if r.State == launcher.Pending && el.state != over {
				waiting++
			}
		}
	}
	if waiting == 0 {
		return
	}
	en.pendingIn = b.pace.asked
	if i := slices.IndexFunc(en.reasons, func(w Waiting) bool { return w.Word == r.Reason.Word }); i >= 0 {
		en.reasons[i].Count += waiting
	} else {
		en.reasons = append(en.reasons, Waiting{Reason: r.Reason, Count: waiting, StartsIn: r.StartsIn})
	}
}

// twinRow has a twin cancelled that is still there.
func (b *Book) twinRow(r *launcher.Element) {
	if r.State == launcher.Ended {
		return
	}
	b.addTwin(r.Tag, r.Array)
	for i := range b.twins {
		if t := &b.twins[i]; t.tag == r.Tag && t.array == r.Array && b.still(&t.try, r) {
			b.tell(News{Kind: NewsStays, Tag: t.tag, Array: t.array})
		}
	}
}

// still notes that what was cancelled is there in an answer, and reports whether it is not tried any more for that.
func (b *Book) still(t *try, r *launcher.Element) (inVain bool) {
	wait := stillRunning
	if r.State == launcher.Pending {
		wait = stillPending
	}
	if t.times == 0 || t.again || b.askedAt < t.at+wait {
		return false
	}
	t.again = true
	return t.times == maxTries
}

// judge draws the conclusions of a row about one element.
func (b *Book) judge(now time.Duration, en *entry, i int, r *launcher.Element) {
	el := &en.elements[i]
	w := launcher.Worker{Tag: en.tag, Element: i}
	if r.State == launcher.Ended {
		if !b.alive(el, w) { // else the answer is of before, or wrong; what has really ended loses its connection
			b.endsAs(en, i, r)
		}
		return
	}
	if el.wanted && b.askedAt >= el.wantedAt {
		el.fresh = true
		one, all := b.still(&el.cancel, r), b.still(&en.cancel, r)
		if (one || all) && !en.stays {
			en.stays = true
			b.tell(News{Kind: NewsStays, Tag: en.tag, Array: en.array})
		}
	}
	if r.State == launcher.Pending && r.Reason.Failed {
		el.failed = true
		b.want(now, en, el) // nobody would start it again, and its place is needed
		return
	}
	was := *el
	b.count(el, -1)
	if r.State == launcher.Pending || r.State == launcher.Running {
		el.asking, el.claims, el.end = false, 0, launcher.End{} // whatever was said of its end
	}
	state, left := r.State, time.Duration(0)
	switch r.State {
	case launcher.Pending:
		if el.state == ran { // it was started, and is to be once more
			state = launcher.Unknown
			break
		}
		el.state = queued
		el.never++
		if !r.Reason.Never {
			el.never = 0
		}
	case launcher.Running:
		if el.state != ran {
			b.pace.startedAt = now
		}
		el.state, el.node = ran, r.Node
		if r.Left > 0 {
			if until := now + r.Left; until > el.until+leftDiffers || until < el.until-leftDiffers {
				el.until, left = until, r.Left
			}
		}
	default:
		if el.state != ran && r.Job != "" {
			el.state = ran
		}
		el.end = r.End
	}
	el.hinted = state == launcher.Unknown && !b.alive(el, w)
	b.count(el, 1)
	if el.hinted != was.hinted || el.state != was.state || left > 0 || el.node != was.node {
		b.tell(News{Kind: NewsStatus, Status: launcher.Status{Worker: w, State: state, Node: r.Node, Left: left}})
	}
	if el.never == neverAnswers {
		if !en.never {
			en.never = true
			b.tell(News{Kind: NewsNever, Tag: en.tag, Reason: r.Reason})
		}
		b.want(now, en, el)
	}
}

// alive reports whether a worker is heard: since the question, or not long before it over a connection that it still has.
func (b *Book) alive(el *element, w launcher.Worker) bool {
	if !el.joined {
		return false
	}
	heard := b.cfg.Heard(w)
	return heard >= b.askedAt || el.connected && heard >= b.askedAt-silentFor
}

// endsAs takes in an end that the system is certain of.
func (b *Book) endsAs(en *entry, i int, r *launcher.Element) {
	el := &en.elements[i]
	if r.Node != "" {
		el.node = r.Node
	}
	if r.End.Cause != launcher.Cancelled || en.cancelled(el) {
		b.finish(en, i, r.End, false)
		return
	}
	el.end = r.End
	el.claims = min(el.claims+1, 200)
	if b.ask(el) {
		return
	}
	if el.doubtful() {
		b.count(el, -1)
		el.hinted = true
		b.count(el, 1)
		return
	}
	b.cancelledBy(en, i, launcher.CancelledByUnknown)
}

// doubtful: it is said to be cancelled, which nothing else speaks for yet: it was never on a node, where its end would be seen, and a queue
// that is wrong is right again after some answers.
func (el *element) doubtful() bool {
	return el.state != ran && el.node == "" && el.claims < cancelledAnswers
}

// ask has the accounts say how an element ended, and reports whether there is hope that they do.
func (b *Book) ask(el *element) bool {
	if b.noAccounts || el.unwritten >= unwrittenAnswers {
		return false
	}
	if b.asking == 0 {
		b.accountFrom = b.askedAt + accountsTake
	}
	b.count(el, -1)
	el.asking = true
	b.count(el, 1)
	return true
}

// cancelledBy ends an element that somebody cancelled, and not we. What never connected and was cancelled by nobody that is known
// was not launched: the node's fault.
func (b *Book) cancelledBy(en *entry, i int, by launcher.Canceller) {
	el := &en.elements[i]
	end := launcher.End{Cause: launcher.Cancelled}
	switch by {
	case launcher.CancelledByOwner:
		end.Detail = "cancelled by hand"
		b.finish(en, i, end, true)
		return
	case launcher.CancelledByOther:
		end.Detail = "cancelled by another user"
		if !el.joined {
			end.Cause, el.node = launcher.NeverStarted, "" // not the node's doing
		}
	default:
		if !el.joined {
			end.Cause, end.Detail = launcher.NeverStarted, "cancelled by the batch system: it could not be launched"
		}
	}
	b.finish(en, i, end, false)
}

// absentees looks at the elements that an answer does not have.
func (b *Book) absentees(en *entry) {
	if b.askedAt < en.since {
		return // the question was older than the submission
	}
	gone := false
	for i := range en.elements {
		el := &en.elements[i]
		if el.state == over || el.answer == b.pace.answers || el.asking && el.absent > 0 {
			continue
		}
		w := launcher.Worker{Tag: en.tag, Element: i}
		if b.alive(el, w) {
			el.absent, el.without = 0, 0
			continue
		}
		if el.absent == 0 || el.joined && b.cfg.Heard(w) >= el.absentAt { // what it said last came since: its absence begins anew
			el.absent, el.without, el.absentAt = 0, 0, b.askedAt
		}
		el.absent = min(el.absent+1, 200)
		if en.shown {
			el.without = min(el.without+1, 200)
		}
		if el.state == ran && !el.hinted {
			b.count(el, -1)
			el.hinted = true
			b.count(el, 1)
			b.tell(News{Kind: NewsStatus, Status: launcher.Status{Worker: w, State: launcher.Unknown}})
		}
		cancelled := en.cancelled(el)
		called := el.wanted && (el.cancel.times > 0 || en.cancel.times > 0)
		switch {
		case el.left && el.absent >= withdrawnAnswers:
			b.finish(en, i, launcher.End{Cause: launcher.Exited}, false)
		case el.state != ran && (called && el.absent >= withdrawnAnswers || en.shown && el.without >= withdrawnAnswers):
			// Pending elements that are cancelled leave no trace.
			if cancelled || !b.ask(el) {
				b.vanish(en, i)
			}
		case en.shown && el.state == ran && el.without >= withdrawnAnswers && b.ask(el):
		case b.gone(en, el):
			gone = true
			if en.shown && (el.givenUp || cancelled && !b.mayLive(en, i)) {
				b.vanish(en, i)
			}
		}
	}
	en.unknown = gone && !en.shown
}

// gone reports whether an element has been missing for so long that it is gone, if the system does not know its array.
func (b *Book) gone(en *entry, el *element) bool {
	return el.absent >= goneAnswers && b.askedAt-el.absentAt >= goneAfter && b.askedAt >= en.since+youngest
}

// mayLive: it may run a block still, for all that the system says by knowing nothing of it: a node that it cannot reach is thought dead. That it was
// silent for long enough is what others say first, as a rule (GiveUp).
func (b *Book) mayLive(en *entry, i int) bool {
	el := &en.elements[i]
	heard := max(b.cfg.Heard(launcher.Worker{Tag: en.tag, Element: i}), el.absentAt)
	return el.joined && el.state == ran && !el.givenUp && !el.left && b.askedAt < heard+b.cfg.HintAfter
}

// vanish ends an element that is there no more and of which nobody says how it ended.
func (b *Book) vanish(en *entry, i int) {
	el := &en.elements[i]
	switch {
	case el.state == ran:
		b.finish(en, i, launcher.End{Cause: launcher.NodeFailed, Detail: "the batch system does not know it any more"}, false)
	case el.wanted:
		b.finish(en, i, launcher.End{Cause: launcher.NeverStarted}, false)
	default:
		// One that was seen to wait, and is taken out of the middle of its array, was cancelled by hand. Of others nobody knows.
		b.finish(en, i, launcher.End{Cause: launcher.Cancelled, Detail: "it is not in the queue any more"}, el.state == queued && en.shown)
	}
}

// known takes in whether the system knows an array at all.
func (b *Book) known(now time.Duration, array string, a Answer) {
	for _, en := range b.order {
		if en.state != bound || en.array != array {
			continue
		}
		en.unknown, en.askedAt = false, now
		if a.Err != nil || a.Known {
			return
		}
		for i := range en.elements {
			el := &en.elements[i]
			w := launcher.Worker{Tag: en.tag, Element: i}
			if el.state == over || el.joined && b.cfg.Heard(w) >= el.absentAt || el.absent < goneAnswers {
				continue
			}
			if (en.cancelled(el) || !b.ask(el)) && !b.mayLive(en, i) {
				b.vanish(en, i)
			}
		}
	}
}

// lookup counts an answer that knows nothing of a submission of unknown fate.
func (b *Book) lookup(en *entry) {
	if n := en.lookups; n < len(lookups) && b.askedAt >= en.since+lookups[n] {
		en.lookups++
	}
	if en.lookups < len(lookups) || b.askedAt < en.since+2*b.cfg.MessageTimeout {
		return
	}
	if en.sought = true; b.noAccounts {
		b.nowhere(en)
	}
}

// nowhere ends a submission that is not there.
func (b *Book) nowhere(en *entry) {
	b.tell(News{Kind: NewsVoid, Tag: en.tag})
	b.leave(en, "the batch system does not know of its submission")
}

// accounted takes in what the accounts say.
func (b *Book) accounted(now time.Duration, arrays []string, a Answer) {
	b.accountedAt = now
	if a.Err == nil {
		b.unaccounted = 0
	} else if b.unaccounted++; errors.Is(a.Err, launcher.ErrNoAccounting) || b.unaccounted == maxUnaccounted {
		b.noAccounts = true
		b.tell(News{Kind: NewsNoAccounts, Err: a.Err})
	} else {
		return
	}
	told := map[*element]bool{}
	for i := range a.Listing.Elements {
		r := &a.Listing.Elements[i]
		if en := b.entries[r.Tag]; en != nil && en.state == unsure {
			b.bind(now, en, r.Array)
		}
	}
	// An element that was started again has a row for each time; only the last one is of its end.
	for _, r := range slices.Backward(a.Listing.Elements) {
		en := b.entries[r.Tag]
		if en == nil || en.state != bound || en.array != r.Array {
			continue
		}
		for n := max(r.First, 0); n <= min(r.Last, len(en.elements)-1); n++ {
			if el := &en.elements[n]; !told[el] {
				told[el] = true
				b.account(en, n, &r)
			}
		}
	}
	for _, en := range b.order {
		if en.state == unsure && en.sought && (len(arrays) == 0 || b.noAccounts) {
			b.nowhere(en)
			continue
		}
		if len(arrays) == 0 || slices.Contains(arrays, en.array) {
			b.unwritten(en)
		}
	}
}

// account takes in what the accounts say of one element.
func (b *Book) account(en *entry, i int, r *launcher.Element) {
	el := &en.elements[i]
	if el.state == over || !el.asking {
		return
	}
	if r.State != launcher.Ended {
		if r.State == launcher.Pending && el.doubtful() { // the queue says that it was cancelled, and is to say so again
			b.count(el, -1)
			el.asking, el.hinted = false, true
			el.unwritten++
			b.count(el, 1)
		}
		return
	}
	if el.joined && b.cfg.Heard(launcher.Worker{Tag: en.tag, Element: i}) >= b.askedAt {
		b.count(el, -1)
		el.asking = false
		b.count(el, 1)
		return
	}
	if r.Node != "" {
		el.node = r.Node
	}
	if r.End.Cause == launcher.Cancelled {
		b.cancelledBy(en, i, r.By)
		return
	}
	b.finish(en, i, r.End, false)
}

// unwritten concludes about elements on which the accounts were silent: at once where there are none.
func (b *Book) unwritten(en *entry) {
	for i := range en.elements {
		el := &en.elements[i]
		if el.state == over || !el.asking {
			continue
		}
		if el.unwritten++; !b.noAccounts && el.unwritten < unwrittenAnswers {
			continue
		}
		b.count(el, -1)
		el.asking, el.unwritten = false, unwrittenAnswers
		b.count(el, 1)
		switch {
		case el.end.Cause == launcher.Cancelled && el.doubtful():
			b.count(el, -1)
			el.hinted = true
			b.count(el, 1)
		case el.end.Cause == launcher.Cancelled:
			b.cancelledBy(en, i, launcher.CancelledByUnknown)
		case el.state != ran || !en.shown && !b.mayLive(en, i) || el.givenUp:
			b.vanish(en, i)
		}
	}
}

// resolve ends what its node has lost, once nobody waits for it any more: a failed node may come back with it, but nothing that it
// does counts.
func (b *Book) resolve(en *entry) {
	for i := range en.elements {
		el := &en.elements[i]
		if el.state == ran && el.givenUp && el.hinted && el.absent == 0 && el.end.Cause == launcher.NodeFailed {
			b.finish(en, i, el.end, false)
		}
	}
}
