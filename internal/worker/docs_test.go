package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDocumentationNamesEveryVariableAndPlaceholder(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range blockVariables {
		for _, name := range []string{"`" + v.variable + "`", "`{" + v.placeholder + "}`"} {
			if !strings.Contains(string(page), name) {
				t.Errorf("docs/programs.md lacks %s", name)
			}
		}
	}
	for name := range ours {
		if name != "DAISY_TAG" && name != "DAISY_ELEMENT" && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/programs.md lacks %s", name)
		}
	}
}

func TestTheDocumentationHasEveryExitStatus(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Exit statuses\n")
	if !found {
		t.Fatal("docs/protocol.md has no section of exit statuses")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	meanings := map[int]string{
		0: "told to leave, or the run is over", StatusCannotStart: "user code could not be started", StatusUsage: "wrong usage",
		StatusNoAnswer: "no address of the coordinator answered, or none with a right proof", StatusRefused: "refused by the coordinator",
		StatusGone: "the coordinator is gone", StatusNoGPU: "fewer GPUs than the task needs",
	}
	for status, meaning := range meanings {
		if row := fmt.Sprintf("| %d | %s |\n", status, meaning); !strings.Contains(section, row) {
			t.Errorf("docs/protocol.md lacks the row %q", row)
		}
	}
	if n := strings.Count(section, "\n| ") - 1; n != len(meanings) {
		t.Errorf("docs/protocol.md has %d exit statuses, want %d", n, len(meanings))
	}
}
