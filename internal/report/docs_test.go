package report

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheDocumentationHasEveryColumnOfTheTables(t *testing.T) {
	doc, err := os.ReadFile("../../docs/stats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "## The tables")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?s)\*\*([A-Z][a-z ]+)\*\*:.*?\n\|[-|]+\|\n(.*?)\n\n`).FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(m[2]) {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
			documented[m[1]] = append(documented[m[1]], name)
		}
	}
	s := slurmRun()
	s.Tasks[0].Ready, s.Tasks[0].Unselected = 1, 1 // so that the columns of a run that goes on, and of a part, are there
	printed := map[string][]string{}
	for _, table := range tables(s) {
		if table.title == "Run" {
			for _, row := range table.rows {
				printed[table.title] = append(printed[table.title], row[0])
			}
			continue
		}
		for _, head := range table.head {
			printed[table.title] = append(printed[table.title], strings.TrimPrefix(head, "<"))
		}
	}
	if diff := cmp.Diff(printed, documented); diff != "" {
		t.Errorf("-printed +docs/stats.md:\n%s", diff)
	}
}

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

func TestTheReadmeShowsTheBarsAsTheyAre(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	waits := func(id string, blocks int64, what string) TaskProgress {
		return TaskProgress{ID: id, State: "running", Blocks: blocks, Waiting: blocks, Waits: what}
	}
	var s terminal
	s.show(string(play(t, Bars, []step{{tasks: []TaskProgress{
		{ID: "smooth", State: "running", Blocks: 128, Success: 94, Ready: 32, Leased: 2, Running: 2, Slots: 2},
		waits("label", 128, "budget full: cpu 2 of 2"), waits("stitch", 1, "label is not done (0 of 128)"), waits("relabel", 128, "stitch is not done (0 of 1)"),
	}}})))
	if picture := strings.Join(s.lines, "\n"); !strings.Contains(string(readme), "```\n"+picture+"\n```\n") {
		t.Errorf("README.md does not show\n%s", picture)
	}
}
