package fleet

import (
	"errors"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

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
