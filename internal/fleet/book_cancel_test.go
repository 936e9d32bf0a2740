package fleet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/daisy/launcher"
)

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

func TestAnElementThatIsOnlyToBeCancelledIsNotGoneForThat(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 3)
	x.list(rows("40 1 0-0 running", "40 1 1-2 pending")...)
	x.said = nil
	x.list() // incomplete, and nobody can know
	x.b.Cancel(x.now, launcher.Worker{Tag: "1", Element: 1})
	x.list(rows("40 1 0-0 running", "40 1 2-2 pending")...)
	x.tells("1.0 unknown", "1.0 running")
	if c := x.expect(CallList); c.Kind != CallList {
		t.Error(c)
	}
	x.answer(Answer{Listing: launcher.Listing{Elements: rows("40 1 0-0 running", "40 1 1-2 pending")}})
	if c := x.expect(CallCancel); !slices.Equal(c.Elements, []int{1}) {
		t.Errorf("cancelled is %+v", c)
	}
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

// Where each worker is a submission of its own, the end of a run would take a second for each of them.
func TestManyArraysOfWhichNothingIsWantedAreCancelledInAFewCalls(t *testing.T) {
	x := newLedger(t)
	x.b.OneByOne()
	const n = 110
	for i := range n {
		tag := fmt.Sprint(i)
		x.b.Submit(x.now, tag, 1, nil)
		x.expect(CallSubmit)
		x.answer(Answer{Array: "4" + tag})
		x.lists = append(x.lists, rows(fmt.Sprintf("4%d %d 0-0 pending", i, i))...)
	}
	x.list(x.lists...)
	x.said = nil
	for i := range n {
		x.b.Cancel(x.now, launcher.Worker{Tag: fmt.Sprint(i)})
	}
	x.b.Close()
	began, asked := x.now, 0
	for left := n; left > 0; {
		c, ok := x.next(time.Minute)
		switch {
		case !ok:
			t.Fatalf("%d are never cancelled", left)
		case c.Kind == CallList:
			asked++
			x.answer(Answer{Err: errors.New("no answer")})
			continue
		case c.Kind != CallCancelArrays || len(c.Workers) != min(left, 100):
			t.Fatalf("with %d left a call %+v", left, c)
		}
		x.answer(Answer{})
		left -= len(c.Workers)
	}
	if took := x.now - began; took > 5*time.Second || asked > 1 {
		t.Errorf("it took %v, and %d questions", took, asked)
	}
}

// The look of a Queue before a call of many is a question, too, of which there may have been too many. And ids that no answer has shown for long
// may be others' by now.
func TestManyArraysAreCancelledOneByOneWhereThatCannotBeLookedAt(t *testing.T) {
	for _, shown := range []bool{false, true} {
		x := newLedger(t)
		for i := range 5 {
			x.submitted(fmt.Sprint(i), fmt.Sprintf("4%d", i), 1)
		}
		x.now += 2 * time.Second
		if shown {
			x.list(rows("40 0 0-0 pending", "41 1 0-0 pending", "42 2 0-0 pending", "43 3 0-0 pending", "44 4 0-0 pending")...)
			for x.b.pace.polls.at() <= x.now {
				x.b.pace.polls.take(x.now)
			}
		}
		for i := range 5 {
			x.b.Cancel(x.now, launcher.Worker{Tag: fmt.Sprint(i)})
		}
		if c, ok := x.next(2 * time.Second); !ok || c.Kind != CallCancelArray || c.Array != "40" {
			t.Errorf("shown %v: a call %+v", shown, c)
		}
	}
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
		for range maxTries - 1 { // it may have been too busy to answer
			x.tells()
			x.expect(CallExclude)
			x.answer(Answer{Err: errors.New("Access denied")})
		}
		x.tells("not excluded of 1")
		if c := x.expect(CallCancel); !slices.Equal(c.Elements, []int{1}) {
			t.Errorf("cancelled is %+v", c)
		}
	}
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

// TestAnExclusionThatWasNotAnsweredIsMadeAgain: what has waited in the queue for long would lose its place for a controller that was busy.
func TestAnExclusionThatWasNotAnsweredIsMadeAgain(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.lists = rows("40 1 0-1 pending")
	x.list(x.lists...)
	x.said = nil
	for _, nodes := range [][]string{{"n1"}, {"n1", "n2"}} {
		x.b.Exclude("1", nodes)
		for range maxTries - 1 {
			x.expect(CallExclude)
			asked := x.b.pace.asked
			x.answer(Answer{Err: errors.New("Unable to contact slurm controller")})
			x.expect(CallList)
			x.answer(Answer{Err: errors.New("Unable to contact slurm controller")})
			if c := x.expect(CallList); x.b.pace.asked <= asked {
				t.Errorf("a call %+v", c)
			}
			x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
		}
		if c := x.expect(CallExclude); !slices.Equal(c.Nodes, nodes) {
			t.Errorf("excluded is %v", c.Nodes)
		}
		x.answer(Answer{})
	}
	for range 3 {
		if c, ok := x.next(time.Hour); ok && c.Kind != CallList {
			t.Errorf("then %+v", c)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
	x.tells()
}

func TestASystemThatCannotExcludeIsNotAskedForEver(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 2)
	x.lists = rows("40 1 0-1 pending")
	x.list(x.lists...)
	x.b.Exclude("1", []string{"n1"})
	for range maxTries {
		x.expect(CallExclude)
		x.answer(Answer{Err: errors.New("Access denied")})
	}
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

// TestWhatIsSubmittedWithItsExclusionIsNotKeptOffOnceMore: nodes may have been excluded since it was asked for.
func TestWhatIsSubmittedWithItsExclusionIsNotKeptOffOnceMore(t *testing.T) {
	x := newLedger(t)
	x.b.Submit(x.now, "1", 2, nil)
	x.b.Exclude("1", []string{"n1"})
	if c := x.expect(CallSubmit); !slices.Equal(c.Nodes, []string{"n1"}) {
		t.Errorf("it is submitted as %+v", c)
	}
	x.answer(Answer{Array: "40"})
	x.lists = rows("40 1 0-1 pending")
	for range 5 {
		if c, ok := x.next(time.Hour); !ok || c.Kind != CallList {
			t.Fatalf("then %+v", c)
		}
		x.answer(Answer{Listing: launcher.Listing{Elements: x.lists}})
	}
}

// TestWhatStaysThoughItWasCancelledIsToldOfOnce: and not once for each of its elements.
func TestWhatStaysThoughItWasCancelledIsToldOfOnce(t *testing.T) {
	x := newLedger(t)
	x.submitted("1", "40", 4)
	x.lists = rows("40 1 0-3 running")
	x.list(x.lists...)
	x.said = nil
	for i := range 3 {
		x.b.Cancel(x.now, launcher.Worker{Tag: "1", Element: i})
	}
	for range maxTries {
		if c := x.expect(CallCancel); len(c.Elements) != 3 {
			t.Errorf("cancelled is %+v", c)
		}
		x.answer(Answer{})
	}
	for range 100 {
		x.list(x.lists...)
	}
	x.tells("stays of 1")
}
