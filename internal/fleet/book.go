package fleet

import (
	"errors"
	"slices"
	"time"

	"example.org/daisy/launcher"
)

// A Book is what a batch system holds of a run, as far as can be known. Such a system has to be asked, seldom, and what it answers
// may be late, incomplete or wrong: the Book decides what to ask when, and what an answer proves. It is given what was asked for,
// what the system answered, and who has joined; it gives calls to make (Next) and news (News).
//
// A submission has a tag, which is never used twice, and becomes an array of the system. The first array that is seen under a tag, in
// an answer or at a worker's join, is bound to it; any other one under that tag is a twin, which gets no blocks and is cancelled whole.
// A submission without a clear answer is void, and its need open again, once complete answers over a minute know nothing of it.
type Book struct {
	cfg     BookConfig
	entries map[string]*entry
	order   []*entry // as they were submitted; without those that are over
	twins   []twin
	news    []News

	// What is in flight, and when what may follow it. One call at a time.
	busy    *Call
	askedAt time.Duration
	pace    pace

	listedAt    time.Duration // when the reasons of what is pending were read
	noAccounts  bool
	closing     bool
	accountedAt time.Duration
	accountFrom time.Duration // what they are asked for now they may not have before
	unaccounted int

	// Sums over elements, kept with every change of one.
	queued, running, unconnected, lost, unexplained, asking int
}

// BookConfig says how a Book is to behave.
type BookConfig struct {
	// MessageTimeout is how long the system may take over an answer and still have done what it was asked; 0 = 10 s.
	MessageTimeout time.Duration
	// HintAfter is for how long a worker that is not listed any more has to be silent before it cannot live; 0 = 5 min.
	HintAfter time.Duration
	// Seed shifts the times of questions, so that runs do not all ask at once.
	Seed uint64
	// Heard is when a worker was last heard, 0 if never in this life of the run.
	Heard func(launcher.Worker) time.Duration
}

// defaultMessageTimeout is what batch systems have if nobody has changed it.
const defaultMessageTimeout, defaultHintAfter = 10 * time.Second, 5 * time.Minute

// NewBook returns an empty one.
func NewBook(cfg BookConfig) *Book {
	if cfg.MessageTimeout <= 0 {
		cfg.MessageTimeout = defaultMessageTimeout
	}
	if cfg.HintAfter <= 0 {
		cfg.HintAfter = defaultHintAfter
	}
	return &Book{cfg: cfg, entries: make(map[string]*entry), accountedAt: -accountEvery, pace: newPace()}
}

// bindState is what is known of a submission.
type bindState uint8

const (
	planned bindState = iota // the system has not heard of it
	asked                    // its answer is awaited
	unsure                   // there was no clear answer
	bound                    // it is an array
	void                     // it was refused, or is not there: whatever appears under its tag is a twin
)

// An entry is one submission.
type entry struct {
	tag, array string
	state      bindState
	elements   []element
	left       int // not over
	wanted     int // of those, how many are to be cancelled
	since      time.Duration
	lookups    int  // complete answers that knew nothing of it
	sought     bool // they are enough: only the accounts may still know it

	excluded, exclude []string // as the system knows it, and as it should
	excluding         try      // to change that
	excludeFrom       uint64   // questions what there is that had been asked when that changed
	pendingIn         uint64   // the last of them whose answer showed something of it pending

	throttle, inForce int // as it should be, and as it may be; 0 = none
	throttling        try // to change it
	raised            time.Duration
	counted           uint64 // the last answer that showed it

	reasons []Waiting // of its queued elements, as of the last answer
	shown   bool      // the last answer has a row of it
	unknown bool      // it is to be asked whether the system knows it
	askedAt time.Duration
	never   bool // it has a reason that never ends
	cancel  try  // of the whole array
	stays   bool // it was said that it, or a part of it, does not go
}

// elementState is how far an element was seen to have come.
type elementState uint8

const (
	unseen elementState = iota
	queued
	ran
	over
)

// An element is one worker of a submission.
type element struct {
	state     elementState
	joined    bool
	connected bool
	left      bool // it has gone away in good order
	hinted    bool // the last answer proves nothing of it
	givenUp   bool // its blocks went to others
	wanted    bool // it is to be cancelled
	asking    bool // the accounts are to say how it ended
	failed    bool // it could not be launched: it is cancelled for that, and its end is not ours
	unwritten uint8
	never     uint8 // answers in a row with a reason that never ends
	claims    uint8 // answers that say that it was cancelled, and not by us
	absent    uint8 // answers in a row without it
	without   uint8 // those of them that have others of its array
	absentAt  time.Duration
	wantedAt  time.Duration
	cancel    try
	fresh     bool // an answer since wantedAt shows it
	end       launcher.End
	node      string
	until     time.Duration // when its time is over; 0 = not known
	answer    uint64        // the last answer that had it
}

// A try is how often, and when last, something was cancelled. Only the next answers tell whether it helped.
type try struct {
	times uint8
	at    time.Duration
	again bool // an answer says that it did not
}

const maxTries = 3

type twin struct {
	tag, array string
	try
}

// Waiting is why elements are pending.
type Waiting struct {
	launcher.Reason
	Count int
	// StartsIn is when the system thinks that the first will start, 0 if it does not say.
	StartsIn time.Duration
}

// CallKind says what is to be asked of a launcher.Queue.
type CallKind uint8

const (
	// CallSubmit: the submission Tag, which keeps off Nodes; at most Count of it run at once, 0 = all.
	CallSubmit CallKind = iota
	// CallBind: Tag is Array. It has no answer.
	CallBind
	// CallList, CallKnown (Array), CallAccount (Arrays; none = all).
	CallList
	CallKnown
	CallAccount
	// CallExclude: Array is to keep off Nodes.
	CallExclude
	// CallThrottle: at most Count elements of Array are to run at once.
	CallThrottle
	// CallCancel: Elements of Tag. CallCancelArray: Array, of Tag.
	CallCancel
	CallCancelArray
	// CallCancelArrays: Workers, which are all that is left of many arrays. It is for looking what is there first.
	CallCancelArrays
)

// A Call is one request to the batch system.
type Call struct {
	Kind       CallKind
	Tag, Array string
	Arrays     []string
	Elements   []int
	Workers    []launcher.Worker
	Nodes      []string
	Count      int
}

// An Answer is what came of a Call.
type Answer struct {
	// Array is that of a CallSubmit.
	Array   string
	Known   bool
	Listing launcher.Listing
	Err     error
}

// NewsKind says what a News tells.
type NewsKind uint8

const (
	// NewsStatus: Status. With Wish, its end was the wish of the person whose run it is: it is not to be replaced.
	NewsStatus NewsKind = iota
	// NewsBound: Tag is Array from now on.
	NewsBound
	// NewsRefused: Err says why the submission Tag was refused.
	NewsRefused
	// NewsVoid: the submission Tag is not there, and never will be.
	NewsVoid
	// NewsUnsure: it is not known whether the submission Tag is there.
	NewsUnsure
	// NewsTwin: a second Array has appeared under Tag, and is cancelled.
	NewsTwin
	// NewsNever: pending elements of Tag will never start, for Reason; they are cancelled.
	NewsNever
	// NewsNotExcluded: the system does not let pending elements of Tag keep off nodes: they are cancelled.
	NewsNotExcluded
	// NewsStays: Array, or a part of it, is still there although it was cancelled maxTries times.
	NewsStays
	// NewsDeaf: the system does not answer, for Err. NewsAnswers: it does again.
	NewsDeaf
	NewsAnswers
	// NewsNoAccounts: the accounts cannot be asked, for Err, and are not asked any more.
	NewsNoAccounts
	// NewsThrottled: at most Count elements of Tag run at once from now on, at least as far as is known.
	NewsThrottled
	// NewsNotThrottled: the throttle of Tag stays what it is although it was changed maxTries times.
	NewsNotThrottled
)

// News is something that the Book has found out.
type News struct {
	Kind       NewsKind
	Tag, Array string
	Status     launcher.Status
	Wish       bool
	Reason     launcher.Reason
	Count      int
	Err        error
}

func (b *Book) tell(n News) { b.news = append(b.news, n) }

// News returns what was found out since the last time.
func (b *Book) News() []News {
	n := b.news
	b.news = nil
	return n
}

// Submit notes a submission that is to be made as soon as the pace allows. MaySubmit says when that is at once.
func (b *Book) Submit(now time.Duration, tag string, count int, exclude []string) {
	en := &entry{tag: tag, elements: make([]element, count), left: count, since: now, excluded: exclude, exclude: exclude}
	b.enter(en)
}

// Adopt notes a submission of an earlier life of the run: bound to array, or of unknown fate if that is "". ended are elements that are
// over, ranBefore those that had joined.
func (b *Book) Adopt(tag, array string, count int, ended, ranBefore []int) {
	en := &entry{tag: tag, array: array, elements: make([]element, count), left: count, state: unsure}
	if array != "" {
		en.state = bound
	}
	for _, i := range ended {
		en.elements[i].state = over
		en.left--
	}
	for _, i := range ranBefore {
		en.elements[i].state, en.elements[i].joined = ran, true
	}
	b.enter(en)
	b.pace.soon()
}

// AdoptVoid notes the tag of a submission that is not there: what appears under it is a twin.
func (b *Book) AdoptVoid(tag string) { b.entries[tag] = &entry{tag: tag, state: void} }

func (b *Book) enter(en *entry) {
	b.entries[en.tag] = en
	b.order = append(b.order, en)
	for i := range en.elements {
		b.count(&en.elements[i], 1)
	}
	b.pace.stir()
}

// count adds an element to the sums, or takes it out. Every change of an element stands between two calls.
func (b *Book) count(el *element, n int) {
	switch {
	case el.state == over:
		return
	case el.state != ran:
		b.queued += n
	default:
		b.running += n
		if !el.connected {
			b.unconnected += n
		}
	}
	if el.asking {
		b.asking += n
	}
	if el.givenUp {
		return
	}
	if el.asking || el.hinted {
		b.unexplained += n
	}
	if el.joined && !el.connected && !el.wanted {
		b.lost += n
	}
}

// Admit judges a worker that introduces itself under a tag, by the array that it is of; "" if it does not know. It is false for a
// worker of a twin.
func (b *Book) Admit(now time.Duration, tag, array string) bool {
	en := b.entries[tag]
	switch {
	case en == nil:
		return false
	case array == "":
		return en.state != void
	case en.state == void || en.state == bound && en.array != array:
		b.addTwin(tag, array)
		return false
	case en.state != bound:
		b.bind(now, en, array)
	}
	return true
}

// Knows reports whether a tag was ever that of a submission.
func (b *Book) Knows(tag string) bool { return b.entries[tag] != nil }

// Bound returns the array of a tag, "" if there is none yet.
func (b *Book) Bound(tag string) string {
	if en := b.entries[tag]; en != nil {
		return en.array
	}
	return ""
}

func (b *Book) bind(now time.Duration, en *entry, array string) {
	en.state, en.array, en.since = bound, array, now
	b.tell(News{Kind: NewsBound, Tag: en.tag, Array: array})
	b.pace.submitted(now)
}

func (b *Book) addTwin(tag, array string) {
	if slices.ContainsFunc(b.twins, func(t twin) bool { return t.tag == tag && t.array == array }) {
		return
	}
	b.twins = append(b.twins, twin{tag: tag, array: array})
	b.tell(News{Kind: NewsTwin, Tag: tag, Array: array})
	b.pace.stir()
}

func (b *Book) find(w launcher.Worker) (*entry, *element) {
	en := b.entries[w.Tag]
	if en == nil || w.Element < 0 || w.Element >= len(en.elements) {
		return nil, nil
	}
	return en, &en.elements[w.Element]
}

// Connected notes that a worker has a connection, or has lost it.
func (b *Book) Connected(now time.Duration, w launcher.Worker, is bool) {
	_, el := b.find(w)
	if el == nil || el.state == over || el.connected == is {
		return
	}
	b.count(el, -1)
	el.connected = is
	if is {
		if el.state != ran {
			b.pace.startedAt = now
		}
		el.joined, el.left, el.state, el.hinted, el.absent, el.without = true, false, ran, false, 0, 0
	}
	b.count(el, 1)
	b.pace.stir()
}

// Leaves notes that a worker, which has no connection any more, has said that it goes away. It need not be seen to have ended, which a
// system that forgets at once would not show: it is enough that it is not there.
func (b *Book) Leaves(w launcher.Worker) {
	if _, el := b.find(w); el != nil {
		el.left = !el.connected
	}
}

// GiveUp notes that a worker's blocks went to others: nothing hangs on its end any more but what it takes.
func (b *Book) GiveUp(w launcher.Worker) {
	if _, el := b.find(w); el != nil {
		b.count(el, -1)
		el.givenUp = true
		b.count(el, 1)
		b.pace.stir()
	}
}

// Cancel has a worker ended, whether it has started or not.
func (b *Book) Cancel(now time.Duration, w launcher.Worker) {
	if en, el := b.find(w); el != nil {
		b.want(now, en, el)
	}
}

func (b *Book) want(now time.Duration, en *entry, el *element) {
	if el.state == over || el.wanted {
		return
	}
	b.count(el, -1)
	el.wanted, el.wantedAt = true, now
	b.count(el, 1)
	en.wanted++
	b.pace.stir()
}

// Close says that the run ends: arrays of which nothing is wanted any more are cancelled as fast as the gap between changes allows,
// however many there are.
func (b *Book) Close() {
	b.closing = true
	b.pace.stir()
}

// Exclude keeps the pending elements of a submission off nodes, in place of those of an earlier call.
func (b *Book) Exclude(tag string, nodes []string) {
	if en := b.entries[tag]; en != nil && !slices.Equal(en.exclude, nodes) {
		en.exclude, en.excludeFrom = nodes, b.pace.asked
		b.pace.stir()
	}
}

// cancelled: its end is what we wanted.
func (en *entry) cancelled(el *element) bool {
	return el.wanted && (el.state != ran || el.cancel.times > 0 || en.cancel.times > 0)
}

// finish ends an element for certain.
func (b *Book) finish(en *entry, i int, end launcher.End, wish bool) {
	el := &en.elements[i]
	if el.state == over {
		return
	}
	if en.cancelled(el) {
		end.Ours, wish = true, false
	}
	if el.failed {
		end = launcher.End{Cause: launcher.NeverStarted, Detail: "it could not be launched, and was held in the queue"}
	}
	b.count(el, -1)
	if el.wanted {
		en.wanted--
	}
	el.state, el.asking = over, false
	en.left--
	b.tell(News{Kind: NewsStatus, Wish: wish, Status: launcher.Status{
		Worker: launcher.Worker{Tag: en.tag, Element: i}, State: launcher.Ended, Node: el.node, End: end}})
	b.pace.stir()
}

// leave ends what is left of a submission that is not there.
func (b *Book) leave(en *entry, detail string) {
	for i := range en.elements {
		b.finish(en, i, launcher.End{Cause: launcher.NeverStarted, Ours: true, Detail: detail}, false)
	}
	en.state, en.elements = void, nil
}

// forget drops submissions that are over from the list of those that are looked at. Their tags stay known.
func (b *Book) forget() {
	b.order = slices.DeleteFunc(b.order, func(en *entry) bool { return en.left == 0 })
}

// Left is how many elements have not ended for certain.
func (b *Book) Left() int { return b.queued + b.running }

// Answered takes in what came of the call in flight.
func (b *Book) Answered(now time.Duration, a Answer) {
	call := b.busy
	if call == nil {
		return
	}
	b.busy = nil
	was := b.pace.failing
	b.pace.ended(now, b.askedAt, call.Kind, a.Err)
	if is := b.pace.failing; is == deafAfter && was < is {
		b.tell(News{Kind: NewsDeaf, Err: a.Err})
	} else if is == 0 && was >= deafAfter {
		b.tell(News{Kind: NewsAnswers})
	}
	switch call.Kind {
	case CallSubmit:
		b.submitted(now, b.entries[call.Tag], a)
	case CallList:
		b.listed(now, a)
	case CallKnown:
		b.known(now, call.Array, a)
	case CallAccount:
		b.accounted(now, call.Arrays, a)
	case CallExclude:
		b.excluded(now, call, a.Err)
	case CallThrottle:
		b.pace.soon() // whether it is in force is for the next answer to say
	}
	b.forget()
	b.pace.stir()
}

// submitted takes in the answer to a submission.
func (b *Book) submitted(now time.Duration, en *entry, a Answer) {
	switch {
	case en.state == bound: // a worker or a listing was quicker
		if a.Err == nil && a.Array != en.array {
			b.addTwin(en.tag, a.Array)
		}
	case a.Err == nil:
		b.bind(now, en, a.Array)
	case errors.Is(a.Err, launcher.ErrUnsure):
		en.state, en.since = unsure, now
		b.tell(News{Kind: NewsUnsure, Tag: en.tag, Err: a.Err})
	default:
		b.tell(News{Kind: NewsRefused, Tag: en.tag, Err: a.Err})
		for i := range en.elements {
			b.count(&en.elements[i], -1)
		}
		en.state, en.elements, en.left = void, nil, 0
	}
}

// excluded takes in the answer to an exclusion. What was not answered, or refused, is tried again after the next answer that shows something
// pending. Where pending elements cannot be kept off a node, they are cancelled: what takes their place is submitted with the exclusion.
func (b *Book) excluded(now time.Duration, call *Call, err error) {
	en := b.entries[call.Tag]
	if err == nil {
		en.excluded, en.excluding = call.Nodes, try{}
		return
	}
	if en.excluding.times < maxTries {
		en.excludeFrom = b.pace.asked
		return
	}
	b.tell(News{Kind: NewsNotExcluded, Tag: en.tag, Err: err})
	for i := range en.elements {
		if el := &en.elements[i]; el.state < ran {
			b.want(now, en, el)
		}
	}
}

// Waits lists why elements of submissions are pending, most first. StartsIn is counted from now on.
func (b *Book) Waits(now time.Duration, tags []string) []Waiting {
	var all []Waiting
	for _, tag := range tags {
		en := b.entries[tag]
		if en == nil {
			continue
		}
		for _, w := range b.waits(now, en) {
			i := slices.IndexFunc(all, func(o Waiting) bool { return o.Word == w.Word })
			if i < 0 {
				all = append(all, w)
				continue
			}
			all[i].Count += w.Count
			if w.StartsIn > 0 && (all[i].StartsIn == 0 || w.StartsIn < all[i].StartsIn) {
				all[i].StartsIn = w.StartsIn
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Waiting) int { return b.Count - a.Count })
	return all
}

// waits is why elements of a submission are pending, as of the last answer, but with the time that has passed since.
func (b *Book) waits(now time.Duration, en *entry) []Waiting {
	list := slices.Clone(en.reasons)
	for i := range list {
		if w := &list[i]; w.StartsIn > 0 {
			w.StartsIn = max(w.StartsIn-(now-b.listedAt), time.Second)
		}
	}
	return list
}

// Unsure reports whether it is not known yet if a submission is there.
func (b *Book) Unsure(tag string) bool { en := b.entries[tag]; return en != nil && en.state == unsure }
