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

func TestAnEndOfAWorkerThatIsHeardIsNotBelieved(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.list(row("40 1 0-0 running"))
	x.joins("1", 0)
	x.tells("1.0 running")
	for range 3 {
		x.list(row("40 1 0-0 failed"))
	}
	x.tells()
	x.b.Connected(x.now, launcher.Worker{Tag: "1"}, false)
	x.list(row("40 1 0-0 failed"))
	x.tells("1.0 ended: exited")
}

func TestAnEndOfAWorkerThatHasLongBeenSilentIsBelieved(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.list(row("40 1 0-0 running"))
	x.joins("1", 0)
	x.tells("1.0 running")
	x.now += silentFor + time.Second
	x.list(row("40 1 0-0 failed"))
	x.tells("1.0 ended: exited")
}

func TestWhatCouldNotBeLaunchedAndIsHeldIsCancelledAndCounts(t *testing.T) {
	held := row("40 1 0-1 pending")
	held.Reason.Failed = true
	x := newLedger(t)
	x.submitted("1", "40", 3)
	x.list(held, row("40 1 2-2 running"))
	x.tells("1.2 running")
	x.lists = []launcher.Element{held, row("40 1 2-2 running")}
	if c := x.expect(CallCancel); len(c.Elements) != 2 {
		t.Errorf("it cancels %v, want both that are held", c.Elements)
	}
	x.answer(Answer{})
	x.list(row("40 1 2-2 running"))
	x.list(row("40 1 2-2 running"))
	x.tells("1.0 ended: never started", "1.1 ended: never started")
}

func TestAWorkerThatHasLeftIsOverWhenTwoAnswersDoNotHaveIt(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.list(row("40 1 0-1 running"))
	x.joins("1", 0)
	x.joins("1", 1)
	x.tells("1.0 running", "1.1 running")
	for i := range 2 {
		x.b.Connected(x.now, launcher.Worker{Tag: "1", Element: i}, false)
	}
	x.b.Leaves(launcher.Worker{Tag: "1"})
	x.list()
	x.tells("1.0 unknown", "1.1 unknown")
	x.list()
	x.tells("1.0 ended: exited") // the other has said nothing
}

// TestAQueueThatSaysThatPendingElementsAreCancelledIsNotBelievedAtOnce: they were never on a node, so nothing else shows that it is wrong.
func TestAQueueThatSaysThatPendingElementsAreCancelledIsNotBelievedAtOnce(t *testing.T) {
	pending := row("40 1 0-3 pending")
	for name, accounts := range map[string]Answer{
		"without accounts":               {Err: launcher.ErrNoAccounting},
		"accounts that do not work":      {Err: errors.New("Connection refused")},
		"accounts that say the opposite": {Listing: launcher.Listing{Elements: []launcher.Element{pending}}},
		"accounts that say nothing":      {},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLedger(t)
			x.submitted("1", "40", 4)
			x.list(pending)
			x.said = nil
			asked, lists := 0, 0
			for lists < 3 { // it is wrong three times
				c, ok := x.next(time.Hour)
				switch {
				case ok && c.Kind == CallList:
					lists++
					x.answer(Answer{Listing: launcher.Listing{Elements: rows("40 1 0-3 cancelled")}})
				case ok && c.Kind == CallAccount:
					asked++
					x.answer(accounts)
				default:
					t.Fatalf("a call %+v", c)
				}
			}
			if x.now > time.Minute {
				t.Errorf("it looks again after %v only", x.now)
			}
			if x.b.MaySubmit(x.now) {
				t.Error("others are asked for in their place")
			}
			for range 5 {
				c, _ := x.next(time.Hour)
				a := accounts
				if c.Kind == CallList {
					a = Answer{Listing: launcher.Listing{Elements: []launcher.Element{pending}}}
				}
				x.answer(a)
			}
			x.said = slices.DeleteFunc(x.said, func(s string) bool { return s == "no accounts of " || strings.HasSuffix(s, " pending") })
			x.tells()
			if x.b.Left() != 4 || !x.b.MaySubmit(x.now+time.Hour) {
				t.Errorf("%d are left", x.b.Left())
			}
		})
	}
}

func TestAQueueThatKeepsSayingThatPendingElementsAreCancelledIsBelieved(t *testing.T) {
	x := newLedger(t)
	x.b.noAccounts = true
	x.submitted("1", "40", 1)
	x.list(row("40 1 0-0 pending"))
	x.tells("1.0 pending")
	for range cancelledAnswers - 1 {
		x.list(row("40 1 0-0 cancelled"))
	}
	x.tells()
	x.list(row("40 1 0-0 cancelled"))
	x.tells("1.0 ended: never started")
	if x.now > time.Minute {
		t.Errorf("believed after %v", x.now)
	}
}

// TestAWorkerThatHasLeftIsLookedForAtOnceIfOthersWaitForItsShare, but not where many questions were asked lately.
func TestAWorkerThatHasLeftIsLookedForAtOnceIfOthersWaitForItsShare(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 30)
	x.list(row("40 1 0-29 running"))
	quick := 0
	for i := range 30 {
		w := launcher.Worker{Tag: "1", Element: i}
		x.joins("1", i)
		x.now += time.Second
		x.b.Connected(x.now, w, false)
		x.b.Leaves(w)
		x.b.Hurry(x.now)
		c, ok := x.next(changeGap)
		if !ok {
			continue
		}
		if c.Kind != CallList {
			t.Fatalf("a call %+v", c)
		}
		quick++
		list := rows("40 1 0-0 failed")
		list[0].Last = i
		if i < 29 {
			list = append(list, row(fmt.Sprintf("40 1 %d-29 running", i+1)))
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: list}})
	}
	if quick < 12 || quick > 20 { // a few more, as time goes on and some would have been asked anyway
		t.Errorf("%d of 30 workers were looked for at once", quick)
	}
}

func TestWithoutArraysAHundredWorkersAreAskedForWithinMinutes(t *testing.T) {
	for single, most := range map[bool]time.Duration{true: 3 * time.Minute, false: 3 * time.Hour} {
		x := newLedger(t)
		if single {
			x.b.OneByOne()
		}
		var at []time.Duration
		submit := func() {
			tag, array := fmt.Sprint(len(at)+1), fmt.Sprint(40+len(at))
			x.b.Submit(x.now, tag, 1, nil)
			x.expect(CallSubmit)
			x.answer(Answer{Array: array})
			x.lists = append(x.lists, row(array+" "+tag+" 0-0 running"))
			at = append(at, x.now)
		}
		for range 100 {
			submit()
		}
		if x.now > most || !single && x.now < time.Hour {
			t.Errorf("one by one %v: 100 took %v", single, x.now)
		}
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < changeGap {
				t.Errorf("%v between two submissions", at[i]-at[i-1])
			}
		}
		if !single {
			continue
		}
		for x.now < 2*time.Hour {
			submit()
		}
		if n := len(at); n > 3*oneByOne+2 {
			t.Errorf("%d submissions in two hours", n)
		}
	}
}

func TestWhatTakesItsTimeToEndIsNotAskedForEachSecond(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 1)
	x.list(row("40 1 0-0 running"))
	x.joins("1", 0)
	x.now += 10 * time.Minute
	x.b.Connected(x.now, launcher.Worker{Tag: "1"}, false)
	x.b.Leaves(launcher.Worker{Tag: "1"})
	x.b.Hurry(x.now)
	began, n := x.now, 0
	for x.now < began+20*time.Second {
		if c, ok := x.next(time.Second); ok && c.Kind == CallList {
			n++
			x.answer(Answer{Listing: launcher.Listing{Elements: rows("40 1 0-0 completing")}})
		}
	}
	if n < hurries || n > hurries+5 {
		t.Errorf("%d questions in 20 s", n)
	}
}
