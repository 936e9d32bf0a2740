package fleet

import (
	"errors"
	"slices"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

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

func TestAnElementIsWithdrawnIfTwoAnswersHaveTheRestOfItsArray(t *testing.T) {
	x := newLedger(t)
	x.b.noAccounts = true
	x.submitted("1", "40", 2)
	x.list() // which may have been on its way before the array was there
	x.list(rows("40 1 1-1 running")...)
	x.tells("1.1 running")
	x.list(rows("40 1 1-1 running")...)
	x.tells("1.0 ended: cancelled")
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

func TestTheAccountsOfAnElementThatWasStartedAgainEndWithItsLastRow(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.lists = rows("40 1 1-1 running", "40 1 0-0 cancelled")
	x.expect(CallAccount)
	x.tells("1.1 running")
	first, last := row("40 1 0-0 timeout"), row("40 1 0-0 cancelled")
	first.End.Cause, last.By = launcher.Preempted, launcher.CancelledByOwner
	x.answer(Answer{Listing: launcher.Listing{Elements: []launcher.Element{first, last}}})
	x.tells("1.0 ended: cancelled, wish")
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
