package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutTests are the cases of which the page says why there is no test.
var withoutTests = []string{"S15", "Q16", "R08", "D20"}

func TestEveryFieldCaseNamesTestsThatExist(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/fieldcases.md")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d\d) \| (.+) \| (.+) \|$`).FindAllStringSubmatch(string(doc), -1) {
		if cases[m[1]] {
			t.Errorf("%s stands there twice", m[1])
		}
		cases[m[1]] = true
		if !strings.Contains(m[3], "`Test") && !slices.Contains(withoutTests, m[1]) {
			t.Errorf("%s has no test: %s", m[1], m[3])
		}
	}
	if len(cases) < 100 {
		t.Errorf("%d cases are read", len(cases))
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(doc), -1) {
		if !there[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}
