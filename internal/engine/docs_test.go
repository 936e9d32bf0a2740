package engine

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

func TestTheDocumentationListsEachKindOfRecord(t *testing.T) {
	text, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = true
	}
	for kind := range 256 {
		r := Record{Kind: RecordKind(kind)}
		if known := r.fields(&coder{}); known != rows[strconv.Itoa(kind)] {
			t.Errorf("kind %d: the program knows it: %v, docs/journal.md has it: %v", kind, known, rows[strconv.Itoa(kind)])
		}
	}
}
