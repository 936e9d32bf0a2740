package fleet

import (
	"testing"
	"time"
)

func TestAnElementIsFollowedFromTheQueueToItsEnd(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.list(rows("40 1 0-1 pending")...)
	x.tells("1.0 pending", "1.1 pending")
	if w := x.b.Waits(x.now, []string{"1"}); len(w) != 1 || w[0].Count != 2 || w[0].Word != "Priority" {
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
