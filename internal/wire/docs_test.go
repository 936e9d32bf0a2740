package wire

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// messages has, for each kind, a value of its type; nil has no fields.
var messages = map[Kind]any{
	KindHello: Hello{}, KindAcquire: Acquire{}, KindRelease: Release{}, KindHeartbeat: nil, KindLeaving: Leaving{}, KindEnding: Ending{}, KindSuccesses: Successes{}, KindWelcome: Welcome{},
	KindBlocks: Blocks{}, KindAcknowledged: Acknowledged{}, KindRefused: Refused{}, KindRecall: Recall{}, KindReassign: Reassign{},
	KindDrain: Drain{}, KindStop: Stop{}, KindKillBlock: KillBlock{}, KindTimeLeft: TimeLeft{}, KindAway: Away{},
}

// fields says what a message consists of, in the words of docs/protocol.md.
func fields(m any) string {
	if m == nil {
		return "none"
	}
	var words []string
	for f := range reflect.TypeOf(m).Fields() {
		if f.Type.Kind() == reflect.Bool { // whether the rest is there at all, which the end of the message tells
			continue
		}
		words = append(words, fmt.Sprintf("`%s` %s", f.Name, encoding(f.Type)))
	}
	return strings.Join(words, ", ")
}

// encoding is how a field of this type is encoded.
func encoding(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Uint64:
		return "uint"
	case reflect.Uint32:
		return "uint32"
	case reflect.Float32:
		return "float32"
	case reflect.Struct:
		return "(" + fields(reflect.Zero(t).Interface()) + ")"
	case reflect.Int64:
		return "int"
	case reflect.Uint8:
		return "byte"
	case reflect.String:
		return "string"
	case reflect.Slice:
		switch e := t.Elem(); e.Kind() {
		case reflect.Uint8:
			return "bytes"
		case reflect.Struct:
			return "list of (" + fields(reflect.Zero(e).Interface()) + ")"
		default:
			return "list of " + encoding(e)
		}
	default:
		panic("no word for " + t.String())
	}
}

// table gives the rows below a heading of docs/protocol.md, up to the first line that is none.
func table(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(page), "\n"+heading+"\n")
	_, below, ruled := strings.Cut(below, "|---|")
	if !found || !ruled {
		t.Fatalf("docs/protocol.md has no table %q", heading)
	}
	var rows []string
	for _, line := range strings.Split(below, "\n")[1:] {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		rows = append(rows, line)
	}
	return rows
}

func TestTheDocumentationHasEveryMessageWithItsNumberFieldsAndBytes(t *testing.T) {
	var want []string
	for _, f := range forms() {
		from := "worker"
		switch {
		case f.kind == KindHeartbeat:
			from = "both"
		case f.kind >= KindWelcome:
			from = "coordinator"
		}
		want = append(want, fmt.Sprintf("| %d | %v | %s | %s | `%x` |", f.kind, f.kind, from, fields(messages[f.kind]), f.frame))
	}
	if diff := cmp.Diff(want, table(t, "| kind | message | from | fields | example, the whole frame |")); diff != "" {
		t.Errorf("-code +docs/protocol.md:\n%s", diff)
	}
}

func TestTheDocumentationNumbersOutcomesAndReasonsAsTheCode(t *testing.T) {
	outcomes := table(t, "| number | outcome | meaning |")
	for i := range Recalled + 1 {
		if want := fmt.Sprintf("| %d | `%v` | ", i, i); int(i) >= len(outcomes) || !strings.HasPrefix(outcomes[i], want) {
			t.Errorf("docs/protocol.md lacks the row %q: %q", want, outcomes)
		}
	}
	if n := int(Recalled) + 1; len(outcomes) != n {
		t.Errorf("docs/protocol.md has %d outcomes, want %d", len(outcomes), n)
	}
	if reasons := table(t, "| number | meaning |"); len(reasons) != int(LeaveBroken)+1 {
		t.Errorf("docs/protocol.md has the reasons %q, want %d", reasons, LeaveBroken+1)
	}
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range []string{fmt.Sprintf("The length is 2 to %d.", MaxFrame), fmt.Sprintf("one *Blocks*, of %d at most", MaxGrants), fmt.Sprintf("u8 version: %d |", Version), fmt.Sprintf("texts than %d KiB", MaxText>>10),
		fmt.Sprintf("more than %d MiB that the worker does not read, or a write that takes %d s", MaxPending>>20, int(WriteTimeout.Seconds()))} {
		if !strings.Contains(string(page), sentence) {
			t.Errorf("docs/protocol.md does not say %q", sentence)
		}
	}
}
