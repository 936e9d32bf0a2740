package report

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

func TestTheDocumentedEventsAreThoseThatAreWritten(t *testing.T) {
	doc, err := os.ReadFile("../../docs/stats.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]any{"progress": &progressEvent{}, "notice": &noticeEvent{}, "end": &endEvent{}}
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)\n```").FindAllSubmatch(doc, -1) {
		var kind struct{ Event string }
		if err := json.Unmarshal(m[1], &kind); err != nil {
			t.Fatalf("%v: %s", err, m[1])
		}
		event := kinds[kind.Event]
		if event == nil {
			t.Fatalf("an event that nobody writes, or a second example of it: %s", m[1])
		}
		delete(kinds, kind.Event)
		decoder := json.NewDecoder(bytes.NewReader(m[1]))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(event); err != nil {
			t.Errorf("%v: %s", err, m[1])
		}
		again, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, m[1]) {
			t.Errorf("documented %s\nwritten    %s", m[1], again)
		}
	}
	for kind := range kinds {
		t.Errorf("no example of the event %q", kind)
	}
}
