package api

import (
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func protocol(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestTheDocumentationHasEveryFieldOfAJoin(t *testing.T) {
	for heading, message := range map[string]any{
		"`POST /v1/join` with a JSON object of at most 64 KiB:":        JoinRequest{},
		"The answer with status 200:":                                  JoinResponse{},
		"The task (fields may be added; let be what you do not know):": TaskSpec{},
	} {
		_, below, found := strings.Cut(protocol(t), "\n"+heading)
		if !found {
			t.Errorf("docs/protocol.md does not say %q", heading)
		}
		var documented, fields []string
		for line := range strings.Lines(strings.TrimLeft(below, "\n")) {
			if !strings.HasPrefix(line, "|") {
				break
			}
			if cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |"); strings.HasPrefix(cell, "`") {
				documented = append(documented, strings.Split(strings.Trim(cell, "`"), "`, `")...)
			}
		}
		for f := range reflect.TypeOf(message).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, name)
		}
		if diff := cmp.Diff(fields, documented); diff != "" {
			t.Errorf("%T: -code +docs/protocol.md\n%s", message, diff)
		}
	}
}

func TestTheDocumentationHasEveryPathOfTheControlInterface(t *testing.T) {
	page, err := os.ReadFile("../../docs/control.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{
		PathState: "GET", PathWorkers: "GET", PathBlocks: "GET", PathEvents: "GET", PathDrain: "POST", PathCancel: "POST",
		PathStopWorker: "POST", PathExclude: "POST", PathInclude: "POST", PathSet: "POST",
	} {
		if !strings.Contains(string(page), "\n| `"+method+" "+path+"` |") {
			t.Errorf("docs/control.md lacks %s %s", method, path)
		}
	}
	for _, order := range []any{Order{}, SetOrder{}} {
		for f := range reflect.TypeOf(order).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/control.md lacks the field %s of an order", name)
			}
		}
	}
}

func TestTheProofsOfTheDocumentationAreRight(t *testing.T) {
	k := Key{Run: "r7", Secret: strings.Repeat("s", 64)}
	r := request(t, http.MethodPost, PathJoin)
	r.Header.Set(HeaderNonce, "NONCE")
	shown := regexp.MustCompile(`(?m)^    ([0-9a-f]{64})$`).FindAllStringSubmatch(protocol(t), -1)
	if len(shown) != 2 {
		t.Fatalf("docs/protocol.md shows %d proofs, want 2", len(shown))
	}
	r.Header.Set(HeaderProof, shown[0][1])
	if !k.CheckRequest(r, []byte("{}")) {
		t.Errorf("the worker's proof is not %s", shown[0][1])
	}
	if got := k.ProveAnswer(r, 200, []byte("{}")); got != shown[1][1] {
		t.Errorf("the coordinator's proof is %s, and docs/protocol.md has %s", got, shown[1][1])
	}
	for _, name := range []string{HeaderRun, HeaderNonce, HeaderProof, PathJoin, PathStream, Upgrade} {
		if !strings.Contains(protocol(t), name) {
			t.Errorf("docs/protocol.md lacks %s", name)
		}
	}
}
