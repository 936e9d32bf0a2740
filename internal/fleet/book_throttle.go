package fleet

import (
	"time"

	"example.org/daisy/launcher"
)

// An array may have more elements than may run: the rest is queued behind a throttle. What counts is what the system says in its answers, and
// not that a call was made: a throttle that was lowered is in force once an answer shows it, and so is one that somebody changed by hand. One that
// was raised may be in force from the call on.

// raiseTakes is for how long after the call a higher throttle may still be on its way.
const raiseTakes = 5 * time.Second

// Throttle bounds how many elements of a submission run at once, from 1, in place of an earlier call. The first one is part of the
// submission if that has not been made. NewsThrottled tells when another is in force.
func (b *Book) Throttle(tag string, n int) {
	en := b.entries[tag]
	if en == nil || n < 1 || en.throttle == n {
		return
	}
	if en.throttle == 0 || en.state == planned {
		en.inForce = n
	}
	en.throttle, en.throttling = n, try{}
	b.pace.stir()
}

// throttleDue: the system has another throttle than it should, of an array of which something may still start, as the last answer has shown: the
// call names the array only, which may have become that of others.
func (b *Book) throttleDue(en *entry) bool {
	return en.state == bound && en.throttle != en.inForce && en.throttling.due() && en.anyQueued() && en.pendingIn > 0 && en.pendingIn == b.pace.asked
}

// throttled takes in what a pending row says of the throttle of its array.
func (b *Book) throttled(en *entry, r *launcher.Element) {
	if en.throttle == 0 || r.State != launcher.Pending || en.counted == b.pace.answers {
		return
	}
	en.counted = b.pace.answers
	n := r.Throttle
	if n == 0 || n > len(en.elements) {
		n = len(en.elements) // none at all
	}
	if n > en.inForce || n < en.inForce && (en.raised == 0 || b.askedAt >= en.raised+raiseTakes) {
		en.inForce = n
		b.tell(News{Kind: NewsThrottled, Tag: en.tag, Count: n})
	}
	if t := &en.throttling; n != en.throttle && t.times > 0 && !t.again && b.askedAt >= t.at+stillPending {
		if t.again = true; t.times == maxTries {
			b.tell(News{Kind: NewsNotThrottled, Tag: en.tag})
		}
	}
}

// unthrottled: of an array of which nothing is pending in an answer, nothing starts that a throttle could hold back.
func (b *Book) unthrottled(en *entry) {
	if en.throttle == 0 || en.throttle == en.inForce || !en.shown || en.counted == b.pace.answers || en.anyQueued() {
		return
	}
	en.inForce = en.throttle
	b.tell(News{Kind: NewsThrottled, Tag: en.tag, Count: en.throttle})
}

// callThrottle makes the call for the first array that needs it.
func (b *Book) callThrottle(now time.Duration, due func(time.Duration) bool, at time.Duration) (Call, bool) {
	for _, en := range b.order {
		if b.throttleDue(en) && due(at) {
			en.throttling.made(now)
			b.pace.changes.take(now)
			if en.throttle > en.inForce { // as soon as it was called for, whatever comes of the call
				en.inForce, en.raised = en.throttle, now
				b.tell(News{Kind: NewsThrottled, Tag: en.tag, Count: en.inForce})
			}
			return Call{Kind: CallThrottle, Tag: en.tag, Array: en.array, Count: en.throttle}, true
		}
	}
	return Call{}, false
}
