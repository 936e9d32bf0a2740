package worker

import (
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
