package fleet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

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
