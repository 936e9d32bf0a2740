package fleet

import (
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
