package fleet

import (
	"errors"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

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

// TestAThrottleIsChangedOnlyOfWhatAnAnswerHasShown: the call names the array, which may have become that of others.
func TestAThrottleIsChangedOnlyOfWhatAnAnswerHasShown(t *testing.T) {
	x := newLedger(t)
	x.b.Adopt("1", "40", 8, nil, nil)
	x.b.Throttle("1", 4)
	x.b.Throttle("1", 2)
	x.expect(CallList)
	x.answer(Answer{}) // it knows nothing of it
	for range 3 {
		if c := x.expect(CallList); c.Kind != CallList {
			t.Fatalf("then %+v", c)
		}
		x.answer(Answer{})
	}
	row := rows("40 1 0-7 pending")
	row[0].Throttle = 4
	x.list(row...)
	if c := x.expect(CallThrottle); c.Array != "40" || c.Count != 2 {
		t.Errorf("once it is shown, the call is %+v", c)
	}
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
