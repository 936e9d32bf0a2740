package fleet

import (
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
