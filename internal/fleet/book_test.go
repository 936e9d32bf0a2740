package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

// A ledger is a Book under a test's hands: time passes in it until the Book asks what the test expects.
type ledger struct {
	t     *testing.T
	b     *Book
	now   time.Duration
	heard map[launcher.Worker]time.Duration
	said  []string
	lists []launcher.Element // what the system answers on its own
}

func newLedger(t *testing.T) *ledger {
	x := &ledger{t: t, heard: map[launcher.Worker]time.Duration{}}
	x.b = NewBook(BookConfig{Heard: func(w launcher.Worker) time.Duration {
		if at, ok := x.heard[w]; ok {
			return at
		}
		return -1
	}})
	return x
}

// next passes time until the next call, at most for so long.
func (x *ledger) next(within time.Duration) (Call, bool) {
	x.t.Helper()
	end := x.now + within
	for {
		if c, ok := x.b.Next(x.now); ok {
			return c, true
		}
		wake := x.b.Wake()
		if wake > end {
			x.now = end
			return Call{}, false
		}
		if wake <= x.now {
			x.t.Fatalf("at %v it wants to be woken at %v, and there was nothing", x.now, wake)
		}
		x.now = wake
	}
}

// expect passes time until a call of this kind; questions before it get the usual answer.
func (x *ledger) expect(kind CallKind) Call {
	x.t.Helper()
	for range 1000 {
		c, ok := x.next(time.Hour)
		if !ok {
			break
		}
		if c.Kind == kind {
			return c
		}
		if c.Kind != CallList {
			x.t.Fatalf("a call %+v, where kind %d was expected", c, kind)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
	x.t.Fatalf("no call of kind %d", kind)
	return Call{}
}

func (x *ledger) answer(a Answer) {
	x.b.Answered(x.now, a)
	x.read()
}

func (x *ledger) read() {
	for _, n := range x.b.News() {
		x.said = append(x.said, words(n))
	}
}

func words(n News) string {
	switch n.Kind {
	case NewsStatus:
		s := fmt.Sprintf("%v %v", n.Status.Worker, n.Status.State)
		if n.Status.State == launcher.Ended {
			s += fmt.Sprintf(": %v", n.Status.End.Cause)
			if n.Status.End.Ours {
				s += ", ours"
			}
			if n.Wish {
				s += ", wish"
			}
		}
		return s
	case NewsBound:
		return n.Tag + " is " + n.Array
	case NewsTwin:
		return n.Array + " is a twin of " + n.Tag
	default:
		return fmt.Sprintf("%s of %s", [...]string{"", "", "refusal", "void", "unsure", "", "never", "not excluded", "stays", "deaf", "answers", "no accounts", "throttled", "not throttled"}[n.Kind], n.Tag)
	}
}

// tells checks what was said since the last time.
func (x *ledger) tells(want ...string) {
	x.t.Helper()
	x.read()
	if !slices.Equal(x.said, want) {
		x.t.Errorf("at %v\n told %q\n want %q", x.now, x.said, want)
	}
	x.said = nil
}

// submitted makes a submission that the system accepts at once.
func (x *ledger) submitted(tag, array string, count int) {
	x.t.Helper()
	x.b.Submit(x.now, tag, count, nil)
	x.expect(CallSubmit)
	x.answer(Answer{Array: array})
	x.tells(tag + " is " + array)
}

// list answers the next question what there is.
func (x *ledger) list(rows ...launcher.Element) {
	x.t.Helper()
	x.expect(CallList)
	x.answer(Answer{Listing: launcher.Listing{Elements: rows}})
}

func (x *ledger) joins(tag string, element int) {
	w := launcher.Worker{Tag: tag, Element: element}
	x.heard[w] = x.now
	x.b.Connected(x.now, w, true)
}

// row is "array tag first-last state".
func row(text string) launcher.Element {
	var r launcher.Element
	var state string
	if _, err := fmt.Sscanf(text, "%s %s %d-%d %s", &r.Array, &r.Tag, &r.First, &r.Last, &state); err != nil {
		panic(err)
	}
	r.Word = strings.ToUpper(state)
	switch state {
	case "pending":
		r.State, r.Reason = launcher.Pending, launcher.Reason{Word: "Priority", Plain: "others are ahead"}
	case "stuck":
		r.State, r.Reason = launcher.Pending, launcher.Reason{Word: "BadConstraints", Never: true}
	case "running":
		r.State, r.Node, r.Job = launcher.Running, "n1", "j"
	case "node_fail":
		r.State, r.End.Cause, r.Job = launcher.Unknown, launcher.NodeFailed, "j"
	case "completing":
		r.State, r.Job = launcher.Unknown, "j"
	case "failed":
		r.State, r.End = launcher.Ended, launcher.End{Cause: launcher.Exited, Exit: 1}
	case "timeout":
		r.State, r.End.Cause = launcher.Ended, launcher.TimeLimit
	case "cancelled":
		r.State, r.End.Cause = launcher.Ended, launcher.Cancelled
	default:
		panic(state)
	}
	return r
}

func rows(texts ...string) (list []launcher.Element) {
	for _, t := range texts {
		list = append(list, row(t))
	}
	return list
}

func TestAnElementIsFollowedFromTheQueueToItsEnd(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.list(rows("40 1 0-1 pending")...)
	x.tells("1.0 pending", "1.1 pending")
	if w := x.b.Waits([]string{"1"}); len(w) != 1 || w[0].Count != 2 || w[0].Word != "Priority" {
		t.Errorf("it waits for %+v", w)
	}
	x.list(rows("40 1 1-1 pending", "40 1 0-0 running")...)
	x.tells("1.0 running")
	x.list(rows("40 1 1-1 running", "40 1 0-0 failed")...)
	x.tells("1.1 running", "1.0 ended: exited")
	x.list(rows("40 1 1-1 timeout", "40 1 0-0 failed")...)
	x.tells("1.1 ended: time_limit")
	if x.b.Left() != 0 {
		t.Errorf("%d are left", x.b.Left())
	}
	if c, ok := x.next(24 * time.Hour); ok {
		t.Errorf("with nothing there any more it asks %+v", c)
	}
}

func TestTheFirstArrayOfATagIsBoundAndAnyOtherIsCancelled(t *testing.T) {
	for name, first := range map[string]func(x *ledger){
		"by the answer": func(x *ledger) { x.answer(Answer{Array: "40"}) },
		"by a join": func(x *ledger) {
			if !x.b.Admit(x.now, "1", "40") {
				t.Error("the first one is not admitted")
			}
			x.answer(Answer{Err: launcher.ErrUnsure})
		},
		"by an answer about what there is": func(x *ledger) {
			x.answer(Answer{Err: launcher.ErrUnsure})
			x.tells("unsure of 1")
			x.list(rows("40 1 0-0 pending")...)
		},
		"by the accounts": func(x *ledger) {
			x.answer(Answer{Err: launcher.ErrUnsure})
			x.tells("unsure of 1")
			for range lookups {
				x.list()
			}
			if c := x.expect(CallAccount); len(c.Arrays) != 0 {
				t.Errorf("it asks for %v", c.Arrays)
			}
			x.answer(Answer{Listing: launcher.Listing{Elements: rows("40 1 0-0 failed")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLedger(t)
			x.b.Submit(0, "1", 1, nil)
			x.expect(CallSubmit)
			first(x)
			x.read()
			if x.b.Bound("1") != "40" || !slices.Contains(x.said, "1 is 40") {
				t.Fatalf("bound to %q: %q", x.b.Bound("1"), x.said)
			}
			x.said = nil
			if x.b.Admit(x.now, "1", "41") {
				t.Error("a worker of another array is admitted")
			}
			x.tells("41 is a twin of 1")
			x.lists = rows("40 1 0-0 running", "41 1 0-0 running")
			if c := x.expect(CallCancelArray); c.Tag != "1" || c.Array != "41" {
				t.Errorf("cancelled is %+v", c)
			}
			x.answer(Answer{})
			if !x.b.Admit(x.now, "1", "40") || x.b.Admit(x.now, "1", "41") {
				t.Error("who is admitted has changed")
			}
		})
	}
}

func TestATwinIsCancelledUntilItIsGone(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.lists = rows("40 1 0-0 running", "41 1 0-5 pending")
	for range maxTries {
		if c := x.expect(CallCancelArray); c.Array != "41" {
			t.Fatalf("cancelled is %+v", c)
		}
		x.answer(Answer{Err: errors.New("rc 1")}) // which means nothing
	}
	for range 20 {
		if c, ok := x.next(time.Hour); !ok || c.Kind != CallList {
			t.Fatalf("after %d tries: %+v", maxTries, c)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
	x.tells("1.0 running", "41 is a twin of 1", "stays of 1")
}

func TestASubmissionWithoutAClearAnswerIsVoidAfterFiveLooks(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(0, "1", 2, nil)
	x.expect(CallSubmit)
	x.now = 20 * time.Second
	x.answer(Answer{Err: fmt.Errorf("sbatch: Socket timed out: %w", launcher.ErrUnsure)})
	x.tells("unsure of 1")
	looked := 0
	for {
		c, _ := x.next(time.Hour)
		if c.Kind != CallList {
			break
		}
		if looked++; looked == 3 { // an answer that is none
			x.answer(Answer{Err: errors.New("down")})
			continue
		}
		x.answer(Answer{})
	}
	if x.now < 80*time.Second || x.now > 110*time.Second || looked < 6 {
		t.Errorf("given up at %v after %d looks", x.now, looked)
	}
	if x.b.Left() != 2 {
		t.Error("what may be there does not count any more")
	}
	x.tells()
	x.answer(Answer{Err: launcher.ErrNoAccounting})
	x.tells("no accounts of ", "void of 1", "1.0 ended: never started, ours", "1.1 ended: never started, ours")
	if x.b.Admit(x.now, "1", "44") {
		t.Error("a worker that appears under a void tag is admitted")
	}
	x.tells("44 is a twin of 1")
	if c := x.expect(CallCancelArray); c.Array != "44" {
		t.Errorf("cancelled is %+v", c)
	}
}

func TestLooksThatAreTooEarlyForALateAnswerProveNothing(t *testing.T) {
	x := newLedger(t)
	x.b.cfg.MessageTimeout = time.Minute
	x.b.noAccounts = true
	x.b.Submit(0, "1", 1, nil)
	x.expect(CallSubmit)
	x.answer(Answer{Err: launcher.ErrUnsure})
	x.tells("unsure of 1")
	for x.now < 2*time.Minute {
		x.tells()
		x.list()
	}
	x.tells("void of 1", "1.0 ended: never started, ours")
}

func TestAnEndIsBelievedOnlyIfNothingWasHeardSinceTheQuestion(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.joins("1", 0)
	x.expect(CallList)
	x.now += time.Second
	x.heard[launcher.Worker{Tag: "1"}] = x.now
	x.answer(Answer{Listing: launcher.Listing{Elements: rows("40 1 0-0 failed")}})
	x.tells()
	x.b.Connected(x.now, launcher.Worker{Tag: "1"}, false)
	x.list(rows("40 1 0-0 failed")...)
	x.tells("1.0 ended: exited")
}

func TestWhatProvesNothingIsAHint(t *testing.T) {
	for _, hint := range []string{"node_fail", "pending", "completing", ""} {
		x := newLedger(t)
		x.submitted("1", "40", 2)
		x.list(rows("40 1 0-1 running")...)
		x.tells("1.0 running", "1.1 running")
		x.joins("1", 0)
		x.b.Connected(x.now, launcher.Worker{Tag: "1"}, false)
		list := rows("40 1 1-1 running")
		if hint != "" {
			list = append(list, row("40 1 0-0 "+hint))
		}
		x.list(list...)
		x.tells("1.0 unknown")
		x.now += time.Second
		x.joins("1", 0)
		x.list(list...)
		x.tells()
		if x.b.Left() != 2 {
			t.Errorf("%s: %d are left", hint, x.b.Left())
		}
	}
}

func TestAFailedNodeIsGivenUpWithItsWorkersBlocks(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.list(rows("40 1 0-0 running")...)
	x.list(rows("40 1 0-0 node_fail")...)
	x.tells("1.0 running", "1.0 unknown")
	x.b.GiveUp(launcher.Worker{Tag: "1"})
	x.list(rows("40 1 0-0 node_fail")...)
	x.tells("1.0 ended: node_failed")
}

func TestGoneNeedsThreeAnswersTwoMinutesAndTheSystemsWord(t *testing.T) {
	x := newLedger(t)
	x.b.noAccounts = true
	x.submitted("1", "40", 2)
	x.list(rows("40 1 0-0 running", "40 1 1-1 pending")...)
	x.tells("1.0 running", "1.1 pending")
	began := x.now
	if c := x.expect(CallKnown); c.Array != "40" {
		t.Errorf("asked for %q", c.Array)
	}
	if x.now-began < 2*time.Minute {
		t.Errorf("asked after %v", x.now-began)
	}
	x.answer(Answer{Known: true})
	x.tells("1.0 unknown")
	x.expect(CallKnown)
	x.answer(Answer{Err: errors.New("down")})
	x.tells()
	x.expect(CallKnown)
	x.answer(Answer{})
	x.tells("1.0 ended: node_failed", "1.1 ended: cancelled")
}

func TestTwoAnswersAreTooFewForTheEndOfAnElement(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.list(rows("40 1 0-0 running")...)
	x.tells("1.0 running")
	x.now += 10 * time.Minute
	x.list()
	x.now += 10 * time.Minute
	for range 3 { // what is no answer proves nothing
		x.expect(CallList)
		x.answer(Answer{Err: errors.New("down")})
	}
	x.list()
	if c, ok := x.next(0); ok {
		t.Errorf("after two answers it asks %+v", c)
	}
	x.list()
	if c, _ := x.next(time.Minute); c.Kind != CallKnown {
		t.Errorf("after three it asks %+v", c)
	}
}

func TestNobodyIsGoneWhoIsHeard(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.joins("1", 0)
	for x.now < time.Hour {
		c, ok := x.next(10 * time.Second)
		x.heard[launcher.Worker{Tag: "1"}] = x.now
		if ok && c.Kind != CallList {
			t.Fatalf("a call %+v", c)
		}
		if ok {
			x.answer(Answer{})
		}
	}
	x.tells()
}

func TestAPendingElementThatIsTakenOutByHandIsAWish(t *testing.T) {
	x := newLedger(t)
	x.b.noAccounts = true
	x.submitted("1", "40", 3)
	x.list(rows("40 1 0-2 pending")...)
	x.said = nil
	x.list(rows("40 1 0-0 pending", "40 1 2-2 pending")...)
	x.tells()
	x.list(rows("40 1 0-0 pending", "40 1 2-2 pending")...)
	x.tells("1.1 ended: cancelled, wish")
}

func TestTheAccountsSayWhoCancelled(t *testing.T) {
	for by, want := range map[launcher.Canceller]string{
		launcher.CancelledByOwner:   "1.0 ended: cancelled, wish",
		launcher.CancelledByOther:   "1.0 ended: never started",
		launcher.CancelledBySystem:  "1.0 ended: never started",
		launcher.CancelledByUnknown: "1.0 ended: never started",
	} {
		x := newLedger(t)
		x.submitted("1", "40", 2)
		x.lists = rows("40 1 1-1 running", "40 1 0-0 cancelled")
		if c := x.expect(CallAccount); !slices.Equal(c.Arrays, []string{"40"}) {
			t.Errorf("it asks for %v", c.Arrays)
		}
		x.tells("1.1 running")
		r := row("40 1 0-0 cancelled")
		r.By = by
		x.answer(Answer{Listing: launcher.Listing{Elements: []launcher.Element{r}}})
		x.tells(want)
	}
}

func TestWithoutAccountsACancelledElementThatNeverConnectedWasNotLaunched(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.joins("1", 1)
	x.b.Connected(x.now, launcher.Worker{Tag: "1", Element: 1}, false)
	x.now += time.Second
	x.lists = rows("40 1 0-1 cancelled")
	x.lists[0].Node = "n1"
	x.expect(CallAccount)
	x.answer(Answer{Err: launcher.ErrNoAccounting})
	x.tells("no accounts of ", "1.0 ended: never started", "1.1 ended: cancelled")
}

func TestReasonsThatNeverEndAreBelievedTheSecondTime(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.list(rows("40 1 0-1 stuck")...)
	x.list(rows("40 1 0-1 pending")...)
	x.list(rows("40 1 0-1 stuck")...)
	x.tells("1.0 pending", "1.1 pending")
	x.list(rows("40 1 0-1 stuck")...)
	x.tells("never of 1")
	x.expect(CallCancelArray)
	x.answer(Answer{})
	x.list()
	x.list()
	x.tells("1.0 ended: never started, ours", "1.1 ended: never started, ours")
}

func TestElementsAreCancelledOnceAFreshAnswerShowsThem(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 4)
	x.list(rows("40 1 0-3 pending")...)
	x.said = nil
	for _, i := range []int{1, 2} {
		x.b.Cancel(x.now, launcher.Worker{Tag: "1", Element: i})
	}
	x.list(rows("40 1 0-0 running", "40 1 1-3 pending")...)
	if c := x.expect(CallCancel); c.Tag != "1" || c.Array != "40" || !slices.Equal(c.Elements, []int{1, 2}) {
		t.Errorf("cancelled is %+v", c)
	}
	x.answer(Answer{})
	// One is gone, the other has started meanwhile: it is tried again, but not for ever.
	x.lists = rows("40 1 0-0 running", "40 1 3-3 pending", "40 1 2-2 running")
	for range 2 {
		if c := x.expect(CallCancel); !slices.Equal(c.Elements, []int{2}) {
			t.Errorf("cancelled is %+v", c)
		}
		x.answer(Answer{})
	}
	x.said = x.said[:0]
	for range 30 {
		x.list(x.lists...)
	}
	x.tells("stays of 1")
}

func TestAnArrayOfWhichNothingIsWantedIsCancelledWholeAndAtOnce(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 3)
	x.now += 2 * time.Second
	for i := range 3 {
		x.b.Cancel(x.now, launcher.Worker{Tag: "1", Element: i})
	}
	began := x.now
	if c, ok := x.next(0); !ok || c.Kind != CallCancelArray || c.Array != "40" {
		t.Fatalf("%v after %v", c, x.now-began)
	}
	x.answer(Answer{})
	x.list(rows("40 1 0-2 cancelled")...)
	x.tells("1.0 ended: cancelled, ours", "1.1 ended: cancelled, ours", "1.2 ended: cancelled, ours")
}

func TestASubmissionThatWasNotMadeYetIsDropped(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(0, "1", 1, nil)
	x.b.Cancel(0, launcher.Worker{Tag: "1"})
	if c, ok := x.next(time.Hour); ok {
		t.Errorf("a call %+v", c)
	}
	x.tells("1.0 ended: never started, ours")
}

func TestPendingElementsKeepOffABadNode(t *testing.T) {
	for _, refused := range []bool{false, true} {
		x := newLedger(t)
		x.submitted("1", "40", 2)
		x.lists = rows("40 1 0-0 running", "40 1 1-1 pending")
		x.list(x.lists...)
		x.said = nil
		x.b.Exclude("1", []string{"n1"})
		if c := x.expect(CallExclude); c.Array != "40" || !slices.Equal(c.Nodes, []string{"n1"}) {
			t.Errorf("excluded is %+v", c)
		}
		if !refused {
			x.answer(Answer{})
			if c, ok := x.next(time.Hour); ok && c.Kind != CallList {
				t.Errorf("then %+v", c)
			}
			continue
		}
		x.answer(Answer{Err: errors.New("Access denied")})
		x.tells("not excluded of 1")
		if c := x.expect(CallCancel); !slices.Equal(c.Elements, []int{1}) {
			t.Errorf("cancelled is %+v", c)
		}
	}
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.lists = rows("40 1 0-0 pending", "50 9 0-9 running")
	for range 50 {
		c, _ := x.next(time.Hour)
		if c.Kind != CallList {
			t.Fatalf("a call %+v", c)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
	x.tells("1.0 pending")
}

func TestNothingIsSubmittedWhileThreeEndsAreUnexplained(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 4)
	x.list(rows("40 1 0-3 running")...)
	x.list(rows("40 1 0-1 node_fail", "40 1 2-3 running")...)
	if !x.b.MaySubmit(x.now) {
		t.Error("two are enough")
	}
	x.list(rows("40 1 0-2 node_fail", "40 1 3-3 running")...)
	if x.b.MaySubmit(x.now) {
		t.Error("three are not enough")
	}
	x.list(rows("40 1 0-3 running")...)
	if !x.b.MaySubmit(x.now) {
		t.Error("it stays so when they are back")
	}
}

func TestASystemThatDoesNotAnswerGetsNothingNewUnlessNothingElseIsThere(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.expect(CallList)
	x.answer(Answer{Err: errors.New("down")})
	if x.b.MaySubmit(x.now) {
		t.Error("it does not answer")
	}
	x.list(rows("40 1 0-0 failed")...)
	x.said = nil
	x.b.noAccounts = true
	x.b.Submit(x.now, "2", 1, nil)
	x.expect(CallSubmit)
	x.answer(Answer{Err: launcher.ErrUnsure})
	for x.b.Left() > 0 { // it is not there, and the accounts say so last
		x.list()
	}
	x.b.pace.failing = 1
	if !x.b.MaySubmit(x.now + time.Minute) {
		t.Error("with nothing to ask after, nothing is submitted for ever")
	}
}

func TestAnAdoptedSubmissionIsJudgedByWhatIsThere(t *testing.T) {
	x := newLedger(t)
	x.b.noAccounts = true
	x.b.Adopt("1", "40", 3, []int{0}, []int{1})
	x.b.Adopt("2", "", 1, nil, nil)
	x.b.AdoptVoid("3")
	x.list(rows("40 1 0-0 failed", "40 1 1-1 running", "42 2 0-0 pending", "43 3 0-0 pending")...)
	x.tells("1.1 running", "2 is 42", "2.0 pending", "43 is a twin of 3")
	// Nobody knows whether element 2 had started: that it is not there is no wish.
	x.lists = rows("40 1 1-1 running", "42 2 0-0 pending")
	x.expect(CallCancelArray)
	x.answer(Answer{})
	x.list(x.lists...)
	x.tells("1.2 ended: cancelled")
}

func TestTheIntervalsBetweenQuestions(t *testing.T) {
	interval := func(x *ledger) time.Duration {
		x.list(x.lists...)
		began := x.now
		x.list(x.lists...)
		return x.now - began
	}
	about := func(t *testing.T, got, want time.Duration) {
		t.Helper()
		if got < want-want/10 || got > want+want/10 {
			t.Errorf("it asks again after %v, which is not about %v", got, want)
		}
	}
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.lists = rows("40 1 0-0 pending")
	about(t, interval(x), 5*time.Second)
	x.now += time.Minute
	about(t, interval(x), 30*time.Second)
	x.now += time.Hour
	about(t, interval(x), time.Minute)
	x.lists = rows("40 1 0-0 running")
	x.list(x.lists...)
	x.joins("1", 0)
	about(t, interval(x), 5*time.Minute)
	x.now += time.Hour
	x.list(x.lists...)
	x.b.Connected(x.now, launcher.Worker{Tag: "1"}, false)
	about(t, interval(x), 5*time.Second)
	x.expect(CallList)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		x.answer(Answer{Err: errors.New("down")})
		began := x.now
		x.expect(CallList)
		about(t, x.now-began, want*time.Second)
	}
	x.tells("1.0 pending", "1.0 running", "deaf of ")
	x.now += 2 * time.Second
	x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	x.tells("answers of ")
	about(t, interval(x), 5*time.Second)
}

func TestASilentConnectionIsNoProofOfLife(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.joins("1", 0)
	x.list(rows("40 1 0-1 running")...)
	x.tells("1.0 running", "1.1 running")
	x.list(rows("40 1 0-0 node_fail", "40 1 1-1 running")...)
	x.tells() // it was heard seconds ago
	x.now += 2 * time.Minute
	x.list(rows("40 1 0-0 node_fail", "40 1 1-1 running")...)
	x.tells("1.0 unknown")
}

func TestAnAnswerThatNamesAnotherArrayThanAQuickerWorkerNamesATwin(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(0, "1", 1, nil)
	x.expect(CallSubmit)
	if !x.b.Admit(x.now, "1", "40") {
		t.Error("the first one is not admitted")
	}
	x.answer(Answer{Array: "41"})
	x.tells("1 is 40", "41 is a twin of 1")
}

func TestAnAnswerToAQuestionBeforeTheSubmissionProvesNothing(t *testing.T) {
	x := newLedger(t)
	x.b.noAccounts = true
	x.b.Adopt("1", "", 2, nil, nil)
	x.expect(CallList)
	x.now += time.Second
	x.b.Admit(x.now, "1", "40")
	x.joins("1", 0)
	x.answer(Answer{Listing: launcher.Listing{Elements: nil}})
	x.tells("1 is 40")
	x.list(rows("40 1 0-0 running")...)
	x.tells("1.0 running") // its node is news
	x.list(rows("40 1 0-0 running")...)
	x.tells("1.1 ended: cancelled")
}

func TestWhatWasCancelledHasTimeToGo(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.lists = rows("40 1 0-0 running")
	x.list(x.lists...)
	x.b.Cancel(x.now, launcher.Worker{Tag: "1"})
	x.expect(CallCancelArray)
	at := x.now
	x.answer(Answer{})
	x.expect(CallCancelArray)
	if x.now < at+time.Minute || x.now > at+2*time.Minute {
		t.Errorf("one that runs is cancelled again after %v", x.now-at)
	}
	x.answer(Answer{})
	x.lists = rows("40 1 0-0 completing")
	x.list(x.lists...)
	x.list()
	x.tells("1.0 running", "1.0 unknown")
}

func TestASystemThatCannotExcludeIsAskedOnce(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.lists = rows("40 1 0-1 pending")
	x.list(x.lists...)
	x.b.Exclude("1", []string{"n1"})
	x.expect(CallExclude)
	x.answer(Answer{Err: errors.New("Access denied")})
	x.expect(CallCancelArray)
	x.answer(Answer{Err: errors.New("Access denied")})
	x.b.Exclude("1", []string{"n1", "n2"})
	for range 3 {
		if c, _ := x.next(time.Hour); c.Kind == CallExclude {
			t.Fatal("it is asked again")
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
}

func TestASlowAnswerDoublesTheInterval(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.lists = rows("40 1 0-0 pending")
	x.now += time.Minute
	x.list(x.lists...)
	x.expect(CallList)
	began := x.now
	x.now += 2 * time.Second
	x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	x.expect(CallList)
	if d := x.now - began; d < 54*time.Second || d > 66*time.Second {
		t.Errorf("after a slow answer it asks again after %v", d)
	}
}

func TestWhatWeWantedGoneIsNobodysWish(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.lists = rows("40 1 0-0 pending", "40 1 1-1 running")
	x.list(x.lists...)
	x.said = nil
	x.lists = rows("40 1 0-0 cancelled", "40 1 1-1 running")
	x.expect(CallAccount)
	x.b.Cancel(x.now, launcher.Worker{Tag: "1"})
	r := row("40 1 0-0 cancelled")
	r.By = launcher.CancelledByOwner
	x.answer(Answer{Listing: launcher.Listing{Elements: []launcher.Element{r}}})
	x.tells("1.0 ended: cancelled, ours")
}

// TestAThrottleIsInForceOnceAnAnswerShowsIt: not when the call was made, nor when its answer came.
func TestAThrottleIsInForceOnceAnAnswerShowsIt(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(0, "1", 8, nil)
	x.b.Throttle("1", 4)
	if c := x.expect(CallSubmit); c.Count != 4 {
		t.Errorf("it is submitted with a throttle of %d", c.Count)
	}
	x.answer(Answer{Array: "40"})
	at := func(n int) []launcher.Element {
		list := rows("40 1 0-1 running", "40 1 2-7 pending")
		list[1].Throttle = n
		return list
	}
	x.list(at(4)...)
	x.said = nil
	x.b.Throttle("1", 2)
	if c := x.expect(CallThrottle); c.Array != "40" || c.Count != 2 {
		t.Errorf("the call is %+v", c)
	}
	x.answer(Answer{Err: errors.New("Socket timed out")}) // which means nothing
	x.tells()
	x.list(at(4)...)
	x.tells()
	x.list(at(2)...)
	x.tells("throttled of 1")
	x.lists = at(2)
	for range 20 {
		if c, ok := x.next(time.Hour); ok && c.Kind != CallList {
			t.Fatalf("then %+v", c)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
	x.b.Throttle("1", 3)
	if c := x.expect(CallThrottle); c.Count != 3 {
		t.Errorf("then %+v", c)
	}
	x.tells("throttled of 1") // as soon as it is called for
	x.answer(Answer{})
	x.list(at(2)...) // it may still be on its way
	x.tells()
	x.b.Throttle("1", 2)
	if c := x.expect(CallThrottle); c.Count != 2 {
		t.Errorf("then %+v", c)
	}
	x.answer(Answer{})
	x.now += raiseTakes
	x.list(at(2)...)
	x.tells("throttled of 1")
	x.list(at(0)...) // somebody took it away
	x.tells("throttled of 1")
	x.lists = at(0)
	if c := x.expect(CallThrottle); c.Count != 2 {
		t.Errorf("then %+v", c)
	}
	x.answer(Answer{})
}

func TestAThrottleThatCannotBeChangedIsTriedThreeTimes(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(0, "1", 8, nil)
	x.b.Throttle("1", 4)
	x.expect(CallSubmit)
	x.answer(Answer{Array: "40"})
	x.lists = rows("40 1 0-7 pending")
	x.lists[0].Throttle = 4
	x.list(x.lists...)
	x.b.Throttle("1", 2)
	for range 3 {
		x.expect(CallThrottle)
		x.answer(Answer{Err: errors.New("Access/permission denied")})
	}
	x.said = nil
	for range 100 {
		if c, ok := x.next(time.Hour); ok && c.Kind != CallList {
			t.Fatalf("then %+v", c)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
	x.tells("not throttled of 1")
}

// TestWhereNothingIsPendingAThrottleHoldsNothingBack: no answer can show it, and nothing depends on it.
func TestWhereNothingIsPendingAThrottleHoldsNothingBack(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(0, "1", 3, nil)
	x.b.Throttle("1", 3)
	x.expect(CallSubmit)
	x.answer(Answer{Array: "40"})
	x.list(rows("40 1 0-2 running")...)
	x.b.Throttle("1", 1)
	x.said = nil
	x.list(rows("40 1 0-2 running")...)
	x.tells("throttled of 1")
}
